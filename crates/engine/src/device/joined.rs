//! A read among many that are made in parallel: consecutive bytes of a device, which go to several buffers.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use crate::device::buffer::{ALIGN_BYTES, AlignedBuf};

/// Gaps are read into memory of this size, over and over.
const SINK_BYTES: usize = 32 << 10;
/// Most pieces and gaps of one read: the kernel takes 1024 buffers.
const PIECES_MAX: usize = 1000;
const _: () = assert!(SINK_BYTES.is_multiple_of(ALIGN_BYTES));

/// Consecutive bytes of a device: wanted pieces, and gaps that are read over because they cost less than a second
/// request.
pub struct JoinedRead<'a> {
    at: u64,
    len: usize,
    first: &'a mut [u8],
    /// The pieces and gaps after the first piece. Most reads have none, and then this allocates nothing.
    more: Vec<Piece<'a>>,
}

/// A read, and the file that it reads.
pub(super) struct FileRead<'f, 'a> {
    pub file: &'f File,
    pub read: &'f mut JoinedRead<'a>,
}

enum Piece<'a> {
    Wanted(&'a mut [u8]),
    Gap(usize),
}

impl<'a> JoinedRead<'a> {
    /// Reads `bytes` from byte `at` on.
    pub fn new(at: u64, bytes: &'a mut [u8]) -> Self {
        Self { at, len: bytes.len(), first: bytes, more: Vec::new() }
    }

    /// Continues with `bytes`, after a gap.
    pub fn join(&mut self, gap: usize, bytes: &'a mut [u8]) {
        assert!(self.more.len() < PIECES_MAX - 1, "{} pieces of one read", self.more.len() + 1);
        if gap > 0 {
            self.more.push(Piece::Gap(gap));
        }
        self.len += gap + bytes.len();
        self.more.push(Piece::Wanted(bytes));
    }

    /// The first byte of the device.
    pub fn at(&self) -> u64 {
        self.at
    }

    #[expect(clippy::len_without_is_empty, reason = "a read of nothing is no read")]
    /// Bytes read, with the gaps.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reads the pieces one by one with `read`, which gets a piece and its place on the device. Skips gaps.
    pub fn by_pieces(&mut self, mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>) -> io::Result<()> {
        read(self.first, self.at)?;
        let mut at = self.at + self.first.len() as u64;
        for piece in &mut self.more {
            at += match piece {
                Piece::Wanted(bytes) => {
                    read(bytes, at)?;
                    bytes.len()
                }
                Piece::Gap(len) => *len,
            } as u64;
        }
        debug_assert_eq!(at, self.at + self.len as u64, "the pieces are the whole read");
        Ok(())
    }

    /// Appends the destinations of the bytes, for the kernel.
    pub fn add_vectors(&mut self, vectors: &mut Vec<libc::iovec>) {
        vectors.push(vector(self.first.as_mut_ptr(), self.first.len()));
        for piece in &mut self.more {
            match piece {
                Piece::Wanted(bytes) => vectors.push(vector(bytes.as_mut_ptr(), bytes.len())),
                Piece::Gap(len) => vectors.extend(sink(*len)),
            }
        }
    }
}

fn vector(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

/// The destination of a gap: memory that all reads share, because the kernel writes it and no code reads it.
fn sink(len: usize) -> impl Iterator<Item = libc::iovec> {
    static SINK: LazyLock<AlignedBuf> = LazyLock::new(|| AlignedBuf::new(SINK_BYTES));
    (0..len).step_by(SINK_BYTES).map(move |done| vector(SINK.start(), SINK_BYTES.min(len - done)))
}

/// Makes one read.
pub(super) fn read_joined(FileRead { file, read }: &mut FileRead<'_, '_>) -> io::Result<()> {
    let mut vectors = Vec::new();
    read.add_vectors(&mut vectors);
    // SAFETY: the vectors name memory that `read` borrows, or the sink, which always exists.
    let done = unsafe {
        libc::preadv(file.as_raw_fd(), vectors.as_ptr(), vectors.len() as libc::c_int, read.at() as libc::off_t)
    };
    match usize::try_from(done) {
        Ok(done) if done == read.len() => Ok(()),
        // A short read ended at the end of the file or at a signal. This tells which.
        Ok(_) => read.by_pieces(|bytes, at| file.read_exact_at(bytes, at)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_know_their_places_and_gaps_are_left_out() {
        let (mut first, mut second) = ([0; 4], [0; 2]);
        let mut read = JoinedRead::new(100, &mut first);
        read.join(10, &mut second);
        assert_eq!((read.at(), read.len()), (100, 16));
        let mut seen = Vec::new();
        read.by_pieces(|bytes, at| {
            seen.push((at, bytes.len()));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [(100, 4), (114, 2)]);
    }

    #[test]
    fn the_kernel_gets_a_place_for_every_byte() {
        let (mut first, mut second) = ([0; 4], [0; 2]);
        let mut read = JoinedRead::new(100, &mut first);
        read.join(SINK_BYTES + 5, &mut second);
        let mut vectors = Vec::new();
        read.add_vectors(&mut vectors);
        let lens: Vec<usize> = vectors.iter().map(|vector| vector.iov_len).collect();
        assert_eq!(lens, [4, SINK_BYTES, 5, 2]);
        assert_eq!(lens.iter().sum::<usize>(), read.len());
    }
}
