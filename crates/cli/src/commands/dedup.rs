//! `oncefs dedup`: makes the out-of-line worker work now, holds it up, lets it go on, sets its hours, or says what it
//! does.

mod status;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args};
use oncefs_engine::{DedupCommand, DedupStatus, Report};
use serde_json::json;

use crate::commands::stats::saved_bytes;
use crate::control::answers::Tuned;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::mounting::options::{self, Setting};
use crate::process::signals::EndSignals;
use crate::progress::Progress;
use crate::size::Size;
use crate::text::shown;

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
        if arguments.json { println!("{:#}", json!(status)) } else { print!("{}", status::render(&status)) }
    } else if arguments.pause {
        command(&daemon, DedupCommand::Pause)?;
        println!("out-of-line deduplication is paused until: oncefs dedup {target} --resume");
    } else if arguments.resume {
        command(&daemon, DedupCommand::Resume)?;
        println!("out-of-line deduplication goes on");
    } else if let Some(schedule) = arguments.schedule {
        daemon.ask::<Tuned>(Request::Tune { changes: vec![schedule] })?;
        let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
        println!("out-of-line deduplication at these hours, until the volume is unmounted: {}", status::hours(&status));
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
    daemon.write_back()?;
    let before = Figures { status, saved_bytes: saved(daemon)? };
    command(daemon, DedupCommand::Now { full })?;
    Ok(before)
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

#[cfg(test)]
mod tests {
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
}
