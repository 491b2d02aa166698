//! The effective policy of a file, from the override of its directory, its rank and the mount's profile, in this order
//! (ranks: Selective, section 4).
//!
//! Owns the precedence and the values of the three. Leaves to the engine storing them per file and applying the result
//! (`policy/effective.rs`). A mount without in-line dedup, or without the worker, skips that part whatever the
//! effective policy. The controllers may reduce the work further but never add to it.

use std::fmt;
use std::str::FromStr;

use crate::{Rank, Slowdown};

/// The shortest run that files of rank 1 share where no budget applies, in blocks: the big chunk of 256 KiB (Selective,
/// Table 1).
pub const BIG_RUN_BLOCKS: u32 = 64;
/// The budget of files of rank 1: they are read in sequence.
const SEQUENTIAL_SLOWDOWN: Slowdown = Slowdown(10);
/// The largest `run=N`, as for the mount's `run_blocks_min`.
const OVERRIDE_RUN_BLOCKS_MAX: u32 = 256;

/// The policy set by the user for a directory and everything below it, or for a file: overrides rank and mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOverride {
    /// No dedup.
    Off,
    /// In-line, and out of line for blocks that in-line dedup left out.
    Inline,
    /// Out of line only.
    Later,
    /// By rank, as in the paper Selective, out of line.
    Selective,
    /// In-line and out of line, runs of at least this many blocks, 1 to 256.
    Run(u32),
    /// In-line and out of line, as far as this slowdown allows. None: every block.
    Slowdown(Option<Slowdown>),
}

impl fmt::Display for PolicyOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Inline => f.write_str("inline"),
            Self::Later => f.write_str("later"),
            Self::Selective => f.write_str("selective"),
            Self::Run(blocks) => write!(f, "run={blocks}"),
            Self::Slowdown(None) => f.write_str("slowdown=none"),
            Self::Slowdown(Some(slowdown)) => write!(f, "slowdown={slowdown}"),
        }
    }
}

/// Text that is not a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOverride;

impl fmt::Display for InvalidOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a policy is off, inline, later, selective, run=N with N from 1 to {OVERRIDE_RUN_BLOCKS_MAX}, or \
             slowdown=PERCENT with PERCENT from 0 to {} or 'none'",
            Slowdown::PERCENT_MAX
        )
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
        let slowdown = || -> Option<Self> {
            let percent = text.strip_prefix("slowdown=")?.parse().ok()?;
            (percent <= Slowdown::PERCENT_MAX).then_some(Self::Slowdown(Some(Slowdown(percent))))
        };
        let named = [Self::Off, Self::Inline, Self::Later, Self::Selective, Self::Slowdown(None)];
        let named = named.into_iter().find(|policy_override| policy_override.to_string() == text);
        let found = named.or_else(run).or_else(slowdown);
        found.filter(|policy_override| policy_override.to_string() == text).ok_or(InvalidOverride)
    }
}

/// When blocks are compressed: of a mount, or of a directory's or file's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// Never.
    #[default]
    Off,
    /// By the worker.
    Later,
    /// As they are written, and the rest by the worker.
    Inline,
    /// As they are written while writers wait for the device and not for the CPU, and the rest by the worker.
    Auto,
}

impl Compress {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Off, Self::Later, Self::Inline, Self::Auto];

    /// Its word in settings and attributes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Later => "later",
            Self::Inline => "inline",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for Compress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Text that does not say when to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCompress;

impl fmt::Display for InvalidCompress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compression is {}", Compress::ALL.map(Compress::word).join(", "))
    }
}

impl std::error::Error for InvalidCompress {}

impl FromStr for Compress {
    type Err = InvalidCompress;

    fn from_str(text: &str) -> Result<Self, InvalidCompress> {
        Self::ALL.into_iter().find(|compress| compress.word() == text).ok_or(InvalidCompress)
    }
}

/// When the blocks of a file are compressed. A mount that compresses nothing compresses no file, whatever its policy:
/// only a mount that compresses makes the volume one that earlier versions cannot open.
pub fn effective_compress(file: FilePolicy, mount: Compress) -> Compress {
    match mount {
        Compress::Off => Compress::Off,
        mount => file.compress.unwrap_or(mount),
    }
}

/// The inputs of one file's effective policy. The default leaves everything to the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePolicy {
    /// The override that applies to it. None: it has none.
    pub policy_override: Option<PolicyOverride>,
    /// Its rank.
    pub rank: Rank,
    /// Whether it was rewritten on at least two days.
    pub is_update_heavy: bool,
    /// When its blocks are compressed. None: as the mount says.
    pub compress: Option<Compress>,
}

/// The effect of ranks on a mount: set by its profile.
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

/// The mount's settings for all its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountPolicy {
    /// The effect of ranks.
    pub ranks: Ranks,
    /// The shortest run worth sharing. None: the budget decides.
    pub run_blocks_min: Option<u32>,
    /// The budget of each file. None: there is no limit.
    pub slowdown: Option<Slowdown>,
}

impl MountPolicy {
    /// The limit of sharing for files that follow the mount.
    pub fn limit(&self) -> ShareLimit {
        self.run_blocks_min.map_or_else(|| ShareLimit::of_slowdown(self.slowdown), ShareLimit::Runs)
    }

    /// Whether files that follow the mount have a budget.
    pub fn has_budget(&self) -> bool {
        matches!(self.limit(), ShareLimit::Budget(_))
    }
}

/// The limit of sharing for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareLimit {
    /// Runs of at least this many blocks are shared. 1 shares every block.
    Runs(u32),
    /// As much is shared as this slowdown of its readers allows.
    Budget(Slowdown),
}

impl ShareLimit {
    /// The limit that a slowdown sets. None: every block is shared.
    pub fn of_slowdown(slowdown: Option<Slowdown>) -> Self {
        slowdown.map_or(Self::Runs(1), Self::Budget)
    }

    /// Whether this limit may share blocks that the other one refused. A run length and a budget cannot be compared
    /// exactly.
    pub fn allows_more_than(self, other: Self) -> bool {
        match (self, other) {
            (Self::Runs(this), Self::Runs(other)) => this < other,
            (Self::Budget(this), Self::Budget(other)) => this > other,
            (Self::Budget(_), Self::Runs(other)) => other > 1,
            (Self::Runs(this), Self::Budget(_)) => this < BIG_RUN_BLOCKS,
        }
    }
}

/// How a file is deduplicated: the result of override, rank and mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// On the write path.
    pub is_inline: bool,
    /// Out of line.
    pub is_later: bool,
    /// What is shared, if the file is deduplicated at all.
    pub limit: ShareLimit,
    /// Whether a whole file, and the end after its last full 64 blocks, are shared whatever their length. With a budget
    /// whole files and ends cost nothing.
    pub shares_ends: bool,
}

/// The effective policy of a file on a mount.
pub fn effective_policy(file: FilePolicy, mount: MountPolicy) -> EffectivePolicy {
    let mounts = EffectivePolicy { is_inline: true, is_later: true, limit: mount.limit(), shares_ends: false };
    let left_alone = EffectivePolicy { is_inline: false, is_later: false, ..mounts };
    let by_rank = || match mount.ranks {
        Ranks::Off => mounts,
        Ranks::On => budget_of_rank(file.rank, mounts),
        Ranks::Paper => as_in_the_paper(file.rank, mounts),
    };
    match (file.policy_override, mount.ranks) {
        (Some(PolicyOverride::Off), _) => left_alone,
        (Some(PolicyOverride::Inline), _) | (None, Ranks::Off) => mounts,
        (Some(PolicyOverride::Run(blocks)), _) => EffectivePolicy { limit: ShareLimit::Runs(blocks), ..mounts },
        (Some(PolicyOverride::Slowdown(slowdown)), _) => {
            EffectivePolicy { limit: ShareLimit::of_slowdown(slowdown), ..mounts }
        }
        (Some(PolicyOverride::Later), _) => EffectivePolicy { is_inline: false, ..by_rank() },
        (None, Ranks::On) if file.is_update_heavy => left_alone,
        (None, Ranks::On) => by_rank(),
        (Some(PolicyOverride::Selective), _) | (None, Ranks::Paper) if file.rank == Rank::New => left_alone,
        (Some(PolicyOverride::Selective), _) | (None, Ranks::Paper) => {
            EffectivePolicy { is_inline: false, ..as_in_the_paper(file.rank, mounts) }
        }
    }
}

/// Selective's Table 1, with budgets for chunks where the mount has one; a file that is not judged yet follows the
/// mount.
fn budget_of_rank(rank: Rank, mounts: EffectivePolicy) -> EffectivePolicy {
    match (rank, mounts.limit) {
        (Rank::Sequential, ShareLimit::Budget(_)) => {
            EffectivePolicy { limit: ShareLimit::Budget(SEQUENTIAL_SLOWDOWN), ..mounts }
        }
        _ => as_in_the_paper(rank, mounts),
    }
}

/// Selective's Table 1, with runs for chunks; a file that is not judged yet follows the mount.
fn as_in_the_paper(rank: Rank, mounts: EffectivePolicy) -> EffectivePolicy {
    match rank {
        Rank::New => mounts,
        Rank::Sequential => EffectivePolicy { limit: ShareLimit::Runs(BIG_RUN_BLOCKS), shares_ends: true, ..mounts },
        Rank::Random | Rank::Cold => EffectivePolicy { limit: ShareLimit::Runs(1), ..mounts },
    }
}

#[cfg(test)]
mod tests;
