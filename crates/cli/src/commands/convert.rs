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
eighth stay as they are. Files can be in use. Ctrl-C stops between two parts; what is done stays done. One command
compresses or expands in a volume at a time.

Exit codes: 0 done; 1 something that may shrink stays as it is, some files could not be read, or it was stopped.

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

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Compress,
    Expand,
}

impl Way {
    /// The request with which a command, or a pass of the one with this number, begins.
    fn begin(self, command: Option<u64>) -> Conversion {
        match self {
            Self::Compress => Conversion::BeginCompress { command },
            Self::Expand => Conversion::BeginExpand { command },
        }
    }

    fn portion(self, command: u64) -> Conversion {
        match self {
            Self::Compress => Conversion::Compress { command },
            Self::Expand => Conversion::Expand { command },
        }
    }

    fn doing(self) -> &'static str {
        match self {
            Self::Compress => "compressing",
            Self::Expand => "expanding",
        }
    }
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
    run(Way::Compress, &arguments.what)
}

/// Expands. Returns the exit code.
pub fn expand(arguments: ExpandArgs) -> Outcome<u8> {
    run(Way::Expand, &arguments.what)
}

fn run(way: Way, arguments: &ConvertArgs) -> Outcome<u8> {
    let (daemon, files) = files_of(&arguments.paths)?;
    daemon.write_back()?;
    daemon.ask::<()>(Request::Commit)?;
    let before = Space::of(&daemon)?;
    let command = begin(&daemon, way, None)?.command;
    let mut work = Work { daemon, way, command, done: Converted::default(), refused: Vec::new(), stopped: None };
    let converted = work.convert(before, files);
    let ended = work.end();
    converted.and(ended)?;
    work.daemon.ask::<()>(Request::Commit)?;
    let after = Space::of(&work.daemon)?;
    work.refused.extend(work.stopped.map(|why| format!("{why}; what is done stays done")));
    let described = work.described(after);
    match arguments.json {
        true => say!("{}", names::json(&work.as_json(after))),
        false => put!("{described}"),
    }
    work.refused.iter().for_each(|refused| tell!("oncefs: {refused}"));
    Ok(if work.is_complete() { exit::SUCCESS } else { exit::FAILED })
}

/// A command begins, or a pass of the one with this number.
fn begin(daemon: &Daemon, way: Way, command: Option<u64>) -> Outcome<Converted> {
    daemon.ask(Request::Convert { what: way.begin(command), inode: None, from: START })
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
    way: Way,
    /// The number of the command.
    command: u64,
    /// The sum over all portions.
    done: Converted,
    refused: Vec<String>,
    /// Why it stopped before the end.
    stopped: Option<&'static str>,
}

const BY_SIGNAL: &str = "stopped before the end";
const OVERTAKEN: &str = "stopped, because another command began while this one stood still: run it again";

impl Work {
    /// Converts these files, if there is room for it.
    fn convert(&mut self, before: Space, files: Files) -> Outcome {
        match files {
            Files::All => {
                if self.way == Way::Expand {
                    before.refuse_if_short(before.needed(), ALL, &self.daemon)?;
                }
                self.convert_all(before.mapped)
            }
            Files::Some(found) => {
                if self.way == Way::Expand {
                    before.refuse_if_short(self.needed_for(&found.files)?, NAMED, &self.daemon)?;
                }
                self.refused = found.refused;
                self.convert_files(&found.files)
            }
        }
    }

    /// Lets another command begin.
    fn end(&self) -> Outcome {
        let what = Conversion::End { command: self.command };
        self.daemon.ask::<Converted>(Request::Convert { what, inode: None, from: START }).map(drop)
    }

    /// Converts all files, pass by pass: what is expanded until a pass changes nothing, what is compressed until one
    /// leaves no shared blocks for the next.
    fn convert_all(&mut self, mapped: u64) -> Outcome {
        let signals = EndSignals::block();
        let mut progress = Progress::new();
        for pass in 1.. {
            let before = self.begin_pass()?;
            let (mut seen, mut next) = (0, Some(START));
            while let Some(from) = next {
                progress.show(self.way.doing(), Step::blocks(seen, (mapped / BLOCK_BYTES as u64).max(seen)));
                if self.is_stopped(&signals) {
                    return Ok(());
                }
                let part = self.portion(None, from)?;
                seen += part.blocks;
                next = part.next;
            }
            if self.stopped.is_some() {
                return Ok(());
            }
            let may_have_more = self.way == Way::Expand && pass < PASSES_MAX;
            let goes_on = self.done.converted > before && (may_have_more || self.done.for_another_pass > 0);
            if !goes_on || (self.way == Way::Expand && Space::of(&self.daemon)?.compressed == 0) {
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
        let (mut seen, mut room) = (0, 0);
        for file in files {
            let mut next = Some(START);
            while let Some(from) = next {
                progress.show("measuring", Step::blocks(seen, all.max(seen)));
                let what = Conversion::MeasureExpand { command: self.command };
                let asked = self.daemon.ask(Request::Convert { what, inode: Some(file.inode), from });
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
            let before = self.begin_pass()?;
            self.convert_files_once(files, &signals)?;
            let goes_on = self.done.converted > before && self.done.for_another_pass > 0;
            if self.stopped.is_some() || !goes_on {
                return Ok(());
            }
        }
    }

    /// Forgets what the last pass left. Gives the places that were moved so far.
    fn begin_pass(&mut self) -> Outcome<u64> {
        (self.done.damaged, self.done.without_room, self.done.for_another_pass) = (0, 0, 0);
        self.note_overtaken(begin(&self.daemon, self.way, Some(self.command))?);
        Ok(self.done.converted)
    }

    fn note_overtaken(&mut self, part: Converted) {
        if part.is_overtaken {
            self.stopped = Some(OVERTAKEN);
        }
    }

    /// Whether it is to stop, also because of a signal.
    fn is_stopped(&mut self, signals: &EndSignals) -> bool {
        if signals.wait(Some(Duration::ZERO)).is_some() {
            self.stopped = Some(BY_SIGNAL);
        }
        self.stopped.is_some()
    }

    fn convert_files_once(&mut self, files: &[File], signals: &EndSignals) -> Outcome {
        let mut progress = Progress::new();
        let all: u64 = files.iter().map(|file| file.blocks).sum();
        let mut seen = 0;
        for file in files {
            let mut next = Some(START);
            while let Some(from) = next {
                progress.show(self.way.doing(), Step::blocks(seen, all.max(seen)));
                if self.is_stopped(signals) {
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
        self.note_overtaken(part);
        self.done.blocks += part.blocks;
        self.done.converted += part.converted;
        self.done.damaged += part.damaged;
        self.done.without_room += part.without_room;
        self.done.for_another_pass += part.for_another_pass;
        Ok(part)
    }

    fn ask(&self, inode: Option<u64>, from: MapCursor) -> Outcome<Converted> {
        self.daemon.ask(Request::Convert { what: self.way.portion(self.command), inode, from })
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
        let of = |way| if self.way == way { self.done.converted } else { 0 };
        json!({
            "blocks_examined": self.done.blocks,
            "blocks_compressed": of(Way::Compress),
            "blocks_expanded": of(Way::Expand),
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
        let (done, stay) = match self.way {
            Way::Compress => ("compressed", "uncompressed"),
            Way::Expand => ("expanded", "compressed"),
        };
        let converted = Size(self.done.converted * BLOCK_BYTES as u64);
        let mut text = format!("{looked_at} of files looked at, {converted} {done}; ");
        text += &match after.compressed {
            0 => "nothing in the volume is compressed\n".to_owned(),
            compressed => {
                let (compressed, fragments) = (Size(compressed), Size(after.fragments));
                format!("in the volume {compressed} are compressed, to {fragments}\n")
            }
        };
        for (blocks, why) in left(&self.done) {
            text += &format!("{} stay {stay} {why}\n", Size(blocks * BLOCK_BYTES as u64));
        }
        text
    }
}

/// How many blocks stay as they are that should not, and why.
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
