//! The engine as its callers see it: an open volume, its maps, its records, its commits.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::background::steps::BackgroundStep;
use crate::background::threads::Threads;
use crate::core::Core;
use crate::format::keys;
use crate::settings::values::Settings;
use crate::state::published::Plan;
use crate::sync::Mutex;
use crate::volume::files as volume;
use crate::volume::medium::{Driver, Medium};
use crate::volume::open::{Budget, recover, settings_of};
use crate::worker::load::{self, DeviceLoad};
use crate::write::on_publish::OnPublish;
use crate::{
    BadBlock, BadPlace, Blocks, Change, DataPlace, DedupCommand, DedupStatus, DefragOptions, DefragOutcome, Error,
    Explained, FilePolicy, LayoutCursor, LayoutPortion, Lbn, MapCursor, MapId, OpenOptions, Profile, ReadBuf,
    Referrers, Report, Result, ScrubCommand, ScrubStatus, Totals, VolumeSpec,
};

/// An open volume. Shared by all threads.
///
/// Lock order for callers: a map's lock (taken inside `write`, `truncate`, `clone_blocks`, `detach` and their like),
/// then whatever the closure `with` locks, then the engine's own locks. So a caller may hold its inode
/// locks while calling `get`, `scan` and `publish`, but not while calling a function that takes a map.
///
/// `with(mapped_delta, &mut change)` runs once, under the map's lock, when the operation can no longer fail
/// for a reason of its own: it is told by how many blocks (data or reserved) the map grew or shrank, adds the
/// caller's records (size, times), and what it returns ([`OnPublish`]) is kept until the whole is published, and told of it.
/// Map change and records land in one commit group.
pub struct Store {
    pub(crate) core: Arc<Core>,
    volume_id: [u8; 16],
    path: PathBuf,
    threads: Mutex<Option<Threads>>,
    /// The volume's lock, while it is open.
    lock: Mutex<Option<File>>,
    /// What cannot be tuned, for reports.
    facts: BTreeMap<String, String>,
}

impl Store {
    /// Makes an empty volume in `volume` (a directory that is missing or empty).
    /// `random` seeds its identity and its secret key.
    pub fn format(volume: &Path, spec: &VolumeSpec, random: [u8; 64]) -> Result<()> {
        volume::make(volume, spec, random)
    }

    /// Opens a volume, recovering the last commit.
    pub fn open(volume: &Path, options: &OpenOptions) -> Result<Arc<Store>> {
        Self::open_with(volume, options, !options.read_only)
    }

    /// Opens a volume to be repaired: nothing happens in the background, so who publishes calls [`Store::settle`] from
    /// time to time.
    pub fn open_for_fsck(volume: &Path, options: &OpenOptions) -> Result<Arc<Store>> {
        Self::open_with(volume, options, false)
    }

    fn open_with(volume: &Path, options: &OpenOptions, background: bool) -> Result<Arc<Store>> {
        let superblock = volume::superblock(volume)?;
        let settings = settings_of(options, superblock.profile)?;
        let kv_bytes_max = Budget::of(options.memory_bytes_max, &settings).records;
        let opened = volume::open(volume, superblock, kv_bytes_max, options.read_only)?;
        let superblock = opened.superblock;
        let medium = Medium {
            data: opened.data,
            table: opened.table,
            log: opened.log,
            log_bytes: superblock.log_bytes,
            kv: opened.kv,
            ballast: opened.ballast,
            host: (superblock.data == DataPlace::File).then(|| volume.to_owned()),
            secret: superblock.secret,
            volume_id: superblock.volume_id,
            hints: opened.hints,
            skipped: opened.skipped,
            device_load: volume::host_device(volume).map(|device| DeviceLoad::new(&options.machine, device)),
        };
        let core = Arc::new(recover(medium, options, settings, Driver::default())?);
        core.space.look_up_host();
        let device = volume::data_device(volume, &superblock.data);
        core.policy.device_reads.expect(device.and_then(|device| load::is_rotational(&options.machine, device)));
        if !options.read_only {
            core.space.fill_ballast().map_err(|e| Error::io("filling the ballast", e))?;
        }
        let threads = if background { Some(Threads::start(&core)?) } else { None };
        Ok(Arc::new(Self {
            core,
            volume_id: superblock.volume_id,
            path: volume.to_owned(),
            threads: Mutex::new(threads),
            lock: Mutex::new(Some(opened.lock)),
            facts: facts(options, superblock.profile),
        }))
    }

    /// Makes an empty volume with `data` blocks on a medium whose devices are zeros.
    pub fn format_on(medium: &Medium, data: Blocks) -> Result<()> {
        volume::make_on(medium, data)
    }

    /// Opens a volume on a medium, recovering the last commit, and starts no thread: nothing happens but what the
    /// caller does, commits and [`BackgroundStep`]s included. The group may not grow beyond an eighth of the log between two
    /// commits, and [`Store::barrier`] is never answered: use [`Store::commit`].
    pub fn open_on(medium: Medium, options: &OpenOptions) -> Result<Arc<Store>> {
        Self::open_driven(medium, options, Driver::default())
    }

    /// As [`Store::open_on`], with a driver that commits between the publications of one operation, or that wants
    /// changes of ranges to go into several groups sooner.
    pub fn open_driven(medium: Medium, options: &OpenOptions, driver: Driver) -> Result<Arc<Store>> {
        let volume_id = medium.volume_id;
        let settings = settings_of(options, Profile::default())?;
        let core = Arc::new(recover(medium, options, settings, driver)?);
        Ok(Arc::new(Self {
            core,
            volume_id,
            path: PathBuf::new(),
            threads: Mutex::new(None),
            lock: Mutex::new(None),
            facts: facts(options, Profile::default()),
        }))
    }

    /// Does once what a background thread does again and again. True: there was something to do.
    pub fn run(&self, step: BackgroundStep) -> Result<bool> {
        self.core.run(step)
    }

    /// Commits, checkpoints and ends the background threads.
    pub fn close(&self) -> Result<()> {
        let Some(threads) = self.threads.lock().take() else {
            // Opened to be repaired: held until everything is in its place.
            let lock = self.lock.lock().take();
            let is_settled = lock.is_none() || self.core.health.is_read_only();
            return if is_settled { Ok(()) } else { self.core.checkpoint_what_is_whole() };
        };
        // The worker and the reclaimer may publish until they have ended.
        self.core.signals.stop();
        threads.join();
        drop(self.core.worker.defragging.lock());
        if self.core.health.usable().is_ok() {
            self.core.save_scrub()?;
        }
        let committed = self.core.checkpoint();
        if committed.is_ok() {
            self.core.leave_cleanly();
        }
        self.lock.lock().take();
        committed
    }

    /// The profile that a volume was made with.
    pub fn profile_of(volume: &Path) -> Result<Profile> {
        Ok(volume::superblock(volume)?.profile)
    }

    /// Parts of a volume that lie outside its directory.
    pub fn parts_outside(volume: &Path) -> Result<Vec<PathBuf>> {
        volume::parts_outside(volume)
    }

    /// What is set for this mount, by name.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.core.tuning.with(Settings::list)
    }

    /// Changes settings on the open volume: all of them, or none if one is refused.
    pub fn tune(&self, changes: &[(String, String)]) -> Result<()> {
        self.core.tune(changes)
    }

    /// Tells the out-of-line worker what to do. Returns at once.
    pub fn dedup(&self, command: DedupCommand) {
        self.core.dedup(command);
    }

    /// What the out-of-line worker does, and what is left for it.
    pub fn dedup_status(&self) -> DedupStatus {
        self.core.dedup_status()
    }

    /// Tells the scrub what to do. Returns at once.
    pub fn scrub(&self, command: ScrubCommand) -> Result<()> {
        self.core.command_scrub(command)
    }

    /// How far the scrub is, and how many blocks are bad.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.core.scrub_status()
    }

    /// The blocks that are known to be bad.
    pub fn bad_blocks(&self) -> Result<Vec<BadBlock>> {
        self.core.bad_blocks()
    }

    /// Places in files that bad blocks belong to, at most `limit`, in the order of maps; goes through all maps if there
    /// are any. Also whether these are all.
    pub fn bad_places(&self, limit: usize) -> Result<(Vec<BadPlace>, bool)> {
        self.core.bad_places(limit)
    }

    /// A portion of a map from block `from` on: how it lies in the data area, and why. Looks only.
    pub fn explain(&self, map: MapId, from: Lbn) -> Result<Explained> {
        self.core.explain(map, from)
    }

    /// Some of the places in all files that refer to `blocks`: first pbns and lengths, ascending and apart. To be
    /// called again with what it gives as `next`; files that change meanwhile may be missed or met twice.
    pub fn referrers(&self, blocks: &[(u64, u64)], from: MapCursor) -> Result<Referrers> {
        self.core.referrers(blocks, from)
    }

    /// A portion of how all files lie in the data area, to be called again with what it gives as `next`.
    pub fn layout(&self, from: LayoutCursor) -> Result<LayoutPortion> {
        self.core.layout(from)
    }

    /// Identity of the volume, stable for its life.
    pub fn volume_id(&self) -> [u8; 16] {
        self.volume_id
    }

    /// The newest published value of a record (committed or not).
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.core.get(key)
    }

    /// Records with `from <= key < to`, in order, at most `limit`.
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.core.scan(from, to, limit)
    }

    /// Publishes records: visible at once, durable with the current group.
    pub fn publish(&self, change: Change) -> Result<()> {
        self.core.foreground.serve(|| {
            self.core.wait_for_room();
            self.core.publish(change)
        })
    }

    /// A new empty map. Costs nothing until it is written.
    pub fn new_map(&self) -> MapId {
        let map = self.core.maps.take_id();
        self.core.policy.policies.published(map, FilePolicy::default());
        map
    }

    /// Writes `data` at byte `at`. Zero blocks become holes, duplicates become references.
    pub fn write<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        data: &[u8],
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.core.foreground.serve(|| {
            self.core.wait_for_room();
            self.core.write(map, at, data, with)
        })
    }

    /// Reads `len` bytes at byte `at`; what is not mapped reads as zeros.
    pub fn read(&self, map: MapId, at: u64, len: usize) -> Result<ReadBuf> {
        self.core.foreground.serve(|| self.core.read(map, at, len))
    }

    /// Drops everything from byte `size` on; the rest of a cut block becomes zeros.
    pub fn truncate<G: OnPublish>(
        &self,
        map: MapId,
        size: u64,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.core.foreground.serve(|| {
            self.core.wait_for_room();
            self.core.truncate(map, size, with)
        })
    }

    /// Makes a byte range read as zeros (punch). With `reserve`, the whole blocks touched stay reserved (zero range).
    pub fn zero<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        len: u64,
        reserve: bool,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.core.foreground.serve(|| {
            self.core.wait_for_room();
            self.core.zero(map, at, len, reserve, with)
        })
    }

    /// Reserves space for the holes of a byte range (fallocate); `NoSpace` if there is not enough.
    pub fn reserve<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        len: u64,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.core.foreground.serve(|| {
            self.core.wait_for_room();
            self.core.reserve(map, at, len, with)
        })
    }

    /// The shortest run of blocks worth sharing in a map: the setting, or what its reads and the device say.
    pub fn run_blocks_min(&self, map: MapId) -> u32 {
        self.core.run_blocks_min(map)
    }

    /// The parts of a range of bytes whose changes fit into one group each; mostly one. A change of more than one of
    /// them is not whole after a crash, and only who makes it part by part has records that agree with it. A change
    /// that fills holes is divided by its length, any other by what the map has there.
    pub fn parts(&self, map: MapId, bytes: Range<u64>, fills_holes: bool) -> Result<Vec<Range<u64>>> {
        self.core.parts(map, &bytes, fills_holes)
    }

    /// `NoSpace` if there is not enough for the holes of a byte range, of which parts are reserved one by one.
    pub fn check_room(&self, map: MapId, bytes: Range<u64>) -> Result<()> {
        self.core.has_room(map, &bytes)
    }

    /// First byte at or after `from` and below `end` that is data; None: only holes (and reserved space).
    pub fn seek_data(&self, map: MapId, from: u64, end: u64) -> Result<Option<u64>> {
        self.core.seek_data(map, from, end)
    }

    /// First byte at or after `from` that is a hole; `end` if there is none below.
    pub fn seek_hole(&self, map: MapId, from: u64, end: u64) -> Result<u64> {
        self.core.seek_hole(map, from, end)
    }

    /// Makes `blocks` blocks of `target` from `target_at` on share those of `source` from `source_at` on
    /// (copy_file_range, clone). Only metadata is written. The two may be one map if the ranges are disjoint.
    pub fn clone_blocks<G: OnPublish>(
        &self,
        source: MapId,
        source_at: Lbn,
        target: MapId,
        target_at: Lbn,
        blocks: Blocks,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.core.foreground.serve(|| {
            self.core.wait_for_room();
            self.core.clone_blocks((source, source_at), (target, target_at), blocks, with)
        })
    }

    /// Detaches a map (unlink, truncate to zero): returns at once, its blocks are freed in the background,
    /// also after a crash. Later calls with this id fail with `MapDetached`.
    pub fn detach<G: OnPublish>(&self, map: MapId, with: impl FnOnce(&mut Change) -> G) -> Result<()> {
        self.core.foreground.serve(|| {
            self.core.wait_for_room();
            self.core.detach(map, with)
        })
    }

    /// Lays a part of a map out again: short runs that follow each other are written anew, together, within the space
    /// allowed. Goes on at `next` with the next part. Not a request of a program: it gives way to these.
    ///
    /// `NoSpace` is no answer of this: what finds no room is left as it is, and counted.
    pub fn defrag(&self, map: MapId, options: &DefragOptions) -> Result<DefragOutcome> {
        self.core.defrag(map, options)
    }

    /// Calls `done` from another thread once everything published before this call is durable.
    pub fn barrier(&self, done: Box<dyn FnOnce(Result<()>) + Send>) {
        if self.core.health.is_read_only() {
            return done(Ok(()));
        }
        self.core.signals.barrier(done);
    }

    /// Waits until everything published before this call is durable.
    pub fn commit(&self) -> Result<()> {
        self.core.commit()
    }

    /// The volume's totals now.
    pub fn totals(&self) -> Totals {
        self.core.totals()
    }

    /// Unique blocks that can still be written: bounded by the data area, by what is promised to fallocate, and by the
    /// host.
    pub fn available(&self) -> Blocks {
        self.core.available()
    }

    /// Enlarges the data area to `data_bytes`; durable on return.
    pub fn grow(&self, data_bytes: u64) -> Result<()> {
        self.core.grow(data_bytes)
    }

    /// Why the volume became read-only, if it did.
    pub fn failure(&self) -> Option<String> {
        self.core.health.failure()
    }

    /// Counters, histograms, caches, settings.
    pub fn report(&self) -> Report {
        let mut report = self.core.report();
        report.settings = self.facts.clone();
        report.settings.extend(self.settings());
        report.space.insert("metadata_bytes".to_owned(), volume::metadata_bytes(&self.path));
        report
    }

    /// For a writer that was told `NoSpace`: makes what was freed reusable. Waits for a commit. True: there is more
    /// space than before, or more is on its way, so that trying again makes sense, if need be several times.
    pub fn make_room(&self) -> Result<bool> {
        self.core.make_room()
    }

    /// Blocks (data and reserved) of a map, by counting.
    pub fn mapped_blocks(&self, map: MapId) -> Result<Blocks> {
        let _map = self.core.maps.lock(map).read();
        let mut blocks = 0;
        let mut from = 0;
        loop {
            let shards = self.core.stored_shards(map, from, SHARDS_COUNTED)?;
            for shard in &shards {
                blocks += self.core.shard(keys::ShardKey { map, shard: *shard })?.mapped_blocks();
            }
            match shards.last() {
                Some(last) if shards.len() == SHARDS_COUNTED => from = last + 1,
                _ => return Ok(Blocks(blocks)),
            }
        }
    }
}

/// Shards looked at in one go when a map's blocks are counted.
const SHARDS_COUNTED: usize = 256;

fn facts(options: &OpenOptions, own: Profile) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("profile".to_owned(), options.profile.unwrap_or(own).name().to_owned()),
        ("memory_bytes_max".to_owned(), options.memory_bytes_max.to_string()),
        ("read_only".to_owned(), options.read_only.to_string()),
    ])
}

impl Core {
    /// See [`Store::grow`]. The new space is durable before the totals that speak of it.
    pub(crate) fn grow(&self, data_bytes: u64) -> Result<()> {
        self.health.usable()?;
        let data = Blocks(data_bytes / crate::BLOCK_BYTES as u64);
        let now = self.state.lock().totals.data;
        if data.0 > volume::DATA_BLOCKS_MAX {
            return Err(Error::Invalid(format!("the data area can have at most {} blocks", volume::DATA_BLOCKS_MAX)));
        }
        if data < now {
            return Err(Error::Invalid(format!("the data area has {} bytes already; it cannot shrink", now.bytes())));
        }
        self.data.grow(data)?;
        self.stored.grow_table(volume::table_bytes(data))?;
        self.grow_disk_level(data);
        self.apply_certain(Plan { grow_to: Some(data), ..Plan::default() })?;
        self.commit()?;
        self.space.grow(data);
        self.follow_data(data)
    }
}
