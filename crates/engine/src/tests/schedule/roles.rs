//! The work of each thread: a few operations, which its own generator chooses.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use super::model::{BLOCK, Content, bytes_of, note, note_gone, read};
use super::volume::{Shape, SmallVolume};
use crate::tests::fixture::Random;
use crate::{BackgroundStep, Blocks, Error, Lbn, Result};

/// Files of each writer.
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

/// How many threads there are of each kind.
#[derive(Clone, Copy)]
pub struct Roles {
    /// Change files of their own, and commit.
    pub writers: u64,
    /// Read the writers' files, and clone parts of them.
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
}

type Role = fn(&SmallVolume, usize, &mut Random);

/// Lets all of them work on a new small and compares it with the model.
pub fn run(shape: Shape, roles: Roles, mut random: Random) {
    let files = FILES * roles.writers as usize;
    let small = Arc::new(SmallVolume::new(shape, files, Random::new(random.word())));
    let kinds: [(u64, Role); 7] = [
        (roles.writers, write),
        (roles.readers, read_others),
        (roles.committers, |small, _, _| small.commit(0..0)),
        (roles.checkpointers, |small, _, _| small.volume.commits.checkpoint().unwrap()),
        (roles.releasers, release),
        (roles.reclaimers, |small, _, _| reclaim(small)),
        (roles.workers, deduplicate),
    ];
    let mut threads = Vec::new();
    for (count, role) in kinds {
        for index in 0..count as usize {
            let (small, mut random) = (small.clone(), Random::new(random.word()));
            threads.push(thread::spawn(move || (0..TIMES).for_each(|_| role(&small, index, &mut random))));
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
fn write(small: &SmallVolume, writer: usize, random: &mut Random) {
    let own = writer * FILES..(writer + 1) * FILES;
    for _ in 0..CHANGES {
        let slot = own.start + random.below(FILES as u64) as usize;
        if random.below(4) == 0 {
            small.commit(own.clone());
        } else {
            change(small, slot, random);
        }
        let file = small.model.file(slot);
        let found = read(&small.volume, file.map, 0, file.newest().len() as u64).unwrap();
        assert_eq!(&found, file.newest(), "file {slot} differs from what its writer wrote");
    }
}

fn change(small: &SmallVolume, slot: usize, random: &mut Random) {
    let mut new = small.model.file(slot).newest().clone();
    let first = random.below(FIRST_MAX);
    let blocks = if random.below(2) == 0 { small.shape.write_blocks_max } else { 1 + random.below(3) };
    let range = first as usize..(first + blocks) as usize;
    let kind = random.below(10);
    match kind {
        0 => new.resize(range.start, 0),
        1 => new.clear(),
        2 | 3 => {
            let other = small.model.file(slot ^ 1).newest().clone();
            new.resize(new.len().max(range.end), 0);
            let source = (0..range.len()).map(|n| other.get(n).copied().unwrap_or(0));
            range.clone().zip(source).for_each(|(at, id)| new[at] = id);
        }
        _ => {
            new.resize(new.len().max(range.end), 0);
            let written = if kind == 4 { vec![0; range.len()] } else { small.content(random, blocks) };
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

fn publish(small: &SmallVolume, slot: usize, kind: u64, range: std::ops::Range<usize>, new: &Content) -> Result<()> {
    let (volume, map) = (&small.volume, small.model.file(slot).map);
    let (at, blocks) = (range.start as u64, range.len() as u64);
    let noted = note(slot, map, new);
    match kind {
        0 => volume.range_changes.truncate(map, at * BLOCK, noted),
        1 => {
            volume.range_changes.detach(map, note_gone(slot))?;
            small.model.replace(slot, small.fresh_map());
            Ok(())
        }
        2 | 3 => {
            let other = small.model.file(slot ^ 1).map;
            volume.clone_blocks((other, Lbn(0)), (map, Lbn(at)), Blocks(blocks), noted)
        }
        4 => volume.range_changes.zero(map, at * BLOCK, blocks * BLOCK, false, noted),
        _ => volume.write(map, at * BLOCK, &bytes_of(&new[range]), noted),
    }
}

/// Reads any file, even while it changes: it has only content that its writer wrote.
fn read_others(small: &SmallVolume, _: usize, random: &mut Random) {
    let slot = random.below(small.model.len() as u64) as usize;
    let file = small.model.file(slot);
    match read(&small.volume, file.map, 0, READ_BLOCKS) {
        Ok(found) => {
            let seen = small.model.file(slot).seen;
            assert!(found.iter().all(|id| seen.contains(id)), "file {slot} has {found:x?}, its writer knows {seen:x?}");
        }
        Err(error) => assert!(matches!(error, Error::MapDetached), "{error}"),
    }
}

fn release(small: &SmallVolume, _: usize, random: &mut Random) {
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

fn deduplicate(small: &SmallVolume, _: usize, random: &mut Random) {
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
