//! The words of short workloads, and the volume that they begin with: two directories, and four files with blocks that
//! are shared, equal but not shared, partial, zero, reserved or holes.

use oncefs_engine::{BackgroundStep, Compress};
use oncefs_fs::{AllocateMode, FileFlags, RenameMode};

use crate::operation::Content;
use crate::operation::Operation::{self, *};

const KIB: u64 = 1024;
const BLOCK: usize = 4096;

/// Makes the base volume.
pub fn base() -> Vec<Operation> {
    vec![
        Mkdir("A"),
        Mkdir("B"),
        Create("A/foo"),
        Write("A/foo", 0, Content::from(1, 10 * BLOCK)),
        SetXattr("A/foo", "user.old", 20),
        Create("A/bar"),
        Write("A/bar", 0, Content::from(1, 6 * BLOCK)),
        Append("A/bar", Content::zeros(BLOCK)),
        Append("A/bar", Content::from(30, 2 * BLOCK + 700)),
        Link("A/bar", "B/bar"),
        Tune("inline", "off"),
        Create("B/foo"),
        Write("B/foo", 0, Content::from(3, 36 * BLOCK)),
        Tune("inline", "all"),
        Allocate("B/foo", 160 * KIB, 24 * KIB, AllocateMode::Reserve { keep_size: false }),
        Symlink("A/link"),
        Create("gone"),
        Write("gone", 0, Content::from(100, 40 * BLOCK)),
        Commit,
        Unlink("gone"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Commit,
        Background(BackgroundStep::Release),
        Background(BackgroundStep::Checkpoint),
        Background(BackgroundStep::MergeHints),
        Background(BackgroundStep::SaveSkipped),
    ]
}

/// Every word with its operations. A word whose operations have no effect or are refused is still useful, because the
/// model must refuse them too.
fn vocabulary() -> Vec<(&'static str, Vec<Operation>)> {
    let unique = |blocks| Content::from(1000, blocks * BLOCK);
    vec![
        ("create", vec![Create("A/new")]),
        ("mkdir", vec![Mkdir("B/dir")]),
        ("symlink", vec![Symlink("B/link")]),
        ("link", vec![Link("A/foo", "B/hard")]),
        ("unlink", vec![Unlink("A/foo"), Close]),
        ("unlink-link", vec![Unlink("A/bar"), Close]),
        ("unlink-open", vec![Unlink("B/foo"), WriteOrphan(8 * KIB, unique(2))]),
        ("unlink-new", vec![Create("tmp"), Unlink("tmp"), WriteOrphan(0, Content::from(1, 3 * BLOCK))]),
        ("tmpfile", vec![Tmpfile("A"), WriteOrphan(0, Content::from(1, 3 * BLOCK))]),
        ("tmpfile-named", vec![Tmpfile("B"), WriteOrphan(0, Content::from(2, 2 * BLOCK)), NameTmpfile("A/tmp")]),
        ("rmdir", vec![Rmdir("B/dir")]),
        ("rename", vec![Rename("A/foo", "A/moved", RenameMode::Replace)]),
        ("rename-over", vec![Rename("A/bar", "B/foo", RenameMode::Replace), Close]),
        ("rename-directory", vec![Rename("A", "B/A", RenameMode::Replace)]),
        ("whiteout", vec![RenameLeavingWhiteout("A/foo", "B/foo"), Close]),
        ("exchange", vec![Rename("A/foo", "B/bar", RenameMode::Exchange)]),
        ("write-unique", vec![Write("A/foo", 4 * KIB, Content::from(2000, 2 * BLOCK))]),
        ("write-large", vec![Write("A/bar", 0, unique(34))]),
        ("write-duplicate", vec![Write("A/bar", 12 * KIB, Content::from(5, 4 * BLOCK))]),
        ("write-zeros", vec![Write("A/foo", 8 * KIB, Content::zeros(3 * BLOCK))]),
        ("write-partial", vec![Write("A/foo", 5000, Content::from(3000, 6000))]),
        ("append", vec![Append("A/bar", Content::from(4000, 3000))]),
        ("write-far", vec![Write("A/foo", 1100 * KIB, Content::from(1, 5 * BLOCK))]),
        ("write-reserved", vec![Write("B/foo", 164 * KIB, Content::from(5000, 2 * BLOCK))]),
        ("truncate-down", vec![Truncate("A/foo", 9000)]),
        ("truncate-up", vec![Truncate("A/bar", 300 * KIB)]),
        ("truncate-zero", vec![Truncate("B/foo", 0)]),
        ("punch", vec![Allocate("A/foo", 6000, 20_000, AllocateMode::PunchHole)]),
        ("zero-range", vec![Allocate("A/bar", 2000, 14_000, AllocateMode::ZeroRange { keep_size: true })]),
        ("fallocate", vec![Allocate("A/foo", 30 * KIB, 64 * KIB, AllocateMode::Reserve { keep_size: false })]),
        ("clone", vec![Copy(("A/foo", 0), ("B/foo", 16 * KIB), 24 * KIB)]),
        (
            "lazy-clone",
            vec![
                CloneFile("A/foo", "B/clone"),
                Write("A/foo", 4 * KIB, Content::from(2500, BLOCK)),
                Exhaust(BackgroundStep::TakeLeaves),
            ],
        ),
        ("copy-range", vec![Copy(("B/foo", 1000), ("A/bar", 3000), 12_000)]),
        ("clone-tree", vec![CloneTree("A", "B/A"), CloneTree("B/foo", "clone")]),
        ("snapshot", vec![SnapshotTree("A", "snapshot"), Write("A/foo", 0, Content::from(2500, BLOCK))]),
        ("remove-snapshot", vec![SnapshotTree("B", "A/B"), RemoveSnapshot("A/B")]),
        ("read", vec![Read("A/bar")]),
        ("setxattr", vec![SetXattr("A/foo", "user.new", 300)]),
        (
            "policy",
            vec![
                SetPolicy("A", "run=2"),
                SetPolicy("A/foo", "off"),
                SetPolicy("B/foo", "later"),
                SetPolicy("A/bar", "slowdown=5"),
                SetCompress("A/foo", "later"),
                SetFlagsAndCompression("B/foo", FileFlags::NO_DUMP, Some(Compress::Off)),
            ],
        ),
        ("flags", vec![SetFlags("A/foo", FileFlags::NO_DUMP), SetFlags("B", FileFlags::NO_ATIME)]),
        ("removexattr", vec![RemoveXattr("A/foo", "user.old")]),
        ("chmod", vec![Chmod("A/bar", 0o4640)]),
        ("utimens", vec![SetTimes("B", 12_345)]),
        ("grow", vec![Grow(256)]),
        ("reclaim", vec![Exhaust(BackgroundStep::Reclaim)]),
        ("punch-host", vec![Background(BackgroundStep::Release), Exhaust(BackgroundStep::Punch)]),
        ("rank", vec![Background(BackgroundStep::Rank)]),
        ("revisit", vec![Background(BackgroundStep::Revisit { blocks_max: 64 })]),
        ("defrag", vec![Defrag("A/bar", 64, 40)]),
        ("merge", vec![Background(BackgroundStep::MergeHints)]),
        ("sweep", vec![Background(BackgroundStep::SweepHints)]),
        ("save-skipped", vec![Background(BackgroundStep::SaveSkipped)]),
        ("scrub", vec![Scrub]),
    ]
}

/// Words that make earlier operations durable.
fn endings() -> Vec<(&'static str, Vec<Operation>)> {
    vec![
        ("commit", vec![Commit, Background(BackgroundStep::Release)]),
        ("checkpoint", vec![Background(BackgroundStep::Checkpoint)]),
        ("leave", vec![Background(BackgroundStep::LeaveCleanly)]),
    ]
}

/// All words for sequences.
pub fn words() -> Vec<&'static str> {
    vocabulary().into_iter().map(|(word, _)| word).collect()
}

/// The operations that a word stands for.
pub fn named(word: &str) -> Result<Vec<Operation>, String> {
    let found = vocabulary().into_iter().chain(endings()).find(|(name, _)| *name == word);
    found.map(|(_, operations)| operations).ok_or_else(|| format!("there is no operation '{word}'"))
}
