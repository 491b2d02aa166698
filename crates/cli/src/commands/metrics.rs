//! `oncefs metrics`: the figures of mounts as metrics for Prometheus, to the standard output or to a file that
//! node_exporter reads.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::figures::health::Limits;
use crate::figures::metrics::{Subject, rows, text};
use crate::figures::volumes::{State, Volume, Where, all, of};
use crate::names::shown;

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
        Some(file) => replace(file, &text).or_fail_doing(exit::FAILED, format!("cannot write {}", shown(file)))?,
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

/// Writes a new file beside the old one, which it then replaces. Everybody may read it: the exporter is not root.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let name = file.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    // The exporter reads what ends in .prom only.
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let beside = file.with_file_name(hidden);
    let write = || {
        let mut new = File::options().write(true).create_new(true).mode(0o644).open(&beside)?;
        new.set_permissions(Permissions::from_mode(0o644))?;
        new.write_all(text.as_bytes())?;
        fs::rename(&beside, file)
    };
    write().inspect_err(|_| drop(fs::remove_file(&beside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_stays_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oncefs.prom");
        fs::write(&file, "old").unwrap();
        replace(&file, "new\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(replace(dir.path(), "new").is_err(), "a directory is no file");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
