//! `oncefs compress` and `oncefs expand`: compress blocks of a mounted volume now, or give back uncompressed ones; of all
//! files, or of some.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use oncefs_engine::{BLOCK_BYTES, Conversion, Converted, MapCursor, Report};
use serde_json::json;

use crate::commands::defrag::walk::{File, Found, find_all};
use crate::commands::help::UNITS;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::names::{self, shown};
use crate::process::signals::EndSignals;
use crate::progress::{Progress, Step};
use crate::size::Size;

/// Most passes over all files, for what changes meanwhile. More follow while one leaves shared blocks for the next.
const PASSES_MAX: usize = 8;
/// Tries for a portion that finds no room. A commit between two of them makes the room of released packs usable.
const TRIES_MAX: usize = 3;
/// Room beyond what is stored in the end, for a portion that is written before the one in its place is free.
const ROOM_BYTES_MIN: u64 = 8 << 20;

/// Arguments of `compress`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Compresses now what the worker would compress later, at full speed, and waits for it. Blocks that shrink by less than an
eighth stay as they are. Files can be in use. Ctrl-C stops between two parts; what is done stays done.

Exit codes: 0 done; 1 some files could not be read, or it was stopped.

{UNITS}

Examples:
  oncefs compress /mnt                     everything in the mount
  oncefs compress /mnt/logs /mnt/old.img   these files only"))]
pub struct CompressArgs {
    #[command(flatten)]
    what: ConvertArgs,
}

/// Arguments of `expand`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Stores compressed blocks uncompressed again. The mount must not compress (-o compress=off), or the named files have to be
excluded (oncefs policy set PATH compress=off). What files share stays shared if the whole mount is expanded; blocks that a named file shares with others stay compressed for the others, and take
space anew. Files can be in use. Ctrl-C stops between two parts; what is done stays done.

If nothing is compressed any more when the volume is unmounted, versions of oncefs without compression open it again.

Exit codes: 0 done; 1 something stays compressed, or it was stopped.

{UNITS}

Examples:
  oncefs expand /mnt                       everything in the mount
  oncefs expand /mnt/database"))]
pub struct ExpandArgs {
    #[command(flatten)]
    what: ConvertArgs,
}

/// Arguments of both.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The mount, for everything in it; or files, or directories with everything in them, all in one mount
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// The files to convert.
enum Files {
    /// All of the volume.
    All,
    /// These, and the paths that cannot be read.
    Some(Found),
}

/// Compresses. Returns the exit code.
pub fn compress(arguments: CompressArgs) -> Outcome<u8> {
    run(Conversion::Compress, &arguments.what)
}

/// Expands. Returns the exit code.
pub fn expand(arguments: ExpandArgs) -> Outcome<u8> {
    run(Conversion::Expand, &arguments.what)
}

fn run(what: Conversion, arguments: &ConvertArgs) -> Outcome<u8> {
    let (daemon, files) = files_of(&arguments.paths)?;
    daemon.write_back()?;
    daemon.ask::<()>(Request::Commit)?;
    let before = Space::of(&daemon)?;
    let mut work = Work { daemon, what, done: Converted::default(), refused: Vec::new(), is_ended: false };
    match (what, &files) {
        (Conversion::Expand, Files::All) => before.refuse_if_short(before.needed(), ALL, &work.daemon)?,
        (Conversion::Expand, Files::Some(found)) => {
            before.refuse_if_short(work.needed_for(&found.files)?, NAMED, &work.daemon)?;
        }
        _ => {}
    }
    match files {
        Files::All => work.convert_all(before.mapped)?,
        Files::Some(found) => {
            work.refused = found.refused;
            work.convert_files(&found.files)?;
        }
    }
    work.daemon.ask::<()>(Request::Commit)?;
    let after = Space::of(&work.daemon)?;
    if work.is_ended {
        work.refused.push("stopped before the end; what is done stays done".to_owned());
    }
    let described = work.described(after);
    match arguments.json {
        true => say!("{}", names::json(&work.as_json(after))),
        false => put!("{described}"),
    }
    work.refused.iter().for_each(|refused| tell!("oncefs: {refused}"));
    Ok(if work.is_complete() { exit::SUCCESS } else { exit::FAILED })
}

/// The daemon of the mount with these paths, and the files that they name.
fn files_of(paths: &[PathBuf]) -> Outcome<(Daemon, Files)> {
    let (mut found, mut is_all) = (Found::default(), false);
    let daemon = find_all(paths, "give the mount, or files in it", |top| {
        is_all |= top.above.is_none();
        if !is_all {
            found.add(&top.path, top.held);
        }
    })?;
    Ok((daemon, if is_all { Files::All } else { Files::Some(found) }))
}

/// How much is compressed, in bytes, and how much room there is.
#[derive(Clone, Copy, Default)]
struct Space {
    compressed: u64,
    fragments: u64,
    available: u64,
    mapped: u64,
}

impl Space {
    fn of(daemon: &Daemon) -> Outcome<Self> {
        let report: Report = daemon.ask(Request::Stats)?;
        let bytes = |name: &str| report.space.get(name).copied().unwrap_or(0);
        Ok(Self {
            compressed: bytes("compressed_bytes"),
            fragments: bytes("fragment_bytes"),
            available: bytes("available_bytes"),
            mapped: bytes("mapped_bytes"),
        })
    }

    /// How much more is stored when nothing is compressed, with room for a portion on its way. 0: nothing is compressed.
    fn needed(self) -> u64 {
        match self.compressed {
            0 => 0,
            compressed => compressed.saturating_sub(self.fragments) + ROOM_BYTES_MIN,
        }
    }

    fn refuse_if_short(self, needed: u64, what: What, daemon: &Daemon) -> Outcome {
        let volume = shown(&daemon.volume);
        if needed <= self.available {
            return Ok(());
        }
        let What { name, takes, instead } = what;
        let (needed, available) = (Size(needed), Size(self.available));
        Err(Failure::new(
            exit::FAILED,
            format!(
                "expanding {name} in {volume} {takes} {needed}, and {available} are available: delete something, \
                 {instead}or enlarge it (oncefs grow {volume} +SIZE); nothing was changed"
            ),
        ))
    }
}

/// How to speak of what is to be expanded.
struct What {
    name: &'static str,
    takes: &'static str,
    /// What else helps.
    instead: &'static str,
}

const ALL: What = What { name: "everything", takes: "takes", instead: "" };
const NAMED: What = What { name: "these files", takes: "takes up to", instead: "name fewer files, " };

/// How much these blocks are, with room for a portion on its way. 0: nothing is compressed.
fn with_room_on_the_way(blocks: u64) -> u64 {
    match blocks {
        0 => 0,
        blocks => blocks * BLOCK_BYTES as u64 + ROOM_BYTES_MIN,
    }
}

const START: MapCursor = MapCursor { map: 0, leaf: 0 };

/// The work on all files.
struct Work {
    daemon: Daemon,
    what: Conversion,
    /// The sum over all portions.
    done: Converted,
    refused: Vec<String>,
    is_ended: bool,
}

impl Work {
    /// Converts all files, pass by pass, until one changes nothing.
    fn convert_all(&mut self, mapped: u64) -> Outcome {
        let signals = EndSignals::block();
        let mut progress = Progress::new();
        for pass in 1.. {
            let before = self.begin_pass();
            let (mut seen, mut next) = (0, Some(START));
            while let Some(from) = next {
                progress.show(self.doing(), Step::blocks(seen, (mapped / BLOCK_BYTES as u64).max(seen)));
                if signals.wait(Some(Duration::ZERO)).is_some() {
                    self.is_ended = true;
                    return Ok(());
                }
                let part = self.portion(None, from)?;
                seen += part.blocks;
                next = part.next;
            }
            let goes_on = self.has_expanded_since(before) && (pass < PASSES_MAX || self.done.for_another_pass > 0);
            if !goes_on || Space::of(&self.daemon)?.compressed == 0 {
                break;
            }
        }
        Ok(())
    }

    /// How much room expanding these files takes at most. Files that cannot be expanded count nothing: converting them
    /// says why.
    fn needed_for(&self, files: &[File]) -> Outcome<u64> {
        let mut progress = Progress::new();
        let all: u64 = files.iter().map(|file| file.blocks).sum();
        let (mut seen, mut room, mut is_first) = (0, 0, true);
        for file in files {
            let mut next = Some(START);
            while let Some(from) = next {
                progress.show("measuring", Step::blocks(seen, all.max(seen)));
                let what = Conversion::MeasureExpand { is_first };
                let asked = self.daemon.ask(Request::Convert { what, inode: Some(file.inode), from });
                is_first &= asked.is_err();
                let part: Converted = asked.unwrap_or_default();
                (seen, room, next) = (seen + part.blocks, room + part.room, part.next);
            }
        }
        Ok(with_room_on_the_way(room))
    }

    /// Converts these files, pass by pass, until one leaves no shared blocks for the next.
    fn convert_files(&mut self, files: &[File]) -> Outcome {
        let signals = EndSignals::block();
        loop {
            let before = self.begin_pass();
            if self.what == Conversion::Expand {
                let begin = Request::Convert { what: Conversion::BeginExpand, inode: None, from: START };
                self.daemon.ask::<Converted>(begin)?;
            }
            self.convert_files_once(files, &signals)?;
            let goes_on = self.has_expanded_since(before) && self.done.for_another_pass > 0;
            if self.is_ended || !goes_on {
                return Ok(());
            }
        }
    }

    /// Forgets what the last pass left. Gives the places that were moved so far.
    fn begin_pass(&mut self) -> u64 {
        (self.done.damaged, self.done.without_room, self.done.for_another_pass) = (0, 0, 0);
        self.done.converted
    }

    fn has_expanded_since(&self, converted: u64) -> bool {
        self.what == Conversion::Expand && self.done.converted > converted
    }

    fn convert_files_once(&mut self, files: &[File], signals: &EndSignals) -> Outcome {
        let mut progress = Progress::new();
        let all: u64 = files.iter().map(|file| file.blocks).sum();
        let mut seen = 0;
        for file in files {
            let mut next = Some(START);
            while let Some(from) = next {
                progress.show(self.doing(), Step::blocks(seen, all.max(seen)));
                if signals.wait(Some(Duration::ZERO)).is_some() {
                    self.is_ended = true;
                    return Ok(());
                }
                next = match self.portion(Some(file.inode), from) {
                    Ok(part) => {
                        seen += part.blocks;
                        part.next
                    }
                    Err(error) => {
                        self.note_error(file, error)?;
                        None
                    }
                };
            }
        }
        Ok(())
    }

    fn doing(&self) -> &'static str {
        match self.what {
            Conversion::Compress => "compressing",
            Conversion::Expand | Conversion::BeginExpand | Conversion::MeasureExpand { .. } => "expanding",
        }
    }

    /// Converts a portion, and adds it to the sum. If there was no room, tries again after a commit, which frees the
    /// places of what was moved.
    fn portion(&mut self, inode: Option<u64>, from: MapCursor) -> Outcome<Converted> {
        let mut part: Converted = self.ask(inode, from)?;
        for _ in 1..TRIES_MAX {
            if part.without_room == 0 {
                break;
            }
            self.daemon.ask::<()>(Request::Commit)?;
            let again = self.ask(inode, from)?;
            part = Converted { converted: part.converted + again.converted, blocks: part.blocks, ..again };
        }
        self.done.blocks += part.blocks;
        self.done.converted += part.converted;
        self.done.damaged += part.damaged;
        self.done.without_room += part.without_room;
        self.done.for_another_pass += part.for_another_pass;
        Ok(part)
    }

    fn ask(&self, inode: Option<u64>, from: MapCursor) -> Outcome<Converted> {
        self.daemon.ask(Request::Convert { what: self.what, inode, from })
    }

    /// Notes the error of a file. It does not stop the others, unless the mount itself is gone or refuses all.
    fn note_error(&mut self, file: &File, error: Failure) -> Outcome {
        match file.place.hold() {
            // Deleted since.
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(_) => Err(error),
            Ok(_) if self.done.blocks == 0 => Err(error),
            Ok(_) => {
                let refused = format!("{}: {}", shown(&file.place.path()), error.message);
                if !self.refused.contains(&refused) {
                    self.refused.push(refused);
                }
                Ok(())
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.refused.is_empty() && left(&self.done).next().is_none()
    }

    fn as_json(&self, after: Space) -> serde_json::Value {
        json!({
            "blocks_examined": self.done.blocks,
            "blocks_expanded": self.done.converted,
            "blocks_damaged": self.done.damaged,
            "blocks_without_room": self.done.without_room,
            "blocks_for_another_pass": self.done.for_another_pass,
            "compressed_bytes": after.compressed,
            "fragment_bytes": after.fragments,
            "complete": self.is_complete(),
        })
    }

    fn described(&self, after: Space) -> String {
        let looked_at = Size(self.done.blocks * BLOCK_BYTES as u64);
        let mut text = match self.what {
            Conversion::Compress => format!("{looked_at} of files looked at; "),
            Conversion::Expand | Conversion::BeginExpand | Conversion::MeasureExpand { .. } => {
                let expanded = Size(self.done.converted * BLOCK_BYTES as u64);
                format!("{looked_at} of files looked at, {expanded} expanded; ")
            }
        };
        text += &match after.compressed {
            0 => "nothing in the volume is compressed\n".to_owned(),
            compressed => {
                let (compressed, fragments) = (Size(compressed), Size(after.fragments));
                format!("in the volume {compressed} are compressed, to {fragments}\n")
            }
        };
        for (blocks, why) in left(&self.done) {
            text += &format!("{} stay compressed {why}\n", Size(blocks * BLOCK_BYTES as u64));
        }
        text
    }
}

/// How many blocks stay compressed that should not, and why.
fn left(done: &Converted) -> impl Iterator<Item = (u64, &'static str)> {
    let left = [
        (done.damaged, "because they are damaged (see oncefs scrub)"),
        (done.without_room, "because there is no room (delete something, or grow the volume, and run it again)"),
        (done.for_another_pass, "because too many files share them (run it again)"),
    ];
    left.into_iter().filter(|(blocks, _)| *blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expanding_takes_is_what_compression_saves_and_room_on_the_way() {
        let space = |compressed, fragments| Space { compressed, fragments, ..Space::default() };
        assert_eq!(space(0, 0).needed(), 0);
        assert_eq!(space(100 << 20, 40 << 20).needed(), 68 << 20);
        assert_eq!(space(4096, 5000).needed(), ROOM_BYTES_MIN);
        assert_eq!((with_room_on_the_way(0), with_room_on_the_way(256)), (0, 9 << 20));
    }

    #[test]
    fn shared_blocks_that_no_pass_reached_stay_compressed_and_are_told() {
        let left = |done: Converted| left(&done).map(|(blocks, _)| blocks).collect::<Vec<_>>();
        assert!(left(Converted { blocks: 9, converted: 5, ..Converted::default() }).is_empty());
        assert_eq!(left(Converted { damaged: 1, for_another_pass: 3, ..Converted::default() }), [1, 3]);
    }
}
