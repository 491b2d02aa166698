//! The use of files, according to their inode records: the changes of content that are rewrites, the noted reads and
//! the time of their publication, and that nothing is noted if files are not ranked. `crates/fuse/tests/usage.rs` tests
//! the reads that the kernel reveals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use std::{fmt, thread};

use crate::common::{ROOT, TestClock, Volume, contradictions, file};
use oncefs_engine::device::MemoryDevice;
use oncefs_engine::kv::MemoryKv;
use oncefs_engine::{
    Backend, Ballast, Blocks, Committer, Moment, OpenOptions, Profile, Rank, Reads, Store, TestHooks, Usage,
};
use oncefs_fs::{
    AllocateMode, AtimePolicy, Error, FileSystem, Handle, Ino, Options, Privileges, RenameMode, Result, SetAttributes,
    SetTime, Timestamp, WriteOrigin, XattrMode,
};
use oncefs_toolbox::waiting::eventually;
use parking_lot::Mutex;

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };
const MEMORY_DATA: Blocks = Blocks(16_384);
const MEMORY_LOG_BYTES: u64 = 8 << 20;
const DAY: i64 = 24 * 60 * 60;
/// Files whose numbers differ by this are noted in the same part of the memory.
const PARTS: u64 = 256;
const NOTHING: Reads = Reads { sequential: 0, random: 0 };

/// Five and a half blocks, all different and none of zeros.
fn content(seed: u8) -> Vec<u8> {
    (0..22_000_u32).map(|at| (at / 4096) as u8 ^ seed | 0x80).collect()
}

fn cut(file_system: &FileSystem, ino: Ino, size: u64) -> Result<()> {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    file_system.setattr(ino, &set).map(drop)
}

/// The usage in the inode record, without noted reads.
fn published(file_system: &FileSystem, ino: Ino) -> Usage {
    let key = [&b"i"[..], &ino.0.to_be_bytes()].concat();
    let record = file_system.store().get(&key).unwrap().expect("the inode has a record");
    Usage::decode(record[120..136].try_into().unwrap())
}

/// An operation on a file, done twice with different bytes.
struct Case {
    what: &'static str,
    /// Whether it replaces content.
    is_rewrite: bool,
    /// Whether it changes the content at all.
    is_write: bool,
    done: fn(&FileSystem, Ino, u8) -> Result<()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

const fn case(
    what: &'static str,
    is_write: bool,
    is_rewrite: bool,
    done: fn(&FileSystem, Ino, u8) -> Result<()>,
) -> Case {
    Case { what, is_rewrite, is_write, done }
}

fn size(fs: &FileSystem, ino: Ino) -> u64 {
    fs.getattr(ino).unwrap().size
}

const CASES: &[Case] = &[
    case("write over the beginning", true, true, |fs, ino, seed| fs.write(ino, 0, &[seed; 100], BY_CALLER).map(drop)),
    case("write over the end and on", true, true, |fs, ino, seed| {
        fs.write(ino, size(fs, ino) - 9000, &content(seed), BY_CALLER).map(drop)
    }),
    case("write back the beginning", true, true, |fs, ino, seed| {
        fs.write(ino, 0, &content(seed)[..8192], WriteOrigin::PageCache).map(drop)
    }),
    case("append", true, false, |fs, ino, seed| fs.write(ino, size(fs, ino), &content(seed), BY_CALLER).map(drop)),
    case("append and write the last page back", true, false, |fs, ino, seed| {
        // The file ends within a block again, so each append rewrites one.
        fs.write(ino, size(fs, ino) / 4096 * 4096, &content(seed)[..5000], WriteOrigin::PageCache).map(drop)
    }),
    case("write far behind the end", true, false, |fs, ino, seed| {
        fs.write(ino, size(fs, ino) + 100_000, &[seed; 100], BY_CALLER).map(drop)
    }),
    case("fill a hole", true, false, |fs, ino, seed| {
        let at = size(fs, ino).next_multiple_of(4096);
        cut(fs, ino, at + 100_000)?;
        fs.write(ino, at + 8192, &content(seed)[..8192], WriteOrigin::PageCache).map(drop)
    }),
    case("cut to nothing", true, true, |fs, ino, seed| {
        cut(fs, ino, 0)?;
        fs.write(ino, 0, &content(seed), BY_CALLER).map(drop)
    }),
    case("cut off the end", true, false, |fs, ino, seed| {
        cut(fs, ino, 15_000)?;
        fs.write(ino, 15_000, &[seed; 20_000], BY_CALLER).map(drop)
    }),
    case("lengthen", true, false, |fs, ino, _| cut(fs, ino, size(fs, ino) + 5)),
    case("reserve", true, false, |fs, ino, _| {
        fs.fallocate(ino, 0, 100_000, AllocateMode::Reserve { keep_size: true }, Privileges::Kept)
    }),
    case("punch a hole", true, true, |fs, ino, _| {
        fs.fallocate(ino, 5000, 3000, AllocateMode::PunchHole, Privileges::Kept)
    }),
    case("zero a range", true, true, |fs, ino, _| {
        fs.fallocate(ino, 0, 9000, AllocateMode::ZeroRange { keep_size: false }, Privileges::Kept)
    }),
    case("copy blocks over", true, true, |fs, ino, seed| {
        let source = file(fs, Ino::ROOT, &format!("blocks of day {seed} for {}", ino.0)).ino;
        fs.write(source, 0, &content(seed), BY_CALLER)?;
        fs.copy_file_range(source, 0, ino, 4096, 8192, Privileges::Kept).map(drop)
    }),
    case("copy bytes over", true, true, |fs, ino, seed| {
        let source = file(fs, Ino::ROOT, &format!("bytes of day {seed} for {}", ino.0)).ino;
        fs.write(source, 0, &content(seed), BY_CALLER)?;
        fs.copy_file_range(source, 1, ino, 4096, 8192, Privileges::Kept).map(drop)
    }),
    case("copy behind the end", true, false, |fs, ino, seed| {
        let source = file(fs, Ino::ROOT, &format!("end of day {seed} for {}", ino.0)).ino;
        fs.write(source, 0, &content(seed), BY_CALLER)?;
        fs.copy_file_range(source, 0, ino, size(fs, ino).next_multiple_of(4096), 16_384, Privileges::Kept).map(drop)
    }),
    case("cut nothing to nothing", false, false, |fs, _, seed| {
        let empty = file(fs, Ino::ROOT, &format!("empty {seed}")).ino;
        let before = fs.usage(empty)?;
        cut(fs, empty, 0)?;
        assert_eq!(fs.usage(empty)?, before);
        Ok(())
    }),
    case("rename over another", false, false, |fs, ino, seed| {
        let other = format!("replaced on day {seed}");
        fs.write(file(fs, Ino::ROOT, &other).ino, 0, b"content", BY_CALLER)?;
        let name = name_of(fs, ino);
        fs.rename(Ino::ROOT, &name, Ino::ROOT, other.as_bytes(), RenameMode::Replace).map(drop)
    }),
    case("change all but the content", false, false, |fs, ino, seed| {
        let time = SetTime::At(Timestamp { seconds: i64::from(seed) << 33, nanoseconds: 0 });
        let set = SetAttributes {
            atime: Some(time),
            mtime: Some(time),
            permissions: Some(0o600),
            uid: Some(seed.into()),
            ..SetAttributes::default()
        };
        fs.setattr(ino, &set)?;
        fs.setxattr(ino, b"user.x", &[seed], XattrMode::Any, true)?;
        fs.link(ino, Ino::ROOT, format!("link of day {seed}").as_bytes()).map(drop)
    }),
];

fn name_of(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let named = |name: &Vec<u8>| fs.lookup(Ino::ROOT, name).unwrap().ino == ino;
    crate::common::names(fs, Ino::ROOT).into_iter().find(named).unwrap()
}

#[test]
fn a_file_is_update_heavy_if_content_was_replaced_on_two_days_and_by_nothing_else() {
    for case in CASES {
        let volume = Volume::ranked(AtimePolicy::Never);
        let file_system = volume.open();
        volume.clock.set(100 * DAY);
        let ino = file(&file_system, Ino::ROOT, "file").ino;
        file_system.write(ino, 0, &content(1), BY_CALLER).unwrap();
        for day in 1..=3_u8 {
            volume.clock.set((100 + i64::from(day)) * DAY);
            (case.done)(&file_system, ino, day).unwrap();
            (case.done)(&file_system, ino, day + 100).unwrap();
            let usage = file_system.usage(ino).unwrap();
            assert_eq!(usage.is_update_heavy(), case.is_rewrite && day >= 2, "{case:?}, day {day}");
            let written = if case.is_write { 100 + i64::from(day) } else { 100 };
            assert_eq!(i64::from(usage.last_write().0), written * DAY, "{case:?}, day {day}");
            assert_eq!(published(&file_system, ino).last_write(), usage.last_write(), "{case:?}: in the record");
        }
        assert_eq!(contradictions(&file_system), Vec::<String>::new(), "{case:?}");
    }
}

#[test]
fn writing_publishes_no_more_often_and_no_more_for_it() {
    assert_eq!(work_published(&[("ranks", "on")]), work_published(&[]));
}

/// An empty file system in memory, without threads, that counts its publications.
fn counting(settings: &[(&str, &str)], published: Arc<AtomicU64>) -> Arc<FileSystem> {
    let device = |bytes| Arc::new(MemoryDevice::new(bytes));
    let backend = Backend {
        data: device(MEMORY_DATA.bytes()),
        table: device(MEMORY_DATA.0.div_ceil(128) * 4096),
        fragments: None,
        log: device(MEMORY_LOG_BYTES),
        log_bytes: MEMORY_LOG_BYTES,
        kv: Arc::new(MemoryKv::default()),
        ballast: Ballast::none(),
        host: None,
        secret: [9; 32],
        volume_id: [1; 16],
        hints: None,
        skipped: None,
        device_load: None,
        turns: false,
        hold: None,
    };
    Store::format_on(&backend, MEMORY_DATA).unwrap();
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let options = OpenOptions { profile: Some(Profile::Lrlfs), settings, ..OpenOptions::new(16 << 20) };
    let count: Committer = Box::new(move |_| {
        published.fetch_add(1, Relaxed);
    });
    let store =
        Store::open_driven(backend, &options, TestHooks { committer: Some(count), ..TestHooks::default() }).unwrap();
    let clock = Arc::new(TestClock::default());
    FileSystem::format(&store, &*clock).unwrap();
    let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Never, read_only: false, generation: None };
    FileSystem::open_without_threads(store, clock, &options).unwrap()
}

/// The number of publications of all cases, and their records: keys and lengths of values.
fn work_published(settings: &[(&str, &str)]) -> (u64, Vec<(Vec<u8>, usize)>) {
    let published = Arc::new(AtomicU64::new(0));
    let file_system = counting(settings, published.clone());
    published.store(0, Relaxed);
    for case in CASES {
        let ino = file(&file_system, Ino::ROOT, case.what).ino;
        file_system.write(ino, 0, &content(1), BY_CALLER).unwrap();
        (case.done)(&file_system, ino, 7).unwrap();
    }
    let records = file_system.store().scan(&[0x10], &[0xFF], usize::MAX).unwrap();
    (published.load(Relaxed), records.into_iter().map(|(key, value)| (key, value.len())).collect())
}

#[test]
fn reads_are_noted_at_once_and_in_the_record_when_they_are_published() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    volume.clock.set(1_000);
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &[7; 100 * 4096], BY_CALLER).unwrap();
    volume.clock.set(2_000);
    let handle = file_system.opened(ino);
    for block in [0, 1, 2, 50, 51, 7] {
        assert_eq!(file_system.read_by(handle, ino, block * 4096, 4096, true).unwrap().len(), 4096);
    }
    file_system.read_by(handle, ino, 96 * 4096, 1 << 20, true).unwrap();
    file_system.read_by(handle, ino, 1 << 30, 1 << 20, true).unwrap();
    volume.clock.set(3_000);
    let usage = file_system.usage(ino).unwrap();
    assert_eq!(usage.reads(), Reads { sequential: 7, random: 3 }, "of the last request three blocks follow the first");
    assert_eq!((usage.last_access(), usage.last_write()), (Moment(2_000), Moment(1_000)));
    assert_eq!(published(&file_system, ino).reads(), NOTHING);
    file_system.publish_reads().unwrap();
    assert_eq!((published(&file_system, ino), file_system.usage(ino).unwrap()), (usage, usage));
    // Closing the file system publishes the noted reads.
    file_system.read_by(handle, ino, 0, 4096, true).unwrap();
    file_system.close().unwrap();
    drop(file_system);
    let file_system = volume.open();
    let usage = file_system.usage(ino).unwrap();
    assert_eq!((usage.reads(), usage.last_access()), (Reads { sequential: 7, random: 4 }, Moment(3_000)));
}

#[test]
fn a_time_of_last_access_that_is_set_anyway_takes_along_what_is_noted() {
    let volume = Volume::ranked(AtimePolicy::Relative);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &[7; 4096], BY_CALLER).unwrap();
    volume.clock.set(2_000);
    let handle = file_system.opened(ino);
    file_system.read_by(handle, ino, 0, 4096, true).unwrap();
    let usage = published(&file_system, ino);
    assert_eq!((usage.reads(), usage.last_access()), (Reads { sequential: 1, random: 0 }, Moment(2_000)));
    // The next read within a day sets no time.
    file_system.read_by(handle, ino, 0, 4096, true).unwrap();
    assert_eq!(published(&file_system, ino), usage);
    assert_eq!(file_system.usage(ino).unwrap().reads(), Reads { sequential: 2, random: 0 });
}

#[test]
fn opening_a_file_is_an_access_and_looking_at_it_is_none() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &[7; 9000], BY_CALLER).unwrap();
    volume.clock.set(30 * DAY);
    file_system.read(ino, 0, 9000, true).unwrap();
    file_system.getattr(ino).unwrap();
    assert_eq!(file_system.usage(ino).unwrap().last_access(), Moment(0));
    file_system.opened(ino);
    let usage = file_system.usage(ino).unwrap();
    assert_eq!((i64::from(usage.last_access().0), usage.last_write(), usage.reads()), (30 * DAY, Moment(0), NOTHING));
}

#[test]
fn a_copied_file_is_accessed_and_counts_as_read_as_far_as_it_was() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let source = file(&file_system, Ino::ROOT, "source").ino;
    let target = file(&file_system, Ino::ROOT, "target").ino;
    file_system.write(source, 0, &content(1), BY_CALLER).unwrap();
    volume.clock.set(5_000);
    file_system.copy_file_range(source, 0, target, 0, 16_384, Privileges::Kept).unwrap();
    let usage = file_system.usage(source).unwrap();
    assert_eq!((usage.reads(), usage.last_access(), usage.last_write()), (NOTHING, Moment(5_000), Moment(0)));
    file_system.copy_file_range(source, 1, target, 0, 16_384, Privileges::Kept).unwrap();
    assert_eq!(file_system.usage(source).unwrap().reads(), Reads { sequential: 4, random: 0 });
    assert_eq!(file_system.usage(target).unwrap().reads(), NOTHING);
}

#[test]
fn a_part_of_the_memory_that_is_full_is_published_by_whoever_reads() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open_without_threads();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    volume.clock.set(30 * DAY);
    file_system.opened(ino);
    for number in 1..=10_000 {
        // Inodes that do not exist: nothing is published for them.
        file_system.opened(Ino(ino.0 + number * PARTS));
        if published(&file_system, ino).last_access() != Moment(0) {
            assert!(number > 400, "published after {number} files");
            return;
        }
    }
    panic!("10,000 files are noted in one part of the memory");
}

#[test]
fn the_thread_publishes_a_part_that_is_half_full() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open_with_threads();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    volume.clock.set(30 * DAY);
    file_system.opened(ino);
    for number in 1..=300 {
        file_system.opened(Ino(ino.0 + number * PARTS));
    }
    eventually("what was noted is published", || published(&file_system, ino).last_access() != Moment(0));
}

#[test]
fn a_deleted_file_does_not_come_back_by_what_was_noted_of_it() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &[7; 9000], BY_CALLER).unwrap();
    volume.clock.set(DAY);
    let handle = file_system.opened(ino);
    file_system.unlink(Ino::ROOT, b"file").unwrap();
    file_system.read_by(handle, ino, 0, 4096, true).unwrap();
    file_system.publish_reads().unwrap();
    file_system.read_by(handle, ino, 4096, 4096, true).unwrap();
    file_system.forget(ino).unwrap();
    file_system.publish_reads().unwrap();
    assert!(matches!(file_system.getattr(ino), Err(Error::Stale)));
    assert_eq!(contradictions(&file_system), Vec::<String>::new());
}

#[test]
fn no_moment_is_ever_in_the_future_however_the_clock_jumps() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    volume.clock.set(1_000_000);
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &[7; 9000], BY_CALLER).unwrap();
    let handle = file_system.opened(ino);
    let offsets = [0, 3_000_000, -900_000, 4_294_967_295, -4_294_967_295, 500, 0];
    for (step, offset) in offsets.into_iter().cycle().take(60).enumerate() {
        let change = ("rank_clock_offset_seconds".to_owned(), i64::to_string(&offset));
        file_system.store().tune(&[change]).unwrap();
        let now = file_system.rank_clock();
        assert_eq!(i64::from(now.0), (1_000_000 + offset).clamp(0, u32::MAX.into()));
        match step % 4 {
            0 => drop(file_system.read_by(handle, ino, 0, 4096, true).unwrap()),
            1 => drop(file_system.write(ino, 0, &[step as u8; 4096], BY_CALLER).unwrap()),
            2 => file_system.publish_reads().unwrap(),
            _ => {}
        }
        let usage = file_system.usage(ino).unwrap();
        assert!(usage.last_access() <= now && usage.last_write() <= now, "step {step}: {usage:?} at {now:?}");
    }
    assert_eq!(file_system.usage(ino).unwrap().rank(), Rank::New);
}

#[test]
fn nothing_is_noted_where_files_are_not_ranked() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    volume.clock.set(DAY);
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &content(1), BY_CALLER).unwrap();
    file_system.write(ino, 0, &content(2), BY_CALLER).unwrap();
    file_system.read_by(file_system.opened(ino), ino, 0, 4096, true).unwrap();
    file_system.publish_reads().unwrap();
    assert_eq!((file_system.usage(ino).unwrap(), published(&file_system, ino)), (Usage::default(), Usage::default()));
    // Ranking starts while a file is open.
    let handle = file_system.new_handle();
    file_system.store().tune(&[("ranks".to_owned(), "on".to_owned())]).unwrap();
    file_system.read_by(handle, ino, 0, 4096, true).unwrap();
    assert_eq!(file_system.usage(ino).unwrap().reads(), Reads { sequential: 1, random: 0 });
}

#[test]
fn nothing_is_noted_on_what_was_opened_for_reading() {
    let mut volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &content(1), BY_CALLER).unwrap();
    file_system.close().unwrap();
    drop(file_system);
    volume.atime = AtimePolicy::Strict;
    volume.clock.set(DAY);
    let file_system = volume.open_read_only();
    file_system.read_by(file_system.opened(ino), ino, 0, 4096, true).unwrap();
    file_system.publish_reads().unwrap();
    assert_eq!(file_system.usage(ino).unwrap(), Usage::created(Moment(0)));
    file_system.close().unwrap();
}

#[test]
fn only_regular_files_have_a_usage() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let link = file_system.symlink(Ino::ROOT, b"link", b"target", &ROOT).unwrap().ino;
    assert!(matches!(file_system.usage(Ino::ROOT), Err(Error::IsADirectory)));
    assert!(matches!(file_system.usage(link), Err(Error::Invalid(_))));
    for ino in [Ino::ROOT, link] {
        assert_eq!(published(&file_system, ino), Usage::default());
    }
}

#[test]
fn many_threads_that_read_write_publish_and_delete_leave_a_sound_volume() {
    const FILES: u64 = 100;
    const ROUNDS: u64 = 2_000;
    let volume = Volume::ranked(AtimePolicy::Relative);
    let file_system = volume.open();
    let made = |number: u64| file(&file_system, Ino::ROOT, &number.to_string()).ino;
    let inodes: Vec<Ino> = (0..FILES).map(made).collect();
    for ino in &inodes {
        file_system.write(*ino, 0, &content(ino.0 as u8), BY_CALLER).unwrap();
    }
    let deleted = Mutex::new(Vec::new());
    let work = |seed: u64| {
        let handles: Vec<Handle> = inodes.iter().map(|ino| file_system.opened(*ino)).collect();
        for round in 0..ROUNDS {
            let at = (round * 7 + seed * 13) as usize % inodes.len();
            let ino = inodes[at];
            match (round + seed) % 40 {
                0 => file_system.publish_reads().unwrap(),
                1 if round > ROUNDS / 2 => match file_system.unlink(Ino::ROOT, at.to_string().as_bytes()) {
                    Ok(last) => deleted.lock().extend(last),
                    Err(error) => assert!(matches!(error, Error::NotFound), "{error}"),
                },
                2..8 => drop(file_system.write(ino, round % 9 * 3000, &[seed as u8; 5000], BY_CALLER).unwrap()),
                _ => drop(file_system.read_by(handles[at], ino, round % 6 * 4096, 8192, true).unwrap()),
            }
        }
    };
    thread::scope(|scope| {
        for seed in 0..6 {
            let work = &work;
            scope.spawn(move || work(seed));
        }
    });
    let mut deleted = deleted.into_inner();
    assert!(!deleted.is_empty() && deleted.len() < FILES as usize, "{} of {FILES} files are deleted", deleted.len());
    deleted.extend((0..1_000).map(|number| {
        let ino = file(&file_system, Ino::ROOT, &format!("more {number}")).ino;
        file_system.unlink(Ino::ROOT, format!("more {number}").as_bytes()).unwrap();
        ino
    }));
    // The deleted files are no longer in use, but reads of them are still noted.
    thread::scope(|scope| {
        scope.spawn(|| {
            for ino in &deleted {
                file_system.forget(*ino).unwrap();
            }
        });
        scope.spawn(|| {
            for hour in 1..=60 {
                // An access is published again.
                volume.clock.set(hour * 3_600);
                for ino in &deleted {
                    file_system.opened(*ino);
                }
                file_system.publish_reads().unwrap();
            }
        });
    });
    assert_eq!(contradictions(&file_system), Vec::<String>::new());
    for name in &crate::common::names(&file_system, Ino::ROOT) {
        let ino = file_system.lookup(Ino::ROOT, name).unwrap().ino;
        assert_eq!(file_system.usage(ino).unwrap(), published(&file_system, ino));
    }
}

/// Not a test: prints the cost of the monitor for an open and a READ request.
#[test]
#[ignore = "measures: run it alone, with --nocapture"]
fn what_being_watched_costs() {
    const FILES: u64 = 10_000;
    const CALLS: u32 = 4_000_000;
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &content(1), BY_CALLER).unwrap();
    let timed = |call: &mut dyn FnMut(u64)| {
        let began = Instant::now();
        (0..u64::from(CALLS)).for_each(call);
        began.elapsed() / CALLS
    };
    for round in 0..3 {
        file_system.store().tune(&[("ranks".to_owned(), "on".to_owned())]).unwrap();
        let opened = timed(&mut |number| {
            std::hint::black_box(file_system.opened(Ino(ino.0 + number % FILES)));
        });
        let read = timed(&mut |number| drop(file_system.read_by(Handle(number % FILES), ino, 0, 4096, false).unwrap()));
        file_system.store().tune(&[("ranks".to_owned(), "off".to_owned())]).unwrap();
        let unseen =
            timed(&mut |number| drop(file_system.read_by(Handle(number % FILES), ino, 0, 4096, false).unwrap()));
        println!("round {round}: open {opened:?}, read of 4 KiB {read:?} and {unseen:?} without");
    }
}
