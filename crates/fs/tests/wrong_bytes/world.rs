//! Volumes of users, unmounted and killed, with the expected content of each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::{BackgroundStep, DataPlace, OpenOptions, Profile, Store, VolumeSpec};
use oncefs_fs::{AtimePolicy, FileSystem, Options, SystemClock};
use tempfile::TempDir;

use super::judge::judge;
use super::look::View;
use super::truth::{History, Tree};
use super::user::Users;
use super::workload;
use crate::flips::image::{BLOCK, Image, page_of, written};

/// Profiles with their own number of copies: the first three keep two of all metadata, the last keeps one.
pub const PROFILES: [Profile; 4] = [Profile::Desktop, Profile::Server, Profile::Selective, Profile::Edge];

/// Whether a volume was unmounted, or its daemon killed with work in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was unmounted.
    Unmounted,
    /// Its daemon was killed.
    Killed,
}

/// Volumes of one profile.
pub struct World {
    dir: TempDir,
    /// The profile.
    pub profile: Profile,
    /// All content ever written.
    pub history: History,
    unmounted: (Image, Vec<Tree>),
    killed: (Image, Vec<Tree>),
    /// The pages of the log that recovery reads after the kill.
    pub live_log: Vec<u64>,
    copies: AtomicU64,
}

/// No background work runs that a test does not ask for.
pub fn options() -> OpenOptions {
    let settings = [("worker", "off"), ("inline", "all")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    OpenOptions { settings, ..OpenOptions::new(16 << 20) }
}

/// The file system of an open store.
pub fn mounted(store: Arc<Store>) -> Option<Arc<FileSystem>> {
    let options = Options { memory_bytes_max: 1 << 20, atime: AtimePolicy::Never, read_only: false, generation: None };
    let opened = FileSystem::open(store.clone(), Arc::new(SystemClock), &options).ok();
    if opened.is_none() {
        drop(store.close());
    }
    opened
}

fn open(volume: &Path) -> Arc<FileSystem> {
    mounted(Store::open(volume, &options()).unwrap()).unwrap()
}

impl World {
    /// Makes the volumes.
    pub fn new(profile: Profile, scratch: &str) -> Self {
        let dir = tempfile::tempdir_in(scratch).unwrap();
        let spec =
            VolumeSpec { data_bytes: Some(32 << 20), data: DataPlace::File, profile, log_bytes: 4 << 20, copies: None };
        let (path, mut history) = (dir.path().join("made"), History::default());
        Store::format(&path, &spec, [7; 64]).unwrap();
        let store = Store::open(&path, &options()).unwrap();
        FileSystem::format(&store, &SystemClock).unwrap();
        // Newer records override older ones, and freed blocks are reused. With a third mount before the images are
        // taken, RocksDB would merge the records.
        let tree = live(&mounted(store).unwrap(), Tree::default(), &mut history, workload::first_day).pop().unwrap();
        let fs = open(&path);
        let second = live_on(&fs, tree, &mut history, workload::second_day);
        fs.store().run(BackgroundStep::Checkpoint).unwrap();
        fs.close().unwrap();
        drop(fs);
        let tree = second.last().unwrap().clone();
        let unmounted = (Image::of(&path), vec![tree.clone()]);
        let log = fs::read(path.join("log")).unwrap();
        let fs = open(&path);
        let third = live_on(&fs, tree, &mut history, workload::third_day);
        // RocksDB changes no file while they are read.
        fs.store().run(BackgroundStep::CatchUpRecords).unwrap();
        let killed = (Image::of(&path), third);
        let log_now = fs::read(path.join("log")).unwrap();
        let is_new = |page: &u64| page_of(&log, *page) != page_of(&log_now, *page);
        let live_log = written(&log_now).into_iter().filter(is_new).collect();
        fs.close().unwrap();
        drop(fs);
        let world = Self { dir, profile, history, unmounted, killed, live_log, copies: AtomicU64::new(0) };
        world.assert_sound();
        world
    }

    /// Whether all metadata has two copies.
    pub fn has_copies(&self) -> bool {
        self.profile != Profile::Edge
    }

    fn assert_sound(&self) {
        for state in [State::Unmounted, State::Killed] {
            let volume = self.copy(state);
            let fs = open(&volume);
            let truth = self.states(state).last().unwrap();
            let verdict = judge(truth, &View::of(&fs, truth.names.keys()), &self.history);
            assert!(verdict.lost.is_empty() && verdict.wrong.is_empty(), "{:?} {state:?}: {verdict:#?}", self.profile);
            fs.close().unwrap();
            fs::remove_dir_all(&volume).unwrap();
        }
    }

    /// The files of a volume in a state.
    pub fn image(&self, state: State) -> &Image {
        &self.of(state).0
    }

    /// The contents that the volume may have if groups of its log are lost, oldest first. The last is its true content.
    pub fn states(&self, state: State) -> &[Tree] {
        &self.of(state).1
    }

    fn of(&self, state: State) -> &(Image, Vec<Tree>) {
        if state == State::Killed { &self.killed } else { &self.unmounted }
    }

    /// A copy of a volume. It has a name of its own, because RocksDB remembers open volumes of this process by name.
    pub fn copy(&self, state: State) -> PathBuf {
        let path = self.dir.path().join(format!("copy {}", self.copies.fetch_add(1, Relaxed)));
        self.image(state).write(&path);
        path
    }
}

/// Runs a day on a volume, and unmounts it. Returns its content after each call.
fn live(fs: &FileSystem, tree: Tree, history: &mut History, day: fn(&mut Users<'_>)) -> Vec<Tree> {
    let states = live_on(fs, tree, history, day);
    fs.close().unwrap();
    states
}

/// Runs a day on a volume. Each user ends the day with a commit.
fn live_on(fs: &FileSystem, tree: Tree, history: &mut History, day: fn(&mut Users<'_>)) -> Vec<Tree> {
    let mut users = Users::new(fs, tree, history);
    day(&mut users);
    fs.store().commit().unwrap();
    users.states
}

/// Bytes of a page of the log.
pub const PAGE: u64 = BLOCK;
