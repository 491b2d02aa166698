//! The parts of an explanation of a file: its runs, and the state of each.

use serde::{Deserialize, Serialize};

/// A portion of a file, explained. Its numbers are plain integers, as in every report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// The file's map, as in [`crate::Referrer`].
    pub map: u64,
    /// Adjacent blocks in the same state, in the order of the file and without gaps.
    pub runs: Vec<ExplainedRun>,
    /// The lbn at which the next portion begins. None: only a hole follows.
    pub next: Option<u64>,
    /// The shortest run that the file shares, in blocks.
    pub run_blocks_min: u32,
    /// The setting that decided it, or why the file is excluded.
    pub run_blocks_min_from: String,
    /// The file's budget and its use, if it has one. Then no run length decides.
    #[serde(default)]
    pub budget: Option<BudgetUse>,
    /// Whether none of its blocks are shared from now on, neither in-line nor by the worker.
    #[serde(default)]
    pub is_left_alone: bool,
}

/// How much of its budget a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetUse {
    /// How much longer a cold read in sequence may take than that of a file in one piece, in percent.
    pub percent_max: u32,
    /// How much longer it takes with the present layout, in percent.
    pub percent: u32,
    /// Pieces of the file beyond the first.
    pub pieces: u64,
    /// How many pieces sharing may add.
    pub pieces_max: u64,
}

/// Adjacent blocks of the file in the same state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRun {
    /// The first block's number in the file.
    pub lbn: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Their state. Each pbn in it is that of the first block, and the others follow it.
    #[serde(flatten)]
    pub what: What,
    /// Where they lie if they are compressed: one behind the other. Their pbns are numbers of fragments then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressed: Option<Compressed>,
}

impl ExplainedRun {
    /// Blocks that are not compressed.
    pub fn plain(lbn: u64, blocks: u64, what: What) -> Self {
        Self { lbn, blocks, what, compressed: None }
    }

    /// A part of it, from its block `n` on.
    pub fn part(&self, n: u64, blocks: u64) -> Self {
        let compressed = self.compressed.as_ref().map(|compressed| compressed.part(n as usize, blocks as usize));
        Self { lbn: self.lbn + n, blocks, what: self.what.plus(n), compressed }
    }
}

/// Where compressed blocks lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// The first byte of the first one in the data area.
    pub at: u64,
    /// The length of each in bytes. Each begins where the one before it ends.
    pub lengths: Vec<u16>,
}

impl Compressed {
    /// Their length together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.lengths.iter().map(|bytes| u64::from(*bytes)).sum()
    }

    /// Whether the other ones begin where these end.
    pub fn is_followed_by(&self, other: &Self) -> bool {
        self.at + self.bytes() == other.at
    }

    fn part(&self, n: usize, blocks: usize) -> Self {
        let (before, rest) = self.lengths.split_at(n.min(self.lengths.len()));
        let at = self.at + before.iter().map(|bytes| u64::from(*bytes)).sum::<u64>();
        Self { at, lengths: rest[..blocks.min(rest.len())].to_vec() }
    }
}

/// The state of a block of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum What {
    /// Nothing is stored: it reads as zeros.
    Hole,
    /// It reads as zeros, and space is promised to the first write.
    Reserved,
    /// Several places refer to the block.
    Shared {
        /// The block.
        pbn: u64,
        /// References from files, this one included.
        references: u32,
    },
    /// Only this place refers to the block.
    Own {
        /// The block.
        pbn: u64,
        /// Known equal blocks.
        equal: Equal,
        /// Whether the worker has yet to visit it.
        waits: bool,
    },
    /// The block is known to be damaged.
    Bad {
        /// The block.
        pbn: u64,
        /// The block that is read in its place. None: reading it fails.
        replacement: Option<u64>,
        /// References from files, this one included.
        references: u32,
    },
    /// The block's entry in the block table cannot be read.
    Unknown {
        /// The block.
        pbn: u64,
    },
    /// It was written or freed during the explanation.
    Changed,
}

/// The known equal blocks of a block that is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Equal {
    /// No hint names an equal block.
    None,
    /// The runs with equal blocks are too short to be shared.
    TooShort {
        /// The equal block in the longest of them.
        equal_pbn: u64,
        /// Its length.
        longest_run_blocks: u32,
    },
    /// A run with equal blocks is long enough: the next visit shares the block.
    LongEnough {
        /// The equal block in it.
        equal_pbn: u64,
    },
}

impl What {
    /// The state of the block `n` blocks later in the same run.
    pub fn plus(&self, n: u64) -> Self {
        let mut what = self.clone();
        match &mut what {
            Self::Hole | Self::Reserved | Self::Changed => {}
            Self::Shared { pbn, .. } => *pbn += n,
            Self::Bad { pbn, replacement, .. } => {
                *pbn += n;
                *replacement = replacement.map(|replacement| replacement + n);
            }
            Self::Unknown { pbn } => *pbn += n,
            Self::Own { pbn, equal, .. } => {
                *pbn += n;
                match equal {
                    Equal::None => {}
                    Equal::TooShort { equal_pbn, .. } | Equal::LongEnough { equal_pbn } => *equal_pbn += n,
                }
            }
        }
        what
    }

    /// The block that the map names.
    pub fn pbn(&self) -> Option<u64> {
        match self {
            Self::Hole | Self::Reserved | Self::Changed => None,
            Self::Shared { pbn, .. } | Self::Own { pbn, .. } | Self::Bad { pbn, .. } | Self::Unknown { pbn } => {
                Some(*pbn)
            }
        }
    }
}

/// Whether a run continues in the data area where another one ends.
fn continues(last: &ExplainedRun, run: &ExplainedRun) -> bool {
    match (&last.compressed, &run.compressed) {
        (None, None) => true,
        (Some(last), Some(next)) => last.is_followed_by(next),
        _ => false,
    }
}

/// Adds a run after the last one. The two become one if their states are the same.
pub fn push_run(runs: &mut Vec<ExplainedRun>, run: ExplainedRun) {
    match runs.last_mut() {
        Some(last)
            if last.lbn + last.blocks == run.lbn
                && last.what.plus(last.blocks) == run.what
                && continues(last, &run) =>
        {
            last.blocks += run.blocks;
            if let (Some(last), Some(more)) = (&mut last.compressed, run.compressed) {
                last.lengths.extend(more.lengths);
            }
        }
        _ if run.blocks > 0 => runs.push(run),
        _ => {}
    }
}
