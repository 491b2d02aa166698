//! Attributes at their bounds, and inodes of older volumes beyond them, on the smallest log.

use std::sync::{Arc, mpsc};

use oncefs_engine::device::MemoryDevice;
use oncefs_engine::kv::MemoryKv;
use oncefs_engine::{Backend, Ballast, Blocks, Change, Committer, OpenOptions, Store, TestHooks};

use super::{ATTRIBUTES_BYTES_MAX, NAMES_BYTES_MAX};
use crate::format::{inode, xattr};
use crate::inodes::staged::Staged;
use crate::{AtimePolicy, Caller, Error, FileSystem, Ino, Options, SystemClock, XattrMode};

const DATA: Blocks = Blocks(8192);
/// The smallest log of mkfs.
const LOG_BYTES: u64 = 4 << 20;
const USER: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };

/// The parts that survive closing the volume.
#[derive(Clone)]
struct Volume {
    data: Arc<MemoryDevice>,
    table: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    kv: Arc<MemoryKv>,
}

impl Volume {
    fn new() -> Self {
        let device = |bytes| Arc::new(MemoryDevice::new(bytes));
        let table = device(DATA.0.div_ceil(128) * 4096);
        let volume = Self { data: device(DATA.bytes()), table, log: device(LOG_BYTES), kv: Arc::default() };
        Store::format_on(&volume.backend(), DATA).unwrap();
        FileSystem::format(&volume.store(), &SystemClock).unwrap();
        volume
    }

    fn backend(&self) -> Backend {
        Backend {
            data: self.data.clone(),
            table: self.table.clone(),
            fragments: None,
            log: self.log.clone(),
            log_bytes: LOG_BYTES,
            kv: self.kv.clone(),
            ballast: Ballast::none(),
            host: None,
            secret: [9; 32],
            volume_id: [1; 16],
            hints: None,
            skipped: None,
            device_load: None,
            turns: false,
            hold: None,
        }
    }

    /// A commit follows each publication, so only a publication that is too large by itself does not fit into the log.
    fn store(&self) -> Arc<Store> {
        self.store_with(Box::new(|commit| commit().unwrap()))
    }

    fn store_with(&self, committer: Committer) -> Arc<Store> {
        let driver = TestHooks { committer: Some(committer), ..TestHooks::default() };
        Store::open_driven(self.backend(), &OpenOptions::new(16 << 20), driver).unwrap()
    }

    fn open(&self) -> Arc<FileSystem> {
        open_on(self.store())
    }

    /// The state after a power cut.
    fn after_power_cut(&self) -> Self {
        let left_of = |device: &MemoryDevice| Arc::new(device.after_power_cut(|_| false));
        let (data, table, log) = (left_of(&self.data), left_of(&self.table), left_of(&self.log));
        Self { data, table, log, kv: Arc::new(self.kv.after_power_cut(false)) }
    }
}

fn open_on(store: Arc<Store>) -> Arc<FileSystem> {
    let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Never, read_only: false, generation: None };
    FileSystem::open_without_threads(store, Arc::new(SystemClock), &options).unwrap()
}

fn assert_clean(fs: &FileSystem) {
    let mut found = Vec::new();
    fs.check(&mut |line| found.push(line)).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

fn file(fs: &FileSystem, name: &[u8]) -> Ino {
    fs.mknod(Ino::ROOT, name, libc::S_IFREG | 0o644, 0, &USER).unwrap().ino
}

/// Gives an inode attributes as an older version did, without a check of their number.
fn give_attributes(fs: &FileSystem, ino: Ino, count: usize) {
    give_named(fs, ino, count, |n| format!("user.{n:0200}"));
}

fn give_named(fs: &FileSystem, ino: Ino, count: usize, name: impl Fn(usize) -> String) {
    for first in (0..count).step_by(500) {
        let inodes = [fs.inode(ino).unwrap()];
        let mut staged = Staged::lock(&inodes);
        let mut change = Change::new();
        for n in first..count.min(first + 500) {
            change.put(xattr::key(ino, name(n).as_bytes()), xattr::encode(ino, b"v"));
            staged.edit(ino).xattrs += 1;
        }
        staged.publish(&fs.store, change).unwrap();
    }
}

#[test]
fn attributes_take_no_more_than_a_listing_can_return_and_one_mebibyte() {
    let volume = Volume::new();
    let fs = volume.open();
    let names = file(&fs, b"names");
    let set = |ino, n: usize, bytes: usize| {
        fs.setxattr(ino, format!("user.{n:0200}").as_bytes(), &vec![1; bytes], XattrMode::Any, true)
    };
    let count = (0..).find(|n| matches!(set(names, *n, 1), Err(Error::NoSpace))).unwrap();
    assert_eq!(count, NAMES_BYTES_MAX / 206);
    assert_eq!(fs.listxattr(names).unwrap().len(), count * 206);
    set(names, 3, 2).unwrap();
    fs.removexattr(names, format!("user.{:0200}", 5).as_bytes()).unwrap();
    set(names, count, 1).unwrap();
    let values = file(&fs, b"values");
    let count = (0..).find(|n| matches!(set(values, *n, 60_000), Err(Error::NoSpace))).unwrap();
    assert_eq!(count, ATTRIBUTES_BYTES_MAX / 60_206);
    let longer = (0..count).find(|n| matches!(set(values, *n, 65_536), Err(Error::NoSpace)));
    assert_eq!(longer, Some((ATTRIBUTES_BYTES_MAX - count * 60_206) / 5_536), "values that grow");
    set(values, 0, 100).unwrap();
    set(values, count, 59_000).unwrap();
    assert_clean(&fs);
}

/// With the feature `checked`, more reads under the inode's lock than the rule allows are a panic.
#[test]
fn very_many_short_attributes_are_counted_with_few_reads_under_the_inode_s_lock() {
    let volume = Volume::new();
    let fs = volume.open();
    let ino = file(&fs, b"short");
    // Ten bytes each, with the NUL byte.
    let count = NAMES_BYTES_MAX / 10 - 1;
    give_named(&fs, ino, count, |n| format!("user.{n:04}"));
    fs.setxattr(ino, b"user.last", b"v", XattrMode::Any, true).unwrap();
    assert!(matches!(fs.setxattr(ino, b"user.more", b"v", XattrMode::Any, true), Err(Error::NoSpace)));
    assert_eq!(fs.listxattr(ino).unwrap().len(), (count + 1) * 10);
}

#[test]
fn an_inode_with_more_attributes_than_the_log_takes_at_once_is_deleted_in_portions() {
    const COUNT: usize = 40_000;
    let volume = Volume::new();
    let fs = volume.open();
    let ino = file(&fs, b"many");
    give_attributes(&fs, ino, COUNT);
    assert!(matches!(fs.listxattr(ino), Err(Error::ListTooBig)));
    assert!(matches!(fs.setxattr(ino, b"user.new", b"v", XattrMode::Any, true), Err(Error::NoSpace)));
    fs.removexattr(ino, format!("user.{:0200}", 7).as_bytes()).unwrap();
    fs.unlink(Ino::ROOT, b"many").unwrap();
    drop(fs);
    // An earlier version left such an orphan and could not delete it at any mount.
    let fs = volume.open();
    fs.reclaim_left_behind().unwrap();
    assert_clean(&fs);
    let (from, to) = xattr::range(ino);
    assert!(fs.store.scan(&from, &to, 1).unwrap().is_empty());
    assert_eq!(fs.store.failure(), None);
    file(&fs, b"another");
}

#[test]
fn a_crash_between_two_portions_of_deleted_attributes_leaves_the_rest_to_the_next_mount() {
    const COUNT: usize = 300;
    let volume = Volume::new();
    let fs = volume.open();
    let ino = file(&fs, b"many");
    give_attributes(&fs, ino, COUNT);
    fs.unlink(Ino::ROOT, b"many").unwrap();
    drop(fs);
    let (cuts, cut) = mpsc::channel();
    let devices = volume.clone();
    let committer: Committer = Box::new(move |commit| {
        commit().unwrap();
        cuts.send(devices.after_power_cut()).unwrap();
    });
    open_on(volume.store_with(committer)).reclaim_left_behind().unwrap();
    let (from, to) = xattr::range(ino);
    let left = |fs: &FileSystem| fs.store.scan(&from, &to, COUNT).unwrap().len();
    let mut left_at_cuts = Vec::new();
    for volume in cut.try_iter() {
        let fs = volume.open();
        assert_clean(&fs);
        left_at_cuts.push(left(&fs));
        fs.reclaim_left_behind().unwrap();
        assert_clean(&fs);
        assert_eq!((left(&fs), fs.store.get(&inode::key(ino)).unwrap()), (0, None), "of what a crash left");
    }
    let between = left_at_cuts.iter().filter(|left| (1..COUNT).contains(*left)).count();
    assert!(between >= 3, "crashes between two portions: {left_at_cuts:?} were left");
}
