//! Walks all files of a mount and asks the daemon for the held and shared data of each.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use oncefs_engine::{BLOCK_BYTES, Explained, What};

use super::groups::{Groups, Sum};
use super::linked::Linked;
use super::sharing::{LongestRuns, Most, SharingFile};
use crate::control::answers::About;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::files::walk::{Step, walk};
use crate::names::shown;
use crate::progress::{self, Progress};

/// Most bytes after the last dot of a name that count as its type.
const EXTENSION_BYTES_MAX: usize = 16;

/// Files that the daemon is asked about at a time.
const FILES_ASKED: usize = 256;

/// Everything collected about the files.
#[derive(Debug, Default)]
pub struct Collected {
    /// All files.
    pub all: Sum,
    /// By top-level directory. `None`: files in the root.
    pub by_directory: Groups,
    /// By the part of a name after its last dot, in lower case. `None`: the name has no dot.
    pub by_type: Groups,
    /// The files that share most.
    pub sharing: Most,
    /// Files and directories that could not be read.
    pub refused: u64,
    /// Files with several names.
    pub linked: Linked,
    /// Files that the daemon is still to be asked about: their paths below the root, and their inodes.
    waiting: Vec<(PathBuf, u64)>,
}

/// The daemon's figures of one file.
#[derive(Debug, Default)]
struct File {
    map: u64,
    held_blocks: u64,
    shared_blocks: u64,
    longest: LongestRuns,
}

impl Collected {
    /// Collects all files below the root of a mount. `held_bytes`: about how much they hold.
    pub fn of(daemon: &Daemon, top: InMount, held_bytes: u64) -> Outcome<Self> {
        let (mut collected, mut progress, mut failed) = (Self::default(), Progress::new(), None);
        let root = top.path.clone();
        walk(&root, top.held, &mut |place, step| match step {
            // A walk cannot end early, so the remaining files are skipped.
            _ if failed.is_some() => {}
            Step::Found(_, about) if about.is_file() => {
                progress.show("looking at all files", progress::Step::bytes(collected.all.held, held_bytes));
                let path = place.path();
                let below = path.strip_prefix(&root).unwrap_or(&path);
                failed = collected.take(daemon, below, about).err();
            }
            Step::Found(..) => {}
            Step::Refused(_) => collected.refused += 1,
        });
        failed.map_or(Ok(()), Err)?;
        collected.ask_waiting(daemon)?;
        Ok(collected)
    }

    fn take(&mut self, daemon: &Daemon, path: &Path, about: &Metadata) -> Outcome {
        if !self.linked.is_first(about.ino(), about.nlink()) {
            return Ok(());
        }
        if about.blocks() == 0 {
            self.add(path, File::default());
            return Ok(());
        }
        self.waiting.push((path.to_owned(), about.ino()));
        if self.waiting.len() < FILES_ASKED { Ok(()) } else { self.ask_waiting(daemon) }
    }

    /// Asks about the files that wait for it.
    fn ask_waiting(&mut self, daemon: &Daemon) -> Outcome {
        while !self.waiting.is_empty() {
            let inodes = self.waiting.iter().map(|(_, inode)| *inode).collect();
            let answers: Vec<Option<Explained>> = daemon.ask(Request::ExplainFiles { inodes })?;
            if answers.is_empty() || answers.len() > self.waiting.len() {
                return Err(Failure::new(exit::FAILED, "the daemon answered about other files than it was asked"));
            }
            let asked: Vec<_> = self.waiting.drain(..answers.len()).collect();
            for ((path, inode), first) in asked.into_iter().zip(answers) {
                // It may have been deleted since it was found.
                let Some(first) = first else {
                    self.refused += 1;
                    continue;
                };
                match File::of(daemon, inode, first) {
                    Ok(file) => self.add(&path, file),
                    Err(failure) => self.refuse(daemon, failure)?,
                }
            }
        }
        Ok(())
    }

    /// Counts a file that could not be read: it may be deleted between two steps. Fails if the daemon no longer
    /// answers.
    fn refuse(&mut self, daemon: &Daemon, failure: Failure) -> Outcome {
        daemon.ask::<About>(Request::Version).map_err(|_| failure)?;
        self.refused += 1;
        Ok(())
    }

    fn add(&mut self, path: &Path, file: File) {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let sum = Sum { files: 1, held: bytes(file.held_blocks), shared: bytes(file.shared_blocks) };
        self.all += sum;
        self.by_directory.add(directory(path), sum);
        self.by_type.add(extension(path).as_deref(), sum);
        if self.sharing.wants(file.shared_blocks) {
            let File { map, held_blocks, shared_blocks, longest } = file;
            let name = shown(&Path::new("/").join(path)).to_string();
            self.sharing.add(SharingFile { name, map, held_blocks, shared_blocks, runs: longest.finish() });
        }
    }
}

impl File {
    /// A file whose first portion is known. Asks for the others.
    fn of(daemon: &Daemon, inode: u64, first: Explained) -> Outcome<Self> {
        let (mut file, mut portion) = (Self::default(), first);
        loop {
            file.map = portion.map;
            for run in &portion.runs {
                file.held_blocks += run.what.pbn().map_or(0, |_| run.blocks);
                file.shared_blocks += if matches!(run.what, What::Shared { .. }) { run.blocks } else { 0 };
                file.longest.add(run);
            }
            match portion.next {
                Some(lbn) => portion = daemon.ask(Request::Explain { inode, lbn })?,
                None => return Ok(file),
            }
        }
    }
}

/// The first of several names.
fn directory(path: &Path) -> Option<&OsStr> {
    let mut names = path.components();
    match (names.next(), names.next()) {
        (Some(Component::Normal(first)), Some(_)) => Some(first),
        _ => None,
    }
}

fn extension(path: &Path) -> Option<OsString> {
    let extension = path.extension()?.to_ascii_lowercase();
    (1..=EXTENSION_BYTES_MAX).contains(&extension.as_bytes().len()).then_some(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_grouped_by_the_first_name_and_the_last_dot() {
        let of = |path: &str| {
            let text = |name: &OsStr| name.to_str().unwrap().to_owned();
            (directory(Path::new(path)).map(text), extension(Path::new(path)).map(|name| text(&name)))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("home/a/Photo.JPG"), (some("home"), some("jpg")));
        assert_eq!(of("README"), (None, None));
        assert_eq!(of("etc/.profile"), (some("etc"), None));
        assert_eq!(of("a.d/b.tar.gz"), (some("a.d"), some("gz")));
        assert_eq!(of("x.this-is-not-a-type-of-files"), (None, None));
    }

    #[test]
    fn a_file_counts_in_each_group_and_its_name_is_kept_only_if_it_shares() {
        let mut collected = Collected::default();
        let file = |held_blocks, shared_blocks| File { held_blocks, shared_blocks, ..File::default() };
        collected.add(Path::new("a/one.txt"), file(10, 4));
        collected.add(Path::new("a/two.bin"), file(5, 0));
        let sum = Sum { files: 2, held: 15 * 4096, shared: 4 * 4096 };
        assert_eq!(collected.all, sum);
        assert_eq!(collected.by_directory.largest().groups, [(Some("a".into()), sum)]);
        assert_eq!(collected.by_type.largest().groups.len(), 2);
        let names: Vec<String> = collected.sharing.files().into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["/a/one.txt"]);
    }
}
