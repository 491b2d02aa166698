//! `oncefs snapshot diff`.

mod moved;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use self::moved::{Change, Kind, join_moves};
use super::name::SnapshotName;
use crate::control::answers::{DiffCursor, DiffPortion, Difference};
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::held::Held;
use crate::files::in_mount::InMount;
use crate::names::{self, Name, shown};
use crate::snapshots::{Folder, Snapshot};

/// Arguments of `snapshot diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without B, the directory is compared as it is now. Paths are below the directory that the snapshot is of:

  + added     - removed     M content changed     a owner, mode, times or attributes changed     R moved, and from where

Inodes and maps are compared, never data. Equal contents that lie at different places count as changed. A move is shown
if kind, size and the times of creation and writing tell that it is the same file.

Examples:
  oncefs snapshot diff /mnt daily-2026-11-25
  oncefs snapshot diff /mnt daily-2026-11-25 daily-2026-11-26 --json | jq '.changes[].path'")]
pub struct DiffArgs {
    /// Any path inside the mount
    target: PathBuf,
    /// The older snapshot
    #[arg(value_name = "A")]
    older: SnapshotName,
    /// The newer snapshot [default: the directory as it is now]
    #[arg(value_name = "B")]
    newer: Option<SnapshotName>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Two directories that are compared.
struct Pair {
    path: PathBuf,
    older: Option<u64>,
    newer: Option<u64>,
}

/// Shows all differences.
pub fn run(arguments: &DiffArgs) -> Outcome {
    let inside = InMount::find(&arguments.target, "give any path inside one")?;
    let daemon = Daemon::of(&inside.mount)?;
    let cannot = || format!("cannot list the snapshots of {}", shown(&inside.mount.dir));
    let folder = Folder::open(&inside.mount).or_fail_doing(exit::FAILED, cannot())?;
    let all = folder.as_ref().map_or_else(|| Ok(Vec::new()), Folder::all);
    let all = all.or_fail_doing(exit::FAILED, cannot())?;
    let find = |name: &SnapshotName| {
        let found = all.iter().find(|snapshot| snapshot.name == name.as_str());
        found.zip(folder.as_ref()).map(|(found, folder)| (found, folder.path_of(name.as_path()))).ok_or_else(|| {
            let target = shown(&arguments.target);
            Failure::new(exit::FAILED, format!("there is no snapshot {name} (oncefs snapshot list {target} shows all)"))
        })
    };
    let (snapshot, older) = find(&arguments.older)?;
    let newer = match &arguments.newer {
        Some(name) => find(name)?.1,
        None => present(snapshot, &inside.mount.dir),
    };
    let number = |path: &Path| {
        let held = Held::at(path).and_then(|held| held.about());
        held.map(|about| about.ino()).or_fail_doing(exit::FAILED, format!("cannot read {}", shown(path)))
    };
    if arguments.newer.is_none() {
        daemon.write_back()?;
    }
    let top = Pair { path: PathBuf::new(), older: Some(number(&older)?), newer: Some(number(&newer)?) };
    let changes = join_moves(compare(&daemon, top)?);
    if arguments.json {
        say!("{}", names::json(&json!({ "changes": changes.iter().map(as_json).collect::<Vec<_>>() })));
    } else {
        changes.iter().for_each(|change| say!("{}", line(change)));
    }
    Ok(())
}

/// Where the directory is that a snapshot is of.
fn present(snapshot: &Snapshot, mount: &Path) -> PathBuf {
    let of = Path::new(OsStr::from_bytes(&snapshot.facts.of));
    mount.join(of.strip_prefix("/").unwrap_or(of))
}

/// All changes below two directories, sorted by path.
fn compare(daemon: &Daemon, top: Pair) -> Outcome<Vec<Change>> {
    let (mut changes, mut left) = (Vec::new(), vec![top]);
    while let Some(Pair { path, older, newer }) = left.pop() {
        let mut from = Some(DiffCursor::default());
        while let Some(cursor) = from {
            let portion: DiffPortion = daemon.ask(Request::DiffDirectories { older, newer, from: cursor })?;
            for diff in portion.names {
                let path = path.join(AsRef::<OsStr>::as_ref(&diff.name));
                let is_directory = |stamp: &crate::control::answers::Stamp| stamp.kind == libc::S_IFDIR;
                if diff.older.or(diff.newer).as_ref().is_some_and(is_directory) {
                    let number = |stamp: Option<crate::control::answers::Stamp>| stamp.map(|stamp| stamp.inode);
                    left.push(Pair { path: path.clone(), older: number(diff.older), newer: number(diff.newer) });
                }
                let kind = match diff.difference {
                    Difference::Added => Kind::Added,
                    Difference::Removed => Kind::Removed,
                    Difference::Modified => Kind::Modified,
                    Difference::Attributes => Kind::Attributes,
                    Difference::Same => continue,
                };
                changes.push(Change { kind, path, stamp: diff.newer.or(diff.older), from: None });
            }
            from = portion.next;
        }
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

fn line(change: &Change) -> String {
    let path = shown(&change.path);
    match (&change.from, change.kind) {
        (Some(from), _) => format!("R {} -> {path}", shown(from)),
        (None, Kind::Added | Kind::Moved) => format!("+ {path}"),
        (None, Kind::Removed) => format!("- {path}"),
        (None, Kind::Modified) => format!("M {path}"),
        (None, Kind::Attributes) => format!("a {path}"),
    }
}

fn as_json(change: &Change) -> Value {
    json!({
        "change": change.kind.name(),
        "path": Name::from(change.path.as_path()),
        "from": change.from.as_deref().map(Name::from),
    })
}
