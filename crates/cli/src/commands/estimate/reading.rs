//! Reads files for an estimate: data without holes, once, and without evicting the cached data of other programs.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use oncefs_engine::{BLOCK_BYTES, Hasher, is_zero};
use oncefs_estimate::Estimator;
use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::found::Length;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads one file after the other.
pub struct Reader {
    hasher: Hasher,
    buffer: Vec<u8>,
}

impl Reader {
    /// Tags come from this hasher.
    pub fn new(hasher: Hasher) -> Self {
        Self { hasher, buffer: vec![0; CHUNK_BYTES] }
    }

    /// Reads a file or device. Does not read data that is appended meanwhile, and stops at a new end. Returns the
    /// number of duplicates. `advance` gets the bytes read, in whole blocks.
    pub fn read(
        &mut self,
        file: &File,
        length: Length,
        estimator: &mut Estimator,
        advance: &mut dyn FnMut(u64),
    ) -> (u64, io::Result<()>) {
        estimator.begin_file(length.stored_bytes.div_ceil(BLOCK));
        let read = self.read_data(file, length, estimator, advance);
        (estimator.end_file(), read)
    }

    fn read_data(
        &mut self,
        file: &File,
        Length { bytes, stored_bytes }: Length,
        estimator: &mut Estimator,
        advance: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let may_have_holes = stored_bytes < bytes;
        let mut at = 0;
        while at < bytes {
            let (data, end) = if may_have_holes { next_data(file, at, bytes)? } else { (at, bytes) };
            estimator.add_zeros((data - at).div_ceil(BLOCK));
            at = data;
            while at < end {
                let wanted = (end - at).min(CHUNK_BYTES as u64) as usize;
                let got = read_chunk(file, &mut self.buffer[..wanted], at)?;
                self.add(got, estimator);
                advance(got.next_multiple_of(BLOCK_BYTES) as u64);
                if got < wanted {
                    return Ok(());
                }
                at += got as u64;
            }
        }
        Ok(())
    }

    /// The last block of a file is padded with zeros.
    fn add(&mut self, bytes: usize, estimator: &mut Estimator) {
        let end = bytes.next_multiple_of(BLOCK_BYTES);
        self.buffer[bytes..end].fill(0);
        for block in self.buffer[..end].chunks_exact(BLOCK_BYTES) {
            if is_zero(block) {
                estimator.add_zeros(1);
            } else {
                estimator.add(self.hasher.tag(block), block);
            }
        }
    }
}

/// The next range of data from a place on, in whole blocks; at the end, an empty one.
fn next_data(file: &File, at: u64, bytes: u64) -> io::Result<(u64, u64)> {
    let data = match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.min(bytes) / BLOCK * BLOCK,
        Err(Errno::NXIO) => return Ok((bytes, bytes)),
        // The file system does not support holes.
        Err(Errno::INVAL) => return Ok((at, bytes)),
        Err(e) => return Err(e.into()),
    };
    let data = data.max(at);
    let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(bytes);
    Ok((data, hole.next_multiple_of(BLOCK).max(data + BLOCK).min(bytes)))
}

/// Reads until the buffer is full or the file ends. Drops pages from the page cache that were not there before.
fn read_chunk(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let in_memory = read_in_memory(file, buffer, at);
    let mut got = in_memory.unwrap_or(0);
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    if let Some(before) = in_memory.filter(|before| *before < got) {
        // It is advice: nothing depends on the answer.
        let _ = fadvise(file, at + before as u64, NonZeroU64::new((got - before) as u64), Advice::DontNeed);
    }
    Ok(got)
}

/// Reads the cached part. None: the file system does not support this.
fn read_in_memory(file: &File, buffer: &mut [u8], at: u64) -> Option<usize> {
    match preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
        Err(Errno::AGAIN) => Some(0),
        got => got.ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use oncefs_estimate::{Options, Read};

    use super::*;

    /// Reads a file of this apparent length. Returns the result and the bytes in whole blocks that `advance` got.
    fn read(file: &File, length: Length) -> (Read, u64) {
        let mut estimator =
            Estimator::new(&Options { memory_bytes_max: 1 << 20, blocks_expected: 0, rules: Vec::new() });
        let mut came = 0;
        let mut reader = Reader::new(Hasher::new(&[1; 32]));
        let (_, outcome) = reader.read(file, length, &mut estimator, &mut |bytes| came += bytes);
        outcome.unwrap();
        (estimator.estimate().read, came)
    }

    fn dense(bytes: u64) -> Length {
        Length { bytes, stored_bytes: bytes }
    }

    fn blocks(blocks: u64, zero_blocks: u64) -> Read {
        Read { files: 1, blocks, zero_blocks }
    }

    #[test]
    fn the_last_block_counts_whole_and_zeros_apart() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[vec![7; 3 * BLOCK_BYTES], vec![0; BLOCK_BYTES], vec![7; 1]].concat()).unwrap();
        assert_eq!(read(&file, dense(4 * BLOCK + 1)), (blocks(4, 1), 5 * BLOCK));
        assert_eq!(read(&tempfile::tempfile().unwrap(), dense(0)), (blocks(0, 0), 0));
    }

    #[test]
    fn a_file_that_shrank_ends_there_and_one_that_grew_where_it_ended_before() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; CHUNK_BYTES + BLOCK_BYTES]).unwrap();
        let there = (CHUNK_BYTES / BLOCK_BYTES) as u64 + 1;
        assert_eq!(read(&file, dense(10 * CHUNK_BYTES as u64)).0, blocks(there, 0));
        assert_eq!(read(&file, dense(2 * BLOCK)).0, blocks(2, 0));
    }

    #[test]
    fn holes_are_zeros_wherever_they_lie_and_are_not_read() {
        const FAR: u64 = 1 << 40;
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * FAR).unwrap();
        file.write_all_at(&[7; BLOCK_BYTES], FAR).unwrap();
        file.write_all_at(&[7; 10], 2 * FAR - 10).unwrap();
        let about = file.metadata().unwrap();
        let length = Length { bytes: about.len(), stored_bytes: about.blocks() * 512 };
        let (found, came) = read(&file, length);
        assert_eq!(found, blocks(2, 2 * FAR / BLOCK - 2));
        assert!(came < 1 << 30, "{came} bytes were read");
    }
}
