//! Whole volumes with damaged parts: opened, read, checked, written to, checked again.
//!
//! Asserted for any damage: (1) no call panics or runs without end, and a refusal is an error; (2) memory is bounded.
//! Also asserted for damage in place, as a medium does it: (3) a read returns the old data or an error, or fsck does
//! not call the volume clean. This does not hold for the other two kinds: sound bytes at a wrong place, and wrong bytes
//! with a right checksum, can make another sound volume.

use oncefs_engine::BackgroundStep;
use oncefs_fs::{
    AllocateMode, FileSystem, Ino, POLICY_ATTRIBUTE, Privileges, RenameMode, Result, SetAttributes, XattrMode,
};

use crate::base::{BASES, BY_CALLER, ROOT, bytes};
use crate::damage::{Kind, damage};
use crate::input::Input;
use crate::memory::bounded;
use crate::tree::Tree;
use crate::volume::{Parts, Volume};

/// Most memory of an open volume and its check. Most of it is for the check's windows.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Most damaged places.
const DAMAGES_MAX: u64 = 6;
/// Most calls after the damage.
const CALLS_MAX: usize = 24;
/// Work in the background, in any order.
const CHORES: [BackgroundStep; 12] = [
    BackgroundStep::Checkpoint,
    BackgroundStep::Reclaim,
    BackgroundStep::Release,
    BackgroundStep::FillHints,
    BackgroundStep::Revisit { blocks_max: 64 },
    BackgroundStep::Rank,
    BackgroundStep::MergeHints,
    BackgroundStep::SweepHints,
    BackgroundStep::SaveSkipped,
    BackgroundStep::Punch,
    BackgroundStep::Repair,
    BackgroundStep::Scrub { blocks_max: 256 },
];

/// The target: the input chooses the volume, the damage and the calls after it.
pub fn run(bytes: &[u8]) {
    let bases = &*BASES;
    let mut input = Input::new(bytes);
    let base = &bases[input.index(bases.len())];
    let mut parts = base.parts.clone();
    let damages = 1 + input.below(DAMAGES_MAX);
    let kind = (0..damages).map(|_| damage(&mut parts, &mut input)).max().unwrap_or(Kind::InPlace);
    bounded(MEMORY_BYTES_MAX, || {
        let volume = Volume::of(&parts);
        let opened = volume.open(false);
        let difference = opened.as_ref().ok().and_then(|opened| Tree::of(opened).first_difference(&base.states));
        let is_clean = is_clean(&parts);
        if let (Kind::InPlace, Some(path)) = (kind, difference) {
            assert!(!is_clean, "{path} is not what it was, without an error, and fsck calls the volume clean");
        }
        if let Ok(opened) = opened {
            use_it(&opened, &mut input);
            drop(opened);
            self::is_clean(&volume.parts());
        }
    });
}

/// Whether fsck finds no fault in a volume.
fn is_clean(parts: &Parts) -> bool {
    let check = || -> Result<bool> {
        let file_system = Volume::of(parts).open(true)?;
        let mut contradictions = 0;
        let blocks = file_system.store().check(true, &mut |_, _| {})?;
        file_system.check(&mut |_| contradictions += 1)?;
        Ok(blocks.is_clean() && contradictions == 0)
    };
    check().unwrap_or(false)
}

/// Makes calls of all kinds and runs work in the background, with any result.
fn use_it(file_system: &FileSystem, input: &mut Input<'_>) {
    const CALLS_IN_A_GROUP: usize = 2;
    let mut called = 0;
    while !input.is_empty() && called < CALLS_MAX {
        // A damaged volume may give any answer, but must give one.
        let _ = call(file_system, input);
        called += 1;
        if called % CALLS_IN_A_GROUP == 0 {
            let _ = file_system.store().commit();
        }
    }
    let _ = file_system.reclaim_left_behind();
    for step in CHORES {
        let _ = file_system.store().run(step);
    }
    let _ = file_system.store().run(BackgroundStep::LeaveCleanly);
}

fn call(fs: &FileSystem, input: &mut Input<'_>) -> Result<()> {
    const NAMES: [&[u8]; 6] = [b"small", b"a", b"b", b"file 3", b"clone", b"new"];
    // The base volumes use the first numbers of their first lease.
    let (ino, other) = (Ino(1 + input.below(44)), Ino(1 + input.below(44)));
    let (name, new) = (input.pick(&NAMES), input.pick(&NAMES));
    let at = input.below(1 << 18);
    let len = 1 + input.below(1 << 15);
    match input.byte() % 16 {
        0 | 1 => fs.write(ino, at, &bytes(input.byte() % 40, len as usize), BY_CALLER).map(drop),
        2 => fs.setattr(ino, &SetAttributes { size: Some(at), ..SetAttributes::default() }).map(drop),
        3 => fs.fallocate(ino, at, len, AllocateMode::PunchHole, Privileges::Kept),
        4 => fs.fallocate(ino, at, len, AllocateMode::Reserve { keep_size: input.one_in(2) }, Privileges::Kept),
        5 => fs.copy_file_range(ino, at, other, input.below(1 << 18), 4 * len, Privileges::Kept).map(drop),
        6 => fs.mknod(ino, name, libc::S_IFREG | 0o644, 0, &ROOT).map(drop),
        7 => fs.mkdir(ino, name, 0o755, &ROOT).map(drop),
        8 => fs.unlink(ino, name).and_then(|orphan| orphan.map_or(Ok(()), |orphan| fs.forget(orphan))),
        9 => fs.rmdir(ino, name).and_then(|orphan| orphan.map_or(Ok(()), |orphan| fs.forget(orphan))),
        10 => {
            let mode = input.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
            let orphan = fs.rename(ino, name, other, new, mode)?;
            orphan.map_or(Ok(()), |orphan| fs.forget(orphan))
        }
        11 => fs.link(ino, other, name).map(drop),
        12 => fs.setxattr(ino, b"user.one", name, XattrMode::Any, true),
        13 if input.one_in(2) => fs.setxattr(ino, POLICY_ATTRIBUTE, b"off", XattrMode::Any, true),
        13 => fs.removexattr(ino, b"user.one"),
        14 => fs.setattr(ino, &SetAttributes { permissions: Some(0o640), ..SetAttributes::default() }).map(drop),
        _ => fs.store().run(input.pick(&CHORES)).map(drop).map_err(Into::into),
    }
}
