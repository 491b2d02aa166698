//! `oncefs metrics`: the figures of mounts as metrics for Prometheus, to the standard output or to a file that
//! node_exporter reads.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::figures::health::Limits;
use crate::figures::metrics::{Subject, rows, text};
use crate::figures::volumes::{State, Volume, Where, all, of};
use crate::names::shown;
use crate::replace::replace;

/// All users may read the file, because the exporter is not root.
const MODE: u32 = 0o644;

/// Arguments of `metrics`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a mount: all mounts, and the volumes that fstab names without noauto. A volume whose daemon is gone has
oncefs_mount_up 0 and no other figures. FILE is replaced as a whole, so no reader sees a part of it.

Another way is -o metrics=ADDRESS:PORT of mount: the daemon answers Prometheus itself.

Examples:
  oncefs metrics /mnt
  oncefs metrics -o /var/lib/prometheus/node-exporter/oncefs.prom
  oncefs metrics --list                        what there is, as a table")]
pub struct MetricsArgs {
    /// Mounts or volumes
    #[arg(value_name = "MOUNT")]
    pub targets: Vec<PathBuf>,
    /// Write to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show the names of all metrics and what they mean
    #[arg(long, conflicts_with_all = ["targets", "output"])]
    pub list: bool,
    #[command(flatten)]
    pub places: Where,
}

/// Prints or writes the metrics.
pub fn run(arguments: &MetricsArgs) -> Outcome {
    if arguments.list {
        rows().iter().for_each(|row| say!("{row}"));
        return Ok(());
    }
    let volumes: Vec<Volume> = match &arguments.targets[..] {
        [] => all(&arguments.places)?.into_iter().filter(|volume| volume.is_wanted).collect(),
        targets => targets.iter().map(|target| of(target)).collect::<Outcome<_>>()?,
    };
    let (mut subjects, mut unknown) = (Vec::new(), Vec::new());
    for volume in &volumes {
        match subject(volume) {
            Ok(subject) => subjects.push(subject),
            Err(why) => unknown.push(format!("{}: {why}", shown(volume.place()))),
        }
    }
    let text = text(&subjects);
    match &arguments.output {
        Some(file) => {
            replace(file, &text, MODE).or_fail_doing(exit::FAILED, format!("cannot write {}", shown(file)))?
        }
        None => put!("{text}"),
    }
    if unknown.is_empty() { Ok(()) } else { Err(Failure::new(exit::FAILED, unknown.join("; "))) }
}

fn subject(volume: &Volume) -> Result<Subject<'_>, String> {
    match &volume.state {
        State::Mounted(snapshot) => Ok(Subject::of(snapshot)),
        _ => {
            let findings = volume.findings(&Limits::default())?;
            let [volume, mount] = [&volume.volume, volume.place()].map(|path: &Path| shown(path).to_string());
            Ok(Subject::without_daemon(volume, mount, findings))
        }
    }
}
