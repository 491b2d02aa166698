//! Finds the raw device that has the blocks of a volume. The kernel numbers devices in the order of discovery, so the
//! path given to mkfs may lead nowhere by now, or to another device. The label in block 0 tells.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::format::label;
use crate::{BLOCK_BYTES, Error, Result};

/// Where the kernel lists its block devices.
const DEVICES: &str = "/sys/class/block";

/// The device that the caller gives. Without one, the device given to mkfs, if it has the volume's label; otherwise the
/// only device that has it. If none has it, the device given to mkfs: opening it reports what is wrong.
pub fn locate(named: &Path, volume_id: [u8; 16], given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if has_label(named, volume_id) {
        return Ok(named.to_owned());
    }
    let mut found: Vec<PathBuf> = devices().into_iter().filter(|device| has_label(device, volume_id)).collect();
    match found.len() {
        0 => Ok(named.to_owned()),
        1 => Ok(found.remove(0)),
        _ => Err(ambiguous(named, &found)),
    }
}

/// A device that was only found may be a copy, made while the right one is away or slow. Writes to it are lost to the
/// right one, and a backup is ruined too. So it is changed only if the user names it.
pub fn refuse_unasked(named: &Path, found: &Path) -> Error {
    let (named, found) = (named.display(), found.display());
    Error::Invalid(format!(
        "the volume's blocks are not on {named}, where they were made; {found} has their label, and may be a copy: if it \
         is the right one, mount with -o data={found} (or oncefs fsck --device {found}), or let {named} be a link to it; \
         -o ro mounts it as it is"
    ))
}

/// Two devices with one identity are a device and its copy. Only the administrator knows which is which.
fn ambiguous(named: &Path, found: &[PathBuf]) -> Error {
    let (named, found) = (named.display(), found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
    Error::Invalid(format!(
        "the volume's blocks are not on {named}, where they were made, and {} have its label: mount with \
         -o data=DEVICE, take the copies away, or let {named} be a link to the right one",
        found.join(" and ")
    ))
}

fn has_label(device: &Path, volume_id: [u8; 16]) -> bool {
    let mut block = [0; BLOCK_BYTES];
    let read = File::open(device).and_then(|file| file.read_exact_at(&mut block, 0));
    read.is_ok() && label::check(&block, volume_id).is_ok()
}

/// All non-empty block devices that are not part of another device, so that what they show is their own.
fn devices() -> Vec<PathBuf> {
    let listed = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let mut devices: Vec<PathBuf> = listed.filter(|entry| is_usable(&entry.path())).map(|entry| node(&entry)).collect();
    devices.sort();
    devices
}

fn is_usable(device: &Path) -> bool {
    let is_empty = fs::read_to_string(device.join("size")).is_ok_and(|sectors| sectors.trim() == "0");
    let has_holder = fs::read_dir(device.join("holders")).is_ok_and(|mut holders| holders.next().is_some());
    !is_empty && !has_holder
}

/// The kernel writes `!` for a slash in the name of a device.
fn node(entry: &fs::DirEntry) -> PathBuf {
    Path::new("/dev").join(entry.file_name().to_string_lossy().replace('!', "/"))
}
