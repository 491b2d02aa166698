//! The part of the interface for administration: room for changes, settings, the worker, the scrub, and the layout of
//! files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::commit::change_room::LogReservation;
use crate::format::group_bytes::GroupBytes;
use crate::kv::IsRecord;
use crate::settings::values::Settings;
use crate::volume::cut_log::cut_log;
use crate::volume::exclusive_lock::ExclusiveLock;
use crate::volume::files as volume;
use crate::volume::unfinished::{self, Unfinished};
use crate::volume::{object_parts, salvage, superblock_file};
use crate::{
    BadBlock, BadPlace, Compared, Conversion, Converted, CutLog, DataPlace, DedupCommand, DedupStatus, DefragOptions,
    DefragOutcome, Explained, FilesFound, LayoutCursor, LayoutPortion, Lbn, MapCursor, MapId, ObjectAccess, Profile,
    Referrers, Result, Salvaged, ScrubCommand, ScrubStatus, Store, Tag, VolumeSpec,
};

impl Store {
    /// Like [`Store::format`], for a caller that adds content to the volume before it becomes valid
    /// ([`Unfinished::finish`]). `destroys`: signatures on the device are erased instead of refused.
    ///
    /// # Errors
    ///
    /// As [`Store::format`].
    pub fn begin_format(volume: &Path, spec: &VolumeSpec, random: [u8; 64], destroys: bool) -> Result<Unfinished> {
        volume::make(
            volume,
            spec,
            random,
            if destroys { volume::OnSignature::Erased } else { volume::OnSignature::Refused },
        )
    }

    /// Whether a directory holds a volume whose creation did not finish.
    pub fn is_unfinished(volume: &Path) -> bool {
        unfinished::is_marked(volume)
    }

    /// Whether a device or file is in use: by another volume, and a device also by a mount, a volume manager or a
    /// program.
    pub fn is_held(part: &Path) -> bool {
        matches!(ExclusiveLock::of(part), Err(crate::Error::Held(_)))
    }

    /// The profile that a volume was made with. Reads only its superblock.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotAVolume`], [`crate::Error::NewerFormat`], [`crate::Error::Exposed`],
    /// [`crate::Error::Corrupt`] or [`crate::Error::Io`], as [`Store::open`].
    pub fn profile_of(volume: &Path) -> Result<Profile> {
        Ok(superblock_file::read(volume)?.profile)
    }

    /// The parts of a volume that lie outside its directory: a raw device (`data_device`, if the caller gives
    /// one), and the targets of links.
    ///
    /// # Errors
    ///
    /// As [`Store::profile_of`].
    pub fn parts_outside(volume: &Path, data_device: Option<&Path>) -> Result<Vec<PathBuf>> {
        volume::parts_outside(volume, data_device)
    }

    /// Whether a volume's blocks lie in objects of a cluster.
    ///
    /// # Errors
    ///
    /// As [`Store::profile_of`].
    pub fn is_in_objects(volume: &Path) -> Result<bool> {
        Ok(matches!(superblock_file::read(volume)?.data, DataPlace::Objects(_)))
    }

    /// Loads what a volume in objects needs from files: the library, the cluster's configuration and the key. A process
    /// calls it before it confines itself, and connects when it opens the volume. Returns the ports of the cluster that
    /// it then needs, or `None` for any other volume.
    ///
    /// # Errors
    ///
    /// As [`Store::profile_of`], and [`crate::Error::Io`]: the library, the configuration or the key is missing.
    pub fn prepare_objects(volume: &Path) -> Result<Option<Vec<u16>>> {
        let superblock = superblock_file::read(volume)?;
        let DataPlace::Objects(access) = &superblock.data else { return Ok(None) };
        Self::prepare_access(access).map(Some)
    }

    /// The same for a volume that is about to be made.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`]: the library, the configuration or the key is missing.
    pub fn prepare_access(access: &ObjectAccess) -> Result<Vec<u16>> {
        object_parts::prepare(access)
    }

    /// Permanently ends the log of a closed volume before its first unreadable group. `None`: all of it can be read.
    /// Acknowledged changes of that group and of later ones are lost, and the volume needs a repair afterwards.
    ///
    /// # Errors
    ///
    /// - As [`Store::profile_of`], and [`crate::Error::InUse`].
    /// - [`crate::Error::Corrupt`]: the record store or the checkpoint record cannot be read.
    /// - [`crate::Error::Io`]: the log cannot be written.
    pub fn cut_log(volume: &Path) -> Result<Option<CutLog>> {
        cut_log(volume)
    }

    /// Rebuilds the record store of a closed volume from its readable parts, if its copies do not restore it. `None`:
    /// all of it can be read. The volume needs a repair afterwards: names may lead nowhere and counts may be wrong.
    ///
    /// `is_record` tells whether a caller's value has a checksum of its own that is right under its key. Only such a
    /// value counts without the checksum of its block. `without` names the record files (`000012.sst`) that are given
    /// up if they are gone together with their copies. Older records of all keys from a file's first to its last are
    /// given up too.
    ///
    /// # Errors
    ///
    /// - As [`Store::profile_of`], and [`crate::Error::InUse`].
    /// - [`crate::Error::Corrupt`]: nothing says which record files are live, or the checkpoint record is lost; or
    ///   record files that `without` does not name are gone with their copies (the message names them). Nothing
    ///   changed.
    /// - [`crate::Error::Io`], [`crate::Error::NoSpace`]: the host failed, or has no room for a second record store.
    pub fn salvage(volume: &Path, is_record: IsRecord<'_>, without: &[String]) -> Result<Option<Salvaged>> {
        salvage::salvage(volume, is_record, without)
    }

    /// The file of one of a volume's two superblocks, if it is missing or damaged. Opening the volume for changes
    /// restores it from the other.
    pub fn damaged_superblock(volume: &Path) -> Option<PathBuf> {
        superblock_file::damaged(volume)
    }

    /// Waits until the log and the memory have room for a change of records, and holds that room. Call it before a
    /// change that ends with [`Store::publish`], and before taking any lock of your own, because the committer may need
    /// that lock. Functions that change a map wait by themselves, so a caller that holds room calls none of them.
    pub fn room_for_records(&self) -> LogReservation<'_> {
        self.volume.change_room.wait_for_program_room();
        self.volume.change_room.claim_log_room(GroupBytes::RECORDS)
    }

    /// Refuses all changes from now on, and makes nothing durable any more, as a failed device would: for tests of
    /// crashes. The next open recovers.
    pub fn shut_down(&self) {
        let why = crate::Error::ReadOnly("it was shut down".to_owned());
        self.volume.base.health.fail(&why);
        // Notifies the waiters for room that none will come.
        let _ = self.volume.change_room.tell_failure::<()>(Err(why));
    }

    /// The settings of this mount, by name.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.volume.base.tuning.with(Settings::list)
    }

    /// The own settings of this mount's profile, by name.
    pub fn profile_settings(&self) -> BTreeMap<String, String> {
        let data = self.volume.free_blocks.totals().data;
        self.volume.base.tuning.with(|settings| settings.of_profile(data).list())
    }

    /// Changes settings (name, value) on the open volume: all of them, or none if one is refused.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`]: a setting is unknown, cannot be changed while mounted, or its value is out of its
    /// range.
    pub fn tune(&self, changes: &[(String, String)]) -> Result<()> {
        self.volume.work_loop.tune(changes)
    }

    /// Gives the out-of-line worker a command. Returns at once.
    pub fn dedup(&self, command: DedupCommand) {
        self.volume.work_loop.dedup(command);
    }

    /// The worker's present activity, and its remaining work.
    pub fn dedup_status(&self) -> DedupStatus {
        self.volume.work_loop.dedup_status()
    }

    /// Gives the scrub a command, which is kept across mounts. Returns at once.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::Invalid`]: there is no scrub to pause, resume or stop, or the rate is out of its range.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the scrub's state cannot be saved.
    pub fn scrub(&self, command: ScrubCommand) -> Result<()> {
        self.volume.scrubber.command_scrub(command)
    }

    /// The message about a last group of the log that was left out as incomplete when the volume was opened. None if
    /// there was no such group.
    pub fn left_out_of_log(&self) -> Option<String> {
        self.volume.base.journal.left_out()
    }

    /// The scrub's progress, and the number of bad blocks.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.volume.scrubber.scrub_status()
    }

    /// Compares the record files, which hold names and maps, with their checksums and copies. With `mend`, restores a
    /// bad file from its copy, and a bad copy from its file. The result includes the files restored since the volume
    /// was opened.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: the files cannot be read or restored.
    pub fn check_record_files(&self, mend: bool) -> Result<FilesFound> {
        self.volume.base.stored.check_record_files(mend)
    }

    /// All blocks that are known to be bad.
    pub fn bad_blocks(&self) -> Vec<BadBlock> {
        self.volume.affected_files.bad_blocks()
    }

    /// Places in files that refer to bad blocks, in the order of maps, at most `limit`; and whether these are all of
    /// them. None: `goes_on` ended the search.
    ///
    /// Goes through all maps if any block is bad: minutes on a large volume.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: the block table or a map cannot be read.
    pub fn bad_places(&self, limit: usize, goes_on: &dyn Fn() -> bool) -> Result<Option<(Vec<BadPlace>, bool)>> {
        self.volume.affected_files.bad_places(limit, goes_on)
    }

    /// The extents of a portion of a map from block `from` on, the reason for each, and where the next portion begins.
    /// Changes nothing that is stored.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::MapDetached`]: the map was detached.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the map, the block table or a hint cannot be read.
    pub fn explain(&self, map: MapId, from: Lbn) -> Result<Explained> {
        self.volume.explainer.explain(map, from)
    }

    /// The blocks of a portion of a map from block `from` on, and which of them an older map has at the same place. Reads
    /// no block.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::MapDetached`]: one of the maps was detached.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: a map or the block table cannot be read.
    pub fn compare(&self, map: MapId, older: Option<MapId>, from: Lbn) -> Result<Compared> {
        self.volume.comparer.compare(map, older, from)
    }

    /// For each tag a block whose content has it, if hints and the block table find one. Tags in the order of a file's
    /// contents find most. A block with the tag may have another content.
    pub fn blocks_by_tag(&self, tags: &[Tag]) -> Vec<Option<Vec<u8>>> {
        self.volume.content_search.blocks_by_tag(tags)
    }

    /// Some of the places in all files that refer to `blocks`, from `from` on.
    ///
    /// `blocks` are pairs of a first pbn and a length in blocks, ascending and disjoint. Call again with the `next` of
    /// the answer until that is `None`. Files that change meanwhile may be missed or listed twice.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: a map cannot be read.
    pub fn referrers(&self, blocks: &[(u64, u64)], from: MapCursor) -> Result<Referrers> {
        self.volume.referrer_search.referrers(blocks, from)
    }

    /// How files lie in the data area, for a portion of all maps. Call again with the `next` of the answer until that
    /// is `None`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: a map or the block table cannot be read.
    pub fn layout(&self, from: LayoutCursor) -> Result<LayoutPortion> {
        self.volume.referrer_search.layout(from)
    }

    /// Defragments a portion of a map: rewrites short adjacent runs together, within the space that `options` allow.
    /// Call again from the outcome's `next` for the rest. Yields to requests of programs.
    ///
    /// Runs for which there is no room stay as they are and are counted; [`crate::Error::NoSpace`] is not returned.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes (a dry run works on a read-only volume).
    /// - [`crate::Error::MapDetached`]: the map was detached.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the map or the block table cannot be read, or the data area
    ///   cannot be written.
    pub fn defrag(&self, map: MapId, options: &DefragOptions) -> Result<DefragOutcome> {
        self.volume.defragmenter.defrag(map, options)
    }

    /// Compresses or expands a portion of a map, or of all maps. Call again from the result's `next` for the rest.
    ///
    /// Each block stays readable and keeps its content. A crash leaves each one either compressed or not.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::Invalid`]: the volume has no place for compressed blocks; or what is expanded would be compressed
    ///   again, because the setting `compress` is on.
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: a map or the block table cannot be read, or the data area cannot
    ///   be written. A lack of space is not an error: the result counts it.
    pub fn convert(&self, what: Conversion, only: Option<MapId>, from: MapCursor) -> Result<Converted> {
        self.volume.converter.convert(what, only, from)
    }
}
