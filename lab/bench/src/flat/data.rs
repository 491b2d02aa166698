//! The backing file of the flat file system: reads and writes of extents, buffered or with O_DIRECT.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::names::Stretch;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::failure::{During, Result};

thread_local! {
    /// One buffer per event-loop thread, grown to the largest request it has seen.
    static BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(1 << 20));
}

/// The open backing file.
#[derive(Debug)]
pub struct Data {
    buffered: File,
    direct: Option<File>,
    early_write_out: bool,
}

impl Data {
    /// Opens or creates the backing file in `directory`.
    pub fn open(directory: &Path, direct: bool, early_write_out: bool) -> Result<Data> {
        let path = directory.join("data");
        let open = |flags: i32| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
            options.open(&path).during(|| format!("cannot open {}", path.display()))
        };
        let direct = if direct { Some(open(libc::O_DIRECT)?) } else { None };
        Ok(Data { buffered: open(0)?, direct, early_write_out })
    }

    /// Writes `bytes` over the stretches.
    ///
    /// The last block is padded with zeros for O_DIRECT; nothing but the file's end follows it in its chunk.
    pub fn write(&self, stretches: &[Stretch], bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        for stretch in stretches {
            let (piece, after) = rest.split_at(stretch.bytes as usize);
            let offset = stretch.offset.ok_or_else(|| io::Error::other("a write has no place in the backing file"))?;
            match &self.direct {
                Some(file) if offset.is_multiple_of(BLOCK_BYTES as u64) => write_direct(file, offset, piece)?,
                _ => self.write_buffered(offset, piece)?,
            }
            rest = after;
        }
        Ok(())
    }

    fn write_buffered(&self, offset: u64, piece: &[u8]) -> io::Result<()> {
        self.buffered.write_all_at(piece, offset)?;
        if self.early_write_out {
            let flags = libc::SYNC_FILE_RANGE_WRITE;
            // SAFETY: the descriptor is open as long as self is; the call touches no memory of ours.
            let result =
                unsafe { libc::sync_file_range(self.buffered.as_raw_fd(), offset as i64, piece.len() as i64, flags) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Reads the stretches into a buffer as long as they are together.
    pub fn read_into(&self, stretches: &[Stretch], buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        for stretch in stretches {
            let piece = &mut buffer[done..done + stretch.bytes as usize];
            match stretch.offset {
                None => piece.fill(0),
                Some(offset) => self.read_piece(offset, piece)?,
            }
            done += stretch.bytes as usize;
        }
        Ok(())
    }

    fn read_piece(&self, offset: u64, piece: &mut [u8]) -> io::Result<()> {
        let aligned = (offset | piece.len() as u64 | piece.as_ptr() as u64).is_multiple_of(BLOCK_BYTES as u64);
        let file = self.direct.as_ref().filter(|_| aligned).unwrap_or(&self.buffered);
        let mut done = 0;
        while done < piece.len() {
            match file.read_at(&mut piece[done..], offset + done as u64)? {
                // The backing file ends where its last written chunk does; the rest of the piece is a hole.
                0 => piece[done..].fill(0),
                read => {
                    done += read;
                    continue;
                }
            }
            break;
        }
        Ok(())
    }

    /// Makes all data durable.
    pub fn flush(&self) -> io::Result<()> {
        self.buffered.sync_data()
    }
}

fn write_direct(file: &File, offset: u64, piece: &[u8]) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        let padded = piece.len().next_multiple_of(BLOCK_BYTES);
        if buffer.bytes().len() < padded {
            *buffer = AlignedBuffer::new(padded);
        }
        let copy = &mut buffer.bytes_mut()[..padded];
        copy[..piece.len()].copy_from_slice(piece);
        copy[piece.len()..].fill(0);
        file.write_all_at(copy, offset)
    })
}
