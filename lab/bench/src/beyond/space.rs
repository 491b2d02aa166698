//! What data, names and deleted files take in a cluster.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::mounted::Mounted;
use super::reading::Readings;
use super::round::Round;
use super::speed::ONCEFS;
use crate::aligned::BLOCK_BYTES;
use crate::content::Content;
use crate::failure::{During, Failure, Result};
use crate::files::{self, open};
use crate::measure::Latencies;

/// A volume in a directory.
pub const LOCAL: &str = "local";
/// The parts of a volume that hold no blocks of files.
const METADATA: [&str; 5] = ["table", "fragments", "log", "records", "lock"];
/// How long a cluster may take to give back space.
const PATIENCE: Duration = Duration::from_secs(180);
/// Files in a directory.
const NAMES_PER_DIRECTORY: usize = 1000;

/// Writes a file of this content, expanded as it is written, and makes it durable.
fn write(mounted: &Mounted<'_>, name: &str, content: &Content) -> Result<()> {
    let file = open(&mounted.path(name), true)?;
    files::write_all(&file, content, &mut Latencies::with_capacity(content.blocks()))
}

/// Half of a file's blocks repeat others: in objects and in a directory. Bytes.
pub fn savings(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    const DUPLICATE_PERCENT: usize = 50;
    let blocks = (round.args.file_size / BLOCK_BYTES as u64) as usize;
    let content = Content::planned(round.seed, blocks, DUPLICATE_PERCENT)?;
    for side in [ONCEFS, LOCAL] {
        let options = &round.args.options;
        let mounted = match side {
            ONCEFS => round.volume("savings", options)?,
            _ => Mounted::local(round.bench, options)?,
        };
        write(&mounted, "file", &content)?;
        let stored = mounted.stats()?.number("space", "stored_bytes")?;
        readings.add("stored", side, round.repetition, stored as f64);
    }
    Ok(())
}

/// Small files of one block each, then a large one: what a name takes as keys, and a block in the table and in memory.
pub fn names(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    let mut mounted = round.volume("names", "inline=all")?;
    let mut note = |what: &str, value: f64| readings.add(what, ONCEFS, round.repetition, value);
    // Records reach their objects with a checkpoint.
    mounted.umount()?;
    let before = mounted.objects()?.held(&["records"])?;
    mounted.mount()?;
    make_names(round, &mounted)?;
    mounted.umount()?;
    let records = mounted.objects()?.held(&["records"])?;
    let names = round.args.names as f64;
    note("keys-per-name", (records.keys - before.keys) as f64 / names);
    note("omap-per-name", (records.key_bytes - before.key_bytes) as f64 / names);
    mounted.mount()?;
    let hint_bytes = |mounted: &Mounted<'_>| mounted.stats()?.number_at(&["caches", "hints", "bytes"]);
    let hints_before = hint_bytes(&mounted)?;
    let blocks = (round.args.file_size / BLOCK_BYTES as u64) as usize;
    write(&mounted, "large", &Content::planned(round.seed, blocks, 0)?)?;
    let stats = mounted.stats()?;
    let stored_blocks = stats.number("space", "stored_bytes")? / BLOCK_BYTES as u64;
    let new_blocks = blocks as f64;
    note("hint-bytes-per-block", (hint_bytes(&mounted)? as f64 - hints_before as f64) / new_blocks);
    note("log-for-block", stats.number("counters", "log_bytes_written")? as f64 / new_blocks);
    mounted.umount()?;
    let with_large = mounted.objects()?.held(&["records"])?;
    note("omap-per-block-of-large", (with_large.key_bytes as f64 - records.key_bytes as f64) / new_blocks);
    let table = mounted.objects()?.held(&["table"])?;
    note("table-bytes-per-block", table.bytes as f64 / stored_blocks as f64);
    Ok(())
}

fn make_names(round: &Round<'_>, mounted: &Mounted<'_>) -> Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0..round.args.names {
        crate::signal::check()?;
        let directory = mounted.path(format!("d{:04}", number / NAMES_PER_DIRECTORY));
        if number % NAMES_PER_DIRECTORY == 0 {
            fs::create_dir(&directory).during(|| "cannot make a directory")?;
        }
        crate::content::expand(round.seed ^ 1, number as u64, &mut block);
        fs::write(directory.join(format!("file-{number:07}")), &block).during(|| "cannot make a small file")?;
    }
    Ok(())
}

/// A large file and small ones are written and deleted. Bytes of objects that are left.
pub fn deleted(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    let mut mounted = round.volume("deleted", "")?;
    let blocks = (round.args.file_size / BLOCK_BYTES as u64) as usize;
    make_names(round, &mounted)?;
    write(&mounted, "large", &Content::planned(round.seed, blocks, 0)?)?;
    let full = mounted.objects()?.held(&["data"])?;
    for entry in fs::read_dir(mounted.root()).during(|| "cannot list the mount")? {
        let path = entry.during(|| "cannot list the mount")?.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.during(|| format!("cannot remove {}", path.display()))?;
    }
    mounted.ask("sync", &[])?;
    let began = Instant::now();
    // The space goes back when the volume is idle.
    while mounted.objects()?.held(&["data"])?.objects > 2 && began.elapsed() < PATIENCE {
        crate::signal::check()?;
        sleep(Duration::from_secs(1));
    }
    mounted.umount()?;
    let data = mounted.objects()?.held(&["data"])?;
    let metadata = mounted.objects()?.held(&METADATA)?;
    let metadata_bytes = (metadata.bytes + metadata.key_bytes) as f64;
    let mut note = |what: &str, value: f64| readings.add(what, ONCEFS, round.repetition, value);
    note("data-when-full", full.bytes as f64);
    note("data-when-deleted", data.bytes as f64);
    note("metadata-when-deleted", metadata_bytes);
    note("left-of-metadata", data.bytes as f64 / metadata_bytes);
    Ok(())
}

/// More bytes than one OSD's device has, all of which are read again.
pub fn larger(round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    const OF_DEVICE_PERCENT: u64 = 110;
    let device_bytes = round.cluster.device_bytes()?;
    let (file_bytes, wanted) = (round.args.file_size, device_bytes / 100 * OF_DEVICE_PERCENT);
    let needed = wanted + wanted / 10;
    let began = Instant::now();
    let mut left = round.cluster.space()?.osds_left_bytes;
    // What an earlier part left is removed in the background, and the cluster's figures are late.
    while left < needed && began.elapsed() < PATIENCE {
        crate::signal::check()?;
        sleep(Duration::from_secs(1));
        left = round.cluster.space()?.osds_left_bytes;
    }
    if left < needed {
        return Err(Failure::new(format!(
            "the pool has {} MiB left, and {} MiB are wanted, more than an OSD's device has: give it fewer copies \
             (ceph osd pool set POOL size 2), or the cluster more OSDs",
            left >> 20,
            needed >> 20
        )));
    }
    let mut mounted = round.volume("larger", "")?;
    let contents = (0..wanted.div_ceil(file_bytes)).map(|number| {
        let blocks = (file_bytes / BLOCK_BYTES as u64) as usize;
        Content::planned(round.seed.wrapping_add(number << 32), blocks, 0)
    });
    let contents = contents.collect::<Result<Vec<Content>>>()?;
    for (number, content) in contents.iter().enumerate() {
        write(&mounted, &format!("file-{number}"), content)?;
    }
    let stored = mounted.stats()?.number("space", "stored_bytes")?;
    mounted.remount_cold()?;
    for (number, content) in contents.iter().enumerate() {
        files::verify(&mounted.path(format!("file-{number}")), content.blocks(), |place| (content, place))?;
    }
    readings.add("stored-of-a-device", ONCEFS, round.repetition, stored as f64 / device_bytes as f64);
    Ok(())
}
