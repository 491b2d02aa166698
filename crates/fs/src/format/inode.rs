//! The inode record: everything that `stat` shows, the map and usage of a regular file, the counts of a directory.

use oncefs_engine::{Change, MapId, Usage};

use crate::format::codec::{CHECKSUM_BYTES, Reader, damaged, end_of_number, number_of_key, numbered_key, seal, unseal};
use crate::{Attributes, Caller, FileFlags, FileKind, Ino, LINKS_MAX, Result, Timestamp};

pub(super) const LETTER: u8 = b'i';
const VERSION: u16 = 1;
const BODY_BYTES: usize = 136;

const _: () =
    assert!(2 + 2 + 5 * 4 + 8 * 2 + 4 * 8 + 4 * 4 + 3 * 8 + 2 * 4 + Usage::BYTES == BODY_BYTES, "the fields fill it");

/// Counts of names and attributes stay below this. A record with a higher one is damaged, so adding 1 to a count cannot
/// overflow.
const COUNT_END: u32 = 1 << 31;
const _: () = assert!(LINKS_MAX < COUNT_END, "a file may have all its names");

/// The size that `stat` shows for a directory. Tools expect one block; the entries are in the store.
const DIRECTORY_BYTES: u64 = 4096;

/// Key of an inode's record.
pub(crate) fn key(ino: Ino) -> Vec<u8> {
    numbered_key(LETTER, ino.0)
}

/// The range of keys from inode `from` to the last one.
pub(crate) fn range(from: Ino) -> (Vec<u8>, Vec<u8>) {
    (key(from), end_of_number(LETTER, u64::MAX))
}

/// The inode of a key.
pub(crate) fn ino_of_key(key: &[u8]) -> Option<Ino> {
    number_of_key(key).map(Ino)
}

/// An inode as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InodeRecord {
    pub kind: FileKind,
    pub flags: FileFlags,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    pub size: u64,
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    /// The map of a regular file; 0 for other kinds.
    pub map: MapId,
    /// The parent of a directory (the root is its own); 0 for other kinds.
    pub parent: Ino,
    /// Number of names in a directory; 0 for other kinds.
    pub entries: u64,
    pub generation: u32,
    /// Number of extended attributes. 0 saves the lookup of one.
    pub xattrs: u32,
    /// The usage of a regular file; empty for other kinds.
    pub usage: Usage,
}

impl InodeRecord {
    /// The record of a new inode without content.
    pub(crate) fn new(kind: FileKind, permissions: u32, caller: &Caller<'_>, now: Timestamp, generation: u32) -> Self {
        debug_assert_eq!(permissions & !0o7777, 0, "permissions {permissions:o} have type bits");
        Self {
            kind,
            flags: FileFlags::default(),
            permissions,
            uid: caller.uid,
            gid: caller.gid,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            map: MapId(0),
            parent: Ino(0),
            entries: 0,
            generation,
            xattrs: 0,
            usage: Usage::default(),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether the queues of ranks and the engine's policy of the file stay the same when `before` becomes this record.
    pub(crate) fn is_ranked_as(&self, before: &Self) -> bool {
        (self.map, self.usage.rank(), self.usage.is_update_heavy())
            == (before.map, before.usage.rank(), before.usage.is_update_heavy())
    }

    /// What `stat` shows.
    pub(crate) fn attributes(&self, ino: Ino) -> Attributes {
        Attributes {
            ino,
            generation: self.generation,
            kind: self.kind,
            permissions: self.permissions,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: if self.is_directory() { DIRECTORY_BYTES } else { self.size },
            blocks: self.blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }

    pub(crate) fn encode(&self, ino: Ino) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_BYTES + CHECKSUM_BYTES);
        body.extend_from_slice(&VERSION.to_le_bytes());
        body.extend_from_slice(&self.flags.bits().to_le_bytes());
        debug_assert_eq!(self.permissions & !0o7777, 0, "inode {}: permissions {:o}", ino.0, self.permissions);
        let mode = self.kind.mode_bits() | self.permissions;
        for value in [mode, self.uid, self.gid, self.nlink, self.rdev] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.size, self.blocks] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        let times = [self.atime, self.mtime, self.ctime, self.btime];
        for time in times {
            body.extend_from_slice(&time.seconds.to_le_bytes());
        }
        for time in times {
            body.extend_from_slice(&time.nanoseconds.to_le_bytes());
        }
        for value in [self.map.0, self.parent.0, self.entries] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.generation, self.xattrs] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        body.extend_from_slice(&self.usage.encode());
        debug_assert_eq!(body.len(), BODY_BYTES, "inode {}: {} bytes of fields", ino.0, body.len());
        seal(body, ino.0)
    }

    pub(crate) fn decode(ino: Ino, bytes: &[u8]) -> Result<Self> {
        let body = unseal("inode", ino.0, bytes)?;
        parse(body).ok_or_else(|| damaged("inode", ino.0, "its fields contradict each other"))
    }
}

/// Adds an inode's record to a change.
pub(crate) fn put_inode(change: &mut Change, ino: Ino, record: &InodeRecord) {
    change.put(key(ino), record.encode(ino));
}

fn parse(body: &[u8]) -> Option<InodeRecord> {
    let mut reader = Reader::new(body);
    if body.len() != BODY_BYTES || reader.u16()? != VERSION {
        return None;
    }
    let flags = FileFlags::from_bits(reader.u16()?)?;
    let mode = reader.u32()?;
    let mut record = InodeRecord {
        kind: FileKind::from_mode(mode)?,
        flags,
        permissions: mode & 0o7777,
        uid: reader.u32()?,
        gid: reader.u32()?,
        nlink: reader.u32()?,
        rdev: reader.u32()?,
        size: reader.u64()?,
        blocks: reader.u64()?,
        atime: Timestamp { seconds: reader.i64()?, nanoseconds: 0 },
        mtime: Timestamp { seconds: reader.i64()?, nanoseconds: 0 },
        ctime: Timestamp { seconds: reader.i64()?, nanoseconds: 0 },
        btime: Timestamp { seconds: reader.i64()?, nanoseconds: 0 },
        map: MapId(0),
        parent: Ino(0),
        entries: 0,
        generation: 0,
        xattrs: 0,
        usage: Usage::default(),
    };
    for time in [&mut record.atime, &mut record.mtime, &mut record.ctime, &mut record.btime] {
        time.nanoseconds = reader.u32()?;
    }
    record.map = MapId(reader.u64()?);
    record.parent = Ino(reader.u64()?);
    record.entries = reader.u64()?;
    record.generation = reader.u32()?;
    record.xattrs = reader.u32()?;
    record.usage = Usage::decode(&reader.array()?);
    let is_possible = record.nlink.max(record.xattrs) < COUNT_END && record.entries < u64::from(COUNT_END) << 8;
    is_possible.then_some(record)
}

#[cfg(test)]
mod tests {
    use oncefs_engine::{Moment, Rank, Reads};

    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    fn usage() -> Usage {
        let mut usage = Usage::created(Moment(0x0102_0304));
        usage.written(Moment(0x0506_0708), true);
        usage.ranked(Rank::Random);
        usage.read(Moment(0x090a_0b0c), Reads { sequential: 0x0d_0e0f, random: 0x10_1112 });
        usage
    }

    fn sample() -> InodeRecord {
        InodeRecord {
            kind: FileKind::Regular,
            flags: FileFlags::IMMUTABLE.with(FileFlags::NO_ATIME),
            permissions: 0o4755,
            uid: 1000,
            gid: 1001,
            nlink: 2,
            rdev: 0x0103,
            size: 0x0102_0304_0506,
            blocks: 77,
            atime: Timestamp { seconds: -2, nanoseconds: 1 },
            mtime: Timestamp { seconds: 1, nanoseconds: 2 },
            ctime: Timestamp { seconds: 2, nanoseconds: 3 },
            btime: Timestamp { seconds: 3, nanoseconds: 999_999_999 },
            map: MapId(9),
            parent: Ino(0),
            entries: 0,
            generation: 0xdead_beef,
            xattrs: 3,
            usage: usage(),
        }
    }

    #[test]
    fn counts_that_no_operation_reaches_are_damage() {
        let claims = [
            InodeRecord { xattrs: u32::MAX, ..sample() },
            InodeRecord { nlink: COUNT_END, ..sample() },
            InodeRecord { entries: u64::MAX, ..sample() },
        ];
        for record in claims {
            InodeRecord::decode(Ino(7), &record.encode(Ino(7))).unwrap_err();
        }
    }

    #[test]
    fn the_bytes_of_an_inode_never_change() {
        assert_eq!(
            hex(&sample().encode(Ino(5))),
            "01000900ed890000e8030000e9030000020000000301000006050403020100004d000000\
             00000000feffffffffffffff010000000000000002000000000000000300000000000000\
             010000000200000003000000ffc99a3b0900000000000000000000000000000000000000\
             00000000efbeadde030000000c0b0a09080706050f0e0d1211100200b16f66db"
        );
        assert_eq!(hex(&key(Ino(5))), "690000000000000005");
    }

    #[test]
    fn an_inode_survives_encoding() {
        assert_eq!(InodeRecord::decode(Ino(5), &sample().encode(Ino(5))).unwrap(), sample());
    }

    #[test]
    fn damage_and_a_wrong_place_are_noticed() {
        let good = sample().encode(Ino(5));
        assert_damage_is_noticed(&good, |bytes| InodeRecord::decode(Ino(5), bytes).is_ok());
        assert!(InodeRecord::decode(Ino(6), &good).is_err());
    }

    #[test]
    fn a_flag_without_a_meaning_is_refused() {
        let mut body = sample().encode(Ino(5));
        body.truncate(BODY_BYTES);
        body[3] = 0x80;
        assert!(InodeRecord::decode(Ino(5), &seal(body, 5)).is_err());
    }

    #[test]
    fn a_mode_without_a_kind_is_refused() {
        let mut body = sample().encode(Ino(5));
        body.truncate(BODY_BYTES);
        body[4..8].copy_from_slice(&0o644_u32.to_le_bytes());
        assert!(InodeRecord::decode(Ino(5), &seal(body, 5)).is_err());
    }
}
