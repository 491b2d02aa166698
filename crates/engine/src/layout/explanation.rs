//! What an explanation of a file says: its runs, and what each of them is.

use serde::{Deserialize, Serialize};

/// A portion of a file, explained. Numbers are plain, as in every report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// The file's map, as in [`crate::Referrer`].
    pub map: u64,
    /// Neighbours that fare alike, in the order of the file and without gaps.
    pub runs: Vec<ExplainedRun>,
    /// The lbn at which the next portion begins; None: nothing but a hole follows.
    pub next: Option<u64>,
    /// The shortest run that the file shares, in blocks.
    pub run_blocks_min: u32,
    /// What set it, or why the file is left alone.
    pub run_blocks_min_from: String,
    /// What the file's budget allows, if it has one: then no length of runs decides.
    #[serde(default)]
    pub budget: Option<BudgetUse>,
    /// Whether none of its blocks are shared from now on, neither as they are written nor by the worker.
    #[serde(default)]
    pub is_left_alone: bool,
}

/// How much of its budget a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetUse {
    /// By how much longer a cold read in sequence may take than of a file in one piece, percent.
    pub percent_max: u32,
    /// By how much longer it takes as the file lies now, percent.
    pub percent: u32,
    /// Pieces beside the first one that the file lies in.
    pub pieces: u64,
    /// As many may be added by sharing.
    pub pieces_max: u64,
}

/// Blocks that follow each other in the file and of which the same can be said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRun {
    /// The first block's number in the file.
    pub lbn: u64,
    /// How many blocks.
    pub blocks: u64,
    /// What they are. Each pbn in it is that of the first block; those of the others follow.
    #[serde(flatten)]
    pub what: What,
}

/// What a block of a file is.
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
        /// Equal blocks that are known.
        equal: Equal,
        /// Whether the worker is still to look at it.
        waits: bool,
    },
    /// The block is known to be damaged.
    Bad {
        /// The block.
        pbn: u64,
        /// The block that is read in its place; None: reading it fails.
        replacement: Option<u64>,
        /// References from files, this one included.
        references: u32,
    },
    /// The block's entry in the block table cannot be read.
    Unknown {
        /// The block.
        pbn: u64,
    },
    /// It was written or freed while it was looked at.
    Changed,
}

/// What is known of blocks equal to one that is not shared.
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
    /// A run with equal blocks is long enough: the next look at the block shares it.
    LongEnough {
        /// The equal block in it.
        equal_pbn: u64,
    },
}

impl What {
    /// The same said of the block `n` blocks further on.
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

/// Adds blocks after the last run; the two become one if the same can be said of them.
pub fn push_run(runs: &mut Vec<ExplainedRun>, run: ExplainedRun) {
    match runs.last_mut() {
        Some(last) if last.lbn + last.blocks == run.lbn && last.what.plus(last.blocks) == run.what => {
            last.blocks += run.blocks;
        }
        _ if run.blocks > 0 => runs.push(run),
        _ => {}
    }
}
