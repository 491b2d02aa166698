//! The files below a path: regular files of the same mount, each once however many names it has.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::files::held::Held;
use crate::files::in_mount::InMount;
use crate::files::walk::{Place, Step, walk};
use crate::names::shown;

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// One of its names.
    pub place: Place,
    /// Its inode number.
    pub inode: u64,
    /// Blocks that it has, reserved ones included.
    pub blocks: u64,
}

/// The result of the walk.
#[derive(Debug, Default)]
pub struct Found {
    /// The files, in the order of the directories.
    pub files: Vec<File>,
    /// Paths that could not be read, with reasons.
    pub refused: Vec<String>,
    seen: HashSet<u64>,
}

/// Finds what paths name, and gives each to `add`. Returns the daemon of the volume that has all of them. `give` advises
/// on a path outside all mounts.
pub fn find_all(paths: &[PathBuf], give: &str, mut add: impl FnMut(InMount)) -> Outcome<Daemon> {
    let mut one = None::<Daemon>;
    for path in paths {
        let top = InMount::find(path, give)?;
        let daemon = Daemon::of(&top.mount)?;
        if one.as_ref().is_some_and(|one| one.volume != daemon.volume) {
            let text =
                format!("{} is in another volume than the paths before it: give paths of one volume", shown(path));
            return Err(Failure::new(exit::FAILED, text));
        }
        one = Some(daemon);
        add(top);
    }
    one.ok_or_else(|| Failure::new(exit::USAGE, "no path given"))
}

impl Found {
    /// Adds a file, or everything below a directory. Skips other mounts, symbolic links and special files.
    pub fn add(&mut self, path: &Path, top: Held) {
        walk(path, top, &mut |place, step| match step {
            Step::Found(_, about) => self.take(place, about),
            Step::Refused(error) => self.refuse(&place.path(), &error),
        });
    }

    fn take(&mut self, place: &Place, about: &Metadata) {
        if about.is_file() && self.seen.insert(about.ino()) {
            self.files.push(File { place: place.clone(), inode: about.ino(), blocks: about.blocks() / 8 });
        }
    }

    fn refuse(&mut self, path: &Path, error: &io::Error) {
        self.refused.push(format!("{}: {error}", shown(path)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn add(found: &mut Found, path: &Path) {
        match Held::at(path) {
            Ok(top) => found.add(path, top),
            Err(error) => found.refuse(path, &error),
        }
    }

    #[test]
    fn each_file_is_found_once_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        for name in ["z", "a/one", "a/b/two"] {
            fs::write(at(name), name).unwrap();
        }
        fs::hard_link(at("a/one"), at("a/b/also-one")).unwrap();
        symlink(at("z"), at("a/link")).unwrap();
        symlink(top.path(), at("a/round")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("a/socket")).unwrap();
        let mut found = Found::default();
        add(&mut found, top.path());
        add(&mut found, &at("a/one"));
        add(&mut found, &at("missing"));
        let names: Vec<_> = found
            .files
            .iter()
            .map(|file| file.place.path().strip_prefix(top.path()).unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["z", "a/one", "a/b/two"]);
        assert_eq!(found.refused.len(), 1, "{:?}", found.refused);
        assert!(found.refused[0].contains("missing"));
    }
}
