//! Seeded workloads of 20 to 200 operations.

use oncefs_engine::BackgroundStep;
use oncefs_fs::{AllocateMode, RenameMode};

use crate::operation::Operation::{self, *};
use crate::operation::{Content, Path};
use oncefs_toolbox::Random;

const FILES: [Path; 7] = ["A/foo", "A/bar", "B/foo", "B/bar", "A/new", "new", "A/dir/deep"];
const NAMES: [Path; 9] = ["A/foo", "A/bar", "B/foo", "B/bar", "A/new", "new", "A/dir", "B/dir", "A/dir/deep"];
const DIRECTORIES: [Path; 3] = ["A/dir", "B/dir", "dir"];
const FILE_BYTES_MAX: u64 = 400 << 10;

/// The operations of a seed.
pub fn operations(seed: u64) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let count = 20 + random.below(181);
    (0..count).map(|_| operation(&mut random)).collect()
}

fn operation(random: &mut Random) -> Operation {
    match random.below(100) {
        0..35 => data(random),
        35..60 => name(random),
        60..66 => attribute(random),
        66..80 => Commit,
        _ => background(random),
    }
}

fn data(random: &mut Random) -> Operation {
    let (path, at) = (random.pick(&FILES), offset(random));
    let len = 1 + random.below(60_000);
    match random.below(13) {
        12 => Read(path),
        0..5 => Write(path, at, content(random)),
        5 => Append(path, content(random)),
        6 => WriteOrphan(at, content(random)),
        7 => Truncate(path, if random.one_in(3) { 0 } else { at }),
        8 | 9 => {
            let keep_size = random.one_in(2);
            let modes =
                [AllocateMode::Reserve { keep_size }, AllocateMode::PunchHole, AllocateMode::ZeroRange { keep_size }];
            Allocate(path, at, len, random.pick(&modes))
        }
        _ => Copy((path, at), (random.pick(&FILES), offset(random)), len),
    }
}

/// An offset. Half of them are at the edge of a block.
fn offset(random: &mut Random) -> u64 {
    let any = random.below(FILE_BYTES_MAX);
    if random.one_in(2) { any / 4096 * 4096 } else { any }
}

/// Blocks of the base volume, of a few others, new ones, or zeros.
fn content(random: &mut Random) -> Content {
    let blocks = if random.one_in(4) { 32 + random.below(12) } else { 1 + random.below(10) };
    let bytes = (blocks * 4096 - if random.one_in(3) { random.below(4096) } else { 0 }) as usize;
    match random.below(6) {
        5 => Content::shrinking(1 + random.below(100), bytes),
        0 => Content::zeros(bytes),
        1 => Content { first: 1 + random.below(40), step: random.below(2), bytes },
        2 => Content::from(1 + random.below(40), bytes),
        3 => Content::from(500 + random.below(100), bytes),
        _ => Content::from(10_000 + (random.word() >> 20), bytes),
    }
}

fn name(random: &mut Random) -> Operation {
    match random.below(13) {
        10 => Tmpfile(random.pick(&DIRECTORIES)),
        11 => NameTmpfile(random.pick(&FILES)),
        12 => RenameLeavingWhiteout(random.pick(&NAMES), random.pick(&NAMES)),
        0..3 => Create(random.pick(&FILES)),
        3 => Mkdir(random.pick(&DIRECTORIES)),
        4 => Link(random.pick(&FILES), random.pick(&NAMES)),
        5 => Unlink(random.pick(&FILES)),
        6 => Close,
        7 => Rmdir(random.pick(&DIRECTORIES)),
        _ => {
            let mode = random.pick(&[RenameMode::Replace, RenameMode::Replace, RenameMode::Exchange]);
            Rename(random.pick(&NAMES), random.pick(&NAMES), mode)
        }
    }
}

fn attribute(random: &mut Random) -> Operation {
    let path = random.pick(&NAMES);
    const POLICY: &str = "user.oncefs.policy";
    match random.below(7) {
        6 => SetCompress(path, random.pick(&["off", "later", "inline"])),
        4 => SetPolicy(path, random.pick(&["off", "inline", "later", "selective", "run=1", "run=4"])),
        5 => RemoveXattr(path, POLICY),
        0 => SetXattr(path, random.pick(&["user.one", "user.two"]), 1 + random.below(3000) as usize),
        1 => RemoveXattr(path, random.pick(&["user.one", "user.old"])),
        2 => Chmod(path, random.pick(&[0o600, 0o755])),
        _ => SetTimes(path, random.below(100_000) as i64),
    }
}

fn background(random: &mut Random) -> Operation {
    match random.below(34) {
        28..31 => Background(BackgroundStep::Compress { blocks_max: 1 + random.below(100) }),
        31 | 32 => Background(BackgroundStep::Repack { blocks_max: 1 + random.below(100) }),
        33 => Background(BackgroundStep::Expand { blocks_max: 1 + random.below(100) }),
        26 => CloneFile(random.pick(&FILES), random.pick(&FILES)),
        27 => Background(BackgroundStep::TakeLeaves),
        23 | 24 => Background(BackgroundStep::Rank),
        25 => ReadApart(random.pick(&FILES)),
        20 => Scrub,
        21 | 22 => Defrag(random.pick(&["A/foo", "A/bar", "B/foo"]), 1 + random.below(64) as u32, random.below(60)),
        0..4 => Background(BackgroundStep::Checkpoint),
        4..7 => Exhaust(BackgroundStep::Reclaim),
        7..9 => Background(BackgroundStep::Release),
        9 => Exhaust(BackgroundStep::Punch),
        10..14 => Background(BackgroundStep::Revisit { blocks_max: 1 + random.below(100) }),
        14 | 15 => Background(BackgroundStep::MergeHints),
        16 => Background(BackgroundStep::SweepHints),
        17 => Background(BackgroundStep::SaveSkipped),
        18 => Background(BackgroundStep::LeaveCleanly),
        _ => Tune("inline", random.pick(&["off", "all"])),
    }
}
