//! One corpus on one system: copied in, deduplicated where that comes later, read cold, compared.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::Serialize;

use super::corpus::Corpus;
use super::system::{Later, System, make_squashfs};
use crate::command::run;
use crate::failure::{During, Result, tell};
use crate::loop_device::LoopDevice;
use crate::machine;
use crate::side::{Bench, Side};

/// What one system did with one corpus in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// The corpus.
    pub corpus: String,
    /// The system.
    pub system: System,
    /// From 0 on.
    pub repetition: usize,
    /// Bytes of the corpus's files.
    pub bytes: u64,
    /// Those that are not zero.
    pub written_bytes: u64,
    /// In use after the copy, beyond what the empty file system has.
    pub copied_bytes: u64,
    /// The same after what comes later.
    pub stored_bytes: u64,
    /// Until the copy was durable.
    pub copy_s: f64,
    /// What comes later.
    pub later_s: Option<f64>,
    /// Reading all files after a cold mount.
    pub read_s: f64,
    /// The most memory of the daemon, or of the program that deduplicates or packs.
    pub memory_bytes: Option<u64>,
    /// Written to the device until it was unmounted.
    pub device_bytes: u64,
}

/// Measures one system.
pub fn measure(bench: &Bench, corpus: &Corpus, system: System, repetition: usize) -> Result<Reading> {
    let mut side = Side::create(bench, &system.spec(), system.name(), 0)?;
    side.format()?;
    side.mount()?;
    let empty_bytes = side.used_bytes()?;
    machine::drop_caches()?;
    corpus.warm()?;
    side.daemon().map(machine::reset_peak_memory).transpose()?;
    let device_before = side.device_bytes()?;
    let (written_bytes, copy_s) = timed(|| corpus.copy_to(side.root()))?;
    if system == System::Squashfs {
        return pack(bench, corpus, &mut side, repetition, written_bytes);
    }
    let mut memory_bytes = daemon_peak(&side)?;
    // oncefs moves records from its log to their place by then, and others their delayed allocations.
    side.unmount()?;
    side.mount()?;
    let copied_bytes = side.used_bytes()?.saturating_sub(empty_bytes);
    let (program_bytes, later_s) = timed(|| system.later().run(&side))?;
    memory_bytes = memory_bytes.max(program_bytes).max(daemon_peak(&side)?);
    side.unmount()?;
    let device_bytes = side.device_bytes()?.since(device_before).written;
    side.remount_cold()?;
    let stored_bytes = side.used_bytes()?.saturating_sub(empty_bytes);
    let ((), read_s) = timed(|| corpus.read_from(side.root()))?;
    memory_bytes = memory_bytes.max(daemon_peak(&side)?);
    corpus.verify(side.root())?;
    side.unmount()?;
    Ok(Reading {
        corpus: corpus.name.clone(),
        system,
        repetition,
        bytes: corpus.bytes,
        written_bytes,
        copied_bytes,
        stored_bytes,
        copy_s,
        later_s: (system.later() != Later::Nothing).then_some(later_s),
        read_s,
        memory_bytes,
        device_bytes,
    })
}

/// The most memory that the daemon has had since it began or was asked to forget.
fn daemon_peak(side: &Side) -> Result<Option<u64>> {
    side.daemon().map(machine::peak_memory_bytes).transpose()
}

/// Packs the copy on `side` into an image on a device of its own.
fn pack(bench: &Bench, corpus: &Corpus, side: &mut Side, repetition: usize, written_bytes: u64) -> Result<Reading> {
    let device = LoopDevice::create(&bench.directory.join("squashfs"), bench.device_bytes)?;
    let before = device.bytes()?;
    let packed = make_squashfs(side.root(), device.path())?;
    // What mksquashfs left in the page cache of the device is on its way.
    run(Command::new("blockdev").arg("--flushbufs").arg(device.path()))?;
    let device_bytes = device.bytes()?.since(before).written;
    side.unmount()?;
    machine::drop_caches()?;
    let image = ReadOnly::mount(device.path(), &bench.directory.join("image"))?;
    let ((), read_s) = timed(|| corpus.read_from(&image.0))?;
    corpus.verify(&image.0)?;
    let stored_bytes = squashfs_bytes(device.path())?;
    Ok(Reading {
        corpus: corpus.name.clone(),
        system: System::Squashfs,
        repetition,
        bytes: corpus.bytes,
        written_bytes,
        copied_bytes: stored_bytes,
        stored_bytes,
        copy_s: packed.seconds,
        later_s: None,
        read_s,
        memory_bytes: Some(packed.peak_bytes),
        device_bytes,
    })
}

/// A mounted image; dropping it unmounts.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn mount(device: &Path, point: &Path) -> Result<ReadOnly> {
        fs::create_dir_all(point).during(|| format!("cannot create {}", point.display()))?;
        run(Command::new("mount").args(["-t", "squashfs", "-o", "ro"]).arg(device).arg(point))?;
        Ok(ReadOnly(point.to_owned()))
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        if let Err(failure) = run(Command::new("umount").arg(&self.0)) {
            tell(&format!("oncefs-bench: {failure}"));
        }
    }
}

/// Bytes that an image has, by its superblock: a little-endian number of 64 bits at byte 40.
fn squashfs_bytes(device: &Path) -> Result<u64> {
    let mut superblock = [0; 96];
    let read = File::open(device).and_then(|mut file| file.read_exact(&mut superblock));
    read.during(|| format!("cannot read {}", device.display()))?;
    let mut number = [0; 8];
    number.copy_from_slice(&superblock[40..48]);
    Ok(u64::from_le_bytes(number))
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let began = Instant::now();
    let result = work()?;
    Ok((result, began.elapsed().as_secs_f64()))
}
