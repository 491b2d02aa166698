//! Whether a record file proves itself: each of its bytes lies in a block, and each block matches its checksum.
//!
//! The form of data blocks shows where they end. The other blocks are found by their index, which the footer leads to,
//! and are adjacent up to that index. The file is read in portions, because it may be larger than memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::table_file::{
    self, FOOTER_BYTES, MARK_AT, METAINDEX_BYTES_MAX, METAINDEX_LEN_AT, TRAILER_BYTES, place_part, word,
};

/// Bytes read in one request.
const REQUEST_BYTES: usize = 1 << 20;
/// No data block is longer: a block ends with the first entry after its 8 KiB, and no record is this long.
const DATA_BLOCK_BYTES_MAX: usize = 4 << 20;

/// Whether every block of a record file matches its checksum, and nothing lies between the blocks.
///
/// # Errors
///
/// The file is gone, or a part of it cannot be read.
pub fn proves_itself(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let Some(end) = End::read(&file)? else { return Ok(false) };
    Ok(are_data_sound(&file, &end)? && are_others_sound(&file, &end)?)
}

/// The facts about a file's blocks that its end holds.
struct End {
    mark: u32,
    /// The start and the length without trailer of each other block, in the order of the file.
    others: Vec<(usize, usize)>,
    metaindex_at: usize,
}

impl End {
    /// None: the footer, or the index of other blocks, is not sound.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut tail = vec![0; len.min(METAINDEX_BYTES_MAX + TRAILER_BYTES + FOOTER_BYTES)];
        let from = len - tail.len();
        file.read_exact_at(&mut tail, from as u64)?;
        Ok(Self::of(&tail, from))
    }

    fn of(tail: &[u8], from: usize) -> Option<Self> {
        let footer_at = tail.len().checked_sub(FOOTER_BYTES)?;
        let footer = &tail[footer_at..];
        let mark = word(footer, MARK_AT).filter(|_| table_file::is_sound_footer(footer, from + footer_at))?;
        let end = footer_at.checked_sub(TRAILER_BYTES)?;
        let at = end.checked_sub(word(footer, METAINDEX_LEN_AT)? as usize)?;
        let mut hash = Xxh3::new();
        hash.update(&tail[at..end]);
        if !is_trailer(&tail[end..footer_at], &hash, from + at, mark) {
            return None;
        }
        let mut others = table_file::other_blocks(&tail[at..end])?;
        others.sort_unstable();
        Some(Self { mark, others, metaindex_at: from + at })
    }

    /// Where the blocks of data end.
    fn data_end(&self) -> usize {
        self.others.first().map_or(self.metaindex_at, |(at, _)| *at)
    }
}

/// Whether a trailer has the checksum of an uncompressed block that lies at `place`.
fn is_trailer(trailer: &[u8], content: &Xxh3, place: usize, mark: u32) -> bool {
    let stored = word(trailer, 1).filter(|_| trailer[0] == 0);
    stored == Some((content.digest() as u32).wrapping_add(place_part(mark, place)))
}

fn are_data_sound(file: &File, end: &End) -> io::Result<bool> {
    let (mut at, mut bytes) = (0, Vec::new());
    while at < end.data_end() {
        // Takes as many complete blocks as there are.
        let mut taken = 0;
        while let Some(len) = table_file::block_len(&bytes[taken..]) {
            let Some(trailer) = bytes.get(taken + len..taken + len + TRAILER_BYTES) else { break };
            let mut hash = Xxh3::new();
            hash.update(&bytes[taken..taken + len]);
            if !is_trailer(trailer, &hash, at + taken, end.mark) {
                return Ok(false);
            }
            taken += len + TRAILER_BYTES;
        }
        bytes.drain(..taken);
        at += taken;
        let more = (end.data_end() - at - bytes.len()).min(REQUEST_BYTES);
        if taken == 0 && (more == 0 || bytes.len() > DATA_BLOCK_BYTES_MAX) {
            return Ok(false);
        }
        let had = bytes.len();
        bytes.resize(had + more, 0);
        file.read_exact_at(&mut bytes[had..], (at + had) as u64)?;
    }
    Ok(true)
}

fn are_others_sound(file: &File, end: &End) -> io::Result<bool> {
    let mut next = end.data_end();
    for (at, len) in &end.others {
        let is_behind = *at == next && at.saturating_add(*len) <= end.metaindex_at;
        if !is_behind || !is_other_sound(file, *at, *len, end.mark)? {
            return Ok(false);
        }
        next = at + len + TRAILER_BYTES;
    }
    Ok(next == end.metaindex_at)
}

fn is_other_sound(file: &File, at: usize, len: usize, mark: u32) -> io::Result<bool> {
    let mut hash = Xxh3::new();
    let mut bytes = vec![0; len.min(REQUEST_BYTES)];
    for from in (at..at + len).step_by(REQUEST_BYTES) {
        let part = &mut bytes[..(at + len - from).min(REQUEST_BYTES)];
        file.read_exact_at(part, from as u64)?;
        hash.update(part);
    }
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, (at + len) as u64)?;
    Ok(is_trailer(&trailer, &hash, at, mark))
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;
    use crate::Copies;
    use crate::kv::copies::Place;
    use crate::kv::{Kv, RocksKv, tables_in};

    /// A record file as RocksDB writes it, with records of up to 70,000 bytes, and a place for changed ones.
    fn file(records: u64) -> (tempfile::TempDir, Vec<u8>, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), [1; 16]);
        RocksKv::create(&place.records).unwrap();
        let kv = RocksKv::open(place.clone(), Copies::One, 8 << 20, false).unwrap();
        let value = |n: u64| Random::new(n).bytes(if n % 97 == 5 { 70_000 } else { n as usize % 300 });
        let put = |n: u64| ([&[0x69][..], &n.to_be_bytes()].concat(), (!n.is_multiple_of(7)).then(|| value(n)));
        kv.write((0..records).map(put).collect()).unwrap();
        kv.flush().unwrap();
        let (_, path) = tables_in(&place.records).pop().unwrap();
        let bytes = std::fs::read(path).unwrap();
        let changed = dir.path().join("changed.sst");
        (dir, bytes, changed)
    }

    #[test]
    fn a_file_of_any_size_proves_itself() {
        for records in [1, 20, 3_000] {
            let (_dir, bytes, path) = file(records);
            std::fs::write(&path, &bytes).unwrap();
            assert!(proves_itself(&path).unwrap(), "{records} records, {} bytes", bytes.len());
        }
    }

    #[test]
    fn no_file_with_a_wrong_byte_anywhere_proves_itself() {
        let (_dir, bytes, path) = file(400);
        let mut random = Random::new(3);
        let end = bytes.len() as u64;
        for turn in 0..600 {
            let from = if turn % 2 == 0 { 0 } else { end - 1_500 };
            let at = (from + random.below(end - from)) as usize;
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 + random.below(255) as u8;
            std::fs::write(&path, &wrong).unwrap();
            assert!(!proves_itself(&path).unwrap(), "byte {at} of {end}");
        }
    }

    #[test]
    fn no_file_that_is_cut_grown_or_something_else_proves_itself() {
        let (_dir, bytes, path) = file(100);
        let (longer, shorter) = ([&bytes[..], &[0]].concat(), &bytes[1..]);
        for wrong in [&bytes[..bytes.len() - 1], &bytes[..bytes.len() / 2], &longer, shorter, &[], &[7; 60][..]] {
            std::fs::write(&path, wrong).unwrap();
            assert!(!proves_itself(&path).unwrap(), "{} of {} bytes", wrong.len(), bytes.len());
        }
        assert!(proves_itself(Path::new("/nowhere")).is_err());
    }
}
