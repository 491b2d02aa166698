//! Damage to a volume: by a medium, by a host that mixes up places, and by a bug or an attacker, with right checksums.

use oncefs_engine::Pbn;
use oncefs_engine::format::extent_leaf::{Extent, ExtentLeaf, LEAF_BLOCKS, Target};
use oncefs_engine::format::ops::{Op, OpReader, OpWriter};
use oncefs_engine::format::{keys, record};

use crate::decoders::made_operation;
use crate::disk::{Image, PAGE_BYTES};
use crate::input::Input;
use crate::seal::{self, SECTOR_BYTES};
use crate::volume::Parts;

/// The kind of damage, ordered by the promises that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes changed in place, or vanished. Checksums and counts detect it.
    InPlace,
    /// Sound bytes at a wrong place.
    Moved,
    /// Wrong bytes with a right checksum.
    Sealed,
}

/// Damages one place of a volume.
pub fn damage(parts: &mut Parts, input: &mut Input<'_>) -> Kind {
    match input.byte() % 10 {
        0 | 1 => damage_image(&mut parts.table, input, seal_table),
        2 => damage_image(&mut parts.log, input, |_, _, _| {}),
        3 => damage_group(&mut parts.log, input),
        4 => damage_image(&mut parts.data, input, |_, _, _| {}),
        5 => damage_image(&mut parts.hints, input, seal_hints),
        6 => damage_image(&mut parts.skipped, input, seal_skipped),
        _ => damage_record(parts, input),
    }
}

/// Writes a number of 1, 4 or 8 bytes at which arithmetic may go wrong.
fn set_number(bytes: &mut [u8], input: &mut Input<'_>) {
    let width = input.pick(&[1, 2, 4, 8]);
    if bytes.len() >= width {
        let at = input.index(bytes.len() - width + 1);
        bytes[at..at + width].copy_from_slice(&input.edge().to_le_bytes()[..width]);
    }
}

/// Changes a device. `seal_page` corrects a changed page's checksums.
fn damage_image(image: &mut Image, input: &mut Input<'_>, seal_page: fn(&mut Image, u64, &mut Input<'_>)) -> Kind {
    let pages = image.written();
    if pages.is_empty() {
        return Kind::InPlace;
    }
    let (page, other) = (input.pick(&pages), input.pick(&pages));
    let sector = input.index(PAGE_BYTES / SECTOR_BYTES) * SECTOR_BYTES;
    let sector = sector..sector + SECTOR_BYTES;
    match input.byte() % 8 {
        0 => image.page_mut(page)[input.index(PAGE_BYTES)] ^= 1 << input.below(8),
        1 => image.page_mut(page)[sector].fill(input.pick(&[0, 0xFF])),
        2 => image.len = page * PAGE_BYTES as u64 + input.pick(&[0, SECTOR_BYTES as u64]),
        3 => {
            let moved = image.page(other);
            image.page_mut(page)[sector.clone()].copy_from_slice(&moved[sector]);
            return Kind::Moved;
        }
        4 => {
            let (here, there) = (image.page(page), image.page(other));
            (*image.page_mut(page), *image.page_mut(other)) = (there, here);
            return Kind::Moved;
        }
        _ => {
            set_number(&mut image.page_mut(page)[sector], input);
            seal_page(image, page, input);
            return Kind::Sealed;
        }
    }
    Kind::InPlace
}

fn seal_table(image: &mut Image, page: u64, _: &mut Input<'_>) {
    seal::table_page(image.page_mut(page), page);
}

fn seal_hints(image: &mut Image, page: u64, input: &mut Input<'_>) {
    let bytes = image.page_mut(page);
    if page == 0 {
        return seal::hint_header(bytes);
    }
    // The first bytes matter most.
    set_number(&mut bytes[16..32], input);
    seal::hint_page(bytes);
}

/// The two slots begin at page 0 and at page 4096. A length up to the page's stays within it.
fn seal_skipped(image: &mut Image, page: u64, _: &mut Input<'_>) {
    let bytes = image.page_mut(page);
    let length = u64::from_le_bytes(bytes[48..56].try_into().expect("eight bytes"));
    let end = usize::try_from(length).map_or(PAGE_BYTES, |length| length.saturating_add(64).min(PAGE_BYTES));
    seal::skipped(&mut bytes[..end]);
}

/// A page of the log at which a record begins, with all bytes of the record.
fn group(log: &Image, input: &mut Input<'_>) -> Option<(u64, Vec<u8>)> {
    const MAGIC: [u8; 8] = 0x6F6E_6365_6673_4C52_u64.to_le_bytes();
    let begins = |page: &u64| log.page(*page)[8..16] == MAGIC;
    let pages: Vec<u64> = log.written().into_iter().filter(begins).collect();
    // Recovery reads the last groups.
    let back = input.index(pages.len().max(1));
    let page = *pages.iter().rev().nth(back)?;
    let (at, header) = (page * PAGE_BYTES as u64, log.page(page));
    let len = record::record_bytes(u64::from_le_bytes(header[24..32].try_into().expect("eight bytes")).min(log.len));
    let mut bytes = vec![0; len.min(log.len.checked_sub(at)?) as usize];
    log.read(&mut bytes, at).ok()?;
    (bytes.len() >= PAGE_BYTES).then_some((at, bytes))
}

/// Changes a number in the header of a commit group, or its operations, and corrects the checksum.
fn damage_group(log: &mut Image, input: &mut Input<'_>) -> Kind {
    let Some((at, mut bytes)) = group(log, input) else { return Kind::InPlace };
    match input.byte() % 4 {
        0 => set_number(&mut bytes[16..88], input),
        1 => {
            let body = record::HEADER_BYTES..bytes.len();
            set_number(&mut bytes[body], input);
        }
        _ => bytes = with_other_operations(&bytes, input),
    }
    seal::log_record(&mut bytes);
    // There is nothing to damage after the log's end.
    let len = bytes.len().min((log.len - at) as usize);
    log.write(&bytes[..len], at).expect("it lies within the log");
    Kind::Sealed
}

/// The record with one of its operations omitted or repeated, or with an invented one.
fn with_other_operations(record: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let length = u64::from_le_bytes(record[24..32].try_into().expect("eight bytes"));
    let end = usize::try_from(length).map_or(record.len(), |length| length.saturating_add(96).min(record.len()));
    let mut ops: Vec<Op<'_>> = OpReader::new(&record[record::HEADER_BYTES..end]).collect();
    let place = input.index(ops.len() + 1);
    match input.byte() % 4 {
        0 if place < ops.len() => drop(ops.remove(place)),
        1 if place < ops.len() => ops.insert(place, ops[place].clone()),
        _ => ops.insert(place, made_operation(input)),
    }
    let mut writer = OpWriter::default();
    ops.iter().for_each(|op| writer.push(op));
    let mut changed = record[..record::HEADER_BYTES].to_vec();
    changed[24..32].copy_from_slice(&(writer.bytes().len() as u64).to_le_bytes());
    changed.extend_from_slice(writer.bytes());
    changed.resize(changed.len().next_multiple_of(PAGE_BYTES), 0);
    changed
}

/// Changes a record of the sorted state.
fn damage_record(parts: &mut Parts, input: &mut Input<'_>) -> Kind {
    let keys: Vec<Vec<u8>> = parts.records.keys().cloned().collect();
    if keys.is_empty() {
        return Kind::InPlace;
    }
    let (key, other) = (keys[input.index(keys.len())].clone(), &keys[input.index(keys.len())]);
    let mut value = parts.records[&key].clone();
    let kind = match input.byte() % 12 {
        0 if !value.is_empty() => {
            let at = input.index(value.len());
            value[at] ^= 1 << input.below(8);
            Kind::InPlace
        }
        1 => {
            value.truncate(input.index(value.len() + 1));
            Kind::InPlace
        }
        2 => {
            parts.records.remove(&key);
            return Kind::InPlace;
        }
        3 => {
            value.clone_from(&parts.records[other]);
            Kind::Moved
        }
        4 => {
            let mut moved = key.clone();
            set_number(&mut moved, input);
            parts.records.insert(moved, value);
            return Kind::Moved;
        }
        5 | 6 if key[0] == 0x02 => {
            value = with_other_extent(&key, &value, input);
            Kind::Sealed
        }
        _ => {
            set_number(&mut value, input);
            seal::record(&key, &mut value);
            Kind::Sealed
        }
    };
    parts.records.insert(key, value);
    kind
}

/// The leaf with blocks that point elsewhere, mostly to blocks that others use.
fn with_other_extent(key: &[u8], value: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let Some(key) = keys::parse_leaf(key) else { return value.to_vec() };
    let Some(mut leaf) = ExtentLeaf::decode(key, value) else { return value.to_vec() };
    let first = input.below(LEAF_BLOCKS);
    let blocks = 1 + input.below(LEAF_BLOCKS - first);
    let target = match input.byte() % 4 {
        0 => Target::Hole,
        1 => Target::Reserved,
        2 => Target::Data(Pbn(input.below(256))),
        _ => Target::Data(Pbn(input.edge() >> 1)),
    };
    leaf.set(Extent { first: first as u16, blocks: blocks as u16, target });
    leaf.encode(key)
}
