//! The locks of an open volume, which prevent others from opening it or its parts: its lock file, the files that its
//! parts are (a copy of its directory may lead to them by links), and its raw device. The kernel releases all of them
//! when the process dies.
//!
//! A held block device can be neither mounted nor taken by a volume manager, `mkfs`, swap or another volume, because
//! these open it exclusively too. A program that opens it without that flag, such as `dd`, is not kept off.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::objects::held_lease::HeldLease;
use crate::sync::{LockRank, Mutex};
use crate::volume::backend::Hold;
use crate::volume::held_objects::HeldObjects;
use crate::{ClusterReport, Error, Result};

/// How often a lock that is not free is asked for.
const ASK: Duration = Duration::from_millis(250);

/// A hold that lasts as long as this value.
pub struct ExclusiveLock {
    files: Vec<File>,
    objects: Mutex<Option<HeldObjects>>,
}

impl Hold for ExclusiveLock {
    fn lease(&self) -> Option<Arc<HeldLease>> {
        self.objects.lock().as_ref().and_then(HeldObjects::lease)
    }

    fn let_go(&self) -> Result<()> {
        let objects = self.objects.lock().take();
        // It waits for the cluster, so after the lock.
        objects.map_or(Ok(()), HeldObjects::let_go)
    }

    fn leave(&self) {
        if let Some(objects) = &mut *self.objects.lock() {
            objects.leave();
        }
    }

    fn cluster(&self) -> Option<ClusterReport> {
        self.objects.lock().as_ref().map(HeldObjects::report)
    }
}

impl Drop for ExclusiveLock {
    /// Closing the files is not enough: a child process that another thread is starting at this moment has them open
    /// too, until it executes its program.
    fn drop(&mut self) {
        // Before the files: the next process that takes those must not find this one in the cluster.
        drop(self.objects.lock().take());
        for file in &self.files {
            // A device has no such lock, and neither has a file on a host without them.
            let _ = file.unlock();
        }
    }
}

impl ExclusiveLock {
    /// Takes the lock of the volume `name`.
    pub fn of_volume(lock: &Path, name: &str) -> Result<Self> {
        Ok(Self { files: vec![take_lock(lock, name)?], objects: none() })
    }

    /// The same. `waits`: until no other process has it.
    pub fn of_volume_when_free(lock: &Path, name: &str, waits: bool) -> Result<Self> {
        loop {
            match Self::of_volume(lock, name) {
                Err(Error::InUse(_)) if waits => thread::sleep(ASK),
                other => return other,
            }
        }
    }

    /// Also holds a part.
    pub fn add(&mut self, part: &Path) -> Result<()> {
        self.files.push(hold(part)?);
        Ok(())
    }

    /// Also holds the objects of the volume.
    pub fn add_objects(&mut self, objects: HeldObjects) {
        *self.objects.lock() = Some(objects);
    }

    /// Holds one device or file.
    pub fn of(path: &Path) -> Result<Self> {
        Ok(Self { files: vec![hold(path)?], objects: none() })
    }
}

/// No objects yet.
fn none() -> Mutex<Option<HeldObjects>> {
    Mutex::new(LockRank::Part, None)
}

fn take_lock(path: &Path, name: &str) -> Result<File> {
    let failed = |e| Error::io(format!("locking the volume {name}"), e);
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(name.to_owned())),
        Err(TryLockError::Error(e)) => Err(failed(e)),
    }
}

fn hold(path: &Path) -> Result<File> {
    let failed = |e| Error::io(format!("opening {}", path.display()), e);
    let held = || Error::Held(path.display().to_string());
    if fs::metadata(path).map_err(failed)?.file_type().is_block_device() {
        // Without O_CREAT this flag means exclusive. The kernel refuses it for a device that is mounted or otherwise
        // held.
        let opened = File::options().read(true).custom_flags(libc::O_EXCL).open(path);
        return opened.map_err(|e| if e.kind() == io::ErrorKind::ResourceBusy { held() } else { failed(e) });
    }
    let file = File::open(path).map_err(failed)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(held()),
        // On a host without such locks no other program asks for one.
        _ => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|name| fs::write(dir.path().join(name), "x").unwrap());
        dir
    }

    #[test]
    fn a_part_that_two_directories_lead_to_is_held_by_one_of_them() {
        let (ours, copy) = (volume(&["data"]), volume(&[]));
        let data = ours.path().join("data");
        std::os::unix::fs::symlink(&data, copy.path().join("data")).unwrap();
        let open = |dir: &tempfile::TempDir| {
            let mut hold = ExclusiveLock::of_volume(&dir.path().join("lock"), "v").map_err(|e| e.to_string())?;
            hold.add(&dir.path().join("data")).map_err(|e| e.to_string()).map(|()| hold)
        };
        let held = open(&ours).unwrap();
        let refused = open(&copy).err().unwrap();
        assert!(refused.contains(copy.path().to_str().unwrap()) && refused.contains("held by"), "{refused}");
        assert!(open(&ours).err().unwrap().contains("in use by another process"));
        drop(held);
        drop(open(&copy).unwrap());
        drop(open(&ours).unwrap());
    }

    #[test]
    fn what_is_let_go_of_is_free_although_a_child_has_it_open_for_a_moment() {
        let dir = volume(&["data"]);
        let open = || {
            let mut hold = ExclusiveLock::of_volume(&dir.path().join("lock"), "v")?;
            hold.add(&dir.path().join("data")).map(|()| hold)
        };
        let held = open().unwrap();
        let _of_child: Vec<File> = held.files.iter().map(|file| file.try_clone().unwrap()).collect();
        drop(held);
        drop(open().unwrap());
    }

    #[test]
    fn what_is_missing_is_told_apart_from_what_is_held() {
        let dir = volume(&[]);
        assert!(matches!(ExclusiveLock::of(&dir.path().join("data")), Err(Error::Io { .. })));
    }
}
