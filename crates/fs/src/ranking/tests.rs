//! Queues of any length, and races between ranking and its users. The rules of ranks have tests in `tests/ranks`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Instant;

use oncefs_engine::{
    BackgroundStep, Change, DataPlace, Moment, OpenOptions, Profile, QueuePlace, Rank, Store, VolumeSpec,
};

use crate::format::inode::{InodeRecord, put_inode};
use crate::{AtimePolicy, Caller, Clock, Error, FileKind, FileSystem, Ino, Options, Timestamp};

const DAY: i64 = 86_400;
/// Memory of the engine.
const MEMORY_BYTES: u64 = 64 << 20;
/// Bound on the whole process, with its code, RocksDB's own memory and buffers.
const RESIDENT_BYTES_MAX: u64 = MEMORY_BYTES + (64 << 20);
/// Files made with one publication.
const GROUP_FILES: u64 = 500;

#[derive(Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: 1_800_000_000 + self.0.load(Relaxed), nanoseconds: 0 }
    }
}

/// Bytes of the process that are in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Bytes that the C library keeps although they were freed.
fn freed_bytes() -> usize {
    // SAFETY: mallinfo2 takes nothing and returns numbers.
    unsafe { libc::mallinfo2() }.fordblks
}

/// Files without names or content: their inodes are all that matters to the queues.
fn make_files(fs: &FileSystem, count: u64) {
    let caller = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
    for _ in 0..count.div_ceil(GROUP_FILES) {
        let _room = fs.store.room_for_records();
        let mut change = Change::new();
        for _ in 0..GROUP_FILES {
            let (ino, _being_made) = fs.numbers.take(&fs.store).unwrap();
            let plain = InodeRecord::new(FileKind::Regular, 0o644, &caller, fs.clock.now(), fs.generation);
            put_inode(
                &mut change,
                ino,
                &InodeRecord { map: fs.store.new_map(), usage: fs.monitor.usage_of_new(), ..plain },
            );
        }
        fs.store.publish(change).unwrap();
    }
}

/// Ranks as the engine's worker does, which pauses while memory is short.
fn rank(fs: &FileSystem) {
    while fs.store.run(BackgroundStep::Rank).unwrap() {}
}

fn places(fs: &FileSystem) -> u64 {
    let (mut from, mut count) = (b"q".to_vec(), 0);
    loop {
        let page = fs.store.scan(&from, b"r", 10_000).unwrap();
        count += page.len() as u64;
        let Some((last, _)) = page.last() else { return count };
        from = crate::format::codec::after(last);
    }
}

/// Ten million files with `ONCEFS_HUGE=1`; the test then also prints and checks the memory they take. It needs the
/// bounds that a daemon with this much memory sets on what the C library keeps: docs/ranks.md has the command.
#[test]
fn a_queue_is_as_long_as_there_are_files_and_takes_no_memory() {
    let is_huge = std::env::var_os("ONCEFS_HUGE").is_some();
    let files: u64 = if is_huge { 10_000_000 } else { 20_000 };
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("volume");
    let spec = VolumeSpec {
        data_bytes: Some(1 << 30),
        data: DataPlace::File,
        profile: Profile::Desktop,
        log_bytes: 64 << 20,
        copies: None,
    };
    Store::format(&volume, &spec, [7; 64]).unwrap();
    let settings = [("worker", "off"), ("ranks", "on")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let store =
        Store::open(&volume, &OpenOptions { settings: settings.into(), ..OpenOptions::new(MEMORY_BYTES) }).unwrap();
    let clock = Arc::new(TestClock::default());
    FileSystem::format(&store, &*clock).unwrap();
    let options = Options { memory_bytes_max: 4 << 20, atime: AtimePolicy::Never, read_only: false, generation: None };
    let fs = FileSystem::open(store, clock.clone(), &options).unwrap();
    let began = Instant::now();
    let show = |what: &str| {
        let (mib, seconds) = (resident_bytes() >> 20, began.elapsed().as_secs());
        println!("{files} files {what}: {mib} MiB resident, {} MiB of it freed, {seconds} s", freed_bytes() >> 20);
        let caches = fs.report().caches.into_iter().map(|(name, cache)| format!("{name} {} KiB", cache.bytes >> 10));
        println!("    {}", caches.collect::<Vec<_>>().join(", "));
        assert!(!is_huge || resident_bytes() <= RESIDENT_BYTES_MAX);
    };
    show("before they are made");
    make_files(&fs, files);
    show("made");
    rank(&fs);
    show("in queue 0");
    assert_eq!((places(&fs), fs.ranker.queues().ranking().files), (files, [files, 0, 0, 0]));
    clock.0.store(14 * DAY, Relaxed);
    rank(&fs);
    show("cold");
    let files_by_rank = Rank::ALL.map(|rank| if rank == Rank::Cold { files } else { 0 });
    assert_eq!((places(&fs), fs.ranker.queues().ranking().files), (0, files_by_rank));
    fs.close().unwrap();
}

/// A volume with one file, which has a place in a queue.
fn open_with_a_file(dir: &tempfile::TempDir) -> (Arc<FileSystem>, Arc<TestClock>, Ino) {
    let volume = dir.path().join("volume");
    let spec = VolumeSpec {
        data_bytes: Some(64 << 20),
        data: DataPlace::File,
        profile: Profile::Desktop,
        log_bytes: 8 << 20,
        copies: None,
    };
    Store::format(&volume, &spec, [7; 64]).unwrap();
    let settings = [("worker", "off"), ("ranks", "on")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let store = Store::open(&volume, &OpenOptions { settings: settings.into(), ..OpenOptions::new(16 << 20) }).unwrap();
    let clock = Arc::new(TestClock::default());
    FileSystem::format(&store, &*clock).unwrap();
    let options = Options { memory_bytes_max: 4 << 20, atime: AtimePolicy::Never, read_only: false, generation: None };
    let fs = FileSystem::open(store, clock.clone(), &options).unwrap();
    let caller = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
    let ino = fs.mknod(Ino::ROOT, b"file", libc::S_IFREG | 0o644, 0, &caller).unwrap().ino;
    while fs.rank_some().unwrap().is_some() {}
    (fs, clock, ino)
}

/// A file without a name may be deleted between any two steps of the ranker: no step may publish its inode.
#[test]
fn a_file_that_lost_its_name_before_it_gets_its_rank_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, clock, ino) = open_with_a_file(&dir);
    clock.0.store(14 * DAY, Relaxed);
    let now = fs.rank_clock();
    let place = fs.places_due(Rank::New, now, 1).unwrap().remove(0);
    assert_eq!(fs.unlink(Ino::ROOT, b"file").unwrap(), Some(ino));
    let record = fs.inode(ino).unwrap().lock().clone();
    fs.leave_the_future(ino, Moment(1)).unwrap();
    fs.give_rank(&place, Rank::Cold, now).unwrap();
    assert_eq!((&*fs.inode(ino).unwrap().lock(), places(&fs)), (&record, 0), "only its place goes");
    fs.forget(ino).unwrap();
    assert!(matches!(fs.give_rank(&place, Rank::Cold, now), Err(Error::Stale)));
    assert!(matches!(fs.getattr(ino), Err(Error::Stale)));
    fs.close().unwrap();
}

/// A file made without a name may get its first one after the ranker saw that it has none, and before its place is
/// gone.
#[test]
fn a_file_that_is_named_while_the_ranker_drops_its_place_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, _clock, _) = open_with_a_file(&dir);
    let caller = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
    let ino = fs.tmpfile(Ino::ROOT, 0o600, &caller).unwrap().ino;
    assert!(fs.add_first_places().unwrap());
    let due = fs.places_due(Rank::New, fs.rank_clock(), 2).unwrap();
    let place = *due.iter().find(|place| place.file == ino.0).unwrap();
    fs.link(ino, Ino::ROOT, b"named").unwrap();
    fs.drop_place(&place).unwrap();
    assert_eq!(places(&fs), 2, "both files have one");
    fs.check(&mut |problem| panic!("{problem}")).unwrap();
    fs.close().unwrap();
}

/// A writer takes the time before it publishes, and the ranker may look in between, a second later by its clock.
#[test]
fn a_place_that_is_published_when_the_ranker_has_looked_further_on_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, clock, ino) = open_with_a_file(&dir);
    let place = QueuePlace { rank: Rank::Random, touched: fs.rank_clock(), file: ino.0 };
    clock.0.store(1, Relaxed);
    fs.places_due(Rank::Random, fs.rank_clock(), 1).unwrap();
    let mut change = Change::new();
    fs.add_place(&mut change, Some(place));
    assert_eq!(fs.places_due(Rank::Random, fs.rank_clock(), 1).unwrap(), []);
    fs.store.publish(change).unwrap();
    assert_eq!(fs.places_due(Rank::Random, fs.rank_clock(), 1).unwrap(), [place]);
    fs.close().unwrap();
}
