//! Workloads for one purpose each: the paths of deduplication, and cases that need many steps.

use oncefs_engine::BackgroundStep;
use oncefs_fs::{AllocateMode, RenameMode};

use crate::compression::{compress, compress_in_line, expand, repack};
use crate::operation::Content;
use crate::operation::Operation::{self, *};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

/// Purpose and operations.
pub fn all() -> Vec<(&'static str, Vec<Operation>)> {
    vec![
        ("in-line", in_line()),
        ("open-runs", open_runs()),
        ("out-of-line", out_of_line()),
        ("compress", compress()),
        ("repack", repack()),
        ("expand", expand()),
        ("compress-in-line", compress_in_line()),
        ("grow", grow()),
        ("reuse", reuse()),
        ("stale-hints", stale_hints()),
        ("clone", clone()),
        ("lazy-clone", lazy_clone()),
        ("ride-in-the-log", ride_in_the_log()),
        ("log-wraps", log_wraps()),
        ("records-in-batches", records_in_batches()),
        ("range-in-pieces", range_in_pieces()),
        ("range-in-parts", range_in_parts()),
        ("reclaim-in-portions", reclaim_in_portions()),
        ("scrub", scrub()),
        ("ranks", ranks()),
        ("crowded-names", crowded_names()),
        ("full", full()),
        ("full-of-promises", full_of_promises()),
        ("full-of-clones", full_of_clones()),
        ("leave", leave()),
        ("many-names", many_names()),
    ]
}

/// Shares with stored, staged and own blocks, and a share of a block that the same group freed.
fn in_line() -> Vec<Operation> {
    vec![
        Create("copy"),
        Write("copy", 0, Content::from(1, 10 * BLOCK)),
        Write("copy", 10 * BLOCK as u64, Content { first: 60, step: 0, bytes: 8 * BLOCK }),
        Commit,
        Write("copy", 0, Content::from(200, 36 * BLOCK)),
        Write("A/foo", 0, Content::from(200, 20 * BLOCK)),
        Commit,
        Truncate("copy", 0),
        Exhaust(BackgroundStep::Reclaim),
        Write("A/bar", 0, Content::from(210, 12 * BLOCK)),
        Commit,
        Background(BackgroundStep::Checkpoint),
    ]
}

/// Runs that continue with the file's next request: in memory, with data that rides in the log, after a commit that
/// wrote it out, and next to blocks that are overwritten, cut off and deleted meanwhile.
fn open_runs() -> Vec<Operation> {
    const AT: u64 = BLOCK as u64;
    vec![
        Create("copy"),
        Write("copy", 0, Content::from(1, 2 * BLOCK)),
        Write("copy", 2 * AT, Content::from(3, 2 * BLOCK)),
        Write("copy", 4 * AT, Content::from(5, BLOCK)),
        Commit,
        Write("copy", 5 * AT, Content::from(3, BLOCK)),
        Commit,
        Write("copy", 6 * AT, Content::from(4, 2 * BLOCK)),
        Commit,
        Write("copy", 8 * AT, Content::from(6, BLOCK)),
        Background(BackgroundStep::Checkpoint),
        Write("copy", 9 * AT, Content::from(3, 3 * BLOCK)),
        Write("A/bar", 0, Content::from(900, 36 * BLOCK)),
        Commit,
        Write("copy", 12 * AT, Content::from(6, 3 * BLOCK)),
        Write("copy", 15 * AT, Content::from(1, 3 * BLOCK)),
        Write("copy", 16 * AT, Content::from(950, BLOCK)),
        Write("copy", 18 * AT, Content::from(4, 3 * BLOCK)),
        Commit,
        Write("copy", 21 * AT, Content::from(1, 3 * BLOCK)),
        Truncate("copy", 22 * AT),
        Write("copy", 24 * AT, Content::from(4, 3 * BLOCK)),
        Write("copy", 27 * AT, Content::from(1, 3 * BLOCK)),
        Commit,
        Unlink("copy"),
        Exhaust(BackgroundStep::Reclaim),
        Background(BackgroundStep::Checkpoint),
    ]
}

/// Equal blocks in the data area, staged and in the log are remapped, before and after commits.
fn out_of_line() -> Vec<Operation> {
    vec![
        Tune("inline", "off"),
        Create("copy"),
        Write("copy", 0, Content::from(1, 12 * BLOCK)),
        Background(BackgroundStep::Revisit { blocks_max: 16 }),
        Commit,
        Background(BackgroundStep::Revisit { blocks_max: 100 }),
        Background(BackgroundStep::MergeHints),
        Commit,
        Write("copy", 0, Content::from(3, 33 * BLOCK)),
        Commit,
        Background(BackgroundStep::Checkpoint),
        Background(BackgroundStep::Revisit { blocks_max: 20 }),
        Background(BackgroundStep::Revisit { blocks_max: 100 }),
        Background(BackgroundStep::SaveSkipped),
        Commit,
        Background(BackgroundStep::Release),
        Background(BackgroundStep::SweepHints),
        Background(BackgroundStep::Checkpoint),
        Exhaust(BackgroundStep::Punch),
        Background(BackgroundStep::SaveSkipped),
        Commit,
    ]
}

fn grow() -> Vec<Operation> {
    vec![
        Write("A/foo", 0, Content::from(300, 3 * BLOCK)),
        Grow(128),
        Write("A/foo", 0, Content::from(310, 34 * BLOCK)),
        Grow(1000),
        Commit,
        Background(BackgroundStep::Checkpoint),
        Grow(4096),
    ]
}

/// Freed blocks are reused as soon as that is allowed.
fn reuse() -> Vec<Operation> {
    let mut all = Vec::new();
    for round in 0..4 {
        all.extend([
            Unlink("B/foo"),
            Close,
            Exhaust(BackgroundStep::Reclaim),
            Commit,
            Background(BackgroundStep::Release),
            Create("B/foo"),
            Write("B/foo", 0, Content::from(1000 * (round + 1), 40 * BLOCK)),
            Write("A/foo", 0, Content::from(1000 * (round + 1) + 500, 3 * BLOCK)),
            Commit,
        ]);
        if round == 1 {
            all.extend([Background(BackgroundStep::Checkpoint), Exhaust(BackgroundStep::Punch)]);
        }
    }
    all
}

/// Names are added, removed, moved and exchanged, up to seven in a directory. On the setup of this name they meet at
/// full places.
fn crowded_names() -> Vec<Operation> {
    vec![
        Create("A/one"),
        Create("A/two"),
        Create("A/three"),
        Commit,
        Link("A/one", "A/four"),
        Unlink("A/foo"),
        Close,
        Rename("A/one", "A/five", RenameMode::Replace),
        Commit,
        Rename("A/two", "B/two", RenameMode::NoReplace),
        Rename("A/three", "B/two", RenameMode::Exchange),
        Mkdir("A/dir"),
        Create("A/foo"),
        Commit,
        Rename("B/two", "A/four", RenameMode::Replace),
        Unlink("A/five"),
        Close,
        Rmdir("A/dir"),
        Background(BackgroundStep::Checkpoint),
        Unlink("A/three"),
        Unlink("A/bar"),
        Create("A/one"),
        Create("A/two"),
        Commit,
        Rename("A/one", "A/two", RenameMode::Replace),
        Close,
        Commit,
    ]
}

/// Hints on disk of blocks that were freed are swept, page by page.
fn stale_hints() -> Vec<Operation> {
    vec![
        Create("copy"),
        Write("copy", 0, Content::from(7_000, 250 * BLOCK)),
        Write("copy", 1 << 20, Content::from(8_000, 250 * BLOCK)),
        Commit,
        Background(BackgroundStep::MergeHints),
        Unlink("copy"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Commit,
        Background(BackgroundStep::Release),
        Background(BackgroundStep::SweepHints),
        Background(BackgroundStep::SweepHints),
        Commit,
    ]
}

fn clone() -> Vec<Operation> {
    let whole = 37 * BLOCK as u64;
    vec![
        Create("copy"),
        Copy(("B/foo", 0), ("copy", 0), whole),
        Commit,
        Write("copy", 0, Content::from(400, 2 * BLOCK)),
        Copy(("copy", 0), ("A/foo", 4096), 20_000),
        Commit,
        Unlink("B/foo"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Copy(("copy", 0), ("copy", 300 << 10), 40_000),
        Commit,
        Background(BackgroundStep::Checkpoint),
    ]
}

/// Clones that take leaves before either file changes, in the background, and never; with marks out of order.
fn lazy_clone() -> Vec<Operation> {
    vec![
        Write("A/foo", 0, Content::from(20_000, 8 * BLOCK)),
        Write("A/foo", MIB, Content::from(21_000, 8 * BLOCK)),
        Write("A/foo", 2 * MIB, Content::from(22_000, 8 * BLOCK)),
        Commit,
        CloneFile("A/foo", "one"),
        CloneFile("one", "two"),
        Write("A/foo", 2 * MIB, Content::from(23_000, BLOCK)),
        Commit,
        Truncate("one", MIB + 100),
        Background(BackgroundStep::Checkpoint),
        CloneFile("A/foo", "three"),
        Unlink("A/foo"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Commit,
        Exhaust(BackgroundStep::TakeLeaves),
        Commit,
        CloneFile("three", "four"),
        Unlink("four"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Exhaust(BackgroundStep::TakeLeaves),
        Background(BackgroundStep::Checkpoint),
        Write("three", 5000, Content::from(24_000, 6000)),
        Commit,
    ]
}

/// Small synced writes stay in the log until a checkpoint places them. One is freed before that.
fn ride_in_the_log() -> Vec<Operation> {
    let mut all = Vec::new();
    for round in 0..5 {
        all.extend([Write("A/foo", round * 4096, Content::from(600 + round, BLOCK)), Commit]);
    }
    all.extend([
        Write("A/foo", 0, Content::from(700, 2 * BLOCK)),
        Commit,
        Background(BackgroundStep::Release),
        Append("A/bar", Content::from(701, BLOCK)),
        Background(BackgroundStep::Checkpoint),
        Background(BackgroundStep::Release),
        Write("A/foo", 0, Content::from(720, 36 * BLOCK)),
        Commit,
        Write("A/foo", 0, Content::from(800, 5 * BLOCK)),
        Background(BackgroundStep::Checkpoint),
    ]);
    all
}

/// Groups that are large because data rides in them, until the log has wrapped twice.
fn log_wraps() -> Vec<Operation> {
    let mut all = Vec::new();
    for round in 0..64 {
        all.extend([Write("A/foo", (round % 3) * 4096, Content::from(5_000 + 40 * round, 8 * BLOCK)), Commit]);
        if round % 13 == 12 {
            all.push(Background(BackgroundStep::Checkpoint));
        }
    }
    all
}

/// More records than one batch of the sorted state takes.
fn records_in_batches() -> Vec<Operation> {
    let names = ["user.a", "user.b", "user.c", "user.d", "user.e", "user.f", "user.g", "user.h", "user.i", "user.j"];
    let mut all = Vec::new();
    for path in ["A/foo", "A/bar"] {
        for name in names {
            all.extend([SetXattr(path, name, 60_000), Commit]);
            if name == "user.e" {
                all.push(Write("B/foo", 0, Content::from(40, 2 * BLOCK)));
            }
        }
    }
    all.extend([
        Background(BackgroundStep::Checkpoint),
        Unlink("A/foo"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Commit,
    ]);
    all
}

/// Changes of more leaves than one publication takes.
fn range_in_pieces() -> Vec<Operation> {
    let mut all = vec![Create("sparse")];
    for leaf in 0..70 {
        all.push(Write("sparse", leaf * MIB + 4096, Content::from(1 + leaf % 30, BLOCK)));
    }
    all.extend([
        Commit,
        Copy(("sparse", 0), ("B/foo", 0), 70 * MIB),
        Commit,
        Allocate("sparse", 4096, 68 * MIB, AllocateMode::PunchHole),
        Commit,
        Truncate("B/foo", MIB),
        Background(BackgroundStep::Checkpoint),
        Unlink("sparse"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Commit,
    ]);
    all
}

/// Parts that fill a hole, parts of a clone over reserved blocks, and parts that write zeros. The last operation cuts a
/// file within its first leaf.
fn range_in_parts() -> Vec<Operation> {
    let mut all = vec![Create("sparse")];
    for leaf in (0..40).step_by(4) {
        all.push(Write("sparse", leaf * MIB + 4096, Content::from(1 + leaf % 30, BLOCK)));
    }
    all.extend([
        Truncate("sparse", 40 * MIB),
        Commit,
        Allocate("B/foo", 4096, 38 * MIB, AllocateMode::Reserve { keep_size: false }),
        Commit,
        Copy(("sparse", 0), ("B/foo", 0), 40 * MIB),
        Background(BackgroundStep::Checkpoint),
        Allocate("B/foo", 6000, 38 * MIB, AllocateMode::ZeroRange { keep_size: true }),
        Commit,
        Truncate("sparse", 5000),
        Commit,
    ]);
    all
}

/// A deleted file with more leaves than are freed at a time.
fn reclaim_in_portions() -> Vec<Operation> {
    let mut all = vec![Create("sparse")];
    for leaf in 0..20 {
        all.push(Write("sparse", leaf * MIB + 4096, Content::from(1 + leaf, BLOCK)));
    }
    all.extend([Background(BackgroundStep::Checkpoint), Unlink("sparse"), Close, Commit]);
    all.extend([Exhaust(BackgroundStep::Reclaim), Background(BackgroundStep::Checkpoint)]);
    all
}

/// Shared blocks get replicas. The scrub finds a rotten block, its replica serves reads, and files move to the replica.
/// A rotten block that was overwritten becomes free. Replicas of deleted blocks are dropped.
fn scrub() -> Vec<Operation> {
    vec![
        Scrub,
        Background(BackgroundStep::Checkpoint),
        Rot(Content::from(2, BLOCK)),
        Background(BackgroundStep::Repair),
        Write("A/foo", 12 * 4096, Content::from(2, BLOCK)),
        Commit,
        Rot(Content::from(4, BLOCK)),
        Scrub,
        Write("A/bar", 0, Content::from(900, 6 * BLOCK)),
        Commit,
        Unlink("A/foo"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Background(BackgroundStep::Repair),
        Commit,
        Background(BackgroundStep::Release),
        Scrub,
        Background(BackgroundStep::Checkpoint),
    ]
}

/// Files get all ranks: a fragmented one is defragmented first, a ranked one is written, a cold one is read, one is
/// emptied, one is deleted, and one gets its first name after the ranker saw it without one.
fn ranks() -> Vec<Operation> {
    let rank = Exhaust(BackgroundStep::Rank);
    vec![
        rank,
        Read("A/bar"),
        ReadApart("B/foo"),
        Commit,
        Wait(200),
        rank,
        Commit,
        Background(BackgroundStep::Revisit { blocks_max: 64 }),
        Write("A/bar", 0, Content::from(900, 2 * BLOCK)),
        Create("new"),
        Append("new", Content::from(1, 5 * BLOCK)),
        Tmpfile("B"),
        WriteOrphan(0, Content::from(700, 2 * BLOCK)),
        Commit,
        rank,
        Truncate("B/foo", 0),
        Wait(1_500),
        rank,
        NameTmpfile("B/tmp"),
        Background(BackgroundStep::Checkpoint),
        Read("A/foo"),
        Unlink("new"),
        Close,
        Commit,
        Wait(200),
        rank,
        Background(BackgroundStep::LeaveCleanly),
    ]
}

/// A full data area: writes are refused, and deletions make room.
fn full() -> Vec<Operation> {
    let mut all = vec![Create("big")];
    for round in 0..50 {
        all.push(Append("big", Content::from(20_000 + 100 * round, 90 * BLOCK)));
        all.push(Commit);
    }
    all.extend([
        Write("A/foo", 0, Content::from(90_000, 4 * BLOCK)),
        Allocate("A/foo", 0, MIB, AllocateMode::Reserve { keep_size: false }),
        Truncate("A/foo", 5000),
        Commit,
        Truncate("big", 40 * BLOCK as u64 + 17),
        Commit,
        Background(BackgroundStep::Release),
        Write("A/foo", 0, Content::from(95_000, 40 * BLOCK)),
        Background(BackgroundStep::Checkpoint),
    ]);
    all
}

/// Free space is reserved in pieces that fit less and less. Then the reserved ranges are written, cloned over, punched
/// and cut, along with writes that find no room.
fn full_of_promises() -> Vec<Operation> {
    const AT: u64 = BLOCK as u64;
    let reserve = |path, blocks: u64| Allocate(path, 64 * AT, blocks * AT, AllocateMode::Reserve { keep_size: false });
    let mut all = vec![Create("new")];
    all.extend([60, 30, 15, 8, 4, 2, 1].map(|blocks| reserve("new", blocks)));
    all.extend([
        Commit,
        Write("A/foo", 0, Content::from(90_000, 6 * BLOCK)),
        Write("new", 66 * AT, Content::from(91_000, 3 * BLOCK)),
        Copy(("A/bar", 0), ("new", 70 * AT), 4 * AT),
        Allocate("new", 72 * AT, 5000, AllocateMode::PunchHole),
        Write("A/foo", 2 * AT, Content::from(92_000, 3 * BLOCK)),
        Commit,
        Allocate("new", 74 * AT, 4 * AT, AllocateMode::ZeroRange { keep_size: true }),
        Write("new", 74 * AT, Content::zeros(2 * BLOCK)),
        Truncate("new", 80 * AT + 100),
        Allocate("B/foo", 0, MIB, AllocateMode::ZeroRange { keep_size: true }),
        Background(BackgroundStep::Checkpoint),
        reserve("A/bar", 10),
        Write("A/bar", 0, Content::from(93_000, 8 * BLOCK)),
        Unlink("new"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Commit,
        Background(BackgroundStep::Release),
        Write("A/foo", 0, Content::from(94_000, 8 * BLOCK)),
        Background(BackgroundStep::LeaveCleanly),
    ]);
    all
}

/// One block has many references while the rest of the volume is full. Cuts within it, and writes over it, need blocks
/// of their own.
fn full_of_clones() -> Vec<Operation> {
    const AT: u64 = BLOCK as u64;
    let mut all = vec![Create("new"), Write("new", 0, Content::from(80_000, BLOCK))];
    all.extend((0..5).map(|doubled| Copy(("new", 0), ("new", AT << doubled), AT << doubled)));
    all.extend([Create("big"), Allocate("big", 0, 40 * AT, AllocateMode::Reserve { keep_size: true }), Commit]);
    all.extend((0..12).map(|round| Append("big", Content::from(81_000 + 100 * round, 5 * BLOCK))));
    all.extend([
        Commit,
        Allocate("new", 3 * AT + 100, 2 * AT, AllocateMode::PunchHole),
        Write("new", 7 * AT + 5, Content::from(82_000, 3000)),
        Truncate("new", 20 * AT + 100),
        Commit,
        Truncate("new", 16 * AT + 100),
        Copy(("new", 1000), ("A/foo", 3000), 12_000),
        Allocate("new", 100, 200, AllocateMode::ZeroRange { keep_size: false }),
        Background(BackgroundStep::Checkpoint),
        Truncate("big", 100),
        Commit,
        Background(BackgroundStep::Release),
        Write("new", 0, Content::from(83_000, 6 * BLOCK)),
        Background(BackgroundStep::LeaveCleanly),
    ]);
    all
}

/// Clean ends, with work between them.
fn leave() -> Vec<Operation> {
    vec![
        Write("A/foo", 0, Content::from(1, 4 * BLOCK)),
        Background(BackgroundStep::LeaveCleanly),
        Write("A/foo", 0, Content::from(70, 4 * BLOCK)),
        Unlink("A/bar"),
        Commit,
        Background(BackgroundStep::LeaveCleanly),
        Background(BackgroundStep::LeaveCleanly),
    ]
}

/// Names and copies of trees come and go, with a checkpoint in between, so that records in objects fill ranges, split
/// them, move between them and leave some empty.
fn many_names() -> Vec<Operation> {
    const NAMES: [&str; 12] =
        ["A/n0", "A/n1", "A/n2", "A/n3", "A/n4", "A/n5", "B/n0", "B/n1", "B/n2", "B/n3", "B/n4", "B/n5"];
    let checkpoint = || Background(BackgroundStep::Checkpoint);
    let mut all: Vec<Operation> = NAMES.into_iter().map(Create).collect();
    all.extend([Write("A/n0", 0, Content::from(500, 3 * BLOCK)), checkpoint()]);
    all.extend([Link("A/n0", "B/linked"), Rename("A/n1", "B/moved", RenameMode::Replace), CloneTree("A", "copied")]);
    all.extend([Rename("B/n1", "A/n2", RenameMode::Exchange), SetXattr("A/n3", "user.a", 300), checkpoint()]);
    all.extend([Rename("A/n3", "B/n3", RenameMode::Replace), Unlink("A/n0"), SnapshotTree("B", "kept"), checkpoint()]);
    all.extend(["A/n2", "A/n4", "A/n5", "B/n0", "B/n2", "B/n4", "B/n5", "B/moved"].into_iter().map(Unlink));
    all.extend([Close, RemoveSnapshot("kept"), Exhaust(BackgroundStep::Reclaim), checkpoint()]);
    all
}
