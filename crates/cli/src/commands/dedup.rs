//! `oncefs dedup`: starts, pauses, resumes and schedules the out-of-line worker, and shows its state.

mod status;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args};
use oncefs_engine::{Blocks, DedupCommand, DedupStatus, Report};

use crate::control::answers::Tuned;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::figures::of_mount::saved_bytes;
use crate::mounting::options::{self, Setting};
use crate::names::{self, shown};
use crate::process::signals::EndSignals;
use crate::progress::{Progress, Step};
use crate::size::Size;

/// How often to ask the daemon for its progress.
const POLL: Duration = Duration::from_millis(100);

/// Arguments of `dedup`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["now", "pause", "resume", "schedule", "status"])),
after_help = "\
Out-of-line deduplication finds the duplicates that were not found while writing. By default it runs when the volume is
idle. Ctrl-C ends the progress display of --now, but not the work; use --pause for that.

WHEN is 'always', or windows of local time joined by commas: 22:00-06:00 is every night; days go before the hours, as in
'Sat-Sun 00:00-24:00'. It lasts until the volume is unmounted; -o schedule=WHEN sets it at each mount, with + for a
comma. --now ignores the schedule.

Examples:
  oncefs dedup /mnt --now                   find the duplicates not found while writing; shows progress
  oncefs dedup /mnt --now --full            examine every block of the volume again
  oncefs dedup /mnt --now --background      return at once
  oncefs dedup /mnt --schedule '22:00-06:00,Sat-Sun 00:00-24:00'
  oncefs dedup /mnt --status")]
pub struct DedupArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Work now, idle or not, at full speed, until nothing is left
    #[arg(long)]
    pub now: bool,
    /// Examine every block of the volume, not only those left to the worker
    #[arg(long, conflicts_with_all = ["pause", "resume", "schedule", "status"])]
    pub full: bool,
    /// Return at once instead of waiting for the end
    #[arg(long, conflicts_with_all = ["pause", "resume", "schedule", "status"])]
    pub background: bool,
    /// Pause the work until --resume or the next mount
    #[arg(long)]
    pub pause: bool,
    /// Resume after --pause
    #[arg(long)]
    pub resume: bool,
    /// Work only in these hours of the week
    #[arg(long, value_name = "WHEN", value_parser = options::schedule)]
    pub schedule: Option<Setting>,
    /// Show what the worker is doing, what is left and what it found
    #[arg(long)]
    pub status: bool,
    /// Print the status as JSON
    #[arg(long, conflicts_with_all = ["now", "pause", "resume", "schedule"])]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: DedupArgs) -> Outcome {
    let daemon = Daemon::find(&arguments.target)?;
    let target = shown(&arguments.target);
    if arguments.status {
        let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
        if arguments.json { say!("{}", names::json(&status)) } else { put!("{}", status::render(&status)) }
    } else if arguments.pause {
        command(&daemon, DedupCommand::Pause)?;
        say!("out-of-line deduplication is paused; resume it with: oncefs dedup {target} --resume");
    } else if arguments.resume {
        command(&daemon, DedupCommand::Resume)?;
        say!("out-of-line deduplication has resumed");
    } else if let Some(schedule) = arguments.schedule {
        daemon.ask::<Tuned>(Request::Tune { changes: vec![schedule] })?;
        let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
        say!("schedule of out-of-line deduplication, until the volume is unmounted: {}", status::hours(&status));
    } else if arguments.background {
        start(&daemon, arguments.full, &arguments.target)?;
        say!("deduplicating in the background; progress: oncefs dedup {target} --status");
    } else {
        now(&daemon, arguments.full, &arguments.target)?;
    }
    Ok(())
}

fn command(daemon: &Daemon, command: DedupCommand) -> Outcome {
    daemon.ask(Request::Dedup { command })
}

/// Starts the work. Returns the figures from before.
fn start(daemon: &Daemon, full: bool, target: &Path) -> Outcome<Figures> {
    let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
    if status.paused {
        let text =
            format!("out-of-line deduplication is paused: resume it first (oncefs dedup {} --resume)", shown(target));
        return Err(Failure::new(exit::FAILED, text));
    }
    daemon.write_back()?;
    let before = Figures { status, saved_bytes: saved(daemon)? };
    command(daemon, DedupCommand::Now { full })?;
    Ok(before)
}

/// Starts the work and shows progress until nothing is left. A signal ends only the display.
fn now(daemon: &Daemon, full: bool, target: &Path) -> Outcome {
    let signals = EndSignals::block();
    let before = start(daemon, full, target)?;
    let (mut progress, mut backlog) = (Progress::new(), Backlog::default());
    loop {
        let status: DedupStatus = daemon.ask(Request::DedupStatus)?;
        if !status.now {
            let examined = examined(&before.status, &status);
            progress.end("examined", Step::blocks(examined.0, examined.0));
            daemon.ask::<()>(Request::Commit)?;
            let after = Figures { status, saved_bytes: saved(daemon)? };
            say!("{}", summary(&before, &after));
            say!("{}", in_all(&after));
            return Ok(());
        }
        let (doing, step) = backlog.step(&status);
        let hindrance = Some(status.doing.as_str()).filter(|doing| *doing != "working");
        progress.show_hindered(doing, step, hindrance);
        if signals.wait(Some(POLL)).is_some() {
            drop(progress);
            let target = shown(target);
            let text = format!(
                "the display ended, the work continues in the background; progress: oncefs dedup {target} --status"
            );
            return Err(Failure::new(exit::FAILED, text));
        }
    }
}

/// The figures before or after the work. The work moves more references than it frees blocks: a copy with three
/// references is freed only when all three have moved.
struct Figures {
    status: DedupStatus,
    saved_bytes: u64,
}

fn saved(daemon: &Daemon) -> Outcome<u64> {
    let report: Report = daemon.ask(Request::Stats)?;
    Ok(saved_bytes(&report))
}

fn examined(before: &DedupStatus, after: &DedupStatus) -> Blocks {
    Blocks(after.blocks_revisited.saturating_sub(before.blocks_revisited))
}

fn summary(before: &Figures, after: &Figures) -> String {
    let examined = Size(examined(&before.status, &after.status).bytes());
    let remapped = Size(Blocks(after.status.blocks_remapped.saturating_sub(before.status.blocks_remapped)).bytes());
    let saved = Size(after.saved_bytes.saturating_sub(before.saved_bytes));
    format!("examined {examined}, {remapped} of it is now shared: {saved} saved")
}

/// The total that sharing saves, including duplicates found while writing, which the work does not find again.
fn in_all(after: &Figures) -> String {
    format!("with what was found before, sharing saves {} in all", Size(after.saved_bytes))
}

/// The amount of work: the largest backlog seen, because writes add to it meanwhile.
#[derive(Debug, Default)]
struct Backlog {
    blocks_max: u64,
}

impl Backlog {
    /// The hint store comes first: without its disk level, duplicates are missed.
    fn step(&mut self, status: &DedupStatus) -> (&'static str, Step) {
        if status.rebuild_pages_done < status.rebuild_pages {
            let pages = Step::things("pages of the block table", status.rebuild_pages_done, status.rebuild_pages);
            return ("filling the hint store", pages);
        }
        let left_of_pass = status.pass_blocks.saturating_sub(status.pass_blocks_done);
        let left = status.skipped_blocks + if status.full_pass { left_of_pass } else { 0 };
        self.blocks_max = self.blocks_max.max(left);
        ("deduplicating", Step::blocks(self.blocks_max - left, self.blocks_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working() -> DedupStatus {
        DedupStatus { doing: "working".into(), now: true, power: "mains".into(), ..DedupStatus::default() }
    }

    #[test]
    fn the_summary_counts_what_came_since_the_start() {
        let figures = |blocks_revisited, blocks_remapped, saved_bytes| Figures {
            status: DedupStatus { blocks_revisited, blocks_remapped, ..working() },
            saved_bytes,
        };
        let (before, after) = (figures(100, 7, 5 << 20), figures(612, 263, 6 << 20));
        assert_eq!(summary(&before, &after), "examined 2.00 MiB, 1.00 MiB of it is now shared: 1.00 MiB saved");
    }

    #[test]
    fn what_was_saved_before_the_start_counts_in_all() {
        let figures = Figures { status: working(), saved_bytes: 158 << 20 };
        assert_eq!(in_all(&figures), "with what was found before, sharing saves 158 MiB in all");
    }

    #[test]
    fn progress_grows_while_work_shrinks_and_work_that_is_added_counts() {
        let mut backlog = Backlog::default();
        let mut at = |skipped_blocks, pass_blocks_done| {
            let status = DedupStatus { full_pass: true, pass_blocks: 50, ..working() };
            backlog.step(&DedupStatus { skipped_blocks, pass_blocks_done, ..status }).1
        };
        let steps = [at(100, 0), at(60, 0), at(0, 10), at(200, 50)];
        let expected = [(0, 150), (40, 150), (110, 150), (0, 200)];
        assert_eq!(steps, expected.map(|(done, total)| Step::blocks(done, total)));
    }

    #[test]
    fn the_hint_store_is_filled_first() {
        let status = DedupStatus { rebuild_pages: 40, rebuild_pages_done: 10, skipped_blocks: 5, ..working() };
        let pages = Step::things("pages of the block table", 10, 40);
        assert_eq!(Backlog::default().step(&status), ("filling the hint store", pages));
    }
}
