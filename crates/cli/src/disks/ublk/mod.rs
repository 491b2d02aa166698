//! Disks as ublk devices (experimental): a process of oncefs for each serves it, and reads and writes the disk's file.
//!
//! The process starts with the command that attaches the disk, and keeps the volume's mount in use as a loop device
//! does. The confined daemon has no part in it: it sees requests to a file.

mod control;
mod queue;
mod record;
mod server;
mod wire;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::control::Control;
pub use self::record::number_of;
use self::record::{Found, Record, device};
pub use self::server::{ServeArgs, serve};
use super::folder::Disk;
use super::front::{Access, Front, hold};

/// Requests under way of a device whose writes do not wait for room.
const REQUESTS: u16 = 64;

/// Devices of the driver ublk_drv.
pub struct UblkDevices;

impl Front for UblkDevices {
    fn attach(&self, disk: &Disk, access: Access) -> Result<PathBuf, String> {
        begin(disk, access, REQUESTS)
    }

    fn attach_bounded(&self, disk: &Disk, requests_max: usize) -> Result<PathBuf, String> {
        let requests = u16::try_from(requests_max).unwrap_or(u16::MAX).clamp(1, REQUESTS);
        begin(disk, Access::ReadWrite, requests)
    }

    fn device_of(&self, disk: &Disk) -> Result<Option<PathBuf>, String> {
        let found = disk.metadata().map_err(|e| e.to_string())?;
        let file = (found.dev(), found.ino());
        Ok(served().find(|record| record.file == file).map(|record| device(record.number)))
    }

    fn detach(&self, disk: &Disk, device: &Path) -> Result<(), String> {
        let held = hold(device)?;
        // A device that is held keeps its disk. Before, it may have ended and begun again with another.
        if self.device_of(disk)?.as_deref() != Some(device) {
            return Ok(());
        }
        let record = record_of(device)?;
        held.sync_all().map_err(|e| format!("what was written to it cannot be written to the volume: {e}"))?;
        // Held meanwhile, so nothing can mount it.
        Control::open()?.stop(record.number).map_err(|e| format!("cannot stop it: {e}"))?;
        drop(held);
        match record.await_end() {
            true => Ok(()),
            false => Err(format!("its process {} does not end", record.process)),
        }
    }

    fn end_with_last_user(&self, device: &Path) -> Result<(), String> {
        let record = record_of(device)?;
        // First, so that a command that comes right after the last user waits for its end.
        record.note_end().map_err(|e| format!("cannot note that it ends: {e}"))?;
        // SAFETY: kill takes numbers. The record's process lives, for it holds the lock.
        match unsafe { libc::kill(record.process, server::END_UNUSED) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().to_string()),
        }
    }

    fn ended_by_hand(&self, device: &Path) -> String {
        // Its process ends once the device is not in use.
        record_of(device)
            .map_or_else(|_| "wait until it is gone".to_owned(), |record| format!("kill {}", record.process))
    }

    fn is_direct(&self, _device: &Path) -> bool {
        // The process opens the disk for direct I/O, or not at all.
        true
    }

    fn resized(&self, _device: &Path) -> Result<(), String> {
        Err("ublk devices have one size for life".to_owned())
    }
}

/// All devices that processes of oncefs serve.
pub fn all() -> impl Iterator<Item = PathBuf> {
    served().map(|record| device(record.number))
}

/// The file of the disk that a device shows, as the kernel knows it now.
pub fn file_behind(device: &Path) -> Option<PathBuf> {
    let record = record::of(number_of(device)?)?;
    fs::read_link(format!("/proc/{}/fd/{}", record.process, record.descriptor)).ok()
}

/// Whether the process of a device was asked to end with its last user.
pub fn ends_with_last_user(device: &Path) -> bool {
    record_of(device).is_ok_and(|record| record.ends)
}

fn served() -> impl Iterator<Item = Record> {
    record::all().into_iter().filter_map(|found| match found {
        Found::Served(record) => Some(record),
        Found::Left(_) => None,
    })
}

fn record_of(device: &Path) -> Result<Record, String> {
    number_of(device).and_then(record::of).ok_or_else(|| "its process has ended".to_owned())
}

/// Removes the devices whose processes were killed. The kernel has ended their block devices, or does so now. One command
/// at a time: once it has removed a device, its number may belong to a new one, which another command would end.
fn remove_left() {
    let Some(_lock) = record::lock_removal() else { return };
    let left = record::all().into_iter().filter_map(|found| match found {
        Found::Served(_) => None,
        Found::Left(left) => Some(left),
    });
    for left in left {
        let Ok(mut control) = Control::open() else { return };
        let number = left.number;
        // First, for once the device is removed, another program may get its number.
        if left.forget() && control.info(number).is_ok() {
            // A device that cannot be removed has no process, and serves nothing.
            let _ = control.stop(number).and_then(|()| control.remove(number));
        }
    }
}

/// Starts the process of a disk, and waits for its device.
fn begin(disk: &Disk, access: Access, requests: u16) -> Result<PathBuf, String> {
    remove_left();
    let failed = |e: std::io::Error| format!("cannot start the process of the device: {e}");
    let mut command = Command::new("/proc/self/exe");
    command.arg0("oncefs").args(["disk", "serve", "--requests"]).arg(requests.to_string());
    if access == Access::ReadOnly {
        command.arg("--read-only");
    }
    command.stdin(disk.file.try_clone().map_err(failed)?).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (server.stdout.take(), server.stderr.take());
    let (stdout, mut stderr) = stdout.zip(stderr).expect("both were asked to be pipes");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    let device = PathBuf::from(line.trim_end());
    if number_of(&device).is_some() {
        return Ok(device);
    }
    let mut why = String::new();
    stderr.read_to_string(&mut why).map_err(failed)?;
    // It has ended, or does so now.
    let status = server.wait().map_err(failed)?;
    match why.trim().trim_start_matches("oncefs: ") {
        "" => Err(format!("the process of the device ended: {status}")),
        why => Err(why.to_owned()),
    }
}
