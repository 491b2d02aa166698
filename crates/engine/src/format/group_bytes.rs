//! How many bytes a change adds to a group of the log at most, by its kind: the lengths of the operations in `ops.rs`.

use super::extent_leaf::LEAF_BLOCKS;

/// Records of the file system in one change: two access control lists of 64 KiB, the changes of one operation on names,
/// or a portion of the attributes of a deleted inode.
const RECORDS_BYTES: u64 = 160 << 10;
/// The most that a written block takes: it is stored with its fingerprint (36 bytes), mapped (13), and the block that
/// it replaces is counted (13).
const WRITTEN_BLOCK_BYTES: u64 = 64;
/// The most that a block of a changed range takes: it is mapped (13), and two blocks are counted (26), of which the one
/// that is released may be a fragment.
const CHANGED_BLOCK_BYTES: u64 = 40 + REPLACED_FRAGMENT_BYTES;
/// The most that a fragment takes in addition to a written block: its place (9), and the three blocks that hold it are
/// made a pack (24) and counted (39), with the length of the pack (10). A fragment that moves takes no more in all: it
/// gets its place (16), leaves three blocks (49) and enters three (73).
const FRAGMENT_BYTES: u64 = 84;
/// The most that a written block takes in addition if it replaces a fragment: three blocks are counted (39), with the
/// length of the pack (13).
const REPLACED_FRAGMENT_BYTES: u64 = 52;
/// The most that any change takes in addition: the caller's records of one file, blocks that a range cuts, first
/// differences.
const BASE_BYTES: u64 = 4 << 10;

/// The most that a change adds to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupBytes(pub u64);

impl GroupBytes {
    /// A change of records alone.
    pub const RECORDS: Self = Self(RECORDS_BYTES);
    /// A change of few records and entries.
    pub const SMALL: Self = Self(BASE_BYTES);

    /// A change that stores, shares or completes this many blocks.
    pub fn of_blocks(blocks: u64) -> Self {
        Self(BASE_BYTES + blocks * WRITTEN_BLOCK_BYTES)
    }

    /// A change that makes or moves this many fragments: each is stored with its place, the blocks that hold it are
    /// counted, and the place in the file is mapped, as for a written block.
    pub fn of_fragments(blocks: u64) -> Self {
        Self(BASE_BYTES + blocks * (WRITTEN_BLOCK_BYTES + FRAGMENT_BYTES))
    }

    /// A change that stores or shares this many blocks, and may make fragments of them and replace fragments.
    pub fn of_compressed(blocks: u64) -> Self {
        Self(BASE_BYTES + blocks * (WRITTEN_BLOCK_BYTES + FRAGMENT_BYTES + REPLACED_FRAGMENT_BYTES))
    }

    /// A change that gives places in files other blocks, or fragments, with the same content.
    pub fn of_remaps(places: u64) -> Self {
        Self(BASE_BYTES + places * (WRITTEN_BLOCK_BYTES + REPLACED_FRAGMENT_BYTES))
    }

    /// A change of all blocks of this many leaves.
    pub fn of_leaves(leaves: u64) -> Self {
        Self(BASE_BYTES + leaves * LEAF_BLOCKS * CHANGED_BLOCK_BYTES)
    }

    /// How many leaves a change of this many bytes can have.
    pub fn leaves(self) -> u64 {
        self.0.saturating_sub(BASE_BYTES) / (LEAF_BLOCKS * CHANGED_BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use oncefs_compress::Coding;

    use super::super::extent_leaf::Target;
    use super::super::fragment::FragmentPlace;
    use super::super::keys::LeafKey;
    use super::super::ops::{Op, OpWriter};
    use super::*;
    use crate::{Fingerprint, Lbn, MapId, Pbn, Tag};

    /// More blocks than hints can name, and so more than a volume has.
    const DATA_BLOCKS_MAX: u64 = 1 << oncefs_dedup::HINT_PBN_BITS;

    /// The most that recurring operations take, between operations on distant blocks.
    fn bytes_of(ops: &[Op<'_>]) -> u64 {
        let mut writer = OpWriter::default();
        writer.push(&Op::DropLeaf { key: LeafKey { map: MapId(u64::MAX >> 1), leaf: (1 << 52) / LEAF_BLOCKS } });
        let mut most = 0;
        for _ in 0..3 {
            for op in ops {
                writer.push(op);
            }
            let before = writer.bytes().len();
            ops.iter().for_each(|op| writer.push(op));
            most = most.max((writer.bytes().len() - before) as u64);
        }
        most
    }

    #[test]
    fn no_block_takes_more_of_the_log_than_is_claimed_for_it() {
        // Far from each other: each difference takes as many bytes as any.
        let far = [Pbn(1), Pbn(DATA_BLOCKS_MAX - 1), Pbn(DATA_BLOCKS_MAX / 2)];
        let map = |pbn| Op::Map { map: MapId(9), lbn: Lbn(LEAF_BLOCKS - 1), blocks: 1, target: Target::Data(pbn) };
        let count = |pbn| Op::Count { pbn, blocks: 1, count: u32::MAX };
        let store = |pbn| Op::Store { pbn, tag: Tag(u64::MAX), fingerprint: Some(Fingerprint([255; 16])) };
        let place = FragmentPlace { at: (1 << 49) - 4096, bytes: 3_584, coding: Coding::Zstd, blocks_after: 15 };
        let fragment = |pbn| Op::Fragment { pbn, place, tag: Tag(u64::MAX), fingerprint: Some(Fingerprint([255; 16])) };
        let pack = |pbn| Op::Pack { pbn, blocks: 1 };
        let flags = |pbn| Op::Flags { pbn, flags: 255 };
        let pack_bytes = |pbn| Op::PackBytes { pbn, bytes: 16 << 12 };
        let fingerprint = |pbn| Op::Fingerprint { pbn, fingerprint: Fingerprint([255; 16]) };
        let left = [count(far[2]), count(far[0]), count(far[1]), count(far[2]), pack_bytes(far[0])];
        let changed = bytes_of(&[&[map(far[0]), count(far[1])][..], &left].concat());
        assert!(changed <= CHANGED_BLOCK_BYTES, "a changed block takes {changed} bytes");
        let written = bytes_of(&[store(far[0]), map(far[1]), count(far[2])]);
        assert!(written <= WRITTEN_BLOCK_BYTES, "a written block takes {written} bytes");
        let packs = [pack(far[1]), pack(far[2]), pack(far[0]), count(far[1]), count(far[2]), count(far[0])];
        let made = [&[fragment(far[1]), map(far[0])][..], &packs, &[pack_bytes(far[1])]].concat();
        let replacing = WRITTEN_BLOCK_BYTES + FRAGMENT_BYTES + REPLACED_FRAGMENT_BYTES;
        let compressed = bytes_of(&[&made[..], &left].concat());
        assert!(compressed <= replacing, "a fragment takes {compressed} bytes");
        let kept = bytes_of(&[&[store(far[0]), flags(far[1]), map(far[2])][..], &left].concat());
        assert!(kept <= replacing, "a block beside fragments takes {kept} bytes");
        let remapped = bytes_of(&[&[count(far[0]), fingerprint(far[1]), map(far[0])][..], &left].concat());
        assert!(remapped <= WRITTEN_BLOCK_BYTES + REPLACED_FRAGMENT_BYTES, "a remapped block takes {remapped} bytes");
    }
}
