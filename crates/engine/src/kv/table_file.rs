//! Reads a record file of RocksDB block by block, without its index, so that damage costs only the blocks that it hits.
//!
//! A block is a run of entries, then the offsets of every sixteenth, then a trailer with its checksum, so its end can
//! be found. Every block's checksum includes the file's own mark. A damaged block is first assumed to have a single
//! wrong byte: if one change makes the checksum right, that was it. Otherwise it is a gap: its keys are unknown, but
//! lie between those of its neighbours. Entries that can still be read, from every sixteenth on, as far as they make
//! sense, are returned as unproved: such an entry counts only if the record's own checksum proves it.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

/// Entries from one full key to the next.
const RESTART_ENTRIES: usize = 16;
/// Kind of compression, and checksum.
pub(super) const TRAILER_BYTES: usize = 5;
pub(super) const FOOTER_BYTES: usize = 53;
/// Positions in the footer of the file's mark, and of the length of the index of other blocks, which lies before the
/// footer.
pub(super) const MARK_AT: usize = 9;
pub(super) const METAINDEX_LEN_AT: usize = 13;
/// Sequence and kind after each key.
const KEY_END_BYTES: usize = 8;
/// In longer damage no single byte is searched for.
const DAMAGE_BYTES_MAX: usize = 96 << 10;
/// Longer damage may be many blocks, so a byte is searched for only if the damage has the form of a block.
const BLOCK_BYTES_USUAL: usize = 16 << 10;
/// The index of other blocks lies within this many bytes before the footer.
pub(super) const METAINDEX_BYTES_MAX: usize = 4 << 10;

/// An item of a file, in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A key with its value. None: it was removed.
    Entry(Vec<u8>, Option<Vec<u8>>),
    /// Entries that cannot be read: any keys between the entries before and after.
    Gap,
    /// A key with its value, as read from a gap, which comes before it. The block's checksum proves neither.
    Unproved(Vec<u8>, Vec<u8>),
}

/// An entry in its raw form: how many bytes it shares with the key before it, then its own bytes.
struct Raw {
    shared: usize,
    key: Range<usize>,
    value: Range<usize>,
}

/// A run of entries that was read, and where it ended.
struct Run {
    entries: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    restarts: Vec<u32>,
    end: usize,
}

/// All items of a record file.
pub fn read(bytes: &[u8]) -> Vec<Found> {
    let footer_at = bytes.len().saturating_sub(FOOTER_BYTES);
    let data_end = data_end(bytes);
    let end = data_end.unwrap_or(footer_at);
    let mark = mark(bytes, footer_at, end);
    let mut found = Vec::new();
    let mut at = 0;
    while at < end {
        if let Some(run) = whole_block(bytes, at, end, mark) {
            found.extend(run.entries.into_iter().map(|(key, value)| Found::Entry(key, value)));
            at = run.end;
            continue;
        }
        let next = (at + 1..end).find(|next| whole_block(bytes, *next, end, mark).is_some());
        match (next, data_end) {
            // Other blocks follow the data, at unknown places.
            (None, None) => break,
            (next, _) => {
                let next = next.unwrap_or(end);
                found.extend(damaged_block(&bytes[at..next], at, mark));
                at = next;
            }
        }
    }
    in_order(found)
}

/// Whether every data block is sound by the mark of a sound footer, and the end of the data is known.
pub fn is_sound(bytes: &[u8]) -> bool {
    let footer_at = bytes.len().saturating_sub(FOOTER_BYTES);
    let Some(end) = data_end(bytes).filter(|_| is_footer(bytes, footer_at)) else { return false };
    let mark = word(bytes, footer_at + MARK_AT);
    let mut at = 0;
    while at < end {
        match whole_block(bytes, at, end, mark) {
            Some(run) => at = run.end,
            None => return false,
        }
    }
    true
}

/// Keys ascend. A key that does not is damaged. An unproved key outside its neighbours' range is dropped.
fn in_order(found: Vec<Found>) -> Vec<Found> {
    let mut ordered: Vec<Found> = Vec::with_capacity(found.len());
    // The last key, and the last one that is proved.
    let (mut last, mut proved): (Option<Vec<u8>>, Option<Vec<u8>>) = (None, None);
    for item in found {
        match item {
            Found::Entry(key, value) if proved.as_ref().is_none_or(|proved| *proved < key) => {
                while matches!(ordered.last(), Some(Found::Unproved(before, _)) if *before >= key) {
                    ordered.pop();
                }
                (last, proved) = (Some(key.clone()), Some(key.clone()));
                ordered.push(Found::Entry(key, value));
            }
            // Of two entries with one key, the newer comes first.
            Found::Entry(key, _) if proved.as_ref() == Some(&key) => {}
            Found::Unproved(key, value) => {
                if last.as_ref().is_none_or(|last| *last < key) {
                    last = Some(key.clone());
                    ordered.push(Found::Unproved(key, value));
                }
            }
            _ if ordered.last() == Some(&Found::Gap) => {}
            _ => ordered.push(Found::Gap),
        }
    }
    ordered
}

pub(super) fn number(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0_u64;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return usize::try_from(value).ok();
        }
    }
    None
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn raw_entry(bytes: &[u8], at: usize) -> Option<Raw> {
    let mut at = at;
    let (shared, own, value) = (number(bytes, &mut at)?, number(bytes, &mut at)?, number(bytes, &mut at)?);
    let key = at..at.checked_add(own)?;
    let value = key.end..key.end.checked_add(value)?;
    (value.end <= bytes.len()).then_some(Raw { shared, key, value })
}

/// The length, without trailer, of the data block that begins with these bytes. None: they do not have the form of one,
/// or end before it does.
pub(super) fn block_len(bytes: &[u8]) -> Option<usize> {
    let (mut restarts, mut key, mut at) = (Vec::new(), Vec::new(), 0);
    for number in 0_usize.. {
        if number > 0
            && let Some(end) = offsets_end(bytes, at, &restarts)
        {
            return Some(end);
        }
        let is_full = number.is_multiple_of(RESTART_ENTRIES);
        if is_full {
            restarts.push(u32::try_from(at).ok()?);
        }
        let raw = raw_entry(bytes, at)?;
        if raw.shared > key.len() || (is_full && raw.shared > 0) {
            return None;
        }
        key.truncate(raw.shared);
        key.extend_from_slice(&bytes[raw.key]);
        if !is_internal_key(&key) {
            return None;
        }
        at = raw.value.end;
    }
    None
}

/// Entries from `at` on until the offsets that end a block. These begin with the offset of the first entry: 0.
fn entries(bytes: &[u8], at: usize, interval: usize, is_key: fn(&[u8]) -> bool) -> Option<(Run, Vec<Vec<u8>>)> {
    let mut run = Run { entries: Vec::new(), restarts: Vec::new(), end: at };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    loop {
        if !keys.is_empty()
            && let Some(end) = offsets_end(bytes, run.end, &run.restarts)
        {
            run.end = end;
            return Some((run, keys));
        }
        if keys.len().is_multiple_of(interval) {
            run.restarts.push(u32::try_from(run.end - at).ok()?);
        }
        let raw = raw_entry(bytes, run.end)?;
        let before = keys.last().map_or(&[][..], |key| &key[..]);
        let mut key = before.get(..raw.shared)?.to_vec();
        key.extend_from_slice(&bytes[raw.key]);
        if !is_key(&key) || (keys.len().is_multiple_of(interval) && raw.shared > 0) {
            return None;
        }
        run.entries.push((key.clone(), Some(bytes[raw.value.clone()].to_vec())));
        keys.push(key);
        run.end = raw.value.end;
    }
}

/// Where the offsets of a block that begin at `at` end. None: other bytes are there.
fn offsets_end(bytes: &[u8], at: usize, restarts: &[u32]) -> Option<usize> {
    let is_there = |(index, restart): (usize, &u32)| word(bytes, at + 4 * index) == Some(*restart);
    let count_at = at + 4 * restarts.len();
    let is_count = word(bytes, count_at).is_some_and(|count| (count & 0x0FFF_FFFF) as usize == restarts.len());
    (is_count && restarts.iter().enumerate().all(is_there)).then_some(count_at + 4)
}

fn is_internal_key(key: &[u8]) -> bool {
    key.len() > KEY_END_BYTES && key[key.len() - KEY_END_BYTES] <= 1
}

fn user_entry((mut key, value): (Vec<u8>, Option<Vec<u8>>)) -> (Vec<u8>, Option<Vec<u8>>) {
    let is_removed = key[key.len() - KEY_END_BYTES] == 0;
    key.truncate(key.len() - KEY_END_BYTES);
    (key, value.filter(|_| !is_removed))
}

/// The part of a block's checksum that depends on its place.
pub(super) fn place_part(mark: u32, at: usize) -> u32 {
    mark ^ (at as u32).wrapping_add((at as u64 >> 32) as u32)
}

/// The mark that a block's checksum implies; the same for all blocks of a file.
fn implied_mark(bytes: &[u8], at: usize, end: usize) -> Option<u32> {
    let stored = word(bytes, end + 1).filter(|_| bytes[end] == 0)?;
    Some(place_part(stored.wrapping_sub(xxh3_64(&bytes[at..end]) as u32), at))
}

/// The file's mark: that of the footer if a block agrees or none disagrees, otherwise one that two blocks agree on.
fn mark(bytes: &[u8], footer_at: usize, end: usize) -> Option<u32> {
    let implied: Vec<u32> = block_starts(bytes, end).take(8).collect();
    let footer = word(bytes, footer_at + MARK_AT);
    // Two checksums that are wrong in the same way agree too.
    let by_footer = implied.iter().find(|mark| footer == Some(**mark));
    let by_two = || implied.iter().find(|mark| implied.iter().filter(|other| other == mark).count() > 1);
    by_footer.or_else(by_two).copied().or(footer.filter(|_| implied.is_empty() || is_footer(bytes, footer_at)))
}

/// Whether the end of the footer is sound.
fn is_footer(bytes: &[u8], footer_at: usize) -> bool {
    bytes.get(footer_at..).is_some_and(|footer| is_sound_footer(footer, footer_at))
}

/// Whether these bytes, which begin at `footer_at` in the file, are a sound footer.
pub(super) fn is_sound_footer(footer: &[u8], footer_at: usize) -> bool {
    let Some(footer) = Some(footer).filter(|footer| footer.len() == FOOTER_BYTES) else { return false };
    let (Some(stored), Some(mark)) = (word(footer, 5), word(footer, MARK_AT)) else { return false };
    let mut cleared = footer.to_vec();
    cleared[5..9].fill(0);
    stored
        == (xxh3_64(&cleared[..FOOTER_BYTES - 1]) as u32
            ^ u32::from(footer[FOOTER_BYTES - 1]).wrapping_mul(0x6B90_83D9))
        .wrapping_add(place_part(mark, footer_at))
}

/// The marks implied by the blocks that can be recognized by their form, from the beginning of the file on.
fn block_starts(bytes: &[u8], end: usize) -> impl Iterator<Item = u32> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < end {
            if let Some((run, _)) = entries(&bytes[..end], at, RESTART_ENTRIES, is_internal_key) {
                let implied = implied_mark(bytes, at, run.end);
                at = run.end + TRAILER_BYTES;
                if implied.is_some() {
                    return implied;
                }
            } else {
                at += 1;
            }
        }
        None
    })
}

/// The block that begins at `at`, if it is sound. Without a known mark it must have the form of one.
fn whole_block(bytes: &[u8], at: usize, end: usize, mark: Option<u32>) -> Option<Run> {
    let (mut run, _) = entries(&bytes[..end], at, RESTART_ENTRIES, is_internal_key)?;
    let implied = implied_mark(bytes, at, run.end)?;
    if mark.is_some_and(|mark| mark != implied) {
        return None;
    }
    run.entries = run.entries.into_iter().map(user_entry).collect();
    run.end += TRAILER_BYTES;
    Some(run)
}

/// Where the data blocks end, which is where the first other block begins, according to the index before the footer.
/// With a sound footer, that index must match its checksum, after correcting one wrong byte.
pub fn data_end(bytes: &[u8]) -> Option<usize> {
    let footer_at = bytes.len().checked_sub(FOOTER_BYTES)?;
    let end = footer_at.checked_sub(TRAILER_BYTES)?;
    let from = end.saturating_sub(METAINDEX_BYTES_MAX);
    let run = if is_footer(bytes, footer_at) {
        let len = word(bytes, footer_at + METAINDEX_LEN_AT)? as usize;
        let at = end.checked_sub(len).filter(|at| *at >= from)?;
        let (block, mark) = (&bytes[at..footer_at], word(bytes, footer_at + MARK_AT)?);
        let is_sound = implied_mark(bytes, at, end) == Some(mark);
        let whole = || metaindex(&bytes[at..end]);
        if is_sound { whole() } else { with_one_byte_changed(block, at, mark, metaindex) }
    } else {
        (from..end).rev().find_map(|at| metaindex(&bytes[at..end]))
    }?;
    let first = |(_, handle): &(Vec<u8>, Option<Vec<u8>>)| number(handle.as_ref()?, &mut 0);
    run.entries.iter().filter_map(first).min().filter(|data_end| *data_end <= end)
}

/// The places of the other blocks according to their index: start and length without trailer.
pub(super) fn other_blocks(metaindex_bytes: &[u8]) -> Option<Vec<(usize, usize)>> {
    let place = |(_, handle): &(Vec<u8>, Option<Vec<u8>>)| {
        let (handle, mut at) = (handle.as_ref()?, 0);
        Some((number(handle, &mut at)?, number(handle, &mut at)?))
    };
    metaindex(metaindex_bytes)?.entries.iter().map(place).collect()
}

/// The index of other blocks, which are found by their names.
fn metaindex(bytes: &[u8]) -> Option<Run> {
    let is_name = |key: &[u8]| key.windows(8).any(|part| part == b"rocksdb.");
    entries(bytes, 0, 1, is_name).map(|(run, _)| run).filter(|run| run.end == bytes.len())
}

/// A block of data.
fn data_block(bytes: &[u8]) -> Option<Run> {
    let (run, _) = entries(bytes, 0, RESTART_ENTRIES, is_internal_key)?;
    (run.end == bytes.len()).then(|| Run { entries: run.entries.into_iter().map(user_entry).collect(), ..run })
}

/// Where another block begins in several damaged blocks in a row: by the form of the first or the last, which a wrong
/// byte in a value leaves, or by the full keys of the last. None in damage that is too long to search.
pub(super) fn second_block(bytes: &[u8]) -> Option<usize> {
    if bytes.len() > DAMAGE_BYTES_MAX {
        return None;
    }
    let behind = |at: usize| Some(at + block_len(&bytes[at..])? + TRAILER_BYTES);
    let by_first = behind(0).filter(|at| *at < bytes.len());
    let by_last = || (1..bytes.len()).find(|at| behind(*at) == Some(bytes.len()));
    let by_keys = || Some(restarts_of(bytes).2).filter(|begin| *begin > 0);
    by_first.or_else(by_last).or_else(by_keys)
}

/// The readable entries of bytes that are not a sound block.
fn damaged_block(bytes: &[u8], place: usize, mark: Option<u32>) -> Vec<Found> {
    // Two blocks in a row are read separately.
    let apart = |begin: usize| {
        let (before, behind) = bytes.split_at(begin);
        [damaged_block(before, place, mark), damaged_block(behind, place + begin, mark)].concat()
    };
    let is_any_proved = |found: &[Found]| found.iter().any(|item| matches!(item, Found::Entry(..)));
    // Before the search for a single byte, which takes long in both together and finds none.
    let found_apart = match second_block(bytes).map(apart) {
        Some(found) if is_any_proved(&found) => return found,
        found => found,
    };
    let put_right = || with_one_byte_changed(bytes, place, mark?, data_block);
    let entries = |run: Run| run.entries.into_iter().map(|(key, value)| Found::Entry(key, value)).collect();
    if bytes.len() <= BLOCK_BYTES_USUAL
        && let Some(run) = put_right()
    {
        return entries(run);
    }
    if let Some(found) = found_apart {
        return found;
    }
    let (restarts, end, begin) = restarts_of(bytes);
    if begin > 0 {
        return apart(begin);
    }
    if bytes.len() > BLOCK_BYTES_USUAL
        && let Some(run) = put_right()
    {
        return entries(run);
    }
    let mut found = vec![Found::Gap];
    for (index, restart) in restarts.iter().enumerate() {
        let until = restarts.get(index + 1).copied().unwrap_or(end);
        read_entries(&bytes[..end], *restart..until, &mut found);
    }
    found
}

/// Reads the values of a part that begins with a full key, as far as its entries make sense. Keys that keep growing
/// from each other do not: every sixteenth is full.
fn read_entries(bytes: &[u8], part: Range<usize>, found: &mut Vec<Found>) {
    let mut key: Vec<u8> = Vec::new();
    let mut at = part.start;
    for number in 0.. {
        let shared_max = if number % RESTART_ENTRIES == 0 { 0 } else { key.len() };
        let raw = raw_entry(bytes, at).filter(|raw| at < part.end && raw.shared <= shared_max);
        let Some(raw) = raw else { break };
        let next = [&key[..raw.shared], &bytes[raw.key.clone()]].concat();
        let is_later = key.is_empty()
            || key.get(..key.len() - KEY_END_BYTES) < next.get(..next.len().saturating_sub(KEY_END_BYTES));
        if !is_internal_key(&next) || !is_later {
            break;
        }
        key = next;
        if let (user, Some(value)) = user_entry((key.clone(), Some(bytes[raw.value.clone()].to_vec()))) {
            found.push(Found::Unproved(user, value));
        }
        at = raw.value.end;
    }
}

/// Where full keys lie in a damaged block according to the offsets at its end, where its entries end, and where it
/// begins: after another damaged block if most of its full keys are found from there on.
fn restarts_of(bytes: &[u8]) -> (Vec<usize>, usize, usize) {
    let end = bytes.len().saturating_sub(TRAILER_BYTES);
    let count = end.checked_sub(4).and_then(|at| word(bytes, at)).map_or(0, |count| (count & 0x0FFF_FFFF) as usize);
    let from = count.checked_mul(4).and_then(|len| end.checked_sub(4)?.checked_sub(len));
    let Some(from) = from.filter(|_| count > 0) else { return (vec![0], end, 0) };
    let offsets = (0..count).filter_map(|index| word(bytes, from + 4 * index)).map(|offset| offset as usize);
    let offsets: Vec<usize> = offsets.filter(|offset| *offset < from).collect();
    let is_full = |at: usize| {
        let raw = raw_entry(&bytes[..from], at);
        raw.is_some_and(|raw| raw.shared == 0 && is_internal_key(&bytes[raw.key]))
    };
    let full_keys = |begin: usize| offsets.iter().filter(|offset| is_full(begin + **offset)).count();
    let begin = if full_keys(0) * 2 >= offsets.len() {
        0
    } else {
        (0..from).rev().max_by_key(|at| full_keys(*at)).unwrap_or(0)
    };
    // Without them, reads everything up to the damage from the first key on.
    let are_offsets = offsets.first() == Some(&0) && offsets.is_sorted();
    if are_offsets { (offsets, from, begin) } else { (vec![0], end, 0) }
}

/// The result of `parse` for these bytes with one byte changed, without the trailer.
fn with_one_byte_changed(bytes: &[u8], place: usize, mark: u32, parse: fn(&[u8]) -> Option<Run>) -> Option<Run> {
    let mended = mended_block(bytes, place, mark, |content| parse(content).is_some())?;
    parse(&mended[..mended.len() - TRAILER_BYTES])
}

/// A block with its trailer after one byte was changed. It then matches its checksum, `is_block` accepts its content,
/// and it lies at `place`. None: more is wrong, or it is too long to search.
pub(super) fn mended_block(bytes: &[u8], place: usize, mark: u32, is_block: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    if bytes.len() > DAMAGE_BYTES_MAX || bytes.len() <= TRAILER_BYTES {
        return None;
    }
    let mut tried = bytes.to_vec();
    let end = bytes.len() - TRAILER_BYTES;
    let stored = word(bytes, end + 1)?;
    let expected = |content: &[u8]| (xxh3_64(content) as u32).wrapping_add(place_part(mark, place));
    // One byte of the trailer: at most one byte of the checksum differs.
    let right = expected(&bytes[..end]);
    if (right ^ stored).to_le_bytes().iter().filter(|byte| **byte != 0).count() <= 1 {
        tried[end] = 0;
        tried[end + 1..].copy_from_slice(&right.to_le_bytes());
        return is_block(&tried[..end]).then_some(tried);
    }
    for at in 0..end {
        for value in 0..=u8::MAX {
            tried[at] = value;
            if expected(&tried[..end]) == stored && is_block(&tried[..end]) {
                return Some(tried);
            }
        }
        tried[at] = bytes[at];
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use oncefs_toolbox::Random;

    use super::*;
    use crate::kv::copies::Place;
    use crate::kv::{Kv, RocksKv};
    use crate::{Copies, Result};

    const KEYS: u64 = 2_000;

    fn key(n: u64) -> Vec<u8> {
        [&[2][..], &(n / 9).to_be_bytes(), &(n % 9).to_be_bytes()].concat()
    }

    fn value(n: u64) -> Option<Vec<u8>> {
        (!n.is_multiple_of(7)).then(|| n.to_le_bytes().repeat(1 + n as usize % 13))
    }

    fn all() -> Vec<Found> {
        (0..KEYS).map(|n| Found::Entry(key(n), value(n))).collect()
    }

    /// A record file as RocksDB writes it.
    pub fn file() -> Result<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), [1; 16]);
        RocksKv::create(&place.records)?;
        let kv = RocksKv::open(place.clone(), Copies::One, 8 << 20, false)?;
        // Older values, so that the removals that follow are kept.
        kv.write((0..KEYS).map(|n| (key(n), Some(vec![1]))).collect())?;
        kv.flush()?;
        kv.write((0..KEYS).map(|n| (key(n), value(n))).collect())?;
        kv.flush()?;
        let tables = crate::kv::files::tables_in(&place.records);
        Ok(std::fs::read(&tables.last().unwrap().1).unwrap())
    }

    #[test]
    fn every_entry_of_a_sound_file_is_read() {
        let bytes = file().unwrap();
        assert!(is_sound(&bytes));
        assert_eq!(read(&bytes), all());
    }

    #[test]
    fn a_file_with_a_damaged_footer_is_not_sound_whatever_its_blocks_say() {
        let whole = file().unwrap();
        for at in (whole.len() - FOOTER_BYTES..whole.len()).chain([0, 100, 5_000]) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            assert!(!is_sound(&bytes), "byte {at} of {}", whole.len());
        }
    }

    #[test]
    fn one_wrong_byte_anywhere_costs_nothing() {
        let whole = file().unwrap();
        let mut random = Random::new(5);
        for turn in 0..40 {
            let from = if turn % 4 == 0 { whole.len() as u64 - 600 } else { 0 };
            let at = (from + random.below(whole.len() as u64 - from)) as usize;
            let mut bytes = whole.clone();
            bytes[at] ^= 1 + random.below(255) as u8;
            assert!(read(&bytes) == all(), "byte {at} of {}", whole.len());
        }
    }

    #[test]
    fn a_wrong_byte_behind_the_data_moves_their_end_nowhere() {
        let whole = file().unwrap();
        let end = data_end(&whole).unwrap();
        for at in whole.len() - FOOTER_BYTES - 400..whole.len() {
            for bits in [1, 0x80, 0xFF] {
                let mut bytes = whole.clone();
                bytes[at] ^= bits;
                assert_eq!(data_end(&bytes), Some(end), "byte {at} of {} changed by {bits:#x}", whole.len());
            }
        }
    }

    #[test]
    fn a_lost_sector_costs_its_own_entries_and_leaves_a_gap_in_their_place() {
        let whole = file().unwrap();
        let data_end = data_end(&whole).unwrap();
        let mut random = Random::new(6);
        for _ in 0..10 {
            let at = random.below(data_end as u64 / 512) as usize * 512;
            let mut bytes = whole.clone();
            bytes[at..at + 512].copy_from_slice(&random.bytes(512));
            let found = read(&bytes);
            assert!(found.contains(&Found::Gap), "sector {at}");
            let proved = found.iter().filter(|item| matches!(item, Found::Entry(..)));
            assert!(proved.clone().all(|item| all().contains(item)), "a proved entry is none");
            let is_right = |item: &&Found| match item {
                Found::Unproved(key, value) => all().contains(&Found::Entry(key.clone(), Some(value.clone()))),
                _ => false,
            };
            let kept = proved.count() + found.iter().filter(is_right).count();
            // One entry in seven is a removal, which nothing proves.
            assert!(kept + 140 > KEYS as usize, "{kept} kept, sector {at}");
        }
    }

    #[test]
    fn keys_that_grow_from_each_other_without_end_are_not_followed() {
        // Each entry shares the whole key before it and adds a byte: the keys together take the square of the file's
        // size.
        let mut bytes = vec![0, 10, 0, b'a', b'b', 1, 1, 1, 1, 1, 1, 1, 1];
        for shared in 10..100 {
            bytes.extend([shared, 1, 0, 1]);
        }
        let mut found = Vec::new();
        read_entries(&bytes, 0..bytes.len(), &mut found);
        assert_eq!(found.len(), RESTART_ENTRIES);
    }

    #[test]
    fn bytes_that_are_no_record_file_are_read_as_gaps_or_nothing() {
        let mut random = Random::new(7);
        for len in [0, 1, 52, 53, 60, 5_000, 20_000] {
            let bytes = random.bytes(len);
            assert!(!is_sound(&bytes));
            assert!(read(&bytes).iter().all(|item| !matches!(item, Found::Entry(..))), "{len} bytes");
        }
    }
}
