//! The reads of programs as the I/O monitor sees them: a real mount, files read in different ways, and the counters of
//! their usage. Needs root and `/dev/fuse`. With `--nocapture` it prints the table of `docs/results/older/ranks.md`.
//!
//! Asserts only consequences of the kernel's promises. The kernel's read-ahead is only printed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use oncefs_engine::{BLOCK_BYTES, DataPlace, Profile, Reads, Store, VolumeSpec};
use oncefs_fs::{AtimePolicy, FileSystem, Ino, Options, SystemClock};
use oncefs_fuse::{
    Adapter, AdapterConfig, KnobLock, MOUNT_TYPE, MountFlags, MountSpec, RoomGauge, RoomLeft, RoomWatch, Session,
    SessionSpec, Settings, Transport, Watched, attach, open_device, unmount,
};
use oncefs_toolbox::Random;
use tempfile::TempDir;

const BLOCK: usize = BLOCK_BYTES;
/// Blocks of each file.
const BLOCKS: usize = 4096;
/// Places that are read at random, ...
const PLACES: usize = 256;
/// ... all of them so far apart that no two are neighbours.
const APART: usize = BLOCKS / PLACES;

struct Mounted {
    file_system: Arc<FileSystem>,
    dir: TempDir,
    limit: Option<RoomWatch>,
    serving: Option<JoinHandle<()>>,
}

impl Mounted {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (volume, mount_point) = (dir.path().join("volume"), dir.path().join("mount"));
        let spec = VolumeSpec {
            data_bytes: Some(1 << 30),
            data: DataPlace::File,
            profile: Profile::Desktop,
            log_bytes: 64 << 20,
            copies: None,
        };
        Store::format(&volume, &spec, [7; 64]).unwrap();
        std::fs::create_dir(&mount_point).unwrap();
        let store = Store::open(&volume, &oncefs_engine::OpenOptions::new(64 << 20)).unwrap();
        FileSystem::format(&store, &SystemClock).unwrap();
        let options =
            Options { memory_bytes_max: 1 << 20, atime: AtimePolicy::Relative, read_only: false, generation: None };
        let file_system = FileSystem::open(store, Arc::new(SystemClock), &options).unwrap();
        let (serving, limit) = Self::serve(&file_system, volume, mount_point);
        Self { file_system, dir, limit: Some(limit), serving: Some(serving) }
    }

    fn serve(file_system: &Arc<FileSystem>, volume: PathBuf, dir: PathBuf) -> (JoinHandle<()>, RoomWatch) {
        let request_bytes_max = 1 << 20;
        let transport = Settings { transport: Transport::Auto, threads: 4, ring_bytes_max: 64 << 20 };
        let spec = SessionSpec { dir: dir.clone(), transport, request_bytes_max, knob_lock: KnobLock::open().ok() };
        let connection = open_device().unwrap();
        let other = connection.try_clone().unwrap();
        let (gauge, flags): (Arc<RoomGauge>, Arc<MountFlags>) = Default::default();
        let config =
            AdapterConfig { request_bytes_max, gauge: gauge.clone(), flags: flags.clone(), patience: Arc::default() };
        let adapter = Adapter::new(file_system.clone(), config);
        let mount = MountSpec { source: volume, dir, kind: MOUNT_TYPE, kernel_flags: 0 };
        let session = Session::mount(adapter, connection, &spec, || attach(other.as_fd(), &mount)).unwrap();
        drop(other);
        // Sets the read-ahead too.
        let left = || RoomLeft { available_bytes: 1 << 30, data_bytes: 1 << 30 };
        let set_synchronous = |_| Ok(());
        let watched = Watched { device: session.device(), ram_bytes: 1 << 30, flags, left, set_synchronous };
        let limit = RoomWatch::start(watched, gauge).unwrap();
        (thread::spawn(move || session.run().unwrap()), limit)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mount").join(name)
    }

    /// A file that the kernel has not cached.
    fn file(&self, name: &str) -> Ino {
        let mut file = File::create(self.path(name)).unwrap();
        for number in 0..BLOCKS {
            file.write_all(&[number as u8 | 1; BLOCK]).unwrap();
        }
        file.sync_all().unwrap();
        drop_cache(&file);
        Ino(file.metadata().unwrap().ino())
    }

    fn reads(&self, ino: Ino) -> Reads {
        self.file_system.usage(ino).unwrap().reads()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.dir.path().join("mount"), libc::MNT_DETACH).unwrap();
        drop(self.limit.take());
        self.serving.take().unwrap().join().unwrap();
        self.file_system.close().unwrap();
    }
}

fn advise(file: &File, advice: libc::c_int) {
    // SAFETY: a call without pointers on an open file.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) }, 0);
}

fn drop_cache(file: &File) {
    advise(file, libc::POSIX_FADV_DONTNEED);
}

/// Blocks in a random order that is always the same, no two of them neighbours.
fn places() -> Vec<usize> {
    Random::new(12_345).permutation(PLACES).into_iter().map(|number| number * APART + 3).collect()
}

fn read_block(file: &File, number: usize) {
    let mut block = Aligned([0; BLOCK]);
    file.read_exact_at(&mut block.0, (number * BLOCK) as u64).unwrap();
    assert_eq!(block.0, [number as u8 | 1; BLOCK]);
}

/// A buffer with the alignment that O_DIRECT requires.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

fn read_through(file: &mut File, piece: usize) {
    let mut buffer = vec![0; piece];
    while file.read(&mut buffer).unwrap() > 0 {}
}

/// Reads a byte of each of these blocks through a mapping.
fn touch(file: &File, advice: libc::c_int, blocks: impl IntoIterator<Item = usize>) {
    let len = BLOCKS * BLOCK;
    // SAFETY: a new mapping of a file that is not shortened, unmapped below.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: the whole mapping and nothing else.
    assert_eq!(unsafe { libc::madvise(mapped, len, advice) }, 0);
    for number in blocks {
        // SAFETY: within the mapping.
        let byte = unsafe { mapped.cast::<u8>().add(number * BLOCK).read_volatile() };
        assert_eq!(byte, number as u8 | 1);
    }
    // SAFETY: mapped above, and no pointer into it is left.
    assert_eq!(unsafe { libc::munmap(mapped, len) }, 0);
}

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

fn open_direct(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// A way to read a file, and how many blocks of it the program reads.
struct Way {
    name: &'static str,
    blocks: usize,
    read: fn(&Path),
}

const WAYS: &[Way] = &[
    Way { name: "read(2), 4 KiB, to the end", blocks: BLOCKS, read: |path| read_through(&mut open(path), BLOCK) },
    Way { name: "read(2), 1 MiB, to the end", blocks: BLOCKS, read: |path| read_through(&mut open(path), 1 << 20) },
    Way {
        name: "read(2) to the end, twice: the second time from the cache",
        blocks: 2 * BLOCKS,
        read: |path| (0..2).for_each(|_| read_through(&mut open(path), BLOCK)),
    },
    Way { name: "read(2), the first 4 KiB alone", blocks: 1, read: |path| read_block(&open(path), 0) },
    Way {
        name: "pread(2), 4 KiB, from the end to the beginning",
        blocks: BLOCKS,
        read: |path| {
            let file = open(path);
            (0..BLOCKS).rev().for_each(|number| read_block(&file, number));
        },
    },
    Way {
        name: "two programs to the end, in turns",
        blocks: 2 * BLOCKS,
        read: |path| {
            let (one, other) = (open(path), open(path));
            for number in 0..BLOCKS {
                read_block(&one, number);
                read_block(&other, (number + BLOCKS / 2) % BLOCKS);
            }
        },
    },
    Way {
        name: "pread(2), 4 KiB, at random",
        blocks: PLACES,
        read: |path| {
            let file = open(path);
            places().into_iter().for_each(|number| read_block(&file, number));
        },
    },
    Way {
        name: "the same with POSIX_FADV_RANDOM",
        blocks: PLACES,
        read: |path| {
            let file = open(path);
            advise(&file, libc::POSIX_FADV_RANDOM);
            places().into_iter().for_each(|number| read_block(&file, number));
        },
    },
    Way {
        name: "the same with O_DIRECT",
        blocks: PLACES,
        read: |path| {
            let file = open_direct(path);
            places().into_iter().for_each(|number| read_block(&file, number));
        },
    },
    Way {
        name: "the same with O_DIRECT, twice",
        blocks: 2 * PLACES,
        read: |path| {
            let file = open_direct(path);
            places().into_iter().chain(places()).for_each(|number| read_block(&file, number));
        },
    },
    Way {
        name: "pread(2), every 16th block in order",
        blocks: PLACES,
        read: |path| {
            let file = open(path);
            (0..PLACES).for_each(|number| read_block(&file, number * APART));
        },
    },
    Way {
        name: "O_DIRECT, 4 KiB, to the end",
        blocks: BLOCKS,
        read: |path| {
            let file = open_direct(path);
            (0..BLOCKS).for_each(|number| read_block(&file, number));
        },
    },
    Way { name: "mmap(2), to the end", blocks: BLOCKS, read: |path| touch(&open(path), libc::MADV_NORMAL, 0..BLOCKS) },
    Way { name: "mmap(2), at random", blocks: PLACES, read: |path| touch(&open(path), libc::MADV_NORMAL, places()) },
    Way {
        name: "the same with MADV_RANDOM",
        blocks: PLACES,
        read: |path| touch(&open(path), libc::MADV_RANDOM, places()),
    },
];

#[test]
fn what_is_seen_of_reads_is_how_the_kernel_asks_for_them() {
    let mounted = Mounted::new();
    println!("| how a file is read | blocks that the program reads | seen, in sequence | seen, at random |");
    println!("|---|---|---|---|");
    for (number, way) in WAYS.iter().enumerate() {
        let name = number.to_string();
        let ino = mounted.file(&name);
        (way.read)(&mounted.path(&name));
        let seen = mounted.reads(ino);
        println!("| {} | {} | {} | {} |", way.name, way.blocks, seen.sequential, seen.random);
        let (all, places) = (BLOCKS as u32, PLACES as u32);
        match way.name {
            name if name.starts_with("read(2)") && !name.ends_with("alone")
                || name == "O_DIRECT, 4 KiB, to the end" =>
            {
                assert_eq!(seen.sequential + seen.random, all, "{name}: each block once");
                assert!(seen.random <= all / 50, "{name}: {seen:?}");
            }
            name if name.ends_with("O_DIRECT") || name.ends_with("_RANDOM") => {
                assert_eq!(seen, Reads { sequential: 0, random: places }, "{name}: as the program reads");
            }
            name if name.ends_with("O_DIRECT, twice") => {
                assert_eq!(seen, Reads { sequential: 0, random: 2 * places }, "{name}: no cache hides anything");
            }
            name => assert!((1..=all).contains(&(seen.sequential + seen.random)), "{name}: {seen:?}"),
        }
    }
    assert_eq!(places().into_iter().collect::<BTreeSet<_>>().len(), PLACES);
}

#[test]
fn a_file_that_the_kernel_has_in_its_cache_is_accessed_by_being_opened() {
    let mounted = Mounted::new();
    let ino = mounted.file("file");
    read_through(&mut open(&mounted.path("file")), BLOCK);
    let before = mounted.file_system.usage(ino).unwrap();
    let day = ("rank_clock_offset_seconds".to_owned(), "86400".to_owned());
    mounted.file_system.store().tune(&[day]).unwrap();
    read_through(&mut open(&mounted.path("file")), BLOCK);
    let after = mounted.file_system.usage(ino).unwrap();
    assert_eq!(after.reads(), before.reads(), "nothing of the second reading is seen");
    assert!(after.last_access().seconds_since(before.last_access()) >= 86_400, "{before:?}, {after:?}");
}
