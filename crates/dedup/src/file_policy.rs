//! Who decides how a file is deduplicated: directory policy, then the file's rank, then the mount's profile.
//!
//! Owns the precedence and what each of the three may say. Leaves to the engine to keep it per file, and that a mount
//! without in-line dedup or without the worker does neither whatever the file's treatment; the controllers may lower
//! the work further, and never raise it.

use std::fmt;
use std::str::FromStr;

use crate::Rank;

/// The shortest run that files of rank 1 share: the paper's big chunk, 256 KiB.
pub const BIG_RUN_BLOCKS: u32 = 64;
/// The longest run that may be wished for, as for the mount's `run_blocks_min`.
const OVERRIDE_RUN_BLOCKS_MAX: u32 = 256;

/// What is wished for a directory and all below it, or for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOverride {
    /// No dedup.
    Off,
    /// In-line, and later what in-line left.
    Inline,
    /// Out of line alone.
    Later,
    /// By rank as in the paper, out of line.
    Selective,
    /// In-line and later, runs of at least so many blocks, 1 to 256.
    Run(u32),
}

impl fmt::Display for PolicyOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Inline => f.write_str("inline"),
            Self::Later => f.write_str("later"),
            Self::Selective => f.write_str("selective"),
            Self::Run(blocks) => write!(f, "run={blocks}"),
        }
    }
}

/// No policy is written like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOverride;

impl fmt::Display for InvalidOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a policy is off, inline, later, selective or run=N with N from 1 to {OVERRIDE_RUN_BLOCKS_MAX}")
    }
}

impl std::error::Error for InvalidOverride {}

impl FromStr for PolicyOverride {
    type Err = InvalidOverride;

    /// Takes what `Display` writes and nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidOverride> {
        let run = || -> Option<Self> {
            let blocks = text.strip_prefix("run=")?.parse().ok()?;
            (1..=OVERRIDE_RUN_BLOCKS_MAX).contains(&blocks).then_some(Self::Run(blocks))
        };
        let named = [Self::Off, Self::Inline, Self::Later, Self::Selective];
        let found = named.into_iter().find(|policy_override| policy_override.to_string() == text).or_else(run);
        found.filter(|policy_override| policy_override.to_string() == text).ok_or(InvalidOverride)
    }
}

/// What is said of one file. The default says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePolicy {
    /// The directory policy that holds for it. None: none does.
    pub policy_override: Option<PolicyOverride>,
    /// Its rank.
    pub rank: Rank,
    /// Whether it was rewritten on two days or more.
    pub is_update_heavy: bool,
}

/// What ranks do on a mount: the profiles' column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranks {
    /// Nothing.
    #[default]
    Off,
    /// New files follow the mount, and update-heavy ones are left alone.
    On,
    /// New files are left alone: the paper's.
    Paper,
}

/// What is said of all files of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountPolicy {
    /// What ranks do.
    pub ranks: Ranks,
    /// The shortest run worth sharing. None: automatic, by file.
    pub run_blocks_min: Option<u32>,
}

/// How a file is deduplicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// On the write path.
    pub is_inline: bool,
    /// Out of line.
    pub is_later: bool,
    /// The shortest run worth sharing, if the file is deduplicated at all. None: automatic.
    pub run_blocks_min: Option<u32>,
    /// Whether a whole file and the end behind its last full 64 blocks are shared whatever their length.
    pub shares_ends: bool,
}

impl EffectivePolicy {
    /// Whether a file that is one run as a whole is shared however short it is: a fixed `run_blocks_min` means what it
    /// says, unless it is that of files which are read in sequence.
    pub fn shares_whole_files(self) -> bool {
        self.shares_ends || self.run_blocks_min.is_none()
    }
}

/// How a file is deduplicated, all that is said of it considered.
pub fn effective_policy(file: FilePolicy, mount: MountPolicy) -> EffectivePolicy {
    let mounts =
        EffectivePolicy { is_inline: true, is_later: true, run_blocks_min: mount.run_blocks_min, shares_ends: false };
    let left_alone = EffectivePolicy { is_inline: false, is_later: false, ..mounts };
    match (file.policy_override, mount.ranks) {
        (Some(PolicyOverride::Off), _) => left_alone,
        (Some(PolicyOverride::Inline), _) | (None, Ranks::Off) => mounts,
        (Some(PolicyOverride::Run(blocks)), _) => EffectivePolicy { run_blocks_min: Some(blocks), ..mounts },
        (Some(PolicyOverride::Later), Ranks::Off) => EffectivePolicy { is_inline: false, ..mounts },
        (Some(PolicyOverride::Later), Ranks::On | Ranks::Paper) => {
            EffectivePolicy { is_inline: false, ..by_rank(file.rank, mounts) }
        }
        (None, Ranks::On) if file.is_update_heavy => left_alone,
        (None, Ranks::On) => by_rank(file.rank, mounts),
        (Some(PolicyOverride::Selective), _) | (None, Ranks::Paper) if file.rank == Rank::New => left_alone,
        (Some(PolicyOverride::Selective), _) | (None, Ranks::Paper) => {
            EffectivePolicy { is_inline: false, ..by_rank(file.rank, mounts) }
        }
    }
}

/// The paper's Table 1, with runs for chunks; a file not judged yet is treated as the mount says.
fn by_rank(rank: Rank, mounts: EffectivePolicy) -> EffectivePolicy {
    match rank {
        Rank::New => mounts,
        Rank::Sequential => EffectivePolicy { run_blocks_min: Some(BIG_RUN_BLOCKS), shares_ends: true, ..mounts },
        Rank::Random | Rank::Cold => EffectivePolicy { run_blocks_min: Some(1), ..mounts },
    }
}

#[cfg(test)]
mod tests;
