//! The work of each thread: a few operations, which its own generator chooses.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use super::model::{BLOCK, Content, bytes_of, note, note_gone};
use super::volume::{Shape, SmallVolume};
use crate::tests::fixture::Random;
use crate::worker::expand::Moved;
use crate::{BackgroundStep, Blocks, Change, Error, Lbn, MapCursor, Result};

/// Files of each thread that changes files.
const FILES: usize = 2;
/// How often a thread does its work.
const TIMES: usize = 3;
/// Changes and commits of a writer each time.
const CHANGES: usize = 2;
/// The largest offset at which changes begin.
const FIRST_MAX: u64 = 3;
/// Blocks that a reader reads: those of a file that is not large.
const READ_BLOCKS: u64 = 6;
/// Blocks that the worker visits in one turn.
const REVISITED: u64 = 8;
/// Blocks that it compresses, packs anew or expands in one turn.
const PACKED: u64 = 64;
/// Blocks of each file before the threads begin, where they are compressed.
const FILLED: u64 = 6;

/// How many threads there are of each kind.
#[derive(Clone, Copy)]
pub struct Roles {
    /// Change files of their own, and commit.
    pub writers: u64,
    /// Change files of their own, mostly by truncating and punching them.
    pub cutters: u64,
    /// Have files of their own that are lazy clones of any files, and change some.
    pub cloners: u64,
    /// Read files of all threads.
    pub readers: u64,
    /// Commit.
    pub committers: u64,
    /// Checkpoint.
    pub checkpointers: u64,
    /// Make freed blocks reusable, and punch holes.
    pub releasers: u64,
    /// Free deleted files.
    pub reclaimers: u64,
    /// Deduplicate out of line.
    pub workers: u64,
    /// Take the leaves that clones lack.
    pub takers: u64,
    /// Compress.
    pub compressors: u64,
    /// Pack fragments anew.
    pub repackers: u64,
    /// Expand fragments.
    pub expanders: u64,
}

/// The files of a thread's own, for those that have some.
type Own = Range<usize>;
type Role = fn(&SmallVolume, Own, &mut Random);

/// Lets all of them work on a new small volume, and compares it with the model.
pub fn run(shape: Shape, roles: Roles, mut random: Random) {
    let files = FILES * (roles.writers + roles.cutters + roles.cloners) as usize;
    let small = Arc::new(SmallVolume::new(shape, files, Random::new(random.word())));
    if shape.is_compressed {
        (0..files).for_each(|slot| fill(&small, slot, &mut random));
        small.commit(0..files);
        while small.volume.run(BackgroundStep::Compress { blocks_max: PACKED }).unwrap() {}
        small.commit(0..files);
    }
    // Those with files of their own come first.
    let kinds: [(u64, Role); 13] = [
        (roles.writers, write),
        (roles.cutters, cut),
        (roles.cloners, clone_lazily),
        (roles.readers, read_others),
        (roles.committers, |small, _, _| small.commit(0..0)),
        (roles.checkpointers, |small, _, _| small.volume.commits.checkpoint().unwrap()),
        (roles.releasers, release),
        (roles.reclaimers, |small, _, _| reclaim(small)),
        (roles.workers, deduplicate),
        (roles.takers, take_leaves),
        (roles.compressors, |small, _, _| step(small, BackgroundStep::Compress { blocks_max: PACKED })),
        (roles.repackers, |small, _, _| step(small, BackgroundStep::Repack { blocks_max: PACKED })),
        (roles.expanders, |small, _, _| expand(small)),
    ];
    let mut threads = Vec::new();
    for (count, role) in kinds {
        for _ in 0..count {
            let (small, mut random) = (small.clone(), Random::new(random.word()));
            let own = FILES * threads.len()..FILES * (threads.len() + 1);
            threads.push(thread::spawn(move || (0..TIMES).for_each(|_| role(&small, own.clone(), &mut random))));
        }
    }
    let committer = shape.has_committer.then(|| {
        let small = small.clone();
        thread::spawn(move || small.commit_until_stopped())
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    if let Some(committer) = committer {
        small.volume.base.signals.stop();
        committer.join().unwrap();
    }
    Arc::into_inner(small).expect("all threads ended").finish();
}

/// Changes its own files, reads them back, and commits now and then.
fn write(small: &SmallVolume, own: Own, random: &mut Random) {
    change_own(small, own, random, any_kind);
}

/// The same, but it mostly takes blocks away.
fn cut(small: &SmallVolume, own: Own, random: &mut Random) {
    const KINDS: [u64; 4] = [TRUNCATE, ZERO, CLEAR, WRITE];
    change_own(small, own, random, |random| KINDS[random.below(4) as usize]);
}

fn change_own(small: &SmallVolume, own: Own, random: &mut Random, kind: Kind) {
    for _ in 0..CHANGES {
        let slot = any_of(&own, random);
        match random.below(4) {
            0 => small.commit(own.clone()),
            _ => change(small, slot, kind, random),
        }
        small.assert_newest(slot);
    }
}

/// Replaces its own files by lazy clones of any files, changes clones, and reads them back.
fn clone_lazily(small: &SmallVolume, own: Own, random: &mut Random) {
    for _ in 0..CHANGES {
        let slot = any_of(&own, random);
        match random.below(6) {
            0 => small.commit(own.clone()),
            1 => change(small, slot, any_kind, random),
            _ => {
                change(small, slot, |_| CLEAR, random);
                begin_clone(small, any_of(&(0..small.model.len()), random), slot);
            }
        }
        small.assert_newest(slot);
    }
}

/// Makes an empty file a lazy clone of another one, whose content at that moment is known under the lock of its map.
fn begin_clone(small: &SmallVolume, source: usize, slot: usize) {
    let model = &small.model;
    let blocks = || Blocks(small.shape.first + model.file(source).published.len() as u64);
    let cloned = small.volume.lazy_clones.clone_map(model.file(source).map, blocks, |map, _, record| {
        let content = model.file(source).published;
        model.expect(slot, content.clone());
        model.publish(slot);
        note(slot, map, &content)(0, record);
    });
    match cloned {
        Ok(map) => model.replace(slot, map),
        Err(error) => assert!(matches!(error, Error::MapDetached), "{error}"),
    }
}

fn any_of(slots: &Own, random: &mut Random) -> usize {
    slots.start + random.below(slots.len() as u64) as usize
}

/// Chooses the kind of a change.
type Kind = fn(&mut Random) -> u64;
// 2 and 3 clone a range, and other numbers below 10 write.
const TRUNCATE: u64 = 0;
const CLEAR: u64 = 1;
const ZERO: u64 = 4;
const WRITE: u64 = 5;

fn any_kind(random: &mut Random) -> u64 {
    random.below(10)
}

fn change(small: &SmallVolume, slot: usize, kind: Kind, random: &mut Random) {
    let mut new = small.model.file(slot).newest().clone();
    let first = random.below(FIRST_MAX);
    let blocks = if random.below(2) == 0 { small.shape.write_blocks_max } else { 1 + random.below(3) };
    let range = first as usize..(first + blocks) as usize;
    let kind = kind(random);
    match kind {
        TRUNCATE => new.resize(range.start, 0),
        CLEAR => new.clear(),
        2 | 3 => {
            let other = small.model.file(slot ^ 1).newest().clone();
            new.resize(new.len().max(range.end), 0);
            let source = (0..range.len()).map(|n| other.get(n).copied().unwrap_or(0));
            range.clone().zip(source).for_each(|(at, id)| new[at] = id);
        }
        _ => {
            new.resize(new.len().max(range.end), 0);
            let written = if kind == ZERO { vec![0; range.len()] } else { small.content(random, blocks) };
            new[range.clone()].copy_from_slice(&written);
        }
    }
    small.model.expect(slot, new.clone());
    match publish(small, slot, kind, range.clone(), &new) {
        Ok(()) => {}
        Err(Error::NoSpace) => {
            small.volume.make_room().unwrap();
            match publish(small, slot, kind, range, &new) {
                Err(Error::NoSpace) => small.model.did_not_happen(slot),
                other => other.unwrap(),
            }
        }
        Err(error) => panic!("{error}"),
    }
}

fn publish(small: &SmallVolume, slot: usize, kind: u64, range: Range<usize>, new: &Content) -> Result<()> {
    let (volume, map, begins) = (&small.volume, small.model.file(slot).map, small.shape.first);
    let (at, blocks) = (begins + range.start as u64, range.len() as u64);
    let noted = |added: i64, change: &mut Change| {
        small.model.publish(slot);
        note(slot, map, new)(added, change);
    };
    match kind {
        TRUNCATE => volume.range_changes.truncate(map, at * BLOCK, noted),
        CLEAR => {
            volume.range_changes.detach(map, |change| {
                small.model.publish(slot);
                note_gone(slot)(change);
            })?;
            small.model.replace(slot, small.fresh_map());
            Ok(())
        }
        2 | 3 => {
            let other = small.model.file(slot ^ 1).map;
            volume.clone_blocks((other, Lbn(begins)), (map, Lbn(at)), Blocks(blocks), noted)
        }
        ZERO => volume.range_changes.zero(map, at * BLOCK, blocks * BLOCK, false, noted),
        _ => volume.write(map, at * BLOCK, &bytes_of(&new[range]), noted),
    }
}

/// Reads any file, even while it changes: it has only content that its writer wrote.
fn read_others(small: &SmallVolume, _: Own, random: &mut Random) {
    let slot = any_of(&(0..small.model.len()), random);
    let file = small.model.file(slot);
    match small.model.read(&small.volume, file.map, READ_BLOCKS) {
        Ok(found) => {
            let seen = small.model.file(slot).seen;
            assert!(found.iter().all(|id| seen.contains(id)), "file {slot} has {found:x?}, its writer knows {seen:x?}");
        }
        Err(error) => assert!(matches!(error, Error::MapDetached), "{error}"),
    }
}

fn release(small: &SmallVolume, _: Own, random: &mut Random) {
    small.volume.groups.release_waiting();
    if random.below(2) == 0 {
        small.volume.free_blocks.punch_some();
    }
}

fn reclaim(small: &SmallVolume) {
    if let Some(map) = small.volume.base.signals.next_detached(Duration::ZERO) {
        small.volume.reclaimer.reclaim(map).unwrap();
    }
}

fn take_leaves(small: &SmallVolume, _: Own, _: &mut Random) {
    small.volume.lazy_clones.step().unwrap();
}

/// Gives a file content before the threads begin.
fn fill(small: &SmallVolume, slot: usize, random: &mut Random) {
    let new = small.content(random, FILLED);
    small.model.expect(slot, new.clone());
    publish(small, slot, WRITE, 0..FILLED as usize, &new).unwrap();
}

fn step(small: &SmallVolume, step: BackgroundStep) {
    small.volume.run(step).unwrap();
}

/// Expands a few fragments of all files.
fn expand(small: &SmallVolume) {
    let from = MapCursor { map: 0, leaf: 0 };
    small.volume.converter.expand_portion(None, from, PACKED, &mut Moved::default()).unwrap();
}

fn deduplicate(small: &SmallVolume, _: Own, random: &mut Random) {
    match random.below(6) {
        0 => small.volume.worklist.begin_full_pass(),
        1 => {
            small.volume.hint_levels.sweep_hint_page();
        }
        _ => {
            small.volume.run(BackgroundStep::Revisit { blocks_max: REVISITED }).unwrap();
        }
    }
}
