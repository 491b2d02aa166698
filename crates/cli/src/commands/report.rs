//! `oncefs report`: the data that a mounted volume holds, stores and shares, as one page of HTML without external
//! resources.
//!
//! Goes through all files once, and through all maps for partners and for runs. Memory is bounded by the aggregates,
//! for any number of files.

mod collect;
mod facts;
mod groups;
mod history;
mod linked;
mod markup;
mod page;
mod partners;
mod pictures;
mod sections;
mod sharing;
mod style;
mod timeline;

use std::path::{Path, PathBuf};

use clap::Args;

use crate::commands::stats::fragmentation::Fragmentation;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::figures::history::Timeline;
use crate::figures::of_mount::Snapshot;
use crate::files::in_mount::InMount;
use crate::names::shown;
use crate::replace::{can_be_replaced, replace};
use crate::text::unix_seconds;
use collect::Collected;
use facts::Facts;

/// The report names the files of all users, so only its owner may read it.
const MODE: u32 = 0o600;

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = "\
The report is one file of HTML that loads nothing: savings and growth
over time with a forecast, what each directory and type of file holds and shares,
which files share with which, run lengths, reads and latency. It names files of all users, so its mode is 0600.
An existing FILE is replaced as a whole. Needs root. Reads no file's data, but asks the daemon about every file.

Examples:
  oncefs report /mnt -o report.html
  oncefs report /mnt -o - | mail -a Content-Type:text/html -s oncefs root")]
pub struct ReportArgs {
    /// Any path inside a mount, or the volume
    #[arg(value_name = "MOUNT")]
    pub target: PathBuf,
    /// Write to this file; - is the standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Writes the report of a mounted volume.
pub fn run(arguments: &ReportArgs) -> Outcome {
    let file = Some(&*arguments.output).filter(|file| *file != Path::new("-"));
    let doing = || format!("cannot write {}", shown(&arguments.output));
    if let Some(file) = file {
        // Checked before the work, which may take long.
        can_be_replaced(file).or_fail_doing(exit::FAILED, doing())?;
    }
    let daemon = Daemon::find(&arguments.target)?;
    daemon.write_back()?;
    let snapshot = Snapshot::take(&daemon)?;
    let text = page::text(&find(&daemon, &snapshot)?);
    match file {
        Some(file) => replace(file, &text, MODE).or_fail_doing(exit::FAILED, doing()),
        None => {
            put!("{text}");
            Ok(())
        }
    }
}

fn find<'a>(daemon: &Daemon, snapshot: &'a Snapshot) -> Outcome<Facts<'a>> {
    let Some(mount) = &snapshot.mount else {
        let text = format!("{} is mounted where this command cannot see it", shown(&snapshot.volume));
        return Err(Failure::new(exit::FAILED, text));
    };
    let top = InMount::find(mount, "give the mount (oncefs list shows all)")?;
    let mut collected = Collected::of(daemon, top, snapshot.held_bytes())?;
    let sharing = partners::find(daemon, std::mem::take(&mut collected.sharing).files())?;
    let fragmentation = Fragmentation::read(daemon)?;
    let now = unix_seconds();
    let timeline = Timeline::of(snapshot, now)?;
    Ok(Facts { snapshot, timeline, collected, sharing, fragmentation, seconds: now })
}
