//! The operations of scenarios: writes of whole files, reads in a given order, checks of contents.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::Content;
use crate::failure::{During, Failure, Result};
use crate::measure::Latencies;

/// Opens a file for reading and writing, new and empty or as it is.
pub fn open(path: &Path, new: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(new).open(path).during(|| format!("cannot open {}", path.display()))
}

/// Writes all of `content` from the file's beginning, one write per block, and makes it durable.
pub fn write_all(file: &File, content: &Content, latencies: &mut Latencies) -> Result<()> {
    let mut scratch = AlignedBuffer::new(BLOCK_BYTES);
    latencies.each(content.blocks(), |index| write_block(file, index, content.block(index, &mut scratch)))?;
    file.sync_all().during(|| "fsync failed")
}

/// Writes block `index` of `content` over block `places[index]` of the file, for all of them, then makes it durable.
pub fn write_at(file: &File, content: &Content, places: &[usize], latencies: &mut Latencies) -> Result<()> {
    let mut scratch = AlignedBuffer::new(BLOCK_BYTES);
    latencies.each(places.len(), |index| write_block(file, places[index], content.block(index, &mut scratch)))?;
    file.sync_all().during(|| "fsync failed")
}

/// Writes the blocks at these indexes of `content` over these blocks of the file, then makes it durable.
pub fn write_some(
    file: &File,
    content: &Content,
    indexes: impl ExactSizeIterator<Item = usize>,
    places: &[usize],
    latencies: &mut Latencies,
) -> Result<()> {
    let mut scratch = AlignedBuffer::new(BLOCK_BYTES);
    let mut writes = indexes.zip(places);
    latencies.each(places.len(), |_| {
        let Some((index, place)) = writes.next() else { return Ok(()) };
        write_block(file, *place, content.block(index, &mut scratch))
    })?;
    file.sync_all().during(|| "fsync failed")
}

/// Like [`write_at`], with fdatasync after every block.
pub fn write_synced(file: &File, content: &Content, places: &[usize], latencies: &mut Latencies) -> Result<()> {
    let mut scratch = AlignedBuffer::new(BLOCK_BYTES);
    latencies.each(places.len(), |index| {
        write_block(file, places[index], content.block(index, &mut scratch))?;
        file.sync_data().during(|| "fdatasync failed")
    })
}

fn write_block(file: &File, place: usize, block: &[u8]) -> Result<()> {
    file.write_all_at(block, (place * BLOCK_BYTES) as u64).during(|| format!("cannot write block {place}"))
}

/// Reads one block at each of the places.
pub fn read_at(file: &File, places: impl ExactSizeIterator<Item = usize>, latencies: &mut Latencies) -> Result<()> {
    let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
    let mut places = places;
    latencies.each(places.len(), |_| {
        let Some(place) = places.next() else { return Ok(()) };
        let offset = (place * BLOCK_BYTES) as u64;
        file.read_exact_at(buffer.bytes_mut(), offset).during(|| format!("cannot read block {place}"))
    })
}

/// Reads a file from its beginning to its end, a full buffer at a time. Returns the number of bytes.
pub fn read_through(path: &Path, buffer: &mut AlignedBuffer) -> Result<u64> {
    let file = File::open(path).during(|| format!("cannot open {}", path.display()))?;
    let mut offset = 0;
    loop {
        crate::signal::check()?;
        match file.read_at(buffer.bytes_mut(), offset).during(|| format!("cannot read {}", path.display()))? {
            0 => return Ok(offset),
            read => offset += read as u64,
        }
    }
}

/// Checks that two files hold the same bytes.
pub fn compare(expected: &Path, found: &Path) -> Result<()> {
    let mut buffers = [AlignedBuffer::new(COMPARED_BYTES), AlignedBuffer::new(COMPARED_BYTES)];
    let [expected_file, found_file] =
        [expected, found].map(|path| File::open(path).during(|| format!("cannot open {}", path.display())));
    let files = [expected_file?, found_file?];
    let mut offset = 0;
    loop {
        crate::signal::check()?;
        let mut read = [0; 2];
        for side in 0..2 {
            let path = [expected, found][side];
            read[side] = fill_at(&files[side], buffers[side].bytes_mut(), offset)
                .during(|| format!("cannot read {}", path.display()))?;
        }
        if buffers[0].bytes()[..read[0]] != buffers[1].bytes()[..read[1]] {
            let (found, expected) = (found.display(), expected.display());
            return Err(Failure::new(format!("WRONG CONTENT after byte {offset} of {found}, a copy of {expected}")));
        }
        if read[0] == 0 {
            return Ok(());
        }
        offset += read[0] as u64;
    }
}

const COMPARED_BYTES: usize = 1 << 20;

/// Reads until the buffer is full or the file ends. Returns the number of bytes read.
pub fn fill_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Checks that every block of the file is the one that `expected` names.
pub fn verify<'a>(path: &Path, blocks: usize, expected: impl Fn(usize) -> (&'a Content, usize)) -> Result<()> {
    let file = File::open(path).during(|| format!("cannot open {}", path.display()))?;
    let bytes = file.metadata().during(|| format!("cannot stat {}", path.display()))?.len();
    if bytes != (blocks * BLOCK_BYTES) as u64 {
        return Err(Failure::new(format!("{} has {bytes} bytes instead of {blocks} blocks", path.display())));
    }
    let (mut found, mut scratch) = (AlignedBuffer::new(BLOCK_BYTES), AlignedBuffer::new(BLOCK_BYTES));
    for place in 0..blocks {
        crate::signal::check()?;
        let offset = (place * BLOCK_BYTES) as u64;
        file.read_exact_at(found.bytes_mut(), offset).during(|| format!("cannot read {}", path.display()))?;
        let (content, index) = expected(place);
        if found.bytes() != content.block(index, &mut scratch) {
            let found = describe(found.bytes(), content, &mut scratch);
            return Err(Failure::new(format!("WRONG CONTENT in block {place} of {}: {found}", path.display())));
        }
    }
    Ok(())
}

/// Checks a file in which some blocks were written, given the index in `content` that was written last. All others are
/// holes, and the file ends with the last block written.
pub fn verify_written(path: &Path, content: &Content, last: &[Option<usize>]) -> Result<()> {
    let file = File::open(path).during(|| format!("cannot open {}", path.display()))?;
    let (mut found, mut scratch) = (AlignedBuffer::new(BLOCK_BYTES), AlignedBuffer::new(BLOCK_BYTES));
    let blocks = last.iter().rposition(Option::is_some).map_or(0, |place| place + 1);
    for (place, index) in last[..blocks].iter().enumerate() {
        crate::signal::check()?;
        let offset = (place * BLOCK_BYTES) as u64;
        file.read_exact_at(found.bytes_mut(), offset).during(|| format!("cannot read {}", path.display()))?;
        let is_right = match index {
            Some(index) => found.bytes() == content.block(*index, &mut scratch),
            None => found.bytes().iter().all(|byte| *byte == 0),
        };
        if !is_right {
            let found = describe(found.bytes(), content, &mut scratch);
            return Err(Failure::new(format!("WRONG CONTENT in block {place} of {}: {found}", path.display())));
        }
    }
    Ok(())
}

/// What a wrong block holds, which helps to find the reason.
fn describe(found: &[u8], content: &Content, scratch: &mut AlignedBuffer) -> String {
    if found.iter().all(|byte| *byte == 0) {
        return "it is zero".to_owned();
    }
    match (0..content.blocks()).find(|index| content.block(*index, scratch) == found) {
        Some(index) => format!("it holds what was written as block {index}"),
        None => "its content was never written".to_owned(),
    }
}

/// For every block of a file, which of the writes to `places` came last.
pub fn last_writes(blocks: usize, places: &[usize]) -> Vec<Option<usize>> {
    let mut last = vec![None; blocks];
    for (write, place) in places.iter().enumerate() {
        last[*place] = Some(write);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(directory: &Path, content: &Content) -> std::path::PathBuf {
        let path = directory.join("file");
        let file = open(&path, true).unwrap();
        write_all(&file, content, &mut Latencies::with_capacity(content.blocks())).unwrap();
        path
    }

    #[test]
    fn what_was_written_is_verified_and_a_changed_byte_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::new(1, 64, 0, u64::MAX).unwrap();
        let path = written(directory.path(), &content);
        verify(&path, 64, |place| (&content, place)).unwrap();
        open(&path, false).unwrap().write_all_at(b"x", 5 * BLOCK_BYTES as u64 + 9).unwrap();
        let failure = verify(&path, 64, |place| (&content, place)).unwrap_err();
        assert!(failure.to_string().contains("block 5"), "{failure}");
        assert!(failure.to_string().contains("never written"), "{failure}");
    }

    #[test]
    fn a_block_that_holds_another_block_or_zeros_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::new(1, 8, 0, u64::MAX).unwrap();
        let path = written(directory.path(), &content);
        let file = open(&path, false).unwrap();
        let mut scratch = AlignedBuffer::new(BLOCK_BYTES);
        write_block(&file, 2, content.block(6, &mut scratch)).unwrap();
        let failure = verify(&path, 8, |place| (&content, place)).unwrap_err();
        assert!(failure.to_string().contains("written as block 6"), "{failure}");
        write_block(&file, 1, &[0; BLOCK_BYTES]).unwrap();
        let failure = verify(&path, 8, |place| (&content, place)).unwrap_err();
        assert!(failure.to_string().contains("zero"), "{failure}");
    }

    #[test]
    fn a_copy_is_compared_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        std::fs::write(&one, b"abc").unwrap();
        for (content, is_same) in [(&b"abc"[..], true), (b"abd", false), (b"ab", false), (b"abcd", false)] {
            std::fs::write(&other, content).unwrap();
            assert_eq!(compare(&one, &other).is_ok(), is_same);
        }
    }

    #[test]
    fn a_file_of_another_length_is_not_verified() {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::new(1, 8, 0, u64::MAX).unwrap();
        let path = written(directory.path(), &content);
        assert!(verify(&path, 7, |place| (&content, place)).is_err());
    }

    #[test]
    fn the_last_of_several_writes_to_a_block_counts() {
        assert_eq!(last_writes(4, &[2, 0, 2]), [Some(1), None, Some(2), None]);
    }
}
