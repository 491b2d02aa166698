//! A read or a write among those that a device makes in parallel, and its result. A read takes consecutive bytes of the
//! device, which go to several buffers.

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

/// A read or a write of consecutive bytes of a device. [`super::Device::submit`] makes it, and leaves the result in it.
pub struct Io<'a> {
    at: u64,
    len: usize,
    transfer: Transfer<'a>,
    /// Whether the host's page cache answers it, and keeps what it reads.
    is_cached: bool,
    result: io::Result<()>,
}

enum Transfer<'a> {
    Write(&'a [u8]),
    /// Wanted pieces, and gaps that are read over because they cost less than a second request. Most reads have one
    /// piece, and then this allocates nothing.
    Read {
        first: &'a mut [u8],
        more: Vec<Piece<'a>>,
    },
}

enum Piece<'a> {
    Wanted(&'a mut [u8]),
    Gap(usize),
}

impl<'a> Io<'a> {
    /// A read that fills `bytes` from byte `at` on. It fails beyond the end.
    pub fn read(at: u64, bytes: &'a mut [u8]) -> Self {
        let len = bytes.len();
        Self { at, len, transfer: Transfer::Read { first: bytes, more: Vec::new() }, is_cached: false, result: Ok(()) }
    }

    /// A write of all of `bytes` at byte `at`.
    pub fn write(at: u64, bytes: &'a [u8]) -> Self {
        Self { at, len: bytes.len(), transfer: Transfer::Write(bytes), is_cached: false, result: Ok(()) }
    }

    /// Continues a read with `bytes`, after a gap.
    pub fn join(&mut self, gap: usize, bytes: &'a mut [u8]) {
        let Transfer::Read { more, .. } = &mut self.transfer else { panic!("a write is one piece") };
        assert!(more.len() < PIECES_MAX - 1, "{} pieces of one read", more.len() + 1);
        if gap > 0 {
            more.push(Piece::Gap(gap));
        }
        self.len += gap + bytes.len();
        more.push(Piece::Wanted(bytes));
    }

    /// Lets the host's page cache answer a read, and keep what it reads, if the device has such a cache.
    pub fn through_host_cache(&mut self) {
        assert!(!self.is_write(), "a write passes by the host's page cache");
        self.is_cached = true;
    }

    /// Whether the host's page cache may answer it.
    pub fn is_through_host_cache(&self) -> bool {
        self.is_cached
    }

    /// The first byte of the device.
    pub fn at(&self) -> u64 {
        self.at
    }

    #[expect(clippy::len_without_is_empty, reason = "a request for nothing is no request")]
    /// Bytes read or written, with the gaps.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it was submitted without an error.
    pub fn is_done(&self) -> bool {
        self.result.is_ok()
    }

    /// The result, once it was submitted.
    pub fn into_result(self) -> io::Result<()> {
        self.result
    }

    /// Takes the result out, once it was submitted.
    pub fn take_result(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.result, Ok(()))
    }

    /// Makes it with functions that read or write bytes at a place of the device: a read piece by piece, without the
    /// gaps.
    pub fn by_pieces(
        &mut self,
        read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
        write: impl FnOnce(&[u8], u64) -> io::Result<()>,
    ) {
        self.result = match &mut self.transfer {
            Transfer::Write(bytes) => write(bytes, self.at),
            Transfer::Read { first, more } => read_pieces(self.at, first, more, read),
        };
    }

    /// The places and the memory of a read, without the gaps. Nothing for a write.
    pub(crate) fn wanted(&mut self) -> Vec<(u64, &mut [u8])> {
        let Transfer::Read { first, more } = &mut self.transfer else { return Vec::new() };
        let mut at = self.at + first.len() as u64;
        let mut pieces = vec![(self.at, &mut **first)];
        for piece in more {
            at += match piece {
                Piece::Wanted(bytes) => {
                    let len = bytes.len();
                    pieces.push((at, &mut **bytes));
                    len
                }
                Piece::Gap(len) => *len,
            } as u64;
        }
        pieces
    }

    /// The bytes of a write.
    pub(crate) fn written(&self) -> Option<&'a [u8]> {
        if let Transfer::Write(bytes) = self.transfer { Some(bytes) } else { None }
    }

    /// Leaves the result in it.
    pub(crate) fn finish(&mut self, result: io::Result<()>) {
        self.result = result;
    }

    /// Whether it writes.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.transfer, Transfer::Write(_))
    }

    /// Appends the memory of its bytes, for the kernel.
    pub(super) fn add_vectors(&mut self, vectors: &mut Vec<libc::iovec>) {
        match &mut self.transfer {
            // The kernel only reads the memory of a write.
            Transfer::Write(bytes) => vectors.push(vector(bytes.as_ptr().cast_mut(), bytes.len())),
            Transfer::Read { first, more } => {
                vectors.push(vector(first.as_mut_ptr(), first.len()));
                for piece in more {
                    match piece {
                        Piece::Wanted(bytes) => vectors.push(vector(bytes.as_mut_ptr(), bytes.len())),
                        Piece::Gap(len) => vectors.extend(sink(*len)),
                    }
                }
            }
        }
    }

    /// Takes the kernel's answer: bytes read or written, or an error's number below 0. A request that came back short
    /// or was interrupted is repeated by itself, and the result of that counts.
    pub(super) fn answered(&mut self, file: &File, answer: i32) {
        if usize::try_from(answer) == Ok(self.len) {
            self.result = Ok(());
            return;
        }
        match io::Error::from_raw_os_error(-answer) {
            error if answer < 0 && !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                self.result = Err(error);
            }
            _ => self.of_file(file),
        }
    }

    /// Makes it on a file, by itself.
    pub(super) fn of_file(&mut self, file: &File) {
        if let Transfer::Read { more, .. } = &self.transfer
            && !more.is_empty()
        {
            self.result = self.read_vectors(file);
        } else {
            self.by_pieces(|bytes, at| file.read_exact_at(bytes, at), |bytes, at| file.write_all_at(bytes, at));
        }
    }

    fn read_vectors(&mut self, file: &File) -> io::Result<()> {
        let mut vectors = Vec::new();
        self.add_vectors(&mut vectors);
        // SAFETY: the vectors name memory that the read borrows, or the sink, which always exists.
        let done = unsafe {
            libc::preadv(file.as_raw_fd(), vectors.as_ptr(), vectors.len() as libc::c_int, self.at as libc::off_t)
        };
        match usize::try_from(done) {
            Ok(done) if done == self.len => Ok(()),
            // A short read ended at the end of the file or at a signal. This tells which.
            Ok(_) => {
                self.by_pieces(|bytes, at| file.read_exact_at(bytes, at), |bytes, at| file.write_all_at(bytes, at));
                self.take_result()
            }
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

fn read_pieces(
    start: u64,
    first: &mut [u8],
    more: &mut [Piece<'_>],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    read(first, start)?;
    let mut at = start + first.len() as u64;
    for piece in more {
        at += match piece {
            Piece::Wanted(bytes) => {
                read(bytes, at)?;
                bytes.len()
            }
            Piece::Gap(len) => *len,
        } as u64;
    }
    Ok(())
}

fn vector(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

/// The destination of a gap: memory that all reads share, because the kernel writes it and no code reads it.
fn sink(len: usize) -> impl Iterator<Item = libc::iovec> {
    static SINK: LazyLock<AlignedBuf> = LazyLock::new(|| AlignedBuf::new(SINK_BYTES));
    (0..len).step_by(SINK_BYTES).map(move |done| vector(SINK.start(), SINK_BYTES.min(len - done)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_know_their_places_and_gaps_are_left_out() {
        let (mut first, mut second) = ([0; 4], [0; 2]);
        let mut read = Io::read(100, &mut first);
        read.join(10, &mut second);
        assert_eq!((read.at(), read.len()), (100, 16));
        let mut seen = Vec::new();
        read.by_pieces(
            |bytes, at| {
                seen.push((at, bytes.len()));
                Ok(())
            },
            |_, _| panic!("a read writes nothing"),
        );
        assert!(read.is_done());
        assert_eq!(seen, [(100, 4), (114, 2)]);
    }

    #[test]
    fn the_kernel_gets_a_place_for_every_byte() {
        let (mut first, mut second) = ([0; 4], [0; 2]);
        let mut read = Io::read(100, &mut first);
        read.join(SINK_BYTES + 5, &mut second);
        let mut vectors = Vec::new();
        read.add_vectors(&mut vectors);
        let lens: Vec<usize> = vectors.iter().map(|vector| vector.iov_len).collect();
        assert_eq!(lens, [4, SINK_BYTES, 5, 2]);
        assert_eq!(lens.iter().sum::<usize>(), read.len());
    }
}
