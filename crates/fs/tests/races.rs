//! Threads that use files, rank and deduplicate them, publish reads and commit, all at once: afterwards records, maps,
//! policies and queues agree, and files have the content that was written.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::{contradictions, directory, file};
use oncefs_engine::device::MemoryDevice;
use oncefs_engine::kv::MemoryKv;
use oncefs_engine::{Backend, BackgroundStep, Ballast, Blocks, OpenOptions, Store};
use oncefs_fs::{
    AtimePolicy, Clock, Error, FileSystem, Ino, Options, POLICY_ATTRIBUTE, Privileges, RenameMode, SetAttributes,
    Timestamp, WriteOrigin, XattrMode,
};
use oncefs_toolbox::Random;

const DATA: Blocks = Blocks(60_000);
const BLOCK: usize = 4096;
/// No file becomes longer.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Operations of each user.
const STEPS: usize = 3_000;
const BY: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

#[derive(Default)]
struct Ticks(AtomicI64);
impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(SeqCst), nanoseconds: 0 }
    }
}

fn open(clock: Arc<dyn Clock>, ranks: &str) -> Arc<FileSystem> {
    let device = |bytes| Arc::new(MemoryDevice::new(bytes));
    let log_bytes = 64 << 20;
    let backend = Backend {
        data: device(DATA.bytes()),
        table: device(DATA.0.div_ceil(128) * 4096),
        fragments: None,
        log: device(log_bytes),
        log_bytes,
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
    Store::format_on(&backend, DATA).unwrap();
    let settings = [
        ("ranks", ranks),
        ("inline", "all"),
        ("skipped_memory", "256K"),
        ("rank_evaluation_seconds_min", "60"),
        ("rank_evaluation_reads_min", "4"),
        ("rank_hot_seconds_max", "300"),
    ];
    let settings = settings.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    let store = Store::open_on(backend, &OpenOptions { settings, ..OpenOptions::new(16 << 20) }).unwrap();
    FileSystem::format(&store, &*clock).unwrap();
    let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Relative, read_only: false, generation: None };
    FileSystem::open_without_threads(store, clock, &options).unwrap()
}

fn block(key: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8)
        .flat_map(|n| ((key + 1) << 32 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect()
}

/// The expected content of a file. None: the name does not exist.
type Slot = Option<(Ino, Vec<u8>)>;

/// Uses one user's files through all calls, and checks their content against the slots.
fn mutate(fs: &FileSystem, dir: Ino, seed: u64, steps: usize) -> Vec<Slot> {
    let mut random = Random::new(seed);
    let mut slots: Vec<Slot> = vec![None; 10];
    let name = |slot: usize| format!("f{slot}");
    for step in 0..steps {
        let at = random.below(10) as usize;
        let Some((ino, content)) = slots[at].clone() else {
            slots[at] = Some((file(fs, dir, &name(at)).ino, Vec::new()));
            continue;
        };
        match random.below(13) {
            0..=2 => {
                let (first, blocks) = (random.below(40) as usize, 1 + random.below(24));
                let from = random.below(30);
                let data: Vec<u8> = (0..blocks).flat_map(|n| block((from + n) % 40)).collect();
                fs.write(ino, (first * BLOCK) as u64, &data, BY).unwrap();
                let mut content = content;
                content.resize(content.len().max(first * BLOCK + data.len()), 0);
                content[first * BLOCK..first * BLOCK + data.len()].copy_from_slice(&data);
                slots[at] = Some((ino, content));
            }
            3 | 4 => {
                let size = if random.below(2) == 0 { 0 } else { random.below(30 * BLOCK as u64) };
                fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
                let mut content = content;
                content.resize(size as usize, 0);
                slots[at] = Some((ino, content));
            }
            5 => {
                let overrides = ["off", "inline", "later", "selective", "run=3", "run=256"];
                let policy_override = overrides[random.below(6) as usize];
                fs.setxattr(ino, POLICY_ATTRIBUTE, policy_override.as_bytes(), XattrMode::Any, true).unwrap();
            }
            6 => match fs.removexattr(ino, POLICY_ATTRIBUTE) {
                Ok(()) | Err(Error::NoData) => {}
                Err(error) => panic!("seed {seed} step {step}: {error}"),
            },
            7 => {
                fs.link(ino, dir, b"second").unwrap();
                assert_eq!(fs.unlink(dir, b"second").unwrap(), None);
            }
            8 => {
                let to = random.below(10) as usize;
                if to != at {
                    let gone =
                        fs.rename(dir, name(at).as_bytes(), dir, name(to).as_bytes(), RenameMode::Replace).unwrap();
                    assert_eq!(gone, slots[to].as_ref().map(|(ino, _)| *ino));
                    gone.into_iter().for_each(|gone| {
                        fs.setxattr(gone, POLICY_ATTRIBUTE, b"later", XattrMode::Any, true).unwrap();
                        fs.forget(gone).unwrap();
                    });
                    slots[to] = slots[at].take();
                }
            }
            9 => {
                assert_eq!(fs.unlink(dir, name(at).as_bytes()).unwrap(), Some(ino));
                if random.below(2) == 0 {
                    fs.write(ino, 0, &block(3), BY).unwrap();
                }
                fs.forget(ino).unwrap();
                slots[at] = None;
            }
            10 => {
                let to = random.below(10) as usize;
                if let (true, Some((target, _))) = (to != at, slots[to].clone()) {
                    let copied =
                        fs.copy_file_range(ino, 0, target, 0, content.len() as u64, Privileges::Kept).unwrap() as usize;
                    assert_eq!(copied, content.len());
                    let held = &mut slots[to].as_mut().unwrap().1;
                    held.resize(held.len().max(copied), 0);
                    held[..copied].copy_from_slice(&content);
                }
            }
            _ => {
                let handle = fs.opened(ino);
                let read = fs.read_by(handle, ino, 0, FILE_BYTES_MAX, true).unwrap();
                assert!(*read == *content, "seed {seed} step {step}: inode {} is not what was written", ino.0);
                if content.len() > 9 * BLOCK {
                    (0..8).for_each(|n| drop(fs.read_by(handle, ino, (n * 3 % 8 * BLOCK) as u64, 1, true).unwrap()));
                }
            }
        }
    }
    slots
}

/// Ranks and deduplicates, publishes how files are read, commits, and lets time pass and jump.
fn work_in_background(fs: &FileSystem, clock: &Ticks, over: &AtomicBool, seed: u64) {
    let again = |work: &mut dyn FnMut()| {
        while !over.load(SeqCst) {
            work();
        }
    };
    let run = |step| fs.store().run(step).unwrap();
    let mut random = Random::new(seed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            again(&mut || while run(BackgroundStep::Rank) || run(BackgroundStep::Revisit { blocks_max: 64 }) {})
        });
        scope.spawn(|| again(&mut || fs.publish_reads().unwrap()));
        scope.spawn(|| {
            again(&mut || {
                fs.store().commit().unwrap();
                for step in [BackgroundStep::Checkpoint, BackgroundStep::Reclaim, BackgroundStep::Release] {
                    run(step);
                }
            });
        });
        again(&mut || {
            clock.0.fetch_add(if random.below(50) == 0 { -2_000 } else { 20 }, SeqCst);
            std::thread::sleep(Duration::from_micros(300));
        });
    });
}

fn race(seed: u64, ranks: &str) {
    let clock = Arc::new(Ticks(AtomicI64::new(1_790_000_000)));
    let fs = open(clock.clone(), ranks);
    let dirs: Vec<Ino> = (0..3).map(|n| directory(&fs, Ino::ROOT, &format!("d{n}")).ino).collect();
    fs.setxattr(dirs[1], POLICY_ATTRIBUTE, b"selective", XattrMode::Any, true).unwrap();
    let over = AtomicBool::new(false);
    let kept: Vec<_> = std::thread::scope(|scope| {
        let fs = &*fs;
        scope.spawn(|| work_in_background(fs, &clock, &over, seed));
        let seeds = (1..).map(|n| seed * 31 + n);
        let users = dirs.iter().zip(seeds).map(|(dir, seed)| scope.spawn(move || mutate(fs, *dir, seed, STEPS)));
        let users: Vec<_> = users.collect();
        let ended: Vec<_> = users.into_iter().map(|user| user.join()).collect();
        over.store(true, SeqCst);
        ended.into_iter().flat_map(|kept| kept.unwrap()).collect()
    });
    fs.publish_reads().unwrap();
    fs.store().commit().unwrap();
    while fs.store().run(BackgroundStep::Reclaim).unwrap() {}
    let found = contradictions(&fs);
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
    let report = fs.store().check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "seed {seed}: {:#?}", report.problems);
    for (ino, content) in kept.into_iter().flatten() {
        assert!(*fs.read(ino, 0, FILE_BYTES_MAX, false).unwrap() == *content, "seed {seed}: inode {}", ino.0);
    }
}

#[test]
fn everything_agrees_after_races() {
    race(1, "on");
    race(2, "paper");
}

/// A clock that runs a hook when it is asked for the time.
#[derive(Default)]
struct HookedClock {
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// How often it is asked before the hook runs.
    asked_before: AtomicI64,
}

impl Clock for HookedClock {
    fn now(&self) -> Timestamp {
        if self.asked_before.fetch_sub(1, SeqCst) == 0
            && let Some(hook) = self.hook.lock().unwrap().take()
        {
            let (done, is_done) = mpsc::channel();
            std::thread::spawn(move || {
                hook();
                let _ = done.send(());
            });
            // If the clock is asked under a lock, the other thread runs after it.
            let _ = is_done.recv_timeout(Duration::from_millis(200));
        }
        Timestamp { seconds: 1_790_000_000, nanoseconds: 0 }
    }
}

/// Copies 100 bytes of a file to an empty one, and appends 3,000 more to the source after the clock was asked
/// `asked_before` times. Returns the bytes after the copy's end, and whether the append came within the copy.
fn copied_beside_an_append(asked_before: i64) -> (Vec<u8>, bool) {
    let clock = Arc::new(HookedClock::default());
    let fs = open(clock.clone(), "on");
    let (source, target) = (file(&fs, Ino::ROOT, "source").ino, file(&fs, Ino::ROOT, "target").ino);
    fs.write(source, 0, &[1; 100], BY).unwrap();
    let others = fs.clone();
    let append = move || {
        others.write(source, 100, &[7; 3_000], BY).unwrap();
    };
    *clock.hook.lock().unwrap() = Some(Box::new(append));
    clock.asked_before.store(asked_before, SeqCst);
    let copied = fs.copy_file_range(source, 0, target, 0, 100, Privileges::Kept).unwrap();
    let is_beside = clock.hook.lock().unwrap().take().is_none();
    assert_eq!((copied, fs.getattr(target).unwrap().size), (100, 100));
    fs.setattr(target, &SetAttributes { size: Some(BLOCK as u64), ..SetAttributes::default() }).unwrap();
    let read = fs.read(target, 0, BLOCK, false).unwrap();
    assert!(read[..100] == [1; 100]);
    (read[100..].to_vec(), is_beside)
}

#[test]
fn what_is_appended_while_a_file_is_copied_does_not_follow_the_end_of_the_copy() {
    let beside = (0..6).filter(|asked_before| {
        let (rest, is_beside) = copied_beside_an_append(*asked_before);
        assert!(rest.iter().all(|byte| *byte == 0), "appended at question {asked_before}: {:?}", &rest[..8]);
        is_beside
    });
    assert!(beside.count() > 0, "nothing was appended while the file was copied");
}
