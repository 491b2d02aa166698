//! The effective policy of a file, from the override of its directory, its rank and the mount's profile, in this order
//! (ranks: Selective, section 4).
//!
//! Owns the precedence and the values of the three. Leaves to the engine to store them per file and to apply the result
//! (`policy/effective.rs`). A mount without in-line dedup or without the worker does neither, whatever the effective
//! policy; the controllers may lower the work further, and never raise it.

use std::fmt;
use std::str::FromStr;

use crate::Rank;

/// The shortest run that files of rank 1 share, in blocks: the big chunk of 256 KiB (Selective, Table 1).
pub const BIG_RUN_BLOCKS: u32 = 64;
/// The largest `run=N`, as for the mount's `run_blocks_min`.
const OVERRIDE_RUN_BLOCKS_MAX: u32 = 256;

/// The policy set by the user for a directory and everything below it, or for a file: overrides rank and mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOverride {
    /// No dedup.
    Off,
    /// In-line, and out of line for what in-line left.
    Inline,
    /// Out of line only.
    Later,
    /// By rank as in the paper Selective, out of line.
    Selective,
    /// In-line and out of line, runs of at least this many blocks, 1 to 256.
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

/// A text that is not a policy.
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

    /// Accepts exactly what `Display` writes.
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

/// What the effective policy of one file depends on. The default leaves everything to the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePolicy {
    /// The override in force for it. None: there is none.
    pub policy_override: Option<PolicyOverride>,
    /// Its rank.
    pub rank: Rank,
    /// Whether it was rewritten on at least two days.
    pub is_update_heavy: bool,
}

/// What ranks do on a mount: set by its profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranks {
    /// Nothing.
    #[default]
    Off,
    /// New files follow the mount, and update-heavy ones are left alone.
    On,
    /// New files are left alone, as in the paper Selective.
    Paper,
}

/// What the mount sets for all its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountPolicy {
    /// What ranks do.
    pub ranks: Ranks,
    /// The shortest run worth sharing. None: automatic, by file.
    pub run_blocks_min: Option<u32>,
}

/// How a file is deduplicated: the result of override, rank and mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// On the write path.
    pub is_inline: bool,
    /// Out of line.
    pub is_later: bool,
    /// The shortest run worth sharing, if the file is deduplicated at all. None: automatic.
    pub run_blocks_min: Option<u32>,
    /// Whether a whole file, and the end after its last full 64 blocks, are shared whatever their length.
    pub shares_ends: bool,
}

impl EffectivePolicy {
    /// Whether a file that is one run as a whole is shared however short it is: a fixed `run_blocks_min` means what it
    /// says, unless it is that of files which are read in sequence.
    pub fn shares_whole_files(self) -> bool {
        self.shares_ends || self.run_blocks_min.is_none()
    }
}

/// The effective policy of a file on a mount.
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

/// Selective's Table 1, with runs for chunks; a file that is not judged yet follows the mount.
fn by_rank(rank: Rank, mounts: EffectivePolicy) -> EffectivePolicy {
    match rank {
        Rank::New => mounts,
        Rank::Sequential => EffectivePolicy { run_blocks_min: Some(BIG_RUN_BLOCKS), shares_ends: true, ..mounts },
        Rank::Random | Rank::Cold => EffectivePolicy { run_blocks_min: Some(1), ..mounts },
    }
}

#[cfg(test)]
mod tests;
