//! Sorts more items than fit into memory: an audit meets them in one order and has to compare them in another.
//!
//! Items are small arrays of numbers. Up to a bound they stay in memory, which suffices for a small volume. Beyond it
//! they go to an unnamed file in the host's temporary directory, in sorted pieces that are merged as they are read
//! back. So memory stays the same however many there are, and everything is read once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Error, Result};

/// Bytes of items kept in memory.
const MEMORY_BYTES: usize = 32 << 20;
/// Bytes of a piece read back at a time.
const READ_BYTES: usize = 64 << 10;
/// Where temporary files go if `TMPDIR` is not set. On a disk, because `/tmp` is memory on many machines.
const TEMPORARY_DIR: &str = "/var/tmp";

/// Tells the temporary files of one process apart, for the moment in which they have names.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Takes items in any order.
pub struct Sorter<const N: usize> {
    items: Vec<[u64; N]>,
    items_max: usize,
    pieces: Vec<Piece<N>>,
    file: Option<File>,
    file_bytes: u64,
}

/// A sorted part of the temporary file that is not fully read back yet, and its next items.
struct Piece<const N: usize> {
    at: u64,
    end: u64,
    next: std::vec::IntoIter<[u64; N]>,
}

/// Returns the items in ascending order.
pub struct Sorted<const N: usize> {
    memory: std::vec::IntoIter<[u64; N]>,
    file: Option<File>,
    pieces: Vec<Piece<N>>,
    heads: BinaryHeap<Reverse<([u64; N], usize)>>,
    peeked: Option<[u64; N]>,
}

impl<const N: usize> Default for Sorter<N> {
    fn default() -> Self {
        Self::with_memory(MEMORY_BYTES)
    }
}

impl<const N: usize> Sorter<N> {
    /// An empty sorter with at most `bytes` of items in memory.
    pub fn with_memory(bytes: usize) -> Self {
        const { assert!(0 < N && size_of::<[u64; N]>() <= READ_BYTES) };
        let items_max = (bytes / size_of::<[u64; N]>()).max(1);
        Self { items: Vec::new(), items_max, pieces: Vec::new(), file: None, file_bytes: 0 }
    }

    /// Adds an item.
    pub fn push(&mut self, item: [u64; N]) -> Result<()> {
        if self.items.len() == self.items_max {
            self.spill().map_err(|e| Error::io("writing a temporary file (set TMPDIR to a place with room)", e))?;
        }
        debug_assert!(self.items.len() < self.items_max, "{} items are in memory", self.items.len());
        self.items.push(item);
        Ok(())
    }

    /// Ends the collection and sorts.
    pub fn sorted(mut self) -> Result<Sorted<N>> {
        self.items.sort_unstable();
        let Self { items, pieces, file, .. } = self;
        let heads = BinaryHeap::with_capacity(pieces.len());
        let mut sorted = Sorted { memory: items.into_iter(), file, pieces, heads, peeked: None };
        for piece in 0..sorted.pieces.len() {
            sorted.refill(piece)?;
        }
        Ok(sorted)
    }

    fn spill(&mut self) -> io::Result<()> {
        self.items.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temporary_file()?),
        };
        let at = self.file_bytes;
        for part in self.items.chunks(READ_BYTES / size_of::<[u64; N]>()) {
            let bytes: Vec<u8> = part.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
            file.write_all_at(&bytes, self.file_bytes)?;
            self.file_bytes += bytes.len() as u64;
        }
        let (written, spilled) = (self.file_bytes - at, self.items.len());
        assert_eq!(written, (spilled * size_of::<[u64; N]>()) as u64, "the bytes of {spilled} items");
        self.items.clear();
        self.pieces.push(Piece { at, end: self.file_bytes, next: Vec::new().into_iter() });
        Ok(())
    }
}

impl<const N: usize> Sorted<N> {
    /// The next item, without taking it.
    pub fn peek(&mut self) -> Result<Option<[u64; N]>> {
        if self.peeked.is_none() {
            self.peeked = self.take()?;
        }
        Ok(self.peeked)
    }

    /// The next item.
    pub fn pop(&mut self) -> Result<Option<[u64; N]>> {
        match self.peeked.take() {
            None => self.take(),
            item => Ok(item),
        }
    }

    /// Takes the smallest of the next items of memory and the pieces.
    fn take(&mut self) -> Result<Option<[u64; N]>> {
        let in_memory = self.memory.as_slice().first().copied();
        match self.heads.peek() {
            Some(Reverse((item, _))) if in_memory.is_none_or(|memory| *item < memory) => {}
            _ => return Ok(self.memory.next()),
        }
        let Some(Reverse((item, piece))) = self.heads.pop() else { return Ok(None) };
        self.refill(piece)?;
        Ok(Some(item))
    }

    /// Adds the next item of a piece to the heads.
    fn refill(&mut self, number: usize) -> Result<()> {
        let piece = &mut self.pieces[number];
        if piece.next.as_slice().is_empty() && piece.at < piece.end {
            let item_bytes = size_of::<[u64; N]>();
            let len = (READ_BYTES / item_bytes * item_bytes).min((piece.end - piece.at) as usize);
            assert!(len > 0 && len.is_multiple_of(item_bytes), "{len} bytes of a piece have items of {item_bytes}");
            let mut bytes = vec![0; len];
            let file = self.file.as_ref().expect("pieces lie in the file");
            file.read_exact_at(&mut bytes, piece.at).map_err(|e| Error::io("reading a temporary file", e))?;
            piece.at += len as u64;
            piece.next = bytes.chunks_exact(item_bytes).map(item).collect::<Vec<_>>().into_iter();
        }
        if let Some(item) = piece.next.next() {
            self.heads.push(Reverse((item, number)));
        }
        Ok(())
    }
}

fn item<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut numbers = bytes.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().expect("eight bytes")));
    std::array::from_fn(|_| numbers.next().expect("an item has N numbers"))
}

/// Where temporary files go.
pub fn temporary_dir() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from(TEMPORARY_DIR), PathBuf::from)
}

/// A file that disappears with its last user.
fn temporary_file() -> io::Result<File> {
    let path = temporary_dir().join(format!("oncefs-sort-{}-{}", std::process::id(), FILES.fetch_add(1, Relaxed)));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::Random;

    #[test]
    fn items_come_back_in_order_whether_they_fit_into_memory_or_not() {
        for (count, bytes) in [(0, 160), (9, 160), (10, 160), (30_000, 4_096), (50_000, 1 << 20)] {
            let mut random = Random::new(count + 5);
            let mut items: Vec<[u64; 2]> = (0..count).map(|_| [random.below(1_000), random.word()]).collect();
            let mut sorter = Sorter::with_memory(bytes);
            items.iter().for_each(|item| sorter.push(*item).unwrap());
            let mut sorted = sorter.sorted().unwrap();
            items.sort_unstable();
            for item in &items {
                assert_eq!(sorted.peek().unwrap(), Some(*item), "{count} items in {bytes} bytes");
                assert_eq!(sorted.pop().unwrap(), Some(*item), "{count} items in {bytes} bytes");
            }
            assert_eq!(sorted.pop().unwrap(), None);
        }
    }
}
