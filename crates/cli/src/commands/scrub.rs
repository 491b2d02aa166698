//! `oncefs scrub`: reads and checks everything in a mounted volume, and names damaged files.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args};
use oncefs_engine::{Blocks, ScrubCommand, ScrubStatus};
use serde_json::json;

use crate::commands::help::UNITS;
use crate::commands::unknown_blocks;
use crate::control::answers::{Damage, File};
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::names::{self, printable, shown, shown_all};
use crate::process::signals::EndSignals;
use crate::progress::{Progress, Step};
use crate::size::Size;
use crate::text::duration;

/// How often to ask the daemon for its progress.
const POLL: Duration = Duration::from_millis(100);
/// Most damaged places to ask for.
const PLACES_MAX: usize = 10_000;
/// Damaged files shown to people; JSON lists all.
const FILES_SHOWN: usize = 50;

/// Arguments of `scrub`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").args(["start", "pause", "resume", "stop", "status"])), after_help = format!("\
Compares every block with its checksum. Marks damaged blocks and never shares them; reading one fails until the same
content is written or read anywhere else. A scrub continues after an unmount or a crash. Ctrl-C ends the progress
display, but not the scrub; use --stop for that.

Exit codes: 0 no damage, 1 the command failed, 3 damage was found and repaired, 4 files are damaged, or
something was skipped that only fsck can repair.

{UNITS}

Examples:
  oncefs scrub /mnt                         show progress, then what is damaged
  oncefs scrub /mnt --start --rate 20M      in the background, at most 20 MiB/s
  oncefs scrub /mnt --replicate-refs-above 100
                                            also keep a replica of blocks with more than 100 references
  oncefs scrub /mnt --status"))]
pub struct ScrubArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Return at once instead of waiting for the end
    #[arg(long)]
    pub start: bool,
    /// Pause the scrub, across mounts, until --resume
    #[arg(long)]
    pub pause: bool,
    /// Resume after --pause
    #[arg(long)]
    pub resume: bool,
    /// Cancel the scrub; the next one starts over
    #[arg(long)]
    pub stop: bool,
    /// Show progress and which files are damaged
    #[arg(long)]
    pub status: bool,
    /// Most bytes per second; 0: as the load allows [default: as last time]
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["pause", "resume", "stop", "status"])]
    pub rate: Option<Size>,
    /// Replicate blocks with more references than N, 0: none; sets replicate_refs_above
    #[arg(long, alias = "copies-above", value_name = "N", conflicts_with_all = ["pause", "resume", "stop", "status"])]
    pub replicate_refs_above: Option<u64>,
    /// Print the result, or the status, as JSON
    #[arg(long, conflicts_with_all = ["start", "pause", "resume", "stop"])]
    pub json: bool,
}

/// Runs the command. Returns the exit code.
pub fn run(arguments: ScrubArgs) -> Outcome<u8> {
    let daemon = Daemon::find(&arguments.target)?;
    let target = shown(&arguments.target);
    if let Some(above) = arguments.replicate_refs_above {
        let changes = vec![("replicate_refs_above".to_owned(), above.to_string())];
        daemon.ask::<serde_json::Value>(Request::Tune { changes })?;
    }
    if arguments.status {
        return report(&daemon, arguments.json);
    }
    if arguments.pause {
        command(&daemon, ScrubCommand::Pause)?;
        say!("scrub paused; resume it with: oncefs scrub {target} --resume");
    } else if arguments.resume {
        command(&daemon, ScrubCommand::Resume)?;
        say!("scrub resumed in the background");
    } else if arguments.stop {
        command(&daemon, ScrubCommand::Stop)?;
        say!("scrub cancelled; the next one starts over");
    } else {
        let rate = arguments.rate.map(|rate| rate.0);
        daemon.write_back()?;
        daemon.ask::<()>(Request::Commit)?;
        command(&daemon, ScrubCommand::Start { rate })?;
        if !arguments.start {
            return wait(&daemon, &arguments.target, arguments.json);
        }
        say!("scrubbing in the background; progress: oncefs scrub {target} --status");
    }
    Ok(0)
}

fn command(daemon: &Daemon, command: ScrubCommand) -> Outcome {
    daemon.ask(Request::Scrub { command })
}

/// Shows progress until the scrub ends. A signal ends only the display.
fn wait(daemon: &Daemon, target: &Path, json: bool) -> Outcome<u8> {
    let signals = EndSignals::block();
    let mut progress = Progress::new();
    // A pass that was paused continues, so its first blocks were read before.
    let before = daemon.ask::<ScrubStatus>(Request::ScrubStatus)?.blocks_done;
    loop {
        let status: ScrubStatus = daemon.ask(Request::ScrubStatus)?;
        if status.state != "running" {
            if status.state != "finished" {
                drop(progress);
                let text = format!("another command has {} the scrub before its end", status.state);
                return Err(Failure::new(exit::FAILED, text));
            }
            daemon.ask::<()>(Request::Commit)?;
            let read = status.blocks_done.saturating_sub(before);
            progress.end("read", Step::blocks(read, read));
            return report(daemon, json);
        }
        let hindrance = Some(status.doing.as_str()).filter(|doing| *doing != "reading");
        progress.show_hindered("scrubbing", Step::blocks(status.blocks_done, status.blocks), hindrance);
        if signals.wait(Some(POLL)).is_some() {
            drop(progress);
            let target = shown(target);
            let text = format!(
                "the display ended, the scrub continues in the background; progress: oncefs scrub {target} --status"
            );
            return Err(Failure::new(exit::FAILED, text));
        }
    }
}

/// Shows the progress of the scrub and the damage.
fn report(daemon: &Daemon, json: bool) -> Outcome<u8> {
    let status: ScrubStatus = daemon.ask(Request::ScrubStatus)?;
    let damage = match status.blocks_bad {
        0 => Damage { complete: true, ..Damage::default() },
        _ => daemon.ask(Request::Damage { places_max: PLACES_MAX })?,
    };
    if json {
        say!("{}", names::json(&json!({ "scrub": status, "damage": damage })));
    } else {
        put!("{}", described(&status, &damage));
    }
    Ok(code(&status))
}

/// The exit code: whether damage is left, or was found and repaired.
fn code(status: &ScrubStatus) -> u8 {
    let is_left = status.blocks_lost + status.unknown.blocks > 0
        || !status.passed_over.is_empty()
        || !status.record_files.left.is_empty();
    let is_found = status.blocks_bad_found + status.blocks_bad > 0 || !status.record_files.mended.is_empty();
    match (is_left, is_found) {
        (true, _) => exit::SCRUB_DAMAGED,
        (false, true) => exit::SCRUB_REPAIRED,
        (false, false) => 0,
    }
}

/// Adds a line; writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => {
        writeln!($text, $($arg)*).expect("writing to a string cannot fail")
    };
}

fn described(status: &ScrubStatus, damage: &Damage) -> String {
    let mut text = String::new();
    let rate = if status.bytes_per_second_max > 0 {
        format!(", at most {}/s", Size(status.bytes_per_second_max))
    } else {
        String::new()
    };
    let size = |blocks| Size(Blocks(blocks).bytes());
    let done = size(status.blocks_done);
    match status.state.as_str() {
        "never" => line!(text, "this volume has never been scrubbed"),
        "finished" => line!(text, "scrubbed {done}: {}", found(status)),
        "running" => line!(text, "{done} of {} read{rate} ({})", size(status.blocks), status.doing),
        other => line!(text, "{other} after {done}: {}", found(status)),
    }
    if let Some(seconds) = status.eta_seconds {
        line!(text, "time left: {}", duration(seconds));
    }
    if status.blocks_bad > 0 {
        let served = status.blocks_bad - status.blocks_lost;
        line!(text, "bad blocks: {}, of which {served} have a replacement", status.blocks_bad);
    }
    for file in damage.files.iter().take(FILES_SHOWN) {
        for range in &file.ranges {
            let how = if range.lost { "damaged" } else { "repaired" };
            line!(text, "{how}: {} at byte {}, {} bytes", name(file), range.offset, range.length);
        }
    }
    if !damage.complete || damage.files.len() > FILES_SHOWN {
        line!(text, "more files are damaged; --json lists up to {PLACES_MAX} places");
    }
    if status.blocks_lost > 0 {
        line!(
            text,
            "rewrite the damaged bytes, or write the same content to any other file: that repairs every file with this content"
        );
    }
    for what in &status.record_files.mended {
        line!(text, "repaired: {}", printable(what));
    }
    for what in &status.record_files.left {
        line!(text, "damaged: {}; unmount and run oncefs fsck -p, then oncefs fsck --salvage", printable(what));
    }
    unknown_blocks::lines(&status.unknown, &status.passed_over).iter().for_each(|left| line!(text, "{left}"));
    text
}

fn found(status: &ScrubStatus) -> String {
    let of_records = status.record_files.mended.len() + status.record_files.left.len();
    let of_table = status.unknown.blocks + status.passed_over.len() as u64;
    match status.blocks_bad_found {
        0 if of_records as u64 + status.blocks_bad + of_table > 0 => "no block is newly damaged".to_owned(),
        0 => "no damage".to_owned(),
        1 => "1 block is damaged".to_owned(),
        found => format!("{found} blocks are damaged"),
    }
}

fn name(file: &File) -> String {
    match (file.paths.as_slice(), file.inode) {
        ([], Some(inode)) if file.more_paths > 0 => format!("inode {inode} ({} names)", file.more_paths),
        ([], Some(inode)) => format!("inode {inode}, deleted and still open"),
        ([], None) => "a deleted file that is being freed".to_owned(),
        ([one], _) if file.more_paths == 0 => shown(one).to_string(),
        ([one, others @ ..], _) => format!("{} (also {})", shown(one), shown_all(others, file.more_paths)),
    }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::{FilesFound, UnknownBlocks};

    use super::*;
    use crate::control::answers::Range;
    use crate::names::Name;

    fn status(state: &str, found: u64, bad: u64, lost: u64) -> ScrubStatus {
        ScrubStatus {
            state: state.to_owned(),
            blocks_done: 40,
            blocks: 100,
            blocks_bad_found: found,
            blocks_bad: bad,
            blocks_lost: lost,
            ..ScrubStatus::default()
        }
    }

    #[test]
    fn the_exit_code_tells_damage_that_is_left_from_damage_that_is_healed() {
        let code = |found, bad, lost| code(&status("finished", found, bad, lost));
        assert_eq!((code(0, 0, 0), code(1, 0, 0), code(0, 1, 0), code(1, 2, 1)), (0, 3, 3, 4));
    }

    #[test]
    fn what_was_passed_over_is_damage_that_is_left() {
        let unknown = UnknownBlocks { blocks: 16, ranges: vec![(16, 32)], more: 0 };
        let table = ScrubStatus { unknown, ..status("finished", 0, 0, 0) };
        let other = ScrubStatus { passed_over: vec!["a record".to_owned()], ..status("finished", 1, 0, 0) };
        assert_eq!((code(&table), code(&other)), (4, 4));
        let text = described(&table, &Damage { complete: true, ..Damage::default() });
        assert!(text.contains("blocks 16 to 31") && text.contains("oncefs fsck -y"), "{text}");
        assert!(!text.contains("no damage"), "{text}");
    }

    #[test]
    fn record_files_that_were_restored_or_are_lost_are_told_with_their_code() {
        let told = |mended: &[&str], left: &[&str]| {
            let all = |what: &[&str]| what.iter().map(|what| (*what).to_owned()).collect();
            let record_files = FilesFound { mended: all(mended), left: all(left) };
            let status = ScrubStatus { record_files, ..status("finished", 0, 0, 0) };
            (code(&status), described(&status, &Damage { complete: true, ..Damage::default() }))
        };
        let (code, text) = told(&["file 7"], &[]);
        assert!(code == 3 && text.contains("repaired: file 7") && !text.contains("no damage"), "{code}: {text}");
        let (code, text) = told(&["file 7"], &["file 8"]);
        assert!(code == 4 && text.contains("damaged: file 8") && text.contains("oncefs fsck -p"), "{code}: {text}");
    }

    #[test]
    fn no_damage_is_said_only_where_none_is_known() {
        let told =
            |bad, lost| described(&status("finished", 0, bad, lost), &Damage { complete: true, ..Damage::default() });
        assert_eq!(told(0, 0), "scrubbed 160 KiB: no damage\n");
        let known = told(1, 1);
        assert!(known.starts_with("scrubbed 160 KiB: no block is newly damaged\nbad blocks: 1"), "{known}");
    }

    #[test]
    fn every_damaged_range_is_told_with_its_file() {
        let ranges =
            vec![Range { offset: 4096, length: 8192, lost: true }, Range { offset: 0, length: 4096, lost: false }];
        let paths = ["/a/b", "/c"].map(|path| Name::from(path.as_bytes())).to_vec();
        let files = vec![File { inode: Some(5), paths, more_paths: 0, ranges: ranges.clone() }];
        let open = File { inode: Some(6), paths: Vec::new(), more_paths: 0, ranges: ranges[..1].to_vec() };
        let damage = Damage { files: [files, vec![open]].concat(), complete: true };
        let text = described(&status("finished", 2, 2, 1), &damage);
        for part in [
            "scrubbed 160 KiB: 2 blocks are damaged",
            "bad blocks: 2, of which 1 have a replacement",
            "damaged: /a/b (also /c) at byte 4096, 8192 bytes",
            "repaired: /a/b (also /c) at byte 0, 4096 bytes",
            "damaged: inode 6, deleted and still open at byte 4096",
            "rewrite the damaged bytes",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        assert!(!text.contains("--json"), "{text}");
    }

    #[test]
    fn the_status_tells_how_far_it_is() {
        let eta_seconds = Some(75);
        let running = ScrubStatus {
            eta_seconds,
            bytes_per_second_max: 1 << 20,
            doing: "reading".into(),
            ..status("running", 0, 0, 0)
        };
        let text = described(&running, &Damage { complete: true, ..Damage::default() });
        assert_eq!(text, "160 KiB of 400 KiB read, at most 1.00 MiB/s (reading)\ntime left: 1 min 15 s\n");
        assert!(described(&status("never", 0, 0, 0), &Damage::default()).contains("never been scrubbed"));
    }
}
