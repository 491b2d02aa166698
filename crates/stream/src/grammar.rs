//! Which record may follow which.

use crate::base::BLOCK;
use crate::names::DEPTH_MAX;
use crate::{FILE_BYTES_MAX, Malformed, Record};

/// The bits of `st_mode` that hold the type, and some of the types.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const PIPE: u32 = 0o010_000;
const SOCKET: u32 = 0o140_000;

/// The state of a stream after some records.
#[derive(Debug)]
pub struct Grammar {
    /// Directories that have begun and not ended, the top included.
    depth: usize,
    file: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    size: u64,
    /// The first byte that the next contents may have.
    next: u64,
}

impl Grammar {
    pub fn new() -> Self {
        Self { depth: 1, file: None }
    }

    /// Takes the next record. Refuses it if it makes no sense here.
    pub fn take(&mut self, record: &Record) -> Result<(), Malformed> {
        match record {
            Record::Data { at, bytes, .. } => self.contents(*at, bytes.len() as u64),
            Record::Share { at, length, source_at, .. } => {
                if !source_at.is_multiple_of(BLOCK)
                    || source_at.checked_add(*length).is_none_or(|end| end > FILE_BYTES_MAX)
                {
                    return Err(Malformed("contents are taken from an impossible place"));
                }
                self.contents(*at, *length)
            }
            Record::Reserve { at, length } => self.room(*at, *length),
            Record::Ask { .. } if self.file.is_some() => Ok(()),
            Record::Ask { .. } => Err(Malformed("contents are asked for outside a file")),
            Record::FileEnd => match self.file.take() {
                Some(_) => Ok(()),
                None => Err(Malformed("a file ends that has not begun")),
            },
            _ if self.file.is_some() => Err(Malformed("the file before it has not ended")),
            Record::End { .. } if self.depth == 0 => Ok(()),
            Record::End { .. } => Err(Malformed("the stream ends inside a directory")),
            _ if self.depth == 0 => Err(Malformed("the tree has ended")),
            Record::Enter { .. } if self.depth == DEPTH_MAX => Err(Malformed("the tree has more than 4096 levels")),
            Record::Enter { .. } => {
                self.depth += 1;
                Ok(())
            }
            Record::Leave { attributes } => {
                self.depth -= 1;
                is_of(attributes.mode, &[DIRECTORY])
            }
            Record::File { attributes, size, start, .. } => {
                if *size > FILE_BYTES_MAX || start > size || !start.is_multiple_of(BLOCK) {
                    return Err(Malformed("a file has an impossible size"));
                }
                self.file = Some(OpenFile { size: *size, next: *start });
                is_of(attributes.mode, &[FILE])
            }
            Record::Symlink { attributes, .. } | Record::Special { attributes, .. } if !attributes.flags.is_empty() => {
                Err(Malformed("only files and directories have flags"))
            }
            Record::Symlink { attributes, .. } => is_of(attributes.mode, &[SYMLINK]),
            Record::Special { attributes, .. } => {
                is_of(attributes.mode, &[CHARACTER_DEVICE, BLOCK_DEVICE, PIPE, SOCKET])
            }
            Record::Link { .. } => Ok(()),
        }
    }

    fn contents(&mut self, at: u64, length: u64) -> Result<(), Malformed> {
        let file = self.file.as_mut().ok_or(Malformed("contents come outside a file"))?;
        let end = end_of(at, length, file.next)?;
        if end > file.size || (!length.is_multiple_of(BLOCK) && end != file.size) {
            return Err(Malformed("contents do not end with a block or with the file"));
        }
        file.next = end;
        Ok(())
    }

    fn room(&mut self, at: u64, length: u64) -> Result<(), Malformed> {
        let file = self.file.as_mut().ok_or(Malformed("reserved room comes outside a file"))?;
        let end = end_of(at, length, file.next)?;
        if !length.is_multiple_of(BLOCK) {
            return Err(Malformed("reserved room does not end with a block"));
        }
        file.next = end;
        Ok(())
    }
}

fn end_of(at: u64, length: u64, next: u64) -> Result<u64, Malformed> {
    if !at.is_multiple_of(BLOCK) || at < next || length == 0 {
        return Err(Malformed("contents of a file are empty or not in order"));
    }
    at.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Malformed("contents lie behind the largest file"))
}

fn is_of(mode: u32, kinds: &[u32]) -> Result<(), Malformed> {
    match kinds.contains(&(mode & TYPE)) && mode >> 16 == 0 {
        true => Ok(()),
        false => Err(Malformed("the mode is of another type")),
    }
}
