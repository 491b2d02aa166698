//! Finds the holder of a device or file that a volume needs: another volume, a mount, swap, a device above it, or a
//! program.
//!
//! Commands call this before they confine themselves, because they see no other process after that. The engine refuses
//! a held part in any case. This only names the holder.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use oncefs_engine::Store;

use crate::failure::{Failure, Outcome};
use crate::mounting::mount_table;
use crate::names::shown;

/// Refuses parts of a volume that are held, and names the holder.
pub fn refuse_held(parts: &[PathBuf], code: u8) -> Outcome {
    match parts.iter().find(|part| Store::is_held(part)) {
        Some(part) => Err(Failure::new(code, message(part))),
        None => Ok(()),
    }
}

/// Adds the holder to the engine's message that a part is held.
pub fn name_holder(failure: Failure, parts: &[PathBuf]) -> Failure {
    match failure.message.contains("is held by another") {
        true => refuse_held(parts, failure.code).err().unwrap_or(failure),
        false => failure,
    }
}

fn message(part: &Path) -> String {
    let shown = shown(part);
    match holder(part) {
        Some(holder) => format!("{shown} is in use: {holder}; end that first"),
        None => format!("{shown} is in use: see lsblk {shown} and fuser -v {shown}, and end that first"),
    }
}

/// The first holder that can be found.
fn holder(part: &Path) -> Option<String> {
    let part = part.canonicalize().ok()?;
    volume_on(&part).or_else(|| mount_of(&part)).or_else(|| swap_on(&part)).or_else(|| device_above(&part)).or_else(
        || {
            let (process, name) = process_with(&part)?;
            Some(format!("process {process} ({name}) has it open"))
        },
    )
}

/// A mounted volume with this part.
fn volume_on(part: &Path) -> Option<String> {
    let is_part =
        |volume: &Path| Store::parts_outside(volume, None).is_ok_and(|parts| parts.iter().any(|p| is_same(p, part)));
    let mounts = mount_table::all().ok()?;
    let other = mounts.iter().find(|m| m.is_oncefs() && (part.starts_with(&m.source) || is_part(&m.source)))?;
    Some(format!("the volume {}, mounted on {}, uses it", shown(&other.source), shown(&other.dir)))
}

fn is_same(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) else { return false };
    match a.file_type().is_block_device() && b.file_type().is_block_device() {
        true => a.rdev() == b.rdev(),
        false => (a.dev(), a.ino()) == (b.dev(), b.ino()),
    }
}

fn device_number(part: &Path) -> Option<u64> {
    part.metadata().ok().filter(|found| found.file_type().is_block_device()).map(|found| found.rdev())
}

fn mount_of(part: &Path) -> Option<String> {
    let number = device_number(part)?;
    let mount = mount_table::all().ok()?.into_iter().find(|m| m.device_number() == Some(number))?;
    Some(format!("it is mounted on {}", shown(&mount.dir)))
}

fn swap_on(part: &Path) -> Option<String> {
    let swaps = fs::read_to_string("/proc/swaps").ok()?;
    let is_listed = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|area| is_same(Path::new(area), part));
    is_listed.then(|| format!("the system swaps to it (swapoff {})", shown(part)))
}

/// A device that the kernel built on it: LVM, encryption, RAID.
fn device_above(part: &Path) -> Option<String> {
    let number = device_number(part)?;
    let sys = format!("/sys/dev/block/{}:{}/holders", libc::major(number), libc::minor(number));
    let above = fs::read_dir(sys).ok()?.flatten().next()?.file_name();
    Some(format!("the device {} is made of it", shown(&Path::new("/dev").join(above))))
}

/// A process that has it open, and its name. Links are read and not followed, because their targets may never answer.
fn process_with(part: &Path) -> Option<(u32, String)> {
    let own = std::process::id();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let process = numbers.find(|number| *number != own && has_open(*number, part))?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some((process, name.trim_end().to_owned()))
}

fn has_open(process: u32, part: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    descriptors.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == part))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_has_a_file_open_is_found_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("data");
        fs::write(&path, "x").unwrap();
        assert_eq!(process_with(&path), None);
        let mut other = Command::new("sleep").arg("60").stdin(File::open(&path).unwrap()).spawn().unwrap();
        let told = message(&path);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(told.contains(&format!("process {} (sleep) has it open", other.id())), "{told}");
    }

    #[test]
    fn a_file_that_nobody_holds_is_not_refused_and_a_failure_about_others_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        fs::write(&path, "x").unwrap();
        let parts = [path.clone()];
        refuse_held(&parts, 1).unwrap();
        let failure = name_holder(Failure::new(7, "no space left"), &parts);
        assert_eq!((failure.code, &failure.message[..]), (7, "no space left"));
        let _held = File::open(&path).unwrap();
        let text = format!("{} is held by another program", path.display());
        assert_eq!(name_holder(Failure::new(7, &text), &parts).message, text, "it is free again");
    }
}
