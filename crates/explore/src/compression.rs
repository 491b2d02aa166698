//! Directed workloads of compression: blocks become fragments, packs get gaps and are packed anew, and fragments become
//! blocks again.

use oncefs_engine::BackgroundStep;
use oncefs_fs::AllocateMode;

use crate::operation::Content;
use crate::operation::Operation::{self, *};

const BLOCK: usize = 4096;

/// Blocks are compressed beside others that do not shrink; shared ones, rewritten ones and deleted ones among them.
/// Freed places and numbers are handed out again.
pub fn compress() -> Vec<Operation> {
    const COMPRESS: BackgroundStep = BackgroundStep::Compress { blocks_max: 8 };
    vec![
        Create("copy"),
        Write("copy", 0, Content::shrinking(1, 12 * BLOCK)),
        Write("A/foo", 0, Content::shrinking(7, 10 * BLOCK)),
        Commit,
        Background(COMPRESS),
        Exhaust(COMPRESS),
        Commit,
        Write("copy", 3 * BLOCK as u64, Content::from(700, 2 * BLOCK)),
        Background(BackgroundStep::Checkpoint),
        Unlink("copy"),
        Exhaust(BackgroundStep::Reclaim),
        Commit,
        Background(BackgroundStep::Release),
        Write("A/foo", BLOCK as u64, Content::shrinking(400, 6 * BLOCK)),
        Exhaust(COMPRESS),
        Scrub,
        Background(BackgroundStep::LeaveCleanly),
    ]
}

/// Packs get gaps and are packed anew. Their old blocks are handed out again, and a second time with what was moved.
pub fn repack() -> Vec<Operation> {
    const COMPRESS: BackgroundStep = BackgroundStep::Compress { blocks_max: 64 };
    const REPACK: BackgroundStep = BackgroundStep::Repack { blocks_max: 64 };
    let mut all = vec![
        Create("copy"),
        Write("copy", 0, Content::shrinking(1, 24 * BLOCK)),
        Write("A/foo", 0, Content::shrinking(60, 24 * BLOCK)),
        Commit,
        Exhaust(COMPRESS),
        Commit,
    ];
    for round in 0..2 {
        for n in 0..6 {
            let at = (4 * n + round) * BLOCK;
            all.push(Write("copy", at as u64, Content::from(700 + (40 * round + n) as u64, 2 * BLOCK)));
            all.push(Write("A/foo", at as u64, Content::from(800 + (40 * round + n) as u64, 3 * BLOCK)));
        }
        all.extend([
            Commit,
            Background(BackgroundStep::Release),
            Background(REPACK),
            Exhaust(REPACK),
            Commit,
            Background(BackgroundStep::Release),
            Write("A/foo", 30 * BLOCK as u64, Content::shrinking(900 + 20 * round as u64, 8 * BLOCK)),
            Exhaust(COMPRESS),
            Background(BackgroundStep::Checkpoint),
        ]);
    }
    all.extend([Unlink("copy"), Exhaust(BackgroundStep::Reclaim), Commit, Exhaust(REPACK), Scrub, Commit]);
    all
}

/// What was compressed is expanded: shared blocks, blocks of a clone that has taken nothing yet, and rewritten ones
/// among them. Freed places and numbers are handed out again, and what was expanded is compressed anew.
pub fn expand() -> Vec<Operation> {
    const COMPRESS: BackgroundStep = BackgroundStep::Compress { blocks_max: 8 };
    const EXPAND: BackgroundStep = BackgroundStep::Expand { blocks_max: 8 };
    vec![
        Create("copy"),
        Write("copy", 0, Content::shrinking(1, 12 * BLOCK)),
        Write("A/foo", 0, Content::shrinking(7, 10 * BLOCK)),
        Commit,
        Exhaust(COMPRESS),
        CloneFile("copy", "one"),
        Commit,
        Write("copy", 3 * BLOCK as u64, Content::from(700, 2 * BLOCK)),
        Background(EXPAND),
        Commit,
        Background(BackgroundStep::Release),
        Write("A/bar", 0, Content::shrinking(400, 6 * BLOCK)),
        Exhaust(COMPRESS),
        Background(BackgroundStep::Checkpoint),
        Exhaust(EXPAND),
        Unlink("one"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Background(BackgroundStep::Checkpoint),
        Exhaust(EXPAND),
        Background(BackgroundStep::LeaveCleanly),
    ]
}

/// Large requests are compressed as they are written: new ones, over whole blocks and over fragments, into promised
/// room, with blocks that do not shrink, and with shared and equal ones. Freed places and numbers are handed out again.
pub fn compress_in_line() -> Vec<Operation> {
    const AT: u64 = BLOCK as u64;
    vec![
        Create("copy"),
        Write("copy", 0, Content::shrinking(1, 40 * BLOCK)),
        Commit,
        Write("A/foo", 0, Content::shrinking(31, 48 * BLOCK)),
        Write("A/bar", 0, Content::from(700, 36 * BLOCK)),
        Commit,
        Allocate("A/bar", 40 * AT, 40 * AT, AllocateMode::Reserve { keep_size: false }),
        Write("A/bar", 36 * AT, Content::shrinking(101, 40 * BLOCK)),
        Write("copy", 2 * AT, Content::from(800, 34 * BLOCK)),
        Background(BackgroundStep::Checkpoint),
        Write("copy", AT + 7, Content::shrinking(201, 44 * BLOCK)),
        Commit,
        Unlink("copy"),
        Close,
        Exhaust(BackgroundStep::Reclaim),
        Commit,
        Background(BackgroundStep::Release),
        Write("A/foo", 20 * AT, Content::shrinking(301, 60 * BLOCK)),
        Exhaust(BackgroundStep::Compress { blocks_max: 64 }),
        Commit,
        Scrub,
        Background(BackgroundStep::LeaveCleanly),
    ]
}
