//! A running volume without threads next to its model: operations run on both, and the tape records the effects on the
//! devices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use oncefs_engine::{BackgroundStep, Blocks, Committer, OpenOptions, Profile, Store, TestHooks};
use oncefs_fs::{AtimePolicy, Clock, FileKind, FileSystem, Ino, NamePlaces, Options, Timestamp};

use crate::image::{DeviceImage, Images, Part};
use crate::keyed_objects;
use crate::medium::{Places, VOLUME_ID, backend};
use crate::model::{Model, Reference};
use crate::operation::Path;
use crate::point::Doing;
use crate::tape::{Recorded, Tape};
use crate::visible_state::Snapshot;

/// Memory for caches and hints.
const MEMORY_BYTES: u64 = 2 << 20;

/// A clock that stops until a test moves it.
#[derive(Default)]
pub struct StepClock(AtomicI64);

impl StepClock {
    /// Moves it.
    pub fn set(&self, seconds: i64) {
        self.0.store(seconds, Relaxed);
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(Relaxed), nanoseconds: 0 }
    }
}

/// The way to make and open volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// For reports and commands.
    pub name: &'static str,
    /// The profile.
    pub profile: Profile,
    /// Settings that override it. None may adapt to the machine or to time.
    pub settings: &'static [(&'static str, &'static str)],
    /// Size of the data area.
    pub data: Blocks,
    /// Size of the log.
    pub log_bytes: u64,
    /// The places of names. None: the default.
    pub names: Option<NamePlaces>,
    /// A change of a range with more leaves is split into several groups. The bound from the log's size assumes full
    /// leaves.
    pub gated_leaves_max: u64,
    /// Whether sequences and seeded workloads run on it.
    pub has_short_work: bool,
    /// Whether most requests find no room. Seeded workloads run on it.
    pub is_nearly_full: bool,
    /// Size of the objects in which data area and block table lie. None: they are files.
    pub object_bytes: Option<u64>,
    /// Most keys of the objects in which the records lie. None: they are in another store.
    pub record_keys_max: Option<u64>,
    /// The directed workloads that run on it. Empty: all.
    pub directed: &'static [&'static str],
}

impl Setup {
    /// Whether seeded workloads run on it.
    pub fn has_seeded_work(&self) -> bool {
        let compresses = self.settings.iter().any(|(name, value)| *name == "compress" && *value != "off");
        self.has_short_work || self.is_nearly_full || compresses && self.object_bytes.is_none()
    }

    fn options(&self) -> OpenOptions {
        let settings = self.settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        OpenOptions { profile: Some(self.profile), settings, ..OpenOptions::new(MEMORY_BYTES) }
    }

    fn places(&self) -> Places {
        let Self { log_bytes, object_bytes, record_keys_max, .. } = *self;
        Places { log_bytes, object_bytes, record_keys_max }
    }

    /// The parts of an empty volume: zeros.
    fn blank(&self) -> Images {
        let mut images = Images::default();
        let table_bytes = self.data.0.div_ceil(128) * 4096;
        for (part, len) in [(Part::Data, self.data.bytes()), (Part::Table, table_bytes), (Part::Log, self.log_bytes)] {
            *images.device_mut(part) = DeviceImage::new(len);
        }
        images
    }

    /// Opens only the store of a tape, because its names may be damaged.
    pub fn open_store(&self, tape: &Arc<Tape>, committer: Option<Committer>) -> oncefs_engine::Result<Arc<Store>> {
        let driver = TestHooks { committer, gated_leaves_max: Some(self.gated_leaves_max), ..TestHooks::default() };
        Store::open_driven(backend(tape, self.places())?, &self.options(), driver)
    }

    /// Opens the store and the file system of a tape.
    pub fn open(&self, tape: &Arc<Tape>, clock: Arc<StepClock>) -> oncefs_fs::Result<(Arc<Store>, Arc<FileSystem>)> {
        self.open_with(tape, clock, None)
    }

    fn open_with(
        &self,
        tape: &Arc<Tape>,
        clock: Arc<StepClock>,
        committer: Option<Committer>,
    ) -> oncefs_fs::Result<(Arc<Store>, Arc<FileSystem>)> {
        let store = self.open_store(tape, committer)?;
        let options =
            Options { memory_bytes_max: 1 << 20, atime: AtimePolicy::Never, read_only: false, generation: None };
        let file_system = FileSystem::open_without_threads(store.clone(), clock, &options)?;
        Ok((store, file_system))
    }

    /// An empty file system and its model.
    pub fn make(&self) -> oncefs_fs::Result<(Images, Model)> {
        let tape = Tape::new(self.blank(), false);
        if self.record_keys_max.is_some() {
            keyed_objects::create(&tape, VOLUME_ID)?;
        }
        Store::format_on(&backend(&tape, self.places())?, self.data)?;
        let store = Store::open_on(backend(&tape, self.places())?, &self.options())?;
        FileSystem::format_with(&store, &StepClock::default(), self.names.unwrap_or_default())?;
        Ok((tape.images(), Model { reference: Reference::new(), reads: BTreeMap::new(), data_blocks: self.data.0 }))
    }
}

/// The recording of a workload.
pub struct Recording {
    /// The contents of the parts before.
    pub base: Images,
    /// The steps.
    pub steps: Vec<Recorded>,
    /// Snapshots of the model, to which [`crate::tape::Allowed`] refers by number.
    pub snapshots: Vec<Snapshot>,
}

/// The open volume.
pub struct Live {
    /// Blocks.
    pub store: Arc<Store>,
    /// Names.
    pub file_system: Arc<FileSystem>,
    /// The expected content of both.
    pub model: Model,
    pub(crate) clock: Arc<StepClock>,
    pub(crate) tape: Arc<Tape>,
    base: Images,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) acknowledged: u32,
    /// Whether a commit follows each publication after which the group can be taken, even within operations.
    pub(crate) is_interrupted: Arc<AtomicBool>,
    pub(crate) is_nearly_full: bool,
}

/// Commits after each publication while `is_on`.
fn committer(tape: &Arc<Tape>, is_on: &Arc<AtomicBool>) -> Committer {
    let (tape, is_on) = (tape.clone(), is_on.clone());
    Box::new(move |commit| {
        if is_on.load(Relaxed) {
            // A failed commit makes the volume read-only, and the operation gets that error.
            let _ = tape.meanwhile(Doing::Interrupt, commit);
        }
    })
}

impl Live {
    /// Opens a volume with the content of the model, all of it durable.
    pub fn open(setup: &Setup, base: Images, model: Model, records: bool) -> Result<Self, String> {
        let tape = Tape::new(base.clone(), records);
        let clock = Arc::new(StepClock::default());
        clock.set(model.reference.now.seconds);
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let opened = setup.open_with(&tape, clock.clone(), Some(committer(&tape, &is_interrupted)));
        let (store, file_system) = opened.map_err(|error| error.to_string())?;
        let snapshots = vec![Snapshot::of_model(&model)];
        let live = Self {
            store,
            file_system,
            model,
            clock,
            tape,
            base,
            snapshots,
            acknowledged: 0,
            is_interrupted,
            is_nearly_full: setup.is_nearly_full,
        };
        live.tape.doing(Doing::FillHints);
        live.store.run(BackgroundStep::FillHints).map_err(|error| error.to_string())?;
        Ok(live)
    }

    /// From here on a commit follows each publication after which the committer can commit, even within operations.
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, Relaxed);
    }

    /// The number of the snapshot of the present model.
    pub(crate) fn snapshot(&mut self) -> u32 {
        let snapshot = Snapshot::of_model(&self.model);
        if self.snapshots.last() != Some(&snapshot) {
            self.snapshots.push(snapshot);
        }
        self.snapshots.len() as u32 - 1
    }

    /// The medium loses one block with this content.
    pub fn rot(&self, block: &[u8]) -> Result<(), String> {
        if self.tape.rot(block) { Ok(()) } else { Err("no block of the data area has that content".to_owned()) }
    }

    /// The inode at a path.
    pub fn find(&self, path: Path) -> Option<Ino> {
        let mut ino = Ino::ROOT;
        for name in path.split('/') {
            ino = self.model.reference.lookup(ino, name.as_bytes()).ok()?;
        }
        Some(ino)
    }

    /// Whether the model has a directory there.
    pub fn is_directory(&self, ino: Ino) -> bool {
        self.model.reference.node(ino).kind == FileKind::Directory
    }

    /// The directory of a path and the name in it.
    pub fn split(&self, path: Path) -> Option<(Ino, &'static [u8])> {
        match path.rsplit_once('/') {
            Some((above, name)) => Some((self.find(above)?, name.as_bytes())),
            None => Some((Ino::ROOT, path.as_bytes())),
        }
    }

    /// The value of a counter of the store.
    pub fn counter(&self, name: &str) -> u64 {
        self.store.report().counters.get(name).copied().unwrap_or(0)
    }

    /// The recording so far. The process ends without closing the volume.
    pub fn end(self) -> Recording {
        Recording { base: self.base, steps: self.tape.take(), snapshots: self.snapshots }
    }

    /// The contents of the parts, if everything written stays, and the model.
    pub fn into_base(self) -> (Images, Model) {
        (self.tape.images(), self.model)
    }
}
