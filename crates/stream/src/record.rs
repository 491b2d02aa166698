//! The records of a stream after its header.

use crate::base::{ASK_VERSION, BLOCK, BLOCK_BYTES};
use crate::fields::Fields;
use crate::{Attributes, Digest, Malformed, Moment, Name, StrongDigest, TreePath};

/// Most bytes of contents in one record.
pub const DATA_BYTES_MAX: usize = 1 << 20;

/// Largest file.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64 - BLOCK;

/// Longest record: an inode with all its extended attributes, a path, or contents with their hashes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = (2 << 20) + 4096;

const LINK_BYTES_MAX: usize = 4095;

/// Most contents that one record asks for: those of one record of contents.
pub const ASKED_MAX: usize = DATA_BYTES_MAX / BLOCK_BYTES;

/// A content that the receiving volume may have: a block, padded with zeros if it is a shorter last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its tag in the receiving volume.
    pub tag: u64,
    /// Its hash.
    pub digest: StrongDigest,
}

/// Where contents are that have arrived before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a file that came earlier in this stream.
    Here {
        /// Below the top of this tree.
        path: TreePath,
    },
    /// In a file of the older tree, which must not have changed.
    Older {
        /// Below the top of the older tree.
        path: TreePath,
        /// Its size.
        size: u64,
        /// When it was last changed.
        modified: Moment,
    },
    /// Among the contents that the receiver said it has, in the order of its answers.
    Known,
}

/// A record. Places and lengths in files are bytes and multiples of the block size; a length may also end with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A directory begins: its entries follow.
    Enter {
        /// Its name.
        name: Name,
    },
    /// The directory ends. The top of the tree has no name, and ends last.
    Leave {
        /// Its attributes.
        attributes: Attributes,
    },
    /// A regular file begins: its contents follow, ascending. What none of them names is a hole.
    File {
        /// Its name.
        name: Name,
        /// Its attributes.
        attributes: Attributes,
        /// Its size.
        size: u64,
        /// The first part that has arrived in an earlier stream: not 0 in the first file of a resumed stream only.
        start: u64,
    },
    /// Contents of the file.
    Data {
        /// Where.
        at: u64,
        /// The contents.
        bytes: Vec<u8>,
        /// The hash of each.
        digests: Vec<Digest>,
    },
    /// Contents that have arrived before.
    Share {
        /// Where.
        at: u64,
        /// How many bytes.
        length: u64,
        /// The file that has them.
        source: Source,
        /// Where in it.
        source_at: u64,
    },
    /// Room that the file reserves without content. May lie beyond its size.
    Reserve {
        /// Where.
        at: u64,
        /// How many bytes.
        length: u64,
    },
    /// The file ends.
    FileEnd,
    /// Another name of an entry that came earlier.
    Link {
        /// The name.
        name: Name,
        /// The earlier entry.
        target: TreePath,
    },
    /// A symbolic link.
    Symlink {
        /// Its name.
        name: Name,
        /// Its attributes.
        attributes: Attributes,
        /// The text in it.
        target: Vec<u8>,
    },
    /// A device, a pipe or a socket.
    Special {
        /// Its name.
        name: Name,
        /// Its attributes: the mode has its type.
        attributes: Attributes,
        /// The numbers of a device, as in `st_rdev`; else 0.
        device: u64,
    },
    /// Contents that the receiver may have. It answers at once, beside the stream.
    Ask {
        /// The contents.
        contents: Vec<Asked>,
    },
    /// The trailer.
    End {
        /// The totals of all records before it.
        totals: Totals,
    },
}

/// The totals of the records of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records, without header and trailer.
    pub records: u64,
    /// Entries of directories.
    pub entries: u64,
    /// Bytes of contents in the stream.
    pub data_bytes: u64,
    /// Bytes of contents that the receiver takes from where they arrived before.
    pub shared_bytes: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, record: &Record) {
        self.records += 1;
        match record {
            Record::Data { bytes, .. } => self.data_bytes += bytes.len() as u64,
            Record::Share { length, .. } => self.shared_bytes = self.shared_bytes.saturating_add(*length),
            Record::Leave { .. }
            | Record::Reserve { .. }
            | Record::FileEnd
            | Record::Ask { .. }
            | Record::End { .. } => {}
            Record::Enter { .. }
            | Record::File { .. }
            | Record::Link { .. }
            | Record::Symlink { .. }
            | Record::Special { .. } => self.entries += 1,
        }
    }
}

/// The kinds of records.
pub(crate) mod kind {
    pub const ENTER: u8 = 1;
    pub const LEAVE: u8 = 2;
    pub const FILE: u8 = 3;
    pub const DATA: u8 = 4;
    pub const SHARE: u8 = 5;
    pub const RESERVE: u8 = 6;
    pub const FILE_END: u8 = 7;
    pub const LINK: u8 = 8;
    pub const SYMLINK: u8 = 9;
    pub const SPECIAL: u8 = 10;
    pub const END: u8 = 11;
    pub const ASK: u8 = 12;
}

/// Bytes before the contents in the payload of `Data`, without the hashes: place and length.
pub(crate) const DATA_FIELDS_BYTES: usize = 12;

/// The part of a payload that its check covers. Contents are covered by their hashes, which it does cover.
pub(crate) fn checked_part(kind: u8, payload: &[u8]) -> &[u8] {
    match kind {
        kind::DATA => match Fields(payload.get(8..).unwrap_or_default()).u32() {
            Ok(length) => {
                let digests = (length as usize).div_ceil(BLOCK_BYTES).saturating_mul(size_of::<Digest>());
                &payload[..payload.len().min(DATA_FIELDS_BYTES + digests)]
            }
            Err(_) => payload,
        },
        _ => payload,
    }
}

impl Record {
    /// Appends its payload to `out`. Returns its kind.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Enter { name } => {
                name.put(out);
                kind::ENTER
            }
            Self::Leave { attributes } => {
                attributes.put(out);
                kind::LEAVE
            }
            Self::File { name, attributes, size, start } => {
                name.put(out);
                attributes.put(out);
                put_numbers(out, &[*size, *start]);
                kind::FILE
            }
            Self::Data { at, bytes, digests } => {
                out.reserve(DATA_FIELDS_BYTES + digests.len() * size_of::<Digest>() + bytes.len());
                put_numbers(out, &[*at]);
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                digests.iter().for_each(|digest| out.extend_from_slice(&digest.0));
                out.extend_from_slice(bytes);
                kind::DATA
            }
            Self::Share { at, length, source, source_at } => {
                put_numbers(out, &[*at, *length, *source_at]);
                source.put(out);
                kind::SHARE
            }
            Self::Reserve { at, length } => {
                put_numbers(out, &[*at, *length]);
                kind::RESERVE
            }
            Self::FileEnd => kind::FILE_END,
            Self::Link { name, target } => {
                name.put(out);
                target.put(out);
                kind::LINK
            }
            Self::Symlink { name, attributes, target } => {
                name.put(out);
                attributes.put(out);
                out.extend_from_slice(&(target.len() as u16).to_le_bytes());
                out.extend_from_slice(target);
                kind::SYMLINK
            }
            Self::Special { name, attributes, device } => {
                name.put(out);
                attributes.put(out);
                put_numbers(out, &[*device]);
                kind::SPECIAL
            }
            Self::Ask { contents } => {
                out.extend_from_slice(&(contents.len() as u32).to_le_bytes());
                for Asked { tag, digest } in contents {
                    put_numbers(out, &[*tag]);
                    out.extend_from_slice(&digest.0);
                }
                kind::ASK
            }
            Self::End { totals: Totals { records, entries, data_bytes, shared_bytes } } => {
                put_numbers(out, &[*records, *entries, *data_bytes, *shared_bytes]);
                kind::END
            }
        }
    }

    pub(crate) fn decode(version: u32, kind: u8, payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let record = Self::take(version, kind, &mut fields)?;
        fields.end().map(|()| record)
    }

    fn take(version: u32, kind: u8, fields: &mut Fields) -> Result<Self, Malformed> {
        Ok(match kind {
            kind::ENTER => Self::Enter { name: Name::take(fields)? },
            kind::LEAVE => Self::Leave { attributes: Attributes::take(fields, version)? },
            kind::FILE => Self::File {
                name: Name::take(fields)?,
                attributes: Attributes::take(fields, version)?,
                size: fields.u64()?,
                start: fields.u64()?,
            },
            kind::DATA => take_data(fields)?,
            kind::SHARE => {
                let (at, length, source_at) = (fields.u64()?, fields.u64()?, fields.u64()?);
                Self::Share { at, length, source: Source::take(version, fields)?, source_at }
            }
            kind::RESERVE => Self::Reserve { at: fields.u64()?, length: fields.u64()? },
            kind::FILE_END => Self::FileEnd,
            kind::LINK => Self::Link { name: Name::take(fields)?, target: TreePath::take(fields)? },
            kind::SYMLINK => Self::Symlink {
                name: Name::take(fields)?,
                attributes: Attributes::take(fields, version)?,
                target: take_target(fields)?,
            },
            kind::SPECIAL => Self::Special {
                name: Name::take(fields)?,
                attributes: Attributes::take(fields, version)?,
                device: fields.u64()?,
            },
            kind::ASK if version >= ASK_VERSION => take_asked(fields)?,
            kind::END => {
                let [records, entries, data_bytes, shared_bytes] =
                    [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
                Self::End { totals: Totals { records, entries, data_bytes, shared_bytes } }
            }
            _ => return Err(Malformed("its kind is unknown")),
        })
    }
}

impl Source {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Here { path } => {
                out.push(0);
                path.put(out);
            }
            Self::Older { path, size, modified } => {
                out.push(1);
                path.put(out);
                put_numbers(out, &[*size]);
                modified.put(out);
            }
            Self::Known => out.push(2),
        }
    }

    fn take(version: u32, fields: &mut Fields) -> Result<Self, Malformed> {
        Ok(match fields.u8()? {
            0 => Self::Here { path: TreePath::take(fields)? },
            1 => Self::Older { path: TreePath::take(fields)?, size: fields.u64()?, modified: Moment::take(fields)? },
            2 if version >= ASK_VERSION => Self::Known,
            _ => return Err(Malformed("contents are taken from an unknown source")),
        })
    }
}

fn take_asked(fields: &mut Fields) -> Result<Record, Malformed> {
    let count = fields.u32()? as usize;
    if count == 0 || count > ASKED_MAX {
        return Err(Malformed("a record asks for no contents or for more than 256"));
    }
    let asked = |_| Ok(Asked { tag: fields.u64()?, digest: StrongDigest(fields.array()?) });
    Ok(Record::Ask { contents: (0..count).map(asked).collect::<Result<_, _>>()? })
}

fn take_data(fields: &mut Fields) -> Result<Record, Malformed> {
    let (at, length) = (fields.u64()?, fields.u32()? as usize);
    if length == 0 || length > DATA_BYTES_MAX {
        return Err(Malformed("a record has no contents or more than 1 MiB of them"));
    }
    let digests = (0..length.div_ceil(BLOCK_BYTES)).map(|_| fields.array().map(Digest)).collect::<Result<_, _>>()?;
    Ok(Record::Data { at, digests, bytes: fields.bytes(length)?.to_vec() })
}

fn take_target(fields: &mut Fields) -> Result<Vec<u8>, Malformed> {
    let length = usize::from(fields.u16()?);
    let target = fields.bytes(length)?;
    match length == 0 || length > LINK_BYTES_MAX || target.contains(&0) {
        true => Err(Malformed("a symbolic link is empty, holds NUL, or is longer than 4095 bytes")),
        false => Ok(target.to_vec()),
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}
