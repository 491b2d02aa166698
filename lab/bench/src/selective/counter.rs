//! Counts duplicates in the bytes of files, in chunks of a fixed length, without knowing how they were generated.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use serde::Serialize;

use super::corpus::{Corpus, place};
use super::workload::BIG_CHUNK_BLOCKS;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::failure::{During, Result};
use crate::files::fill_at;
use crate::signal;

/// Lengths of files up to which they are told, in KiB (figures 8 and 12).
pub const SIZES_KIB: [u64; 9] = [4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 1 << 21];

/// What was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counted {
    /// Files, and their bytes.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that storing each chunk of 4 KiB once would save.
    pub small_duplicate_bytes: u64,
    /// The same for chunks of 256 KiB, the last of a file as long as what is left.
    pub big_duplicate_bytes: u64,
    /// Files of at most so many KiB, for each of `SIZES_KIB`.
    pub files_up_to: [usize; SIZES_KIB.len()],
}

impl Counted {
    /// In all files of a corpus that lies below `root`.
    pub fn of(root: &Path, corpus: &dyn Corpus) -> Result<Counted> {
        let mut counter = Counter::default();
        let mut buffer = AlignedBuffer::new(BIG_CHUNK_BLOCKS * BLOCK_BYTES);
        (0..corpus.files()).try_for_each(|file| counter.add(&place(root, file), &mut buffer))?;
        Ok(counter.counted)
    }

    /// Duplicates in small chunks and in big ones, in percent of all bytes.
    pub fn percents(&self) -> [f64; 2] {
        [self.small_duplicate_bytes, self.big_duplicate_bytes]
            .map(|duplicates| duplicates as f64 * 100.0 / self.bytes.max(1) as f64)
    }

    /// Files of at most the size at this place of `SIZES_KIB`, in percent.
    pub fn percent_up_to(&self, size: usize) -> f64 {
        self.files_up_to[size] as f64 * 100.0 / self.files.max(1) as f64
    }
}

/// Bytes of these files, and for each length, in blocks, what storing each chunk of this length once would save. The
/// last chunk of a file is as long as what is left.
pub fn duplicates_by_length(paths: &[&Path], lengths: &[usize]) -> Result<(u64, Vec<u64>)> {
    let keys: [RandomState; 2] = Default::default();
    let mut seen: Vec<HashSet<[u64; 2]>> = lengths.iter().map(|_| HashSet::new()).collect();
    let (mut bytes, mut duplicates) = (0, vec![0; lengths.len()]);
    let longest = lengths.iter().copied().max().unwrap_or(1);
    let mut buffer = AlignedBuffer::new(longest * BLOCK_BYTES);
    for path in paths {
        let file = File::open(path).during(|| format!("cannot open {}", path.display()))?;
        let mut at = 0;
        loop {
            signal::check()?;
            let read = fill_at(&file, buffer.bytes_mut(), at).during(|| format!("cannot read {}", path.display()))?;
            if read == 0 {
                break;
            }
            at += read as u64;
            for ((length, seen), duplicates) in lengths.iter().zip(&mut seen).zip(&mut duplicates) {
                let chunks = buffer.bytes()[..read].chunks(length * BLOCK_BYTES);
                let repeated = chunks.filter(|chunk| !seen.insert(hash(&keys, chunk)));
                *duplicates += repeated.map(|chunk| chunk.len() as u64).sum::<u64>();
            }
        }
        bytes += at;
    }
    Ok((bytes, duplicates))
}

/// Counts chunk by chunk; a chunk is known by 128 bits of a keyed hash.
#[derive(Default)]
struct Counter {
    keys: [RandomState; 2],
    small: HashSet<[u64; 2]>,
    big: HashSet<[u64; 2]>,
    counted: Counted,
}

impl Counter {
    /// Counts a file, which is read in chunks of the buffer's length.
    fn add(&mut self, path: &Path, buffer: &mut AlignedBuffer) -> Result<()> {
        let file = File::open(path).during(|| format!("cannot open {}", path.display()))?;
        let mut bytes = 0;
        loop {
            signal::check()?;
            let read =
                fill_at(&file, buffer.bytes_mut(), bytes).during(|| format!("cannot read {}", path.display()))?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            self.add_big(&buffer.bytes()[..read]);
        }
        self.counted.files += 1;
        self.counted.bytes += bytes;
        for (files, size) in self.counted.files_up_to.iter_mut().zip(SIZES_KIB) {
            *files += usize::from(bytes <= size << 10);
        }
        Ok(())
    }

    fn add_big(&mut self, chunk: &[u8]) {
        if !self.big.insert(hash(&self.keys, chunk)) {
            self.counted.big_duplicate_bytes += chunk.len() as u64;
        }
        for block in chunk.chunks(BLOCK_BYTES) {
            if !self.small.insert(hash(&self.keys, block)) {
                self.counted.small_duplicate_bytes += block.len() as u64;
            }
        }
    }
}

fn hash(keys: &[RandomState; 2], bytes: &[u8]) -> [u64; 2] {
    [keys[0].hash_one(bytes), keys[1].hash_one(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(files: &[Vec<u8>]) -> Counted {
        let directory = tempfile::tempdir().unwrap();
        let mut counter = Counter::default();
        for (index, content) in files.iter().enumerate() {
            let path = directory.path().join(index.to_string());
            std::fs::write(&path, content).unwrap();
            counter.add(&path, &mut AlignedBuffer::new(BIG_CHUNK_BLOCKS * BLOCK_BYTES)).unwrap();
        }
        counter.counted
    }

    /// Blocks that each hold one letter.
    fn blocks(letters: impl IntoIterator<Item = u8>) -> Vec<u8> {
        letters.into_iter().flat_map(|letter| vec![letter; BLOCK_BYTES]).collect()
    }

    #[test]
    fn a_repeated_block_counts_as_small_and_a_repeated_big_chunk_as_both() {
        let first = counted(&[blocks(0..64)]);
        assert_eq!((first.small_duplicate_bytes, first.big_duplicate_bytes), (0, 0));
        let moved = counted(&[blocks(0..64), blocks((100..101).chain(0..64))]);
        assert_eq!((moved.small_duplicate_bytes, moved.big_duplicate_bytes), (64 * 4096, 0));
        let whole = counted(&[blocks(0..64), blocks((100..164).chain(0..64))]);
        assert_eq!((whole.small_duplicate_bytes, whole.big_duplicate_bytes), (64 * 4096, 64 * 4096));
    }

    #[test]
    fn longer_chunks_save_less_where_what_repeats_is_shifted() {
        let directory = tempfile::tempdir().unwrap();
        let files = [blocks(0..64), blocks((100..101).chain(0..64)), blocks(0..64)];
        let paths: Vec<_> = (0..files.len()).map(|file| directory.path().join(file.to_string())).collect();
        paths.iter().zip(&files).for_each(|(path, content)| std::fs::write(path, content).unwrap());
        let paths: Vec<&Path> = paths.iter().map(|path| path.as_path()).collect();
        let (bytes, duplicates) = duplicates_by_length(&paths, &[1, 2, 64]).unwrap();
        assert_eq!(bytes, 193 * 4096);
        assert_eq!(duplicates, [128 * 4096, 64 * 4096, 64 * 4096]);
    }

    #[test]
    fn what_is_left_at_a_file_s_end_is_a_chunk_of_its_own() {
        let counted = counted(&[blocks(0..2), blocks((3..67).chain(0..2)), b"end".to_vec(), b"end".to_vec()]);
        assert_eq!((counted.small_duplicate_bytes, counted.big_duplicate_bytes), (2 * 4096 + 3, 2 * 4096 + 3));
        assert_eq!((counted.files, counted.bytes), (4, 68 * 4096 + 6));
        assert_eq!(counted.files_up_to[..4], [2, 3, 3, 3]);
    }
}
