//! A volume with some files, copies of it with one flipped byte, and the number of files left in them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::{Copies, DataPlace, OpenOptions, Profile, Remedy, Store, VolumeSpec};
use oncefs_fs::format::proves_itself;
use oncefs_fs::{AtimePolicy, Caller, FileSystem, Ino, Options, SystemClock, WriteOrigin, fix_names};
use oncefs_toolbox::Random;
use tempfile::TempDir;

use super::image::{BLOCK, Image, Part, named, page_of, parts_of_tables, written};

/// The structures in which bytes are flipped.
pub const STRUCTURES: [&str; 9] =
    ["superblock", "log", "table", "record data", "record index", "record footer", "manifest", "CURRENT", "data"];

const ROOT: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
const DIRECTORIES: u64 = 8;
const FILES_EACH: u64 = 20;

/// The protection against damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// No copy of anything, and no salvage.
    Before,
    /// One copy, and salvage if that is not enough.
    One,
    /// Two copies, and repairs that are safe.
    Two,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Before, Self::One, Self::Two];
}

/// The state of a volume when the damage happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is mounted.
    InUse,
    /// It was unmounted.
    Unmounted,
    /// Its daemon was killed, with work in the log.
    Killed,
}

/// A volume, once closed and once crashed with work in its log.
pub struct Base {
    dir: TempDir,
    mode: Mode,
    files: BTreeMap<(u64, u64), Vec<u8>>,
    closed: Image,
    crashed: Image,
    /// The pages of the log that recovery after the crash reads.
    live_log: Vec<u64>,
    copies: AtomicU64,
}

fn name(n: u64) -> Vec<u8> {
    format!("name number {n}").into_bytes()
}

/// No background work runs that a test does not ask for.
fn options(mode: Mode) -> OpenOptions {
    let copies = if mode == Mode::Two { "2" } else { "1" };
    let settings = [("copies", copies), ("worker", "off"), ("inline", "off")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    OpenOptions { settings, ..OpenOptions::new(16 << 20) }
}

fn open(volume: &Path, mode: Mode) -> Option<Arc<FileSystem>> {
    mounted(Store::open(volume, &options(mode)).ok()?)
}

fn mounted(store: Arc<Store>) -> Option<Arc<FileSystem>> {
    let options = Options { memory_bytes_max: 1 << 20, atime: AtimePolicy::Never, read_only: false, generation: None };
    let opened = FileSystem::open(store.clone(), Arc::new(SystemClock), &options).ok();
    if opened.is_none() {
        drop(store.close());
    }
    opened
}

/// Writes every second file of each directory, with a commit group for each directory.
fn fill(fs: &FileSystem, half: u64, files: &mut BTreeMap<(u64, u64), Vec<u8>>) {
    for directory in 0..DIRECTORIES {
        let made = fs.mkdir(Ino::ROOT, &name(directory), 0o755, &ROOT);
        let parent = made.or_else(|_| fs.lookup(Ino::ROOT, &name(directory))).unwrap().ino;
        for file in (0..FILES_EACH).filter(|file| file % 2 == half) {
            let number = directory * FILES_EACH + file;
            let content: Vec<u8> =
                (0..(1 + number % 5) * 700).flat_map(|n| (n * 31 + number * 77_777).to_le_bytes()).collect();
            let ino = fs.mknod(parent, &name(file), libc::S_IFREG | 0o644, 0, &ROOT).unwrap().ino;
            fs.write(ino, 0, &content, WriteOrigin::PageCache).unwrap();
            files.insert((directory, file), content);
        }
        fs.store().commit().unwrap();
    }
}

impl Base {
    /// Makes the volume, in a directory of its own in `scratch`.
    pub fn new(mode: Mode, profile: Profile, scratch: &str) -> Self {
        let dir = tempfile::tempdir_in(scratch).unwrap();
        let spec = VolumeSpec {
            data_bytes: Some(64 << 20),
            data: DataPlace::File,
            profile,
            log_bytes: 4 << 20,
            copies: Some(if mode == Mode::Two { Copies::Two } else { Copies::One }),
        };
        let path = dir.path().join("closed");
        Store::format(&path, &spec, [7; 64]).unwrap();
        let store = Store::open(&path, &options(mode)).unwrap();
        FileSystem::format(&store, &SystemClock).unwrap();
        // Two mounts, so that newer records override older ones. With a third mount RocksDB would begin to merge its
        // files.
        let mut files = BTreeMap::new();
        let fs = mounted(store).unwrap();
        fill(&fs, 0, &mut files);
        fs.close().unwrap();
        drop(fs);
        let log = fs::read(path.join("log")).unwrap();
        let fs = open(&path, mode).unwrap();
        fill(&fs, 1, &mut files);
        let crashed = Image::of(&path);
        let log_now = fs::read(path.join("log")).unwrap();
        let live_log = written(&log_now).into_iter().filter(|page| page_of(&log, *page) != page_of(&log_now, *page));
        let live_log: Vec<u64> = live_log.collect();
        fs.close().unwrap();
        let closed = Image::of(&path);
        let base = Self { dir, mode, files, closed, crashed, live_log, copies: AtomicU64::new(0) };
        assert_eq!(base.files(), DIRECTORIES * FILES_EACH);
        for image in [&base.closed, &base.crashed] {
            let whole = base.copy(image);
            assert_eq!(base.lost(&whole), 0, "without a flip");
            fs::remove_dir_all(whole).unwrap();
        }
        base
    }

    /// The protection against damage.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The number of files.
    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// A copy of the volume. It has a name of its own, because RocksDB remembers open volumes of this process by name.
    fn copy(&self, image: &Image) -> PathBuf {
        let path = self.dir.path().join(format!("copy {}", self.copies.fetch_add(1, Relaxed)));
        image.write(&path);
        path
    }

    /// The metadata files of the volume in a state, with their pages that are not empty. Leaves out blocks and files
    /// that only take space.
    pub fn metadata(&self, state: State) -> Vec<(PathBuf, Vec<u64>)> {
        let is_metadata = |name: &Path| !["data", "lock", "ballast"].iter().any(|other| name.as_os_str() == *other);
        let files = self.image(state).0.iter().filter(|(name, ..)| is_metadata(name));
        // Recovery reads only these pages of the log.
        let pages = |name: &Path, pages: &[u64]| match (name.as_os_str() == "log", state) {
            (true, State::Killed) => self.live_log.clone(),
            _ => pages.to_vec(),
        };
        files
            .map(|(name, _, written, _)| (name.clone(), pages(name, written)))
            .filter(|file| !file.1.is_empty())
            .collect()
    }

    fn image(&self, state: State) -> &Image {
        if state == State::Killed { &self.crashed } else { &self.closed }
    }

    /// Damages a copy of the volume with `rot` and returns the number of lost files, also after a repair. On a volume
    /// in use, files are read and data is written.
    pub fn lost_by<T>(&self, state: State, rot: impl FnOnce(&Path) -> T) -> u64 {
        let damaged = self.copy(self.image(state));
        let fs = (state == State::InUse).then(|| open(&damaged, self.mode).unwrap());
        // The damage stays until this is dropped.
        let rotten = rot(&damaged);
        let mut lost = 0;
        if let Some(fs) = fs {
            lost = self.lost_in(&fs);
            drop(fs.mkdir(Ino::ROOT, b"something new", 0o755, &ROOT));
            drop(fs.close());
        }
        lost += self.lost(&damaged);
        if lost > 0 {
            repair(&damaged, self.mode);
            lost = self.lost(&damaged);
        }
        drop(rotten);
        fs::remove_dir_all(&damaged).unwrap();
        lost
    }

    /// Flips a byte of a structure in a copy of the volume and returns the number of files that are lost for good.
    pub fn flip(&self, structure: &str, random: &mut Random) -> u64 {
        let damaged = self.copy(if structure == "log" { &self.crashed } else { &self.closed });
        if self.mode == Mode::Before {
            fs::remove_dir_all(damaged.join("copies")).unwrap();
        }
        self.flip_in(&damaged, structure, random);
        let mut lost = self.lost(&damaged);
        if lost > 0 && self.mode != Mode::Before {
            repair(&damaged, self.mode);
            lost = self.lost(&damaged);
        }
        fs::remove_dir_all(&damaged).unwrap();
        lost
    }

    fn flip_in(&self, volume: &Path, structure: &str, random: &mut Random) {
        let parts = self.parts(volume, structure);
        let mut at = random.below(parts.iter().map(|(_, part)| part.end - part.start).sum());
        for (path, part) in parts {
            let len = part.end - part.start;
            if at < len {
                let file = File::options().read(true).write(true).open(path).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, part.start + at).unwrap();
                file.write_all_at(&[byte[0] ^ (1 + random.below(255) as u8)], part.start + at).unwrap();
                return;
            }
            at -= len;
        }
        panic!("{structure} has no bytes");
    }

    /// The bytes of a structure.
    fn parts(&self, volume: &Path, structure: &str) -> Vec<Part> {
        let whole = |path: PathBuf| {
            let len = fs::metadata(&path).unwrap().len();
            (path, 0..len)
        };
        let pages = |name: &str, pages: &[u64]| {
            let part = |page: &u64| (volume.join(name), page * BLOCK..(page + 1) * BLOCK);
            pages.iter().map(part).collect()
        };
        match structure {
            "log" => pages("log", &self.live_log),
            "superblock" | "table" | "data" => pages(structure, self.closed.pages(structure)),
            "manifest" => named(volume, |name| name.starts_with("MANIFEST")).into_iter().map(whole).collect(),
            "CURRENT" => vec![whole(volume.join("records/CURRENT"))],
            _ => parts_of_tables(volume, structure),
        }
    }

    fn lost(&self, volume: &Path) -> u64 {
        let Some(fs) = open(volume, self.mode) else { return self.files() };
        let lost = self.lost_in(&fs);
        // Only read: no change becomes durable.
        fs.store().shut_down();
        drop(fs.close());
        lost
    }

    fn lost_in(&self, fs: &FileSystem) -> u64 {
        let read = |(directory, file): (u64, u64), len: usize| {
            let parent = fs.lookup(Ino::ROOT, &name(directory)).ok()?.ino;
            let ino = fs.lookup(parent, &name(file)).ok()?.ino;
            Some(fs.read(ino, 0, len, false).ok()?.to_vec())
        };
        let is_lost =
            |(place, content): &(&(u64, u64), &Vec<u8>)| read(**place, content.len()).as_ref() != Some(*content);
        self.files.iter().filter(is_lost).count() as u64
    }
}

/// Repairs as `fsck -p` does with two copies, or as `fsck --salvage` with one.
fn repair(volume: &Path, mode: Mode) {
    let limit = if mode == Mode::Two { Remedy::Safe } else { Remedy::Asked };
    if mode == Mode::One && Store::salvage(volume, &proves_itself, &[]).is_err() {
        return;
    }
    let Ok(store) = Store::open_for_fsck(volume, &options(mode)) else { return };
    drop(store.check_record_files(true));
    if store.repair(limit, &mut |_, _, _| ()).is_ok() {
        drop(fix_names(&store, &SystemClock, limit, &mut |_, _, _| ()));
    }
    drop(store.close());
}
