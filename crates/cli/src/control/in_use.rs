//! Finds where a volume is in use: on a mount, or by a daemon without one.

use std::path::Path;

use crate::control::client::Connection;
use crate::failure::Failure;
use crate::mounting::mount_table;
use crate::names::shown;

/// Whether a failure is that another process has the volume.
pub fn is_meant(failure: &Failure) -> bool {
    failure.message.contains("in use by another process")
}

/// The engine says "in use"; this adds where.
pub fn name_place(failure: Failure, volume: &Path) -> Failure {
    if !is_meant(&failure) {
        return failure;
    }
    place(volume).map_or(failure.clone(), |text| Failure::new(failure.code, text))
}

/// A message about a volume that a daemon serves. None: no daemon answers.
pub fn by_daemon(volume: &Path) -> Option<String> {
    Connection::open(volume).ok()??;
    place(volume)
}

fn place(volume: &Path) -> Option<String> {
    match mount_table::of_volume(volume) {
        Ok(Some(mount)) => {
            let dir = shown(&mount.dir);
            Some(format!("{} is already mounted on {dir}: unmount it first (oncefs umount {dir})", shown(volume)))
        }
        _ => detached(volume),
    }
}

/// A message about a volume that is served without a mount to unmount. None: that is not the case.
pub fn detached(volume: &Path) -> Option<String> {
    let process = Connection::open(volume).ok()??.process().ok()?;
    let volume = shown(volume);
    Some(format!(
        "{volume} is not mounted here any more and still in use (umount -l, or another mount namespace): its daemon, \
         process {process}, ends when the last file there is closed"
    ))
}
