//! Measures what LRLFS's map saves: reads through a fingerprint index, as in LessFS, beside reads through a map.
//!
//! A store made only for this comparison, so that nothing else differs. A file of unique blocks lies in a data
//! file on a loop device. The direct path knows each block's address, as LRLFS's file recipe does. The other
//! path knows only the block's fingerprint and first reads the bucket of a hash index, kept in a second file on
//! the same device, that holds the address. All reads use O_DIRECT, so both paths are cold; `index_memory_percent`
//! of the buckets are held in memory, as LessFS's cache would hold some.
//! Fingerprints are drawn at random: neighbours in the file are no neighbours in the index, as with any hash.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use clap::Args;
use oncefs_toolbox::Table;
use serde::Serialize;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::{Random, expand};
use crate::failure::{During, Failure, Result};
use crate::measure::{Latencies, LatencySummary};
use crate::report::as_markdown;

const ENTRY_BYTES: usize = 24;
const ENTRIES_PER_BUCKET: usize = (BLOCK_BYTES - 8) / ENTRY_BYTES;
/// Buckets are two thirds full, as hash tables on disk are kept to avoid overflow.
const ENTRIES_PER_BUCKET_MEAN: usize = ENTRIES_PER_BUCKET * 2 / 3;

/// How much is read, and how much of the index is in memory.
#[derive(Args, Clone, Debug)]
pub struct LessfsArgs {
    /// Blocks in the store
    #[arg(long = "index-blocks", default_value_t = 131_072)]
    pub blocks: usize,
    /// Reads per path and order
    #[arg(long = "index-reads", default_value_t = 5_000)]
    pub reads: usize,
    /// Share of the index held in memory, in percent
    #[arg(long = "index-memory-percent", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub index_memory_percent: u8,
}

/// Latencies of one path in one order.
#[derive(Clone, Debug, Serialize)]
pub struct PathRow {
    /// `map` or `fingerprint index`.
    pub path: &'static str,
    /// `sequential` or `random`.
    pub order: &'static str,
    /// In which repetition, from 0.
    pub repetition: usize,
    /// Latencies per block.
    pub latency: LatencySummary,
}

/// 128 random bits standing for a block's content.
type Fingerprint = [u8; 16];

struct Store {
    data: File,
    index: File,
    buckets: usize,
    buckets_in_memory: AlignedBuffer,
    fingerprints: Vec<Fingerprint>,
    addresses: Vec<u64>,
    seed: u64,
}

/// Builds the store in `directory` and measures both paths in both orders, alternating.
pub fn compare(directory: &Path, args: &LessfsArgs, repetitions: Range<usize>, seed: u64) -> Result<Vec<PathRow>> {
    let store = Store::build(directory, args, seed)?;
    let mut rows = Vec::new();
    let reads = args.reads.min(args.blocks);
    for repetition in repetitions {
        let mut random = Random::new(seed ^ 2 ^ ((repetition as u64) << 8));
        let scattered: Vec<usize> = random.permutation(args.blocks).into_iter().take(reads).collect();
        let first = random.index(args.blocks - reads + 1);
        let in_order: Vec<usize> = (first..first + reads).collect();
        for (order, lbns) in [("sequential", &in_order), ("random", &scattered)] {
            let direct = store.read_all(lbns, |store, lbn, _| Ok(store.addresses[lbn]))?;
            rows.push(PathRow { path: "map", order, repetition, latency: direct });
            let indexed = store.read_all(lbns, Store::address_by_fingerprint)?;
            rows.push(PathRow { path: "fingerprint index", order, repetition, latency: indexed });
        }
    }
    Ok(rows)
}

impl Store {
    fn build(directory: &Path, args: &LessfsArgs, seed: u64) -> Result<Store> {
        let mut random = Random::new(seed);
        let fingerprints: Vec<Fingerprint> = (0..args.blocks)
            .map(|_| {
                let mut fingerprint = [0; 16];
                fingerprint[..8].copy_from_slice(&random.word().to_le_bytes());
                fingerprint[8..].copy_from_slice(&random.word().to_le_bytes());
                fingerprint
            })
            .collect();
        let addresses: Vec<u64> = (0..args.blocks as u64).collect();
        let buckets = args.blocks.div_ceil(ENTRIES_PER_BUCKET_MEAN);
        let image = index_image(&fingerprints, &addresses, buckets)?;
        let index = create_direct(&directory.join("index"))?;
        index.write_all_at(image.bytes(), 0).during(|| "cannot write the index")?;
        let data = create_direct(&directory.join("data"))?;
        write_data(&data, args.blocks, seed)?;
        for file in [&index, &data] {
            file.sync_all().during(|| "cannot flush the store")?;
        }
        let held = buckets * usize::from(args.index_memory_percent) / 100 * BLOCK_BYTES;
        let mut buckets_in_memory = AlignedBuffer::new(held);
        buckets_in_memory.bytes_mut().copy_from_slice(&image.bytes()[..held]);
        Ok(Store { data, index, buckets, buckets_in_memory, fingerprints, addresses, seed })
    }

    fn read_all(
        &self,
        lbns: &[usize],
        address_of: impl Fn(&Store, usize, &mut AlignedBuffer) -> Result<u64>,
    ) -> Result<LatencySummary> {
        let (mut bucket, mut block) = (AlignedBuffer::new(BLOCK_BYTES), AlignedBuffer::new(BLOCK_BYTES));
        let mut latencies = Latencies::with_capacity(lbns.len());
        latencies.each(lbns.len(), |read| {
            let address = address_of(self, lbns[read], &mut bucket)?;
            let offset = address * BLOCK_BYTES as u64;
            self.data.read_exact_at(block.bytes_mut(), offset).during(|| "cannot read the data")
        })?;
        self.check_last(lbns, &block)?;
        latencies.summary().ok_or_else(|| Failure::new("--index-reads must be at least 1"))
    }

    fn check_last(&self, lbns: &[usize], block: &AlignedBuffer) -> Result<()> {
        let Some(last) = lbns.last() else { return Ok(()) };
        let mut expected = AlignedBuffer::new(BLOCK_BYTES);
        expand(self.seed, *last as u64, expected.bytes_mut());
        match expected.bytes() == block.bytes() {
            true => Ok(()),
            false => Err(Failure::new(format!("WRONG CONTENT in block {last} of the index comparison"))),
        }
    }

    /// The way of LessFS: fingerprint, bucket of the index, address.
    fn address_by_fingerprint(&self, lbn: usize, buffer: &mut AlignedBuffer) -> Result<u64> {
        let fingerprint = &self.fingerprints[lbn];
        let offset = bucket_of(fingerprint, self.buckets) * BLOCK_BYTES;
        let found = match self.buckets_in_memory.bytes().get(offset..offset + BLOCK_BYTES) {
            Some(bucket) => find(bucket, fingerprint),
            None => {
                self.index.read_exact_at(buffer.bytes_mut(), offset as u64).during(|| "cannot read the index")?;
                find(buffer.bytes(), fingerprint)
            }
        };
        found.ok_or_else(|| Failure::new(format!("block {lbn} is not in the index")))
    }
}

fn create_direct(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT);
    options.open(path).during(|| format!("cannot create {}", path.display()))
}

fn write_data(data: &File, blocks: usize, seed: u64) -> Result<()> {
    const BLOCKS_PER_WRITE: usize = 256;
    let mut buffer = AlignedBuffer::new(BLOCKS_PER_WRITE * BLOCK_BYTES);
    for first in (0..blocks).step_by(BLOCKS_PER_WRITE) {
        crate::signal::check()?;
        let count = BLOCKS_PER_WRITE.min(blocks - first);
        let bytes = &mut buffer.bytes_mut()[..count * BLOCK_BYTES];
        for (index, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            expand(seed, (first + index) as u64, block);
        }
        data.write_all_at(bytes, (first * BLOCK_BYTES) as u64).during(|| "cannot write the data")?;
    }
    Ok(())
}

fn bucket_of(fingerprint: &Fingerprint, buckets: usize) -> usize {
    let (head, _) = fingerprint.split_first_chunk::<8>().expect("16 bytes begin with 8");
    ((u128::from(u64::from_le_bytes(*head)) * buckets as u128) >> 64) as usize
}

/// Every bucket is one block: the number of entries, then fingerprints with their addresses.
fn index_image(fingerprints: &[Fingerprint], addresses: &[u64], buckets: usize) -> Result<AlignedBuffer> {
    let mut image = AlignedBuffer::new(buckets * BLOCK_BYTES);
    image.bytes_mut().fill(0);
    for (fingerprint, address) in fingerprints.iter().zip(addresses) {
        let start = bucket_of(fingerprint, buckets) * BLOCK_BYTES;
        let bucket = &mut image.bytes_mut()[start..start + BLOCK_BYTES];
        let count = usize::from(bucket[0]);
        if count == ENTRIES_PER_BUCKET {
            return Err(Failure::new("a bucket of the index is full: try another --seed"));
        }
        let entry = &mut bucket[8 + count * ENTRY_BYTES..][..ENTRY_BYTES];
        entry[..16].copy_from_slice(fingerprint);
        entry[16..].copy_from_slice(&address.to_le_bytes());
        bucket[0] += 1;
    }
    Ok(image)
}

fn find(bucket: &[u8], fingerprint: &Fingerprint) -> Option<u64> {
    let entries = bucket[8..].chunks_exact(ENTRY_BYTES).take(usize::from(bucket[0]));
    let mut matching = entries.filter(|entry| entry[..16] == fingerprint[..]);
    matching.next()?.last_chunk::<8>().map(|address| u64::from_le_bytes(*address))
}

/// Medians over the repetitions, one line per order and path.
pub fn table(rows: &[PathRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["4 KiB read, cold, O_DIRECT", "mean us", "p50 us", "p95 us", "p99.5 us"]);
    for order in ["sequential", "random"] {
        for path in ["map", "fingerprint index"] {
            let median = |value: fn(&LatencySummary) -> f64| {
                let mine = rows.iter().filter(|row| row.order == order && row.path == path);
                let spread = crate::spread::Spread::of(mine.map(|row| value(&row.latency)));
                spread.map_or("-".to_owned(), |spread| format!("{:.1}", spread.median))
            };
            table.row(vec![
                format!("{order}, through the {path}"),
                median(|latency| latency.mean_us),
                median(|latency| latency.p50_us),
                median(|latency| latency.p95_us),
                median(|latency| latency.p995_us),
            ]);
        }
    }
    format!(
        "\nWhat the map saves: address from the map (LRLFS) or by fingerprint from the index (LessFS)\n{}",
        as_markdown(table)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(index_memory_percent: u8) -> LessfsArgs {
        LessfsArgs { blocks: 2000, reads: 200, index_memory_percent }
    }

    #[test]
    fn every_fingerprint_leads_to_its_block_s_address() {
        for held_percent in [0, 50, 100] {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::build(directory.path(), &args(held_percent), 3).unwrap();
            let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
            for lbn in 0..2000 {
                assert_eq!(store.address_by_fingerprint(lbn, &mut buffer).unwrap(), store.addresses[lbn]);
            }
        }
    }

    #[test]
    fn both_paths_are_measured_in_both_orders() {
        let directory = tempfile::tempdir().unwrap();
        let rows = compare(directory.path(), &args(0), 0..2, 3).unwrap();
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| row.latency.operations == 200));
    }
}
