//! The part of the interface for whoever looks after a volume: room for changes, settings, the worker, the scrub, and how
//! files lie.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::background::room::RoomInLog;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::ShardKey;
use crate::kv::IsRecord;
use crate::settings::values::Settings;
use crate::volume::cut_log::cut_log;
use crate::volume::files as volume;
use crate::volume::hold::Hold;
use crate::volume::superblock_file;
use crate::volume::unfinished::{self, Unfinished};
use crate::{
    BadBlock, BadPlace, Blocks, CutLog, DedupCommand, DedupStatus, DefragOptions, DefragOutcome, Explained, FilesFound,
    LayoutCursor, LayoutPortion, Lbn, MapCursor, MapId, Profile, Referrers, Result, Salvaged, ScrubCommand,
    ScrubStatus, Store, VolumeSpec,
};

/// Shards read at once when a map's blocks are counted.
const SHARDS_COUNTED: usize = 256;

impl Store {
    /// As [`Store::format`], for a caller that puts more into the volume before it counts ([`Unfinished::finish`]).
    /// `destroys`: the signatures that the device shows are erased instead of refused.
    ///
    /// # Errors
    ///
    /// As [`Store::format`].
    pub fn begin_format(volume: &Path, spec: &VolumeSpec, random: [u8; 64], destroys: bool) -> Result<Unfinished> {
        volume::make(volume, spec, random, if destroys { volume::Shown::Erased } else { volume::Shown::Refused })
    }

    /// Whether a directory holds a volume that was not made to its end.
    pub fn is_unfinished(volume: &Path) -> bool {
        unfinished::is_marked(volume)
    }

    /// Whether somebody holds a device or file: another volume, and of a device a mount, a volume manager or a program.
    pub fn is_held(part: &Path) -> bool {
        matches!(Hold::of(part), Err(crate::Error::Held(_)))
    }

    /// The profile that a volume was made with. Reads only its superblock.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotAVolume`], [`crate::Error::NewerFormat`], [`crate::Error::Exposed`], [`crate::Error::Corrupt`] or
    /// [`crate::Error::Io`], as [`Store::open`].
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

    /// Ends the log of a volume that nobody has open before its first group that cannot be read, for good. `None`: all of
    /// it can be. What was acknowledged in that group and in later ones is lost; the volume needs a repair afterwards.
    ///
    /// # Errors
    ///
    /// - As [`Store::profile_of`], and [`crate::Error::InUse`].
    /// - [`crate::Error::Corrupt`]: the record store or the checkpoint record cannot be read.
    /// - [`crate::Error::Io`]: the log cannot be written.
    pub fn cut_log(volume: &Path) -> Result<Option<CutLog>> {
        cut_log(volume)
    }

    /// Makes the record store of a volume that nobody has open anew from what can be read of it, if its copies do not
    /// restore it. `None`: all of it can be read. The volume needs a repair afterwards: names may lead nowhere and
    /// counts may be wrong.
    ///
    /// `is_record` says whether a value that is the caller's has a checksum of its own that is right under its key: only
    /// then it counts without that of the block where it lies. `without` names the record files (`000012.sst`) that are given
    /// up, with older records of all keys from the first to the last, if they are gone and their copies too.
    ///
    /// # Errors
    ///
    /// - As [`Store::profile_of`], and [`crate::Error::InUse`].
    /// - [`crate::Error::Corrupt`]: nothing says which record files are live, or the checkpoint record is lost; or
    ///   record files that `without` does not name are gone with their copies (the message names them). Nothing changed.
    /// - [`crate::Error::Io`], [`crate::Error::NoSpace`]: the host failed, or has no room for a second record store.
    pub fn salvage(volume: &Path, is_record: IsRecord<'_>, without: &[String]) -> Result<Option<Salvaged>> {
        volume::salvage(volume, is_record, without)
    }

    /// The file of one of a volume's two superblocks if that is missing or damaged. Opening the volume for changes
    /// restores it from the other.
    pub fn damaged_superblock(volume: &Path) -> Option<PathBuf> {
        superblock_file::damaged(volume)
    }

    /// Waits until the log and the memory have room for a change of records, and keeps it. Call it before a change that
    /// ends with [`Store::publish`], and before any lock of its own is taken: the committer may need it. Functions that
    /// change a map wait by themselves, so whoever holds room calls none of them.
    pub fn room_for_records(&self) -> RoomInLog<'_> {
        self.core.wait_for_program_room();
        self.core.claim_log_room(GroupBytes::RECORDS)
    }

    /// Refuses all changes from now on, and makes nothing durable any more, as a failed device would: for tests of what
    /// a crash leaves. The next open recovers.
    pub fn shut_down(&self) {
        let why = crate::Error::ReadOnly("it was shut down".to_owned());
        self.core.health.fail(&why);
        // Told to those who wait for room: none will come.
        let _ = self.core.tell_failure::<()>(Err(why));
    }

    /// The settings of this mount, by name.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.core.tuning.with(Settings::list)
    }

    /// What the profile of this mount sets by itself, by name.
    pub fn profile_settings(&self) -> BTreeMap<String, String> {
        let data = self.core.totals().data;
        self.core.tuning.with(|settings| settings.of_profile(data).list())
    }

    /// Changes settings (name, value) on the open volume: all of them, or none if one is refused.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`]: a setting is unknown, cannot be changed while mounted, or its value is out of its
    /// range.
    pub fn tune(&self, changes: &[(String, String)]) -> Result<()> {
        self.core.tune(changes)
    }

    /// Gives the out-of-line worker a command. Returns at once.
    pub fn dedup(&self, command: DedupCommand) {
        self.core.dedup(command);
    }

    /// What the out-of-line worker is doing, and how much is left for it.
    pub fn dedup_status(&self) -> DedupStatus {
        self.core.dedup_status()
    }

    /// Gives the scrub a command, which is kept across mounts. Returns at once.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::ReadOnly`]: the volume takes no changes.
    /// - [`crate::Error::Invalid`]: there is no scrub to pause, resume or stop, or the rate is out of its range.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the scrub's state cannot be saved.
    pub fn scrub(&self, command: ScrubCommand) -> Result<()> {
        self.core.command_scrub(command)
    }

    /// What is to be said of a last group of the log that was left out when the volume was opened, because it is not
    /// complete. None: there was none.
    pub fn left_out_of_log(&self) -> Option<String> {
        self.core.journal.left_out()
    }

    /// The scrub's progress, and the number of bad blocks.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.core.scrub_status()
    }

    /// Compares the record files, which hold names and maps, with their checksums and copies; with `mend`, restores the bad
    /// one of each two. The answer has what was restored since the volume was opened, too.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: the files cannot be read or restored.
    pub fn check_record_files(&self, mend: bool) -> Result<FilesFound> {
        self.core.stored.check_record_files(mend)
    }

    /// All blocks that are known to be bad.
    pub fn bad_blocks(&self) -> Vec<BadBlock> {
        self.core.bad_blocks()
    }

    /// Places in files that refer to bad blocks, in the order of maps, at most `limit`; and whether these are all of them.
    /// None: `goes_on` ended the search.
    ///
    /// Goes through all maps if any block is bad: minutes on a large volume.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: the block table or a map cannot be read.
    pub fn bad_places(&self, limit: usize, goes_on: &dyn Fn() -> bool) -> Result<Option<(Vec<BadPlace>, bool)>> {
        self.core.bad_places(limit, goes_on)
    }

    /// The extents of a portion of a map from block `from` on, the reason for each, and where the next portion begins.
    /// Changes nothing that is stored.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::MapDetached`]: the map was detached.
    /// - [`crate::Error::Io`], [`crate::Error::Corrupt`]: the map, the block table or a hint cannot be read.
    pub fn explain(&self, map: MapId, from: Lbn) -> Result<Explained> {
        self.core.explain(map, from)
    }

    /// Some of the places in all files that refer to `blocks`, from `from` on.
    ///
    /// `blocks` are pairs of a first pbn and a length in blocks, ascending and disjoint. Call again with the `next` of the
    /// answer until that is `None`. Files that change meanwhile may be missed or listed twice.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: a map cannot be read.
    pub fn referrers(&self, blocks: &[(u64, u64)], from: MapCursor) -> Result<Referrers> {
        self.core.referrers(blocks, from)
    }

    /// How files lie in the data area, for a portion of all maps. Call again with the `next` of the answer until that is
    /// `None`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: a map or the block table cannot be read.
    pub fn layout(&self, from: LayoutCursor) -> Result<LayoutPortion> {
        self.core.layout(from)
    }

    /// Defragments a portion of a map: rewrites short adjacent runs together, within the space that `options` allow. Call
    /// again from the outcome's `next` for the rest. Yields to requests of programs.
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
        self.core.defrag(map, options)
    }

    /// The number of blocks of a map, data and reserved. Reads all of its shards.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] or [`crate::Error::Corrupt`]: the map cannot be read.
    pub fn mapped_blocks(&self, map: MapId) -> Result<Blocks> {
        let _map = self.core.maps.lock(map).read();
        let mut blocks = 0;
        let mut from = 0;
        loop {
            let shards = self.core.stored_shards(map, from, SHARDS_COUNTED)?;
            for shard in &shards {
                blocks += self.core.shard(ShardKey { map, shard: *shard })?.mapped_blocks();
            }
            match shards.last() {
                Some(last) if shards.len() == SHARDS_COUNTED => from = last + 1,
                _ => return Ok(Blocks(blocks)),
            }
        }
    }
}
