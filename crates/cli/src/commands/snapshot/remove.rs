//! `oncefs snapshot remove`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Args;

use super::name::SnapshotName;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::control::tree_work::{await_work, ticket};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{Name, shown};
use crate::snapshots::Folder;

/// Arguments of `snapshot remove`.
#[derive(Debug, Args)]
#[command(after_help = "\
The name is gone at once, and everything else goes piece by piece. Ctrl-C ends the waiting and not the work. If the mount
ends first, the next one goes on. A file of the snapshot that is open can be read until it is closed.

Examples:
  oncefs snapshot remove /mnt before-upgrade")]
pub struct RemoveArgs {
    /// Any path inside the mount
    target: PathBuf,
    /// Name of the snapshot
    name: SnapshotName,
}

/// Removes a snapshot.
pub fn run(RemoveArgs { target, name }: &RemoveArgs) -> Outcome {
    let inside = InMount::find(target, "give any path inside one")?;
    let daemon = Daemon::of(&inside.mount)?;
    let unknown = || {
        let text = format!("there is no snapshot {name} (oncefs snapshot list {} shows all)", shown(target));
        Failure::new(exit::FAILED, text)
    };
    let cannot = format!("cannot remove the snapshot {name}");
    let folder = Folder::open(&inside.mount).or_fail_doing(exit::FAILED, cannot)?.ok_or_else(unknown)?;
    if !folder.path_of(name.as_path()).is_dir() {
        return Err(unknown());
    }
    remove(&daemon, &folder, OsStr::new(name.as_str()))
}

/// Removes a snapshot of this name.
pub fn remove(daemon: &Daemon, folder: &Folder, name: &OsStr) -> Outcome {
    let cannot = || format!("cannot remove the snapshot {}", shown(name));
    let parent = folder.inode().or_fail_doing(exit::FAILED, cannot())?;
    let ticket = ticket();
    let request = Request::RemoveSnapshot { parent, name: Name::from(name), ticket };
    let removed = await_work(daemon, request, ticket, ("removing the snapshot", "removed"));
    removed.map(drop).map_err(|failure| Failure::new(failure.code, format!("{}: {}", cannot(), failure.message)))
}
