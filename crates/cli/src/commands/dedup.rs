//! `oncefs dedup`: makes the out-of-line worker work now, holds it up, lets it go on, sets its hours, or says what it
//! does.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args};
use oncefs_engine::{DedupCommand, DedupStatus, Report};
use serde_json::json;

use crate::commands::stats::saved_bytes;
use crate::control::protocol::{Request, Tuned};
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table::{self, shown};
use crate::mounting::options::{self, Setting};
use crate::process::setup::{self, EndSignals};
use crate::progress::Progress;
use crate::size::Size;

/// How often the daemon is asked how far it is.
const POLL: Duration = Duration::from_millis(100);

/// Arguments of `dedup`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["now", "pause", "resume", "schedule", "status"])),
after_help = "\
Out of line, duplicates are found that nobody looked for as they were written. By default that happens when the
volume is idle. Ctrl-C ends the display of --now, not the work; --pause does.

WHEN is 'always', or windows of the local clock joined by commas: 22:00-06:00 for every night, and days before the
hours, as in 'Sat-Sun 00:00-24:00'. It holds until the volume is unmounted; -o schedule=WHEN sets it at each mount,
with + for a comma. --now minds no hours.

Examples:
  oncefs dedup /mnt --now                   find all duplicates in what was skipped; shows how far it is
  oncefs dedup /mnt --now --full            look at every block of the volume once more
  oncefs dedup /mnt --now --background      return at once
  oncefs dedup /mnt --schedule '22:00-06:00,Sat-Sun 00:00-24:00'
  oncefs dedup /mnt --status")]
pub struct DedupArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Work at once, idle or not and as fast as it goes, until nothing is left
    #[arg(long)]
    pub now: bool,
    /// Look at every block of the volume, not only at what was skipped
    #[arg(long, conflicts_with_all = ["pause", "resume", "schedule", "status"])]
    pub full: bool,
    /// Do not wait for the end
    #[arg(long, conflicts_with_all = ["pause", "resume", "schedule", "status"])]
    pub background: bool,
    /// OnPublish the work up until --resume or the next mount
    #[arg(long)]
    pub pause: bool,
    /// Go on after --pause
    #[arg(long)]
    pub resume: bool,
    /// Work only at these hours of the week
    #[arg(long, value_name = "WHEN", value_parser = options::schedule)]
    pub schedule: Option<Setting>,
    /// Show what is being done, what is left and what has been found
    #[arg(long)]
    pub status: bool,
    /// The status as JSON
    #[arg(long, conflicts_with_all = ["now", "pause", "resume", "schedule"])]
    pub json: bool,
}

/// Does the one thing that was asked for.
pub fn run(arguments: DedupArgs) -> Outcome {
    let daemon = Daemon::find(&arguments.target)?;
    let target = shown(&arguments.target);
    if arguments.status {
        let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
        if arguments.json { println!("{:#}", json!(status)) } else { print!("{}", described(&status)) }
    } else if arguments.pause {
        command(&daemon, DedupCommand::Pause)?;
        println!("out-of-line deduplication is paused until: oncefs dedup {target} --resume");
    } else if arguments.resume {
        command(&daemon, DedupCommand::Resume)?;
        println!("out-of-line deduplication goes on");
    } else if let Some(schedule) = arguments.schedule {
        daemon.ask::<Tuned>(Request::Tune { changes: vec![schedule] })?;
        let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
        println!("out-of-line deduplication at these hours, until the volume is unmounted: {}", hours(&status));
    } else if arguments.background {
        start(&daemon, arguments.full, &arguments.target)?;
        println!("deduplicating in the background; how far it is says: oncefs dedup {target} --status");
    } else {
        now(&daemon, arguments.full, &arguments.target)?;
    }
    Ok(())
}

fn command(daemon: &Daemon, command: DedupCommand) -> Outcome {
    daemon.ask(Request::Dedup { command })
}

/// Starts the work. Gives the figures from before it.
fn start(daemon: &Daemon, full: bool, target: &Path) -> Outcome<Figures> {
    let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
    if status.paused {
        let text = format!("out-of-line deduplication is paused: oncefs dedup {} --resume comes first", shown(target));
        return Err(Failure::new(exit::FAILED, text));
    }
    hand_over(daemon)?;
    let before = Figures { status, saved_bytes: saved(daemon)? };
    command(daemon, DedupCommand::Now { full })?;
    Ok(before)
}

/// What the kernel still holds of writes is part of the work.
pub fn hand_over(daemon: &Daemon) -> Outcome {
    match mount_table::of_volume(&daemon.volume).or_fail(exit::FAILED)? {
        Some(mount) => setup::sync_file_system(&mount.dir)
            .or_fail_doing(exit::FAILED, format!("cannot sync {}", shown(&mount.dir))),
        None => Ok(()),
    }
}

/// Starts the work and shows it until nothing is left. A signal ends the display only.
fn now(daemon: &Daemon, full: bool, target: &Path) -> Outcome {
    let signals = EndSignals::block();
    let before = start(daemon, full, target)?;
    let (mut progress, mut backlog) = (Progress::new(), Backlog::default());
    loop {
        let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
        if !status.now {
            drop(progress);
            daemon.ask::<()>(Request::Commit)?;
            println!("{}", summary(&before, &Figures { status, saved_bytes: saved(daemon)? }));
            return Ok(());
        }
        let step = backlog.step(&status);
        progress.show(&step.doing, step.done, step.total);
        if signals.wait(Some(POLL)).is_some() {
            drop(progress);
            let target = shown(target);
            let text = format!("only this display ends: the work goes on, see oncefs dedup {target} --status");
            return Err(Failure::new(exit::FAILED, text));
        }
    }
}

/// What the work is measured by. Blocks that became references are more than those freed: of three references to a
/// copy, all have to move until it goes.
struct Figures {
    status: DedupStatus,
    saved_bytes: u64,
}

fn saved(daemon: &Daemon) -> Outcome<u64> {
    let report: Report = daemon.ask(Request::Stats)?;
    Ok(saved_bytes(&report))
}

fn summary(before: &Figures, after: &Figures) -> String {
    let looked_at = after.status.blocks_looked_at.saturating_sub(before.status.blocks_looked_at);
    let remapped = after.status.blocks_remapped.saturating_sub(before.status.blocks_remapped);
    let saved = Size(after.saved_bytes.saturating_sub(before.saved_bytes));
    format!("looked at {looked_at} blocks, {remapped} of them are shared now: {saved} saved")
}

/// One look at the work.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    doing: String,
    done: u64,
    total: u64,
}

/// How much there is to do: the most that was ever left, for writes meanwhile add to it.
#[derive(Debug, Default)]
struct Backlog {
    blocks_max: u64,
}

impl Backlog {
    /// The hint store comes first: without its disk level duplicates are missed.
    fn step(&mut self, status: &DedupStatus) -> Step {
        if status.rebuild_pages_done < status.rebuild_pages {
            let doing = "filling the hint store from pages of the block table".to_owned();
            return Step { doing, done: status.rebuild_pages_done, total: status.rebuild_pages };
        }
        let left_of_pass = status.pass_blocks.saturating_sub(status.pass_blocks_done);
        let left = status.skipped_blocks + if status.full_pass { left_of_pass } else { 0 };
        self.blocks_max = self.blocks_max.max(left);
        let doing = format!("deduplicating blocks ({})", status.doing);
        Step { doing, done: self.blocks_max - left, total: self.blocks_max }
    }
}

/// Adds a line; writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $name:literal, $($arg:tt)*) => {
        writeln!($text, "{:<14}{}", $name, format_args!($($arg)*)).expect("writing to a string cannot fail")
    };
}

fn described(status: &DedupStatus) -> String {
    let mut text = String::new();
    let asked = if status.now { ", as asked for with --now" } else { "" };
    let paused = if status.paused && status.doing != "paused" { ", paused" } else { "" };
    line!(text, "worker", "{}{asked}{paused}", status.doing);
    line!(text, "left", "{}", left(status));
    if status.full_pass {
        line!(text, "full pass", "{} of {} blocks looked at", status.pass_blocks_done, status.pass_blocks);
    }
    if let Some(seconds) = status.eta_seconds {
        line!(text, "ready in", "{}", duration(seconds));
    }
    line!(text, "schedule", "{}", hours(status));
    line!(text, "so far", "{} blocks looked at, {} shared", status.blocks_looked_at, status.blocks_remapped);
    line!(text, "hint store", "{}", hint_store(status));
    let (share, limit) = (status.inline_percent, status.inline_limit_percent);
    line!(text, "in-line", "{share:.0} % of the requests, at most {limit:.0} %");
    line!(text, "gave way", "{}", gave_way(status));
    line!(text, "power", "{}", if status.supply.is_empty() { "unknown" } else { &status.supply });
    text
}

fn left(status: &DedupStatus) -> String {
    match (status.skipped_blocks, status.skipped_files) {
        (0, 0) if status.full_pass => "a full pass".into(),
        (0, 0) => "nothing".into(),
        (blocks, 0) => format!("{blocks} skipped blocks"),
        (blocks, files) => format!("{blocks} skipped blocks, {files} files as a whole"),
    }
}

fn hours(status: &DedupStatus) -> String {
    let begin = status.opens_in_seconds.map(|seconds| format!(", which begin in {}", duration(seconds)));
    let schedule = if status.schedule.is_empty() { "unknown" } else { &status.schedule };
    format!("{schedule}{}", begin.unwrap_or_default())
}

/// Of requests that came while the worker was at work: how long until it let go of the machine.
fn gave_way(status: &DedupStatus) -> String {
    match status.gave_way.count {
        0 => "no request came beside the work".into(),
        count => {
            let (mean, most) = (status.gave_way.mean_us() / 1e3, status.gave_way.percentile_us_max(1.0) as f64 / 1e3);
            format!("to {count} requests that came beside the work: within {mean:.1} ms, all below {most:.0} ms")
        }
    }
}

fn hint_store(status: &DedupStatus) -> String {
    if status.rebuild_pages_done < status.rebuild_pages {
        return format!(
            "being filled from the block table: {} of {} pages",
            status.rebuild_pages_done, status.rebuild_pages
        );
    }
    "complete".into()
}

/// A time in two units at most.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::Histogram;

    use super::*;

    fn working() -> DedupStatus {
        DedupStatus { doing: "working".into(), now: true, supply: "mains".into(), ..DedupStatus::default() }
    }

    #[test]
    fn the_summary_counts_what_came_since_the_start() {
        let figures = |blocks_looked_at, blocks_remapped, saved_bytes| Figures {
            status: DedupStatus { blocks_looked_at, blocks_remapped, ..working() },
            saved_bytes,
        };
        let (before, after) = (figures(100, 7, 5 << 20), figures(612, 263, 6 << 20));
        assert_eq!(summary(&before, &after), "looked at 512 blocks, 256 of them are shared now: 1.00 MiB saved");
    }

    #[test]
    fn progress_grows_while_work_shrinks_and_work_that_is_added_counts() {
        let mut backlog = Backlog::default();
        let mut at = |skipped_blocks, pass_blocks_done| {
            let status = DedupStatus { full_pass: true, pass_blocks: 50, ..working() };
            let step = backlog.step(&DedupStatus { skipped_blocks, pass_blocks_done, ..status });
            (step.done, step.total)
        };
        assert_eq!([at(100, 0), at(60, 0), at(0, 10), at(200, 50)], [(0, 150), (40, 150), (110, 150), (0, 200)]);
    }

    #[test]
    fn the_hint_store_is_filled_first() {
        let status = DedupStatus { rebuild_pages: 40, rebuild_pages_done: 10, skipped_blocks: 5, ..working() };
        let step = Backlog::default().step(&status);
        assert_eq!(
            (step.doing.as_str(), step.done, step.total),
            ("filling the hint store from pages of the block table", 10, 40)
        );
    }

    #[test]
    fn work_that_waits_says_why() {
        let status = DedupStatus { doing: "paused".into(), skipped_blocks: 5, ..working() };
        assert_eq!(Backlog::default().step(&status).doing, "deduplicating blocks (paused)");
    }

    #[test]
    fn the_status_says_what_is_done_what_is_left_and_how_long_it_takes() {
        let status = DedupStatus {
            skipped_blocks: 12,
            skipped_files: 3,
            full_pass: true,
            pass_blocks: 900,
            pass_blocks_done: 450,
            eta_seconds: Some(75),
            inline_percent: 30.2,
            inline_limit_percent: 57.0,
            schedule: "22:00-06:00".into(),
            opens_in_seconds: Some(3 * 3600 + 60),
            gave_way: Histogram {
                count: 2,
                nanoseconds: 5_000_000,
                classes: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
            },
            ..working()
        };
        let text = described(&status);
        for part in [
            "working, as asked for with --now",
            "12 skipped blocks, 3 files as a whole",
            "450 of 900 blocks",
            "1 min 15 s",
            "30 % of the requests, at most 57 %",
            "mains",
            "complete",
            "22:00-06:00, which begin in 3 h 1 min",
            "to 2 requests that came beside the work: within 2.5 ms, all below 4 ms",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        assert!(described(&DedupStatus::default()).contains("nothing"));
    }

    #[test]
    fn durations_have_two_units_at_most() {
        assert_eq!(
            [5, 59, 60, 3599, 3600, 90_000].map(duration),
            ["5 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 0 min"]
        );
    }
}
