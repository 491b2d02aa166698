//! `oncefs defrag`: defragments files of a mounted volume, one after the other, within the space allowed.

pub mod walk;

use std::fmt::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use oncefs_engine::{BLOCK_BYTES, DefragOutcome, Report};
use serde_json::{Value, json};

use crate::commands::help::UNITS;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::files::walk::Place;
use crate::names::{self, Name, shown};
use crate::process::signals::EndSignals;
use crate::progress::{self, Progress};
use crate::size::Size;
use walk::{File, Found, find_all};

/// Space that may be taken by default.
const SPACE: &str = "10%";
/// Files shown to people; JSON lists all.
const FILES_SHOWN: usize = 50;

/// Arguments of `defrag`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Rewrites short adjacent pieces of a file together. Pieces that other files share stay with those files, so the new
blocks take space: --space limits it. Pieces that no other file shares move without taking space. Long pieces stay where
they are. Files can be in use. Ctrl-C stops between two parts of a file; what is done stays done.

Exit codes: 0 done, even if something had to be left; 1 some files could not be read.

{UNITS}

Examples:
  oncefs defrag /mnt/images/disk.img
  oncefs defrag /mnt --dry-run                     show the gain and the cost
  oncefs defrag /mnt/home --space 5G
  oncefs defrag /mnt/home --space 0                only what is not shared"))]
pub struct DefragArgs {
    /// Files, or directories with everything in them, all in one mount
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Space that may be taken: a size, or a percentage of what is available
    #[arg(long, value_name = "SIZE|PERCENT", default_value = SPACE)]
    pub space: Space,
    /// Leave pieces of N or more 4-KiB blocks where they are, 1 to 1024 [default: the file's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub run_blocks_min: Option<u32>,
    /// Change nothing; show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Print all files and figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// Space that may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the available space, 0 to 100.
    Percent(u64),
}

impl FromStr for Space {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(number) = text.strip_suffix('%') else { return text.parse().map(|Size(bytes)| Self::Bytes(bytes)) };
        let percent = number.trim_end().parse().ok().filter(|percent| *percent <= 100);
        percent.map(Self::Percent).ok_or_else(|| format!("'{text}' is not a percentage from 0% to 100%"))
    }
}

impl Space {
    fn blocks(self, available_bytes: u64) -> u64 {
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(available_bytes) * u128::from(percent) / 100) as u64,
        };
        bytes / BLOCK_BYTES as u64
    }
}

/// A file and its outcome.
struct Done {
    place: Place,
    outcome: DefragOutcome,
}

/// The work on all files.
struct Work<'a> {
    daemon: Daemon,
    arguments: &'a DefragArgs,
    space_blocks: u64,
    done: Vec<Done>,
    files: u64,
    total: DefragOutcome,
    refused: Vec<String>,
    is_ended: bool,
}

/// Defragments all files. Returns the exit code.
pub fn run(arguments: DefragArgs) -> Outcome<u8> {
    let mut found = Found::default();
    let daemon = find_all(&arguments.paths, "give files in one", |top| found.add(&top.path, top.held))?;
    let report: Report = daemon.ask(Request::Stats)?;
    let space_blocks = arguments.space.blocks(report.space.get("available_bytes").copied().unwrap_or(0));
    daemon.write_back()?;
    let mut work = Work {
        daemon,
        arguments: &arguments,
        space_blocks,
        done: Vec::new(),
        files: 0,
        total: DefragOutcome::default(),
        refused: found.refused,
        is_ended: false,
    };
    work.defragment_all(&found.files)?;
    if !arguments.dry_run {
        work.daemon.ask::<()>(Request::Commit)?;
    }
    if arguments.json {
        say!("{}", names::json(&work.as_json()));
    } else {
        put!("{}", work.described());
    }
    work.refused.iter().for_each(|refused| tell!("oncefs: {refused}"));
    Ok(if work.refused.is_empty() { 0 } else { exit::FAILED })
}

impl Work<'_> {
    fn defragment_all(&mut self, files: &[File]) -> Outcome {
        let signals = EndSignals::block();
        let mut progress = Progress::new();
        let all: u64 = files.iter().map(|file| file.blocks).sum();
        let mut blocks = 0;
        for file in files {
            let mut goes_on = |from: u64| {
                progress.show("defragmenting", progress::Step::blocks((blocks + from).min(all), all));
                signals.wait(Some(Duration::ZERO)).is_none()
            };
            let outcome = self.defragment(file, &mut goes_on)?;
            self.note(file, outcome);
            if self.is_ended {
                self.refused.push("stopped before the end; what is done stays done".to_owned());
                break;
            }
            blocks += file.blocks;
        }
        Ok(())
    }

    /// Defragments one file part by part, until `goes_on` returns false.
    fn defragment(&mut self, file: &File, goes_on: &mut dyn FnMut(u64) -> bool) -> Outcome<DefragOutcome> {
        let mut outcome = DefragOutcome { next: Some(0), ..DefragOutcome::default() };
        while let Some(from) = outcome.next {
            if !goes_on(from) {
                self.is_ended = true;
                break;
            }
            match self.part(file, from) {
                Ok(part) => outcome.add(&part),
                Err(error) => {
                    self.note_error(file, error)?;
                    break;
                }
            }
        }
        Ok(outcome)
    }

    /// Defragments a part of a file. If there was no room, tries again after a commit, which frees the places of moved
    /// blocks.
    fn part(&mut self, file: &File, from: u64) -> Outcome<DefragOutcome> {
        let first = self.ask(file, from)?;
        if self.arguments.dry_run || first.left.no_free_run == 0 || first.blocks_moved == 0 {
            return Ok(first);
        }
        self.daemon.ask::<()>(Request::Commit)?;
        let again = self.ask(file, from)?;
        Ok(DefragOutcome {
            extents_before: first.extents_before,
            blocks_moved: first.blocks_moved + again.blocks_moved,
            blocks_unshared: first.blocks_unshared + again.blocks_unshared,
            ..again
        })
    }

    fn ask(&mut self, file: &File, from: u64) -> Outcome<DefragOutcome> {
        let outcome: DefragOutcome = self.daemon.ask(Request::Defrag {
            inode: file.inode,
            from,
            run_blocks_min: self.arguments.run_blocks_min,
            space_blocks: self.space_blocks,
            dry_run: self.arguments.dry_run,
        })?;
        self.space_blocks = self.space_blocks.saturating_sub(outcome.blocks_unshared);
        Ok(outcome)
    }

    /// Notes the error of a file. It does not stop the others, unless the mount itself is gone.
    fn note_error(&mut self, file: &File, error: Failure) -> Outcome {
        match file.place.hold() {
            // Deleted since.
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(_) => Err(error),
            Ok(_) => {
                self.refused.push(format!("{}: {}", shown(&file.place.path()), error.message));
                Ok(())
            }
        }
    }

    fn note(&mut self, file: &File, outcome: DefragOutcome) {
        self.files += 1;
        self.total.add(&outcome);
        if outcome.blocks_moved > 0 || left(&outcome) > 0 {
            self.done.push(Done { place: file.place.clone(), outcome });
        }
    }

    fn as_json(&self) -> Value {
        let file = |done: &Done| json!({ "path": Name::from(done.place.path().as_path()), "outcome": done.outcome });
        json!({
            "dry_run": self.arguments.dry_run,
            "files_examined": self.files,
            "files": self.done.iter().map(file).collect::<Vec<_>>(),
            "total": self.total,
            "space_left_bytes": self.space_blocks * BLOCK_BYTES as u64,
            "complete": self.refused.is_empty(),
        })
    }

    fn described(&self) -> String {
        let mut text = String::new();
        for Done { place, outcome } in self.done.iter().take(FILES_SHOWN) {
            line(&mut text, &format!("{}: {}", shown(&place.path()), extents(outcome)));
        }
        if self.done.len() > FILES_SHOWN {
            line(&mut text, &format!("and {} more files; --json lists all", self.done.len() - FILES_SHOWN));
        }
        let would = if self.arguments.dry_run { "would be " } else { "" };
        let moved = Size(self.total.blocks_moved * BLOCK_BYTES as u64);
        let taken = Size(self.total.blocks_unshared * BLOCK_BYTES as u64);
        let files = self.files;
        line(&mut text, &format!("{files} files: {}; {moved} {would}moved, {taken} taken", extents(&self.total)));
        let reasons = reasons(&self.total);
        if !reasons.is_empty() {
            line(&mut text, &format!("left: {}", reasons.join("; ")));
        }
        text
    }
}

/// Adds a line.
fn line(text: &mut String, what: &str) {
    writeln!(text, "{what}").expect("writing to a string cannot fail");
}

fn extents(outcome: &DefragOutcome) -> String {
    format!("{} extents before, {} after", outcome.extents_before, outcome.extents_after)
}

/// Extents that could be merged but were not.
fn left(outcome: &DefragOutcome) -> u64 {
    let left = &outcome.left;
    left.space_limit + left.no_free_run + left.changed + left.damaged
}

/// The reasons for the number of extents, with remedies.
fn reasons(outcome: &DefragOutcome) -> Vec<String> {
    let left = &outcome.left;
    let reasons = [
        (left.space_limit, "extents left because they are shared (use a larger --space)"),
        (left.no_free_run, "because the volume has no large enough free run (delete something, or grow the volume)"),
        (left.changed, "because they were written meanwhile (run it again)"),
        (left.damaged, "because of damaged blocks (see oncefs scrub)"),
    ];
    reasons.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect()
}

#[cfg(test)]
mod tests {
    use oncefs_engine::ExtentsLeft;

    use super::*;

    #[test]
    fn space_is_a_size_or_a_share_of_what_is_available() {
        let blocks = |text: &str, available| text.parse::<Space>().map(|space| space.blocks(available));
        assert_eq!(blocks("0", 1 << 30), Ok(0));
        assert_eq!(blocks("1M", 1 << 30), Ok(256));
        assert_eq!(blocks("10%", 1000 * 4096), Ok(100));
        assert_eq!(blocks("100%", u64::MAX), Ok(u64::MAX / 4096));
        for wrong in ["101%", "-1%", "%", "ten%", "much"] {
            assert!(wrong.parse::<Space>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_left_is_told_with_its_reason() {
        let left = ExtentsLeft { space_limit: 3, changed: 2, ..ExtentsLeft::default() };
        let outcome = DefragOutcome { extents_before: 9, extents_after: 6, left, ..DefragOutcome::default() };
        assert_eq!(extents(&outcome), "9 extents before, 6 after");
        let told = reasons(&outcome).join("; ");
        assert!(
            told.starts_with("3 extents left because they are shared") && told.contains("2 because they were"),
            "{told}"
        );
        assert_eq!(reasons(&DefragOutcome::default()).len(), 0);
    }
}
