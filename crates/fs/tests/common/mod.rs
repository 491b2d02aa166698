//! A volume in a temporary directory, a clock that tests set, and small helpers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use oncefs_engine::{DataPlace, OpenOptions, Profile, Store, VolumeSpec};
use oncefs_fs::{AtimePolicy, Attributes, Caller, Clock, FileSystem, Ino, NamePlaces, Options, Timestamp};
use tempfile::TempDir;

/// Root, without a umask.
pub const ROOT: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };

/// Size of the data area of test volumes.
pub const DATA_BYTES: u64 = 64 << 20;

/// A clock that stops until a test moves it.
#[derive(Default)]
pub struct TestClock(AtomicI64);

impl TestClock {
    pub fn set(&self, seconds: i64) {
        self.0.store(seconds, SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        at(self.0.load(SeqCst))
    }
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}

/// A volume that can be closed and opened again.
pub struct Volume {
    dir: TempDir,
    pub clock: Arc<TestClock>,
    pub atime: AtimePolicy,
    /// Settings for each opening, which override those of the profile.
    pub settings: Vec<(String, String)>,
}

impl Volume {
    /// Makes an empty volume.
    pub fn new(atime: AtimePolicy) -> Self {
        Self::made_with(atime, NamePlaces::default(), 8 << 20)
    }

    /// Makes an empty volume with the smallest possible log.
    pub fn with_smallest_log() -> Self {
        Self::made_with(AtimePolicy::Never, NamePlaces::default(), 4 << 20)
    }

    /// Makes an empty volume with these name places.
    pub fn with_places(places: NamePlaces) -> Self {
        Self::made_with(AtimePolicy::Never, places, 8 << 20)
    }

    fn made_with(atime: AtimePolicy, places: NamePlaces, log_bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = VolumeSpec {
            data_bytes: Some(DATA_BYTES),
            data: DataPlace::File,
            profile: Profile::Lrlfs,
            log_bytes,
            copies: None,
        };
        let volume = Self { dir, clock: Arc::default(), atime, settings: Vec::new() };
        let path = volume.dir.path().join("volume");
        Store::format(&path, &spec, [7; 64]).unwrap();
        let store = volume.store(false);
        FileSystem::format_with(&store, &*volume.clock, places).unwrap();
        store.close().unwrap();
        volume
    }

    /// Its directory.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    /// Makes an empty volume whose files are ranked.
    pub fn ranked(atime: AtimePolicy) -> Self {
        Self { settings: vec![("ranks".to_owned(), "on".to_owned())], ..Self::new(atime) }
    }

    /// Makes an empty volume that is opened with compression. No thread compresses.
    pub fn compressed(atime: AtimePolicy) -> Self {
        Self { settings: vec![("compress".to_owned(), "later".to_owned())], ..Self::new(atime) }
    }

    fn store(&self, read_only: bool) -> Arc<Store> {
        let options = OpenOptions { read_only, settings: self.settings.clone(), ..OpenOptions::new(16 << 20) };
        Store::open(&self.dir.path().join("volume"), &options).unwrap()
    }

    /// Opens the volume, with the orphans of earlier mounts reclaimed. No thread changes it in the background, so a
    /// test may call [`contradictions`] at any time.
    pub fn open(&self) -> Arc<FileSystem> {
        let file_system = self.open_without_threads();
        file_system.reclaim_left_behind().unwrap();
        file_system
    }

    /// Opens the volume with the threads of a mount.
    pub fn open_with_threads(&self) -> Arc<FileSystem> {
        let options = Options { memory_bytes_max: 0, atime: self.atime, read_only: false, generation: None };
        FileSystem::open(self.store(false), self.clock.clone(), &options).unwrap()
    }

    pub fn open_without_threads(&self) -> Arc<FileSystem> {
        let options = Options { memory_bytes_max: 0, atime: self.atime, read_only: false, generation: None };
        FileSystem::open_without_threads(self.store(false), self.clock.clone(), &options).unwrap()
    }

    /// As [`Volume::open`], for a mount with this generation.
    pub fn open_as(&self, generation: u32) -> Arc<FileSystem> {
        let generation = Some(generation);
        let options = Options { memory_bytes_max: 0, atime: self.atime, read_only: false, generation };
        FileSystem::open_without_threads(self.store(false), self.clock.clone(), &options).unwrap()
    }

    pub fn open_read_only(&self) -> Arc<FileSystem> {
        let options = Options { memory_bytes_max: 0, atime: self.atime, read_only: true, generation: None };
        FileSystem::open(self.store(true), self.clock.clone(), &options).unwrap()
    }
}

/// The faults that `check` finds.
pub fn contradictions(file_system: &FileSystem) -> Vec<String> {
    let mut found = Vec::new();
    file_system.check(&mut |line| found.push(line)).unwrap();
    found
}

/// Names in a directory, without `.` and `..`.
pub fn names(file_system: &FileSystem, directory: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut add = |entry: &oncefs_fs::Entry| {
        names.push(entry.name.to_vec());
        true
    };
    file_system.readdir(directory, 2, &mut add).unwrap();
    names.sort();
    names
}

/// A new regular file.
pub fn file(file_system: &FileSystem, parent: Ino, name: &str) -> Attributes {
    file_system.mknod(parent, name.as_bytes(), libc::S_IFREG | 0o644, 0, &ROOT).unwrap()
}

/// A new directory.
pub fn directory(file_system: &FileSystem, parent: Ino, name: &str) -> Attributes {
    file_system.mkdir(parent, name.as_bytes(), 0o755, &ROOT).unwrap()
}
