//! Changes of ranges of a map, and look-ups in them: truncate, zero, reserve, clone, seek, split into parts.

use std::ops::Range;

use crate::write::publish::OnPublish;
use crate::{Blocks, Change, Lbn, MapId, Result, Store};

impl Store {
    /// Drops everything from byte `size` on. The rest of the block that `size` cuts becomes zeros.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::MapDetached`]: the map was detached.
    /// - [`crate::Error::NoSpace`]: not even the blocks kept back for this are left for the block that `size` cuts.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: that block, the map or the block table cannot be read.
    ///
    /// - [`crate::Error::TooLargeForGroup`]: the map has more there than fits into one commit group. [`Store::parts`]
    ///   returns parts that fit. Nothing changed.
    pub fn truncate<G: OnPublish>(
        &self,
        map: MapId,
        size: u64,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.serve_change(|volume| volume.range_changes.truncate(map, size, with))
    }

    /// Makes `len` bytes from byte `at` read as zeros. Whole blocks in the range become a hole, or reserved space with
    /// `reserve`.
    ///
    /// # Errors
    ///
    /// As [`Store::truncate`]; with `reserve`, [`crate::Error::NoSpace`] also if there is not enough space for the
    /// holes.
    pub fn zero<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        len: u64,
        reserve: bool,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.serve_change(|volume| volume.range_changes.zero(map, at, len, reserve, with))
    }

    /// Reserves space for the holes among `len` bytes from byte `at` (fallocate). Blocks that are only partly in the
    /// range count as whole.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::MapDetached`]: the map was detached.
    /// - [`crate::Error::NoSpace`]: there is not enough space for the holes; nothing was reserved.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the map or the block table cannot be read.
    pub fn reserve<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        len: u64,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.serve_change(|volume| volume.range_changes.reserve(map, at, len, with))
    }

    /// Splits a range of bytes into parts whose changes fit into one commit group each. Most ranges are a single part.
    ///
    /// A change of several parts is not atomic: only a caller that changes part by part has records that agree with the
    /// map after a crash. A range is split by its content: by leaves, and by the pages of the block table that they
    /// refer to. If its holes are filled (`fills_holes`), it is also split by its length.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: the record store cannot be read.
    pub fn parts(&self, map: MapId, bytes: Range<u64>, fills_holes: bool) -> Result<Vec<Range<u64>>> {
        self.volume.range_parts.parts(map, &bytes, fills_holes)
    }

    /// How many of the first blocks [`Store::clone_blocks`] takes in one call: at least as many as lie in one leaf of
    /// the target.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: a map cannot be read.
    pub fn clone_part(&self, source: (MapId, Lbn), target: (MapId, Lbn), blocks: Blocks) -> Result<Blocks> {
        self.volume.range_parts.clone_part(source, target, blocks)
    }

    /// Checks that there is space for the holes of a range of bytes that will be reserved part by part.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::NoSpace`]: there is not enough.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the map cannot be read.
    pub fn check_room(&self, map: MapId, bytes: Range<u64>) -> Result<()> {
        self.volume.range_parts.check_room(map, &bytes)
    }

    /// The first byte with `from <= byte < end` that is data. `None`: the range has only holes and reserved space.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::MapDetached`]: the map was detached.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the map cannot be read.
    pub fn seek_data(&self, map: MapId, from: u64, end: u64) -> Result<Option<u64>> {
        self.volume.metadata.seek_data(map, from, end)
    }

    /// The first byte with `from <= byte < end` that is a hole or reserved, or `end` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Store::seek_data`].
    pub fn seek_hole(&self, map: MapId, from: u64, end: u64) -> Result<u64> {
        self.volume.metadata.seek_hole(map, from, end)
    }

    /// Makes `blocks` blocks of `target` from `target_at` on share those of `source` from `source_at` on
    /// (copy_file_range, clone). Writes only metadata.
    ///
    /// Source and target may be one map if the ranges are disjoint. Reserved space of the source becomes a hole.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::Invalid`]: the ranges overlap, or a block has the largest number of references.
    /// - [`crate::Error::MapDetached`]: one of the maps was detached.
    /// - [`crate::Error::Corrupt`]: a block of the source is known to be damaged, or a map or the block table is.
    /// - [`crate::Error::Io`]: a device or the record store failed.
    ///
    /// - [`crate::Error::TooLargeForGroup`]: it is more than [`Store::clone_part`] returns. Nothing changed.
    pub fn clone_blocks<G: OnPublish>(
        &self,
        source: MapId,
        source_at: Lbn,
        target: MapId,
        target_at: Lbn,
        blocks: Blocks,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.clone_blocks_if((source, source_at), (target, target_at), blocks, || true, with).map(|_| ())
    }

    /// Like [`Store::clone_blocks`], if `holds` returns true once both maps are locked against writes. False: `holds`
    /// returned false, and nothing changed.
    ///
    /// # Errors
    ///
    /// As [`Store::clone_blocks`].
    pub fn clone_blocks_if<G: OnPublish>(
        &self,
        source: (MapId, Lbn),
        target: (MapId, Lbn),
        blocks: Blocks,
        holds: impl FnOnce() -> bool,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<bool> {
        self.serve_change(|volume| volume.range_changes.clone_blocks_if(source, target, blocks, holds, with))
    }
}
