//! A volume with some files, copies of it with one byte flipped, and how many files are left in them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncefs_engine::kv::table_data_end;
use oncefs_engine::{Copies, DataPlace, OpenOptions, Profile, Remedy, Store, VolumeSpec};
use oncefs_fs::{AtimePolicy, Caller, FileSystem, Ino, Options, SystemClock, WriteOrigin, fix_names};
use oncefs_toolbox::Random;
use tempfile::TempDir;

/// Where bytes are flipped.
pub const STRUCTURES: [&str; 9] =
    ["superblock", "log", "table", "record data", "record index", "record footer", "manifest", "CURRENT", "data"];

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
const DIRECTORIES: u64 = 8;
const FILES_EACH: u64 = 20;
const BLOCK: u64 = 4096;
const FOOTER_BYTES: u64 = 53;

/// What stands against damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// No copy of anything, and no salvage.
    Before,
    /// One copy, and salvage where that is not enough.
    One,
    /// Two copies, and repairs that are safe.
    Two,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Before, Self::One, Self::Two];
}

/// A volume, closed, and as it was when it crashed with work in its log.
pub struct Base {
    dir: TempDir,
    mode: Mode,
    files: BTreeMap<(u64, u64), Vec<u8>>,
}

fn name(n: u64) -> Vec<u8> {
    format!("name number {n}").into_bytes()
}

fn options(mode: Mode) -> OpenOptions {
    let copies = if mode == Mode::Two { "2" } else { "1" };
    OpenOptions { settings: vec![("copies".to_owned(), copies.to_owned())], ..OpenOptions::new(16 << 20) }
}

fn open(volume: &Path, mode: Mode) -> Option<Arc<FileSystem>> {
    let store = Store::open(volume, &options(mode)).ok()?;
    let options = Options { memory_bytes_max: 1 << 20, atime: AtimePolicy::Never, read_only: false };
    let opened = FileSystem::open(store.clone(), Arc::new(SystemClock), &options).ok();
    if opened.is_none() {
        drop(store.close());
    }
    opened
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to).status().unwrap();
    assert!(status.success());
    drop(fs::remove_file(to.join("ballast")));
}

impl Base {
    /// Makes the volume.
    pub fn new(mode: Mode) -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let spec = VolumeSpec {
            data_bytes: Some(64 << 20),
            data: DataPlace::File,
            profile: Profile::Desktop,
            log_bytes: 4 << 20,
            copies: Some(if mode == Mode::Two { Copies::Two } else { Copies::One }),
        };
        let path = dir.path().join("closed");
        Store::format(&path, &spec, [7; 64]).unwrap();
        let store = Store::open(&path, &options(mode)).unwrap();
        FileSystem::format(&store, &SystemClock).unwrap();
        store.close().unwrap();
        drop(store);
        let mut base = Self { dir, mode, files: BTreeMap::new() };
        // Two mounts, so that newer records stand over older ones.
        for half in 0..2 {
            let fs = open(&path, mode).unwrap();
            base.fill(&fs, half);
            if half == 1 {
                fs.flush().unwrap();
                copy(&path, &base.dir.path().join("crashed"));
            }
            fs.close().unwrap();
        }
        assert_eq!(base.files(), DIRECTORIES * FILES_EACH);
        base
    }

    /// Every second file of each directory.
    fn fill(&mut self, fs: &FileSystem, half: u64) {
        for directory in 0..DIRECTORIES {
            let made = fs.mkdir(Ino::ROOT, &name(directory), 0o755, &ROOT);
            let parent = made.or_else(|_| fs.lookup(Ino::ROOT, &name(directory))).unwrap().ino;
            // A commit group for each directory, so that the log has several.
            fs.flush().unwrap();
            for file in (0..FILES_EACH).filter(|file| file % 2 == half) {
                let number = directory * FILES_EACH + file;
                let content: Vec<u8> =
                    (0..(1 + number % 5) * 700).flat_map(|n| (n * 31 + number * 77_777).to_le_bytes()).collect();
                let ino = fs.mknod(parent, &name(file), libc::S_IFREG | 0o644, 0, &ROOT).unwrap().ino;
                fs.write(ino, 0, &content, WriteOrigin::PageCache).unwrap();
                self.files.insert((directory, file), content);
            }
        }
    }

    /// How many files there are.
    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Flips a byte of a structure in a copy of the volume and gives how many files are lost for good.
    pub fn flip(&self, structure: &str, random: &mut Random) -> u64 {
        // A name of its own: RocksDB remembers what this process has open by name.
        let damaged = self.dir.path().join(format!("damaged-{}", random.word()));
        let from = if structure == "log" { "crashed" } else { "closed" };
        copy(&self.dir.path().join(from), &damaged);
        if self.mode == Mode::Before {
            fs::remove_dir_all(damaged.join("copies")).unwrap();
        }
        flip_in(&damaged, structure, random);
        let mut lost = self.lost(&damaged);
        if lost > 0 && self.mode != Mode::Before {
            repair(&damaged, self.mode);
            lost = self.lost(&damaged);
        }
        fs::remove_dir_all(&damaged).unwrap();
        lost
    }

    fn lost(&self, volume: &Path) -> u64 {
        let Some(fs) = open(volume, self.mode) else { return self.files() };
        let read = |(directory, file): (u64, u64), len: usize| {
            let parent = fs.lookup(Ino::ROOT, &name(directory)).ok()?.ino;
            let ino = fs.lookup(parent, &name(file)).ok()?.ino;
            Some(fs.read(ino, 0, len, false).ok()?.to_vec())
        };
        let is_lost =
            |(place, content): &(&(u64, u64), &Vec<u8>)| read(**place, content.len()).as_ref() != Some(*content);
        let lost = self.files.iter().filter(is_lost).count() as u64;
        drop(fs.close());
        lost
    }
}

/// As `fsck -p` with two copies, as `fsck --salvage` with one.
fn repair(volume: &Path, mode: Mode) {
    let limit = if mode == Mode::Two { Remedy::Safe } else { Remedy::Asked };
    if mode == Mode::One && Store::salvage(volume).is_err() {
        return;
    }
    let Ok(store) = Store::open_for_fsck(volume, &options(mode)) else { return };
    drop(store.check_record_files(true));
    if store.repair(limit, &mut |_, _, _| ()).is_ok() {
        drop(fix_names(&store, &SystemClock, limit, &mut |_, _, _| ()));
    }
    drop(store.close());
}

fn tables(volume: &Path) -> Vec<PathBuf> {
    named(volume, |name| name.ends_with(".sst"))
}

fn named(volume: &Path, is_it: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(volume.join("records")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| is_it(path.file_name().unwrap().to_str().unwrap())).collect();
    paths.sort();
    paths
}

/// The bytes of a structure: files, and a part of each.
fn places(volume: &Path, structure: &str) -> Vec<(PathBuf, Range<u64>)> {
    let whole = |path: PathBuf| {
        let len = fs::metadata(&path).unwrap().len();
        (path, 0..len)
    };
    let part_of = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        let (data, footer) = (table_data_end(&bytes).unwrap() as u64, bytes.len() as u64 - FOOTER_BYTES);
        let part = match structure {
            "record data" => 0..data,
            "record index" => data..footer,
            _ => footer..footer + FOOTER_BYTES,
        };
        (path, part)
    };
    match structure {
        "superblock" | "table" | "log" | "data" => written_pages(&volume.join(structure)),
        "manifest" => named(volume, |name| name.starts_with("MANIFEST")).into_iter().map(whole).collect(),
        "CURRENT" => vec![whole(volume.join("records/CURRENT"))],
        _ => tables(volume).into_iter().map(part_of).collect(),
    }
}

/// The pages of a file that hold something.
fn written_pages(path: &Path) -> Vec<(PathBuf, Range<u64>)> {
    let bytes = fs::read(path).unwrap();
    let pages = bytes.chunks(BLOCK as usize).zip((0..).step_by(BLOCK as usize));
    pages
        .filter(|(page, _)| page.iter().any(|byte| *byte != 0))
        .map(|(page, at)| (path.to_owned(), at..at + page.len() as u64))
        .collect()
}

fn flip_in(volume: &Path, structure: &str, random: &mut Random) {
    use std::os::unix::fs::FileExt;
    let places = places(volume, structure);
    let mut at = random.below(places.iter().map(|(_, part)| part.end - part.start).sum());
    for (path, part) in places {
        let len = part.end - part.start;
        if at < len {
            let file = fs::File::options().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, part.start + at).unwrap();
            file.write_all_at(&[byte[0] ^ (1 + random.below(255) as u8)], part.start + at).unwrap();
            return;
        }
        at -= len;
    }
    panic!("{structure} has no bytes");
}
