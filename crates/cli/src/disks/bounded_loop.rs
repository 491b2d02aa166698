//! Loop devices of our own, with a bound on what they have under way. A bound stays with a device when it ends, so it
//! must not be one that others are given next: these have numbers that nothing else makes, and are removed when unused.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::names::shown;

/// The first number. `losetup --find` takes the lowest that is free, and makes the next one.
const FIRST: u32 = 4096;
/// Most devices.
const COUNT: u32 = 4096;

/// The kernel bounds a device to no less.
const REQUESTS_MIN: usize = 4;
/// Longer requests of a device would come to the volume in pieces.
const REQUEST_KIB_MAX: usize = 1024;

/// From `linux/loop.h`.
const LOOP_CTL_ADD: libc::c_ulong = 0x4c80;
const LOOP_CTL_REMOVE: libc::c_ulong = 0x4c81;

fn directory(number: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/loop{number}"))
}

/// Where devices are made and removed. Locked, so that no process removes a device that another has just made.
struct Control(File);

impl Control {
    fn lock() -> io::Result<Self> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        control.lock()?;
        Ok(Self(control))
    }

    fn call(&self, command: libc::c_ulong, number: u32) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the argument is a number.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), command, libc::c_ulong::from(number)) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn remove_unused(&self) {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let numbers = devices.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok());
        for number in numbers.filter(|number| (FIRST..FIRST + COUNT).contains(number)) {
            if !directory(number).join("loop").exists() {
                // Refused for one that a program has open.
                let _ = self.call(LOOP_CTL_REMOVE, number);
            }
        }
    }
}

/// Removes the devices that are not in use.
pub fn remove_unused() {
    if let Ok(control) = Control::lock() {
        control.remove_unused();
    }
}

/// Makes a device with at most `requests_max` requests under way, shows a disk with `begin`, and returns it. `begin`
/// returns false if another process has taken the device.
pub fn make(requests_max: usize, begin: impl Fn(&Path) -> Result<bool, String>) -> Result<PathBuf, String> {
    let control = Control::lock().map_err(|e| format!("cannot use /dev/loop-control: {e}"))?;
    control.remove_unused();
    for number in FIRST..FIRST + COUNT {
        if directory(number).exists() {
            continue;
        }
        control.call(LOOP_CTL_ADD, number).map_err(|e| format!("cannot make a loop device: {e}"))?;
        let device = PathBuf::from(format!("/dev/loop{number}"));
        let begun = bound(number, requests_max).and_then(|()| begin(&device));
        if begun.inspect_err(|_| control.remove_unused())? {
            return Ok(device);
        }
    }
    Err("too many disks are attached".to_owned())
}

fn bound(number: u32, requests_max: usize) -> Result<(), String> {
    let queue = directory(number).join("queue");
    let bound = |(name, max): (&str, usize)| {
        let file = queue.join(name);
        let now = fs::read_to_string(&file)?;
        let is_bounded = now.trim().parse().is_ok_and(|now: usize| now <= max);
        if is_bounded { Ok(()) } else { fs::write(&file, max.to_string()) }
    };
    let bounds = [("nr_requests", requests_max.max(REQUESTS_MIN)), ("max_sectors_kb", REQUEST_KIB_MAX)];
    bounds.into_iter().try_for_each(bound).map_err(|e| format!("cannot write to {}: {e}", shown(&queue)))
}
