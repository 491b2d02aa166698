//! The daemon's part of clones and snapshots: copies and removes trees, and tells the kernel of names that come and go.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncefs_fs::{CopyFailed, CopyKind, FileSystem, Ino, TreeCopy, TreeProgress};
use oncefs_fuse::KernelCache;
use serde_json::{Value, json};

use crate::control::answers::{DiffCursor, DiffPortion, OwnPortion, TreeDone};
use crate::control::server::{CLIENT_GONE, Client};
use crate::names::{Name, shown};

/// The work under way, by the number that its client chose.
#[derive(Default)]
pub struct Trees(Mutex<HashMap<u64, Arc<TreeProgress>>>);

/// A copy that a command wants.
pub struct Order<'a> {
    /// The tree to copy.
    pub source: Ino,
    /// The directory that gets the copy.
    pub parent: Ino,
    /// Its name there.
    pub name: &'a Name,
    /// The source that a snapshot shows. None: the copy is no snapshot.
    pub snapshot_of: &'a Option<Name>,
}

/// Work under way, which others can ask for, until it is dropped.
struct Ticket<'a> {
    trees: &'a Trees,
    number: u64,
    progress: Arc<TreeProgress>,
}

impl Trees {
    /// How far the work of this number is. Zeros: it has not begun, or is over.
    pub fn progress_of(&self, number: u64) -> TreeDone {
        self.all().get(&number).map(|progress| done(progress)).unwrap_or_default()
    }

    /// Copies a tree. A snapshot is durable on return.
    pub fn copy(
        &self,
        file_system: &FileSystem,
        kernel: Option<&Arc<KernelCache>>,
        order: &Order<'_>,
        number: u64,
        client: &Client,
    ) -> Result<Value, String> {
        let ticket = self.begin(number)?;
        let of = order.snapshot_of.as_ref().map_or(&b""[..], bytes_of);
        let kind = if order.snapshot_of.is_some() { CopyKind::Snapshot } else { CopyKind::Clone };
        let copy = TreeCopy { source: order.source, parent: order.parent, name: bytes_of(order.name), kind, of };
        let copied = file_system.copy_tree(&copy, &ticket.progress, &|| !client.is_gone()).map_err(|e| why(&e))?;
        copied.ok_or(CLIENT_GONE)?;
        tell(kernel, order.parent, order.name);
        if kind == CopyKind::Snapshot {
            file_system.store().commit().map_err(|e| e.to_string())?;
        }
        Ok(json!(done(&ticket.progress)))
    }

    /// Removes a snapshot, and makes that durable.
    pub fn remove(
        &self,
        file_system: &FileSystem,
        kernel: Option<&Arc<KernelCache>>,
        (parent, name): (Ino, &Name),
        number: u64,
    ) -> Result<Value, String> {
        let ticket = self.begin(number)?;
        let is_in_use = |ino: Ino| kernel.is_some_and(|kernel| kernel.knows(ino));
        let unnamed = || tell(kernel, parent, name);
        let removed = file_system.remove_snapshot(parent, bytes_of(name), unnamed, &is_in_use, &ticket.progress);
        removed.map_err(|e| e.to_string())?;
        file_system.store().commit().map_err(|e| e.to_string())?;
        Ok(json!(done(&ticket.progress)))
    }

    fn begin(&self, number: u64) -> Result<Ticket<'_>, String> {
        let progress = Arc::<TreeProgress>::default();
        if self.all().insert(number, progress.clone()).is_some() {
            return Err("another command chose the same number: try again".to_owned());
        }
        Ok(Ticket { trees: self, number, progress })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<TreeProgress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.trees.all().remove(&self.number);
    }
}

/// A portion of the differences between two directories.
pub fn diff(
    file_system: &FileSystem,
    (older, newer): (Option<u64>, Option<u64>),
    from: DiffCursor,
    client: &Client,
) -> Result<Value, String> {
    let from = oncefs_fs::DiffCursor { is_newer_done: from.is_newer_done, cookie: from.cookie };
    let found = file_system.diff_directories(older.map(Ino), newer.map(Ino), from, &|| !client.is_gone());
    let portion = found.map_err(|e| e.to_string())?.ok_or(CLIENT_GONE)?;
    Ok(json!(DiffPortion::from(portion)))
}

/// The room that only a portion of a directory takes.
pub fn own(file_system: &FileSystem, directory: Ino, from: u64, client: &Client) -> Result<Value, String> {
    let found = file_system.own_blocks(directory, from, &|| !client.is_gone()).map_err(|e| e.to_string())?;
    Ok(json!(OwnPortion::from(found.ok_or(CLIENT_GONE)?)))
}

fn tell(kernel: Option<&Arc<KernelCache>>, parent: Ino, name: &Name) {
    if let Some(kernel) = kernel {
        kernel.name_changed(parent, bytes_of(name));
    }
}

fn done(progress: &TreeProgress) -> TreeDone {
    TreeDone { names: progress.names.load(Relaxed), bytes: progress.bytes.load(Relaxed) }
}

fn bytes_of(name: &Name) -> &[u8] {
    AsRef::<OsStr>::as_ref(name).as_bytes()
}

/// An error with its place.
fn why(failed: &CopyFailed) -> String {
    match failed.at.is_empty() {
        true => failed.error.to_string(),
        false => format!("{}: {}", shown(OsStr::from_bytes(&failed.at)), failed.error),
    }
}
