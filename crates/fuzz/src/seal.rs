//! Corrects checksums after a change, so that damage passes them: a disk does not do this by itself, but a bug or an
//! attacker may. Written from docs/format.md alone, not from the code under test.

use std::ops::Range;

use oncefs_engine::MapId;
use oncefs_engine::format::keys::{self, LeafKey};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Size of a sector of the block table.
pub const SECTOR_BYTES: usize = 512;
/// Size of a log record's header.
const RECORD_HEADER_BYTES: usize = 96;
/// The volume that all bytes here belong to.
pub const VOLUME_ID: [u8; 16] = [1; 16];
/// Size of the header of a slot of the file of skipped blocks.
const SKIPPED_HEADER_BYTES: usize = 64;

/// Puts the checksum of `covered` at `at`. Bytes too short for it stay as they are.
fn seal(bytes: &mut [u8], covered: Range<usize>, at: usize, seed: u64) {
    if let Some(part) = bytes.get(covered)
        && at + 8 <= bytes.len()
    {
        let sum = xxh3_64_with_seed(part, seed);
        bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The superblock.
pub fn superblock(bytes: &mut [u8]) {
    seal(bytes, 0..4088, 4088, 0x7375_7065);
}

/// The label of the data area.
pub fn label(bytes: &mut [u8]) {
    seal(bytes, 0..32, 32, 0x6C61_6265);
}

/// The header of an image in objects.
pub fn image_header(bytes: &mut [u8]) {
    seal(bytes, 0..48, 48, 0x696D_6167);
}

/// The header of the index of records, or of an object with records.
pub fn records_header(bytes: &mut [u8]) {
    seal(bytes, 0..40, 40, 0x7265_6373);
}

/// An entry of the index of records. The key's length and the key count too.
pub fn records_entry(key: &[u8], value: &mut [u8]) {
    if let Some((body, sum)) = value.split_last_chunk_mut::<8>() {
        let covered = [&(key.len() as u64).to_le_bytes()[..], key, body].concat();
        *sum = xxh3_64_with_seed(&covered, 0x7265_6369).to_le_bytes();
    }
}

/// A superblock as a cluster has it, and the one inside it.
pub fn sealed_superblock(bytes: &mut [u8]) {
    if let Some(inside) = bytes.get_mut(424..4520) {
        superblock(inside);
    }
    seal(bytes, 0..4520, 4520, 0x7365_616C);
}

/// All sectors of page `number` of the block table.
pub fn table_page(bytes: &mut [u8], number: u64) {
    let sectors = bytes.chunks_exact_mut(SECTOR_BYTES).zip(8 * number..);
    sectors.for_each(|(sector, number)| seal(sector, 8..SECTOR_BYTES, 0, 0x7461_626C ^ number));
}

/// A log record, with its length in the header. A record that claims to be longer than it is stays unchanged.
pub fn log_record(bytes: &mut [u8]) {
    let Some(claimed) = bytes.get(24..32).and_then(|claimed| claimed.try_into().ok()).map(u64::from_le_bytes) else {
        return;
    };
    if let Some(end) = usize::try_from(claimed).ok().and_then(|claimed| claimed.checked_add(RECORD_HEADER_BYTES)) {
        seal(bytes, 8..end, 0, 0x7265_636F);
    }
}

/// The checkpoint record, whose seed distinguishes volumes.
pub fn checkpoint(bytes: &mut [u8]) {
    let half = VOLUME_ID[..8].try_into().expect("eight bytes");
    seal(bytes, 0..56, 56, 0x6368_6563 ^ u64::from_le_bytes(half));
}

/// The leaf of this key.
pub fn leaf(bytes: &mut [u8], key: LeafKey) {
    seal_short(bytes, 0x7368_6172 ^ key.map.0.rotate_left(32) ^ key.leaf);
}

/// The policy of the file with this map.
pub fn file_policy(bytes: &mut [u8], map: MapId) {
    seal_short(bytes, 0x706F_6C69 ^ map.0.rotate_left(32));
}

/// A record of the `fs` crate under the number in its key.
pub fn name_record(bytes: &mut [u8], number: u64) {
    seal_short(bytes, number);
}

/// Seals a value whose last four bytes are the checksum of all before.
fn seal_short(bytes: &mut [u8], seed: u64) {
    if let Some((body, sum)) = bytes.split_last_chunk_mut::<4>() {
        *sum = (xxh3_64_with_seed(body, seed) as u32).to_le_bytes();
    }
}

/// The list of record files.
pub fn record_list(bytes: &mut [u8]) {
    seal_end(bytes, 0x6C69_7374);
}

/// A bad block's record.
pub fn bad_block(bytes: &mut [u8]) {
    seal_end(bytes, 0x6261_6462);
}

/// A replica's record.
pub fn replica(bytes: &mut [u8]) {
    seal_end(bytes, 0x636F_7079);
}

/// The scrub's record.
pub fn scrub(bytes: &mut [u8]) {
    seal_end(bytes, 0x7363_7275);
}

/// Seals a value whose last eight bytes are the checksum of all before.
fn seal_end(bytes: &mut [u8], seed: u64) {
    if let Some(end) = bytes.len().checked_sub(8) {
        seal(bytes, 0..end, end, seed);
    }
}

/// The header of the file of hints.
pub fn hint_header(bytes: &mut [u8]) {
    seal(bytes, 0..48, 48, 0x6869_6864);
}

/// A page of the file of hints.
pub fn hint_page(bytes: &mut [u8]) {
    seal(bytes, 8..4096, 0, 0x6869_6E74);
}

/// A slot of the file of skipped blocks, cut to the length in its header.
pub fn skipped(bytes: &mut [u8]) {
    let Some((header, body)) = bytes.split_at_mut_checked(SKIPPED_HEADER_BYTES) else { return };
    let sum = xxh3_64_with_seed(body, xxh3_64_with_seed(&header[..56], 0x736B_6970));
    header[56..].copy_from_slice(&sum.to_le_bytes());
}

/// A record of the sorted state, by its key.
pub fn record(key: &[u8], value: &mut [u8]) {
    let number_at = |at| key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
    match key.first() {
        Some(0x01) => checkpoint(value),
        Some(0x02) => keys::parse_leaf(key).into_iter().for_each(|key| leaf(value, key)),
        Some(0x05) => bad_block(value),
        Some(0x06) => replica(value),
        Some(0x07) => scrub(value),
        Some(0x08) => file_policy(value, MapId(number_at(1))),
        Some(0x03 | 0x04) | None => {}
        // The queue and the moment precede the inode.
        Some(b'q') => name_record(value, number_at(9)),
        Some(_) => name_record(value, number_at(1)),
    }
}
