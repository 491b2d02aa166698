//! `oncefs snapshot create`.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;

use super::name::{SnapshotName, series_of};
use super::remove::remove;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::control::tree_work::{await_work, ticket};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{Name, shown};
use crate::snapshots::{Folder, Snapshot};

/// Arguments of `snapshot create`.
#[derive(Debug, Args)]
#[command(after_help = "\
What was written before is in the snapshot. Each file is as it was at one moment; names that other programs move
meanwhile may be missing. The snapshot appears when it is whole and durable. A snapshot of the root of a mount is without
.oncefs.

With --keep, a series is all snapshots of the same directory whose names begin alike up to the first digit, like daily-
in daily-2026-11-26.

Examples:
  oncefs snapshot create /mnt before-upgrade
  oncefs snapshot create /mnt/home daily-$(date +%F) --keep 14")]
pub struct CreateArgs {
    /// The mount, or a directory in it
    target: PathBuf,
    /// Name of the new snapshot
    name: SnapshotName,
    /// Then remove the oldest of its series until N are left
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
}

/// Makes a snapshot, and removes old ones.
pub fn run(CreateArgs { target, name, keep }: &CreateArgs) -> Outcome {
    let source = InMount::find(target, "give a mount, or a directory in one")?;
    let cannot = || format!("cannot make the snapshot {name} of {}", shown(target));
    let about = source.held.about().or_fail_doing(exit::FAILED, cannot())?;
    if !about.is_dir() {
        let text = format!("{}: it is not a directory (oncefs clone copies a file)", cannot());
        return Err(Failure::new(exit::FAILED, text));
    }
    let daemon = Daemon::of(&source.mount)?;
    daemon.write_back()?;
    let folder = Folder::create(&source.mount).or_fail_doing(exit::FAILED, cannot())?;
    let below = source.path.strip_prefix(&source.mount.dir).unwrap_or(Path::new(""));
    let of = Path::new("/").join(below);
    let ticket = ticket();
    let request = Request::CopyTree {
        source: about.ino(),
        parent: folder.inode().or_fail_doing(exit::FAILED, cannot())?,
        name: Name::from(OsStr::new(name.as_str())),
        snapshot_of: Some(Name::from(of.as_path())),
        ticket,
    };
    let made = await_work(&daemon, request, ticket, ("making the snapshot", "copied"));
    made.map_err(|failure| Failure::new(failure.code, format!("{}: {}", cannot(), failure.message)))?;
    match keep {
        None => Ok(()),
        Some(keep) => remove_old(&daemon, &folder, name, *keep as usize),
    }
}

/// Removes the oldest snapshots of a series.
fn remove_old(daemon: &Daemon, folder: &Folder, name: &SnapshotName, keep: usize) -> Outcome {
    let doing = || format!("{name} is made, but old snapshots cannot be listed for --keep");
    let all = folder.all().or_fail_doing(exit::FAILED, doing())?;
    for old in surplus(&all, name.as_str(), keep) {
        remove(daemon, folder, &old.name)?;
        say!("removed the snapshot {}", shown(&old.name));
    }
    Ok(())
}

/// The snapshots of the series of `name` beyond the newest `keep`. `all` is in the order of time.
fn surplus<'a>(all: &'a [Snapshot], name: &str, keep: usize) -> Vec<&'a Snapshot> {
    let named = |snapshot: &Snapshot| snapshot.name.to_str().map(str::to_owned);
    let Some(newest) = all.iter().find(|snapshot| snapshot.name == name) else { return Vec::new() };
    let is_of_series = |snapshot: &&Snapshot| {
        snapshot.facts.of == newest.facts.of
            && named(snapshot).is_some_and(|other| series_of(&other) == series_of(name))
    };
    let series: Vec<&Snapshot> = all.iter().filter(is_of_series).collect();
    let surplus = series.len().saturating_sub(keep);
    // The new one stays, even if the clock went back and it counts as old.
    series.into_iter().filter(|snapshot| snapshot.name != name).take(surplus).collect()
}

#[cfg(test)]
mod tests {
    use oncefs_fs::SnapshotFacts;

    use super::*;

    fn snapshot(name: &str, created_seconds: i64, of: &str) -> Snapshot {
        let facts = SnapshotFacts { created_seconds, names: 1, bytes: 0, of: of.as_bytes().to_vec() };
        Snapshot { name: name.into(), inode: 1, facts }
    }

    #[test]
    fn the_oldest_of_the_same_series_and_directory_go_and_never_the_new_one() {
        let all = [
            snapshot("daily-9", 1, "/"),
            snapshot("by-hand", 2, "/"),
            snapshot("daily-1", 3, "/home"),
            snapshot("daily-2", 4, "/"),
            snapshot("weekly-1", 5, "/"),
            snapshot("daily-3", 6, "/"),
        ];
        let removed = |name: &str, keep| -> Vec<String> {
            surplus(&all, name, keep).iter().map(|old| old.name.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(removed("daily-3", 2), ["daily-9"]);
        assert_eq!(removed("daily-3", 1), ["daily-9", "daily-2"]);
        assert_eq!(removed("daily-9", 1), ["daily-2", "daily-3"], "the clock went back");
        assert!(removed("daily-3", 3).is_empty() && removed("by-hand", 1).is_empty() && removed("gone", 1).is_empty());
    }
}
