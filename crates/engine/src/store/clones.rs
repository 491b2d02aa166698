//! Lazy clones of maps.

use std::time::Duration;

use crate::volume::superblock_file;
use crate::write::publish::OnPublish;
use crate::{Blocks, Change, MapId, Result, Store};

/// How long background work pauses for a clone.
const MAKES_WAY: Duration = Duration::from_secs(1);
/// How long it does so for a clone that a file system stands still for: it is written back once more before.
const CALM: Duration = Duration::from_secs(3);

impl Store {
    /// Prepares a [`Store::clone_map`], which is quick then: completes earlier clones if too many
    /// are pending, and marks the volume as one that older versions of oncefs cannot open.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::Io`], [`crate::Error::NoSpace`]: the superblock cannot be written, or a device failed.
    /// - [`crate::Error::Corrupt`], [`crate::Error::Invalid`]: a leaf cannot be taken, see [`Store::clone_map`].
    pub fn prepare_clone(&self, source: MapId) -> Result<()> {
        self.refuse_older_versions()?;
        self.volume.lazy_clones.prepare(source)?;
        self.volume.lazy_clones.make_way(MAKES_WAY);
        Ok(())
    }

    /// Prepares a [`Store::clone_map`] during which a file system stands still: as [`Store::prepare_clone`], and then
    /// makes everything durable and the log short, so that no commit of the next moments waits for a checkpoint.
    /// Background work that fills the log pauses for some seconds.
    ///
    /// # Errors
    ///
    /// As [`Store::prepare_clone`] and [`Store::commit`].
    pub fn settle_before_clone(&self, source: MapId) -> Result<()> {
        self.prepare_clone(source)?;
        self.volume.lazy_clones.make_way(CALM);
        self.volume.commits.settle()?;
        self.volume.lazy_clones.make_way(CALM);
        Ok(())
    }

    /// Marks the volume as one that versions of oncefs without clones and snapshots cannot open: they would take the
    /// records of these for damage.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::Io`], [`crate::Error::NoSpace`]: the superblock cannot be written.
    pub fn refuse_older_versions(&self) -> Result<()> {
        self.volume.base.health.usable()?;
        let mut allows_clones = self.allows_clones.lock();
        if !*allows_clones {
            superblock_file::allow_clones(&self.path)?;
            *allows_clones = true;
        }
        Ok(())
    }

    /// Makes a new map that has the content of the first blocks of `source` at one moment, and publishes the caller's
    /// records with it. `blocks` says how many blocks, at that moment; the number is rounded up to whole leaves. Reserved space becomes holes. It takes as long for a large
    /// map as for a small one, unless the volume has reserved space: then all of the source's leaves are read first,
    /// without its lock.
    ///
    /// References are counted later, leaf by leaf: in the background, and before either map changes. Until then
    /// [`Store::totals`] and [`Store::referrers`] do not know of them.
    ///
    /// `with` gets the new map and the number of blocks that are reserved in the source, so not mapped in the clone. It
    /// runs once, after `blocks`, both under the source's lock, as in [`Store::write`].
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::MapDetached`]: the source was detached.
    /// - [`crate::Error::Invalid`]: the source's reservations changed whenever they were counted; or a block of an
    ///   earlier clone that is completed first has the largest number of references.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: a map or the block table cannot be read.
    ///
    /// A later change of either map can fail because of the other: with [`crate::Error::Corrupt`] or
    /// [`crate::Error::Io`] if what it has to take first cannot be read, and with [`crate::Error::Invalid`] if a block
    /// there has the largest number of references.
    pub fn clone_map<G: OnPublish>(
        &self,
        source: MapId,
        blocks: impl FnOnce() -> Blocks,
        with: impl FnOnce(MapId, u64, &mut Change) -> G,
    ) -> Result<MapId> {
        self.prepare_clone(source)?;
        self.volume.base.foreground.serve(|| {
            self.volume.change_room.wait_for_room();
            self.volume.lazy_clones.clone_map(source, blocks, with)
        })
    }

    /// Whether no earlier clone has to be completed before another one of `source` begins. Others may begin meanwhile, so
    /// it says so of this moment only.
    pub fn clone_begins_at_once(&self, source: MapId) -> bool {
        self.volume.lazy_clones.begins_at_once(source)
    }

    /// How many clones have not taken all of their leaves yet.
    pub fn pending_clones(&self) -> usize {
        self.volume.base.state.lock().clones.incomplete().len()
    }
}
