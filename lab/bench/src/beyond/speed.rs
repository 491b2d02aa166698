//! Times: small synced writes, a large file written and read, duplicates, and a mount after a crash.

use std::time::{Duration, Instant};

use oncefs_rados::{Change, Guard, Objects, WhenFull};

use super::mounted::Mounted;
use super::reading::Readings;
use super::round::Round;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::Content;
use crate::failure::{During, Result};
use crate::files::{self, open};
use crate::measure::Latencies;
use crate::mount::rotated;

/// Content that takes less is expanded before the clock runs.
const EXPANDED_BYTES_MAX: u64 = 2 << 30;
/// Size of the reads of a large file.
const READ_BYTES: usize = 1 << 20;
/// The object that guarded writes go to, and their places in it.
const GUARDED: &str = "guarded";
const PLACES: usize = 1024;
const GUARD: Guard<'_> = Guard { name: "epoch", value: b"1" };
/// The sides: a volume in objects, and the cluster without it.
pub const ONCEFS: &str = "oncefs";
/// Ceph's own program, or a write by librados.
pub const RADOS: &str = "rados";
const SIDES: [&str; 2] = [ONCEFS, RADOS];

/// Each side in turn, the one that goes first changing with the repetition.
fn by_turns(round: &Round<'_>, mut measure: impl FnMut(&'static str) -> Result<()>) -> Result<()> {
    rotated(&SIDES, round.repetition).try_for_each(|(_, side)| measure(side))
}

/// Writes of 4 KiB, each durable before the next. Milliseconds.
pub fn synced(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    let count = round.args.synced_writes;
    let content = Content::new(round.seed, count, 0, EXPANDED_BYTES_MAX)?;
    by_turns(round, |side| {
        let mut latencies = Latencies::with_capacity(count);
        match side {
            ONCEFS => {
                let mounted = round.volume("synced", "")?;
                let (path, places) = (mounted.path("file"), (0..count).collect::<Vec<_>>());
                files::write_synced(&open(&path, true)?, &content, &places, &mut latencies)?;
                files::verify(&path, count, |place| (&content, place))?;
            }
            _ => write_guarded(round, &content, &mut latencies)?,
        }
        for (what, time) in ["fsync", "fsync-p99"].into_iter().zip(latencies.percentiles_us(&[0.5, 0.99])) {
            readings.add(what, side, round.repetition, time / 1000.0);
        }
        Ok(())
    })
}

/// The same bytes to one object, each write guarded by an attribute, as a write of the log is.
fn write_guarded(round: &Round<'_>, content: &Content, latencies: &mut Latencies) -> Result<()> {
    let namespace = round.cluster.namespace(&format!("bench-guarded-{}", std::process::id()))?;
    let zeros = vec![0; PLACES * BLOCK_BYTES];
    let prepared = [Change::WriteFull { bytes: &zeros }, Change::SetAttribute { guard: GUARD }];
    prepared.into_iter().try_for_each(|change| namespace.objects.change(GUARDED, change)).during(|| "cannot write")?;
    let mut scratch = AlignedBuffer::new(BLOCK_BYTES);
    latencies.each(content.blocks(), |index| {
        let at = (index % PLACES * BLOCK_BYTES) as u64;
        let change = Change::Write { at, bytes: content.block(index, &mut scratch) };
        let written = namespace.objects.begin(GUARDED, change, Some(GUARD), WhenFull::Fails).wait();
        written.during(|| "a guarded write failed")
    })
}

/// Bytes per second of `bytes` in this time.
fn speed(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64()
}

/// Content of a large file.
fn content(round: &Round<'_>, duplicate_percent: usize) -> Result<Content> {
    let blocks = (round.args.file_size / BLOCK_BYTES as u64) as usize;
    Content::new(round.seed, blocks, duplicate_percent, EXPANDED_BYTES_MAX)
}

/// Writes a new file until it is durable. Returns the time.
fn write_file(path: &std::path::Path, content: &Content) -> Result<Duration> {
    let file = open(path, true)?;
    let mut latencies = Latencies::with_capacity(content.blocks());
    let began = Instant::now();
    files::write_all(&file, content, &mut latencies)?;
    Ok(began.elapsed())
}

/// A large file without duplicates. Bytes per second.
pub fn writes(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    let content = content(round, 0)?;
    by_turns(round, |side| {
        let value = match side {
            ONCEFS => write_to_volume(round, &content, "")?,
            _ => bench_write(round)?,
        };
        readings.add("write", side, round.repetition, value);
        Ok(())
    })
}

fn write_to_volume(round: &Round<'_>, content: &Content, options: &str) -> Result<f64> {
    let mut mounted = round.volume("writes", options)?;
    let path = mounted.path("file");
    let time = write_file(&path, content)?;
    mounted.remount_cold()?;
    files::verify(&path, content.blocks(), |place| (content, place))?;
    Ok(speed(content.bytes(), time))
}

fn bench_write(round: &Round<'_>) -> Result<f64> {
    let namespace = round.cluster.namespace(&format!("bench-rados-{}", std::process::id()))?;
    round.cluster.bench_write(&namespace.name, round.args.file_size)
}

/// The same file, read from its beginning to its end, cold. Bytes per second.
pub fn reads(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    let content = content(round, 0)?;
    by_turns(round, |side| {
        let value = match side {
            ONCEFS => {
                let mut mounted = round.volume("reads", "")?;
                let path = mounted.path("file");
                write_file(&path, &content)?;
                mounted.remount_cold()?;
                let mut buffer = AlignedBuffer::new(READ_BYTES);
                let began = Instant::now();
                let bytes = files::read_through(&path, &mut buffer)?;
                let time = began.elapsed();
                files::verify(&path, content.blocks(), |place| (&content, place))?;
                speed(bytes, time)
            }
            _ => {
                let namespace = round.cluster.namespace(&format!("bench-rados-{}", std::process::id()))?;
                round.cluster.bench_write(&namespace.name, round.args.file_size)?;
                round.cluster.bench_read(&namespace.name)?
            }
        };
        readings.add("read", side, round.repetition, value);
        Ok(())
    })
}

/// Files with 25 and 75 % scattered duplicates, beside the bytes that rados bench writes in that time.
pub fn duplicates(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    for (what, percent) in [("write-25", 25), ("write-75", 75)] {
        let content = content(round, percent)?;
        by_turns(round, |side| {
            let value = match side {
                ONCEFS => write_to_volume(round, &content, &round.args.options)?,
                _ => bench_write(round)?,
            };
            readings.add(what, side, round.repetition, value);
            Ok(())
        })?;
    }
    Ok(())
}

/// A mount after a clean unmount, and one after a crash with synced writes in the log. Seconds and bytes.
pub fn recovery(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    let content = content(round, 0)?;
    let mut mounted = round.volume("recovery", "")?;
    let mut timed = |mounted: &mut Mounted<'_>, what: &str| -> Result<()> {
        let began = Instant::now();
        mounted.mount()?;
        readings.add(what, ONCEFS, round.repetition, began.elapsed().as_secs_f64());
        Ok(())
    };
    mounted.umount()?;
    timed(&mut mounted, "mount-clean")?;
    let before = mounted.stats()?.number("counters", "log_bytes_written")?;
    let (path, places) = (mounted.path("file"), (0..round.args.synced_writes).collect::<Vec<_>>());
    let written = places.len().min(content.blocks());
    let mut latencies = Latencies::with_capacity(written);
    files::write_synced(&open(&path, true)?, &content, &places[..written], &mut latencies)?;
    let log_bytes = mounted.stats()?.number("counters", "log_bytes_written")? - before;
    mounted.kill()?;
    timed(&mut mounted, "mount-crashed")?;
    files::verify(&path, written, |place| (&content, place))?;
    readings.add("log-replayed", ONCEFS, round.repetition, log_bytes as f64);
    readings.add("log-for-synced-block", ONCEFS, round.repetition, log_bytes as f64 / written as f64);
    Ok(())
}
