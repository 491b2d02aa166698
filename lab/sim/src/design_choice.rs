//! The designs by name, as the command line and the comparison know them.

use std::fmt;
use std::str::FromStr;

use oncefs_dedup::{Eviction, PREFIX_BITS_MAX, PREFIX_BITS_MIN};

use crate::designs::{
    Caftl, CaftlOptions, Design, DmdedupTree, FINGERPRINT_BYTES, Full, Inline, LruIndex, NoIndex, Oncefs,
    OncefsOptions, Threshold, dmdedup_in_memory,
};
use crate::volume::Volume;

/// Nine hints.
const GROUP_BYTES: u64 = 96;

/// A design, without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DesignChoice {
    /// oncefs with two levels, evicting what is cold of neighbouring groups.
    Oncefs,
    /// oncefs with two levels, evicting whole groups: SmartDedup's G-LRU.
    OncefsGroups,
    /// oncefs with two levels, evicting single hints: SmartDedup's LRU, in oncefs's own store.
    OncefsSingles,
    /// oncefs without disk level and worker.
    OncefsInline,
    /// The same, evicting whole groups.
    OncefsInlineGroups,
    /// oncefs without disk level and worker, evicting single hints: iDedup's memory-only cache.
    IDedup,
    /// Plain LRU of fingerprints, as large as SmartDedup's.
    Lru,
    /// CAFTL without pre-hash.
    Caftl,
    /// CAFTL without pre-hash and sampling: its replacement alone.
    CaftlAll,
    /// CAFTL with CRC32 pre-hash.
    CaftlPrehash,
    /// Dmdedup's B-tree, limited to the memory.
    Dmdedup,
    /// Dmdedup's B-tree on disk behind a cache.
    DmdedupTree,
    /// Exact full index, whatever memory it takes.
    Full,
    /// No dedup.
    None,
}

/// What stays the same for all designs of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Memory for finding duplicates, bytes.
    pub memory: u64,
    /// Of oncefs: whether the disk level's directory takes memory beside that, instead of from it.
    pub directory_beside: bool,
    /// Of oncefs: length of the memory level's prefix; `None`: as it chooses, or as SmartDedup did where whole groups are
    /// evicted.
    pub prefix_bits: Option<u32>,
    /// Of oncefs: which runs are worth sharing.
    pub threshold: Threshold,
    /// Of oncefs: whether runs are extended through the block table.
    pub extends: bool,
}

impl DesignChoice {
    /// All of them, with their names and what they are.
    pub const ALL: [(Self, &str, &str); 14] = [
        (Self::Oncefs, "oncefs", "two levels, evicts what is cold of neighbouring groups"),
        (Self::OncefsGroups, "oncefs-groups", "two levels, evicts whole groups (SmartDedup's G-LRU)"),
        (Self::OncefsSingles, "oncefs-singles", "two levels, evicts single hints (SmartDedup's LRU)"),
        (Self::OncefsInline, "oncefs-inline", "memory level only, evicts what is cold of groups"),
        (Self::OncefsInlineGroups, "oncefs-inline-groups", "memory level only, evicts whole groups"),
        (Self::IDedup, "idedup", "memory level only, evicts single hints (iDedup's)"),
        (Self::Lru, "lru", "plain LRU of fingerprints of 32 bytes"),
        (Self::Caftl, "caftl", "CAFTL: sampling, fewest references leave first"),
        (Self::CaftlAll, "caftl-all", "the same without sampling: every block is looked up"),
        (Self::CaftlPrehash, "caftl-prehash", "with sampling and CRC32 pre-hash"),
        (Self::Dmdedup, "dmdedup", "Dmdedup's B-tree limited to the memory"),
        (Self::DmdedupTree, "dmdedup-tree", "Dmdedup's B-tree on disk, the memory a cache"),
        (Self::Full, "full", "exact full index, whatever memory it takes"),
        (Self::None, "none", "no dedup"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(choice, ..)| *choice == self).expect("ALL has every choice").1
    }

    /// What leaves the memory level, of the designs that have one.
    pub fn eviction(self) -> Eviction {
        match self {
            Self::OncefsSingles | Self::IDedup => Eviction::Singles,
            Self::OncefsGroups | Self::OncefsInlineGroups => Eviction::Groups,
            _ => Eviction::ColdOfGroups,
        }
    }

    /// An empty volume that grows with what is stored, with this design.
    pub fn build(self, settings: Settings) -> Box<dyn Design> {
        self.build_on(Volume::default(), settings)
    }

    /// This design on an empty volume.
    pub fn build_on(self, volume: Volume, settings: Settings) -> Box<dyn Design> {
        let memory = settings.memory;
        let caftl = |sampling, prehash| Caftl::new(CaftlOptions { memory, sampling, prehash });
        match self {
            Self::Oncefs | Self::OncefsGroups | Self::OncefsSingles => self.oncefs(volume, settings, true),
            Self::OncefsInline | Self::OncefsInlineGroups | Self::IDedup => self.oncefs(volume, settings, false),
            Self::Lru => Box::new(Inline::on(volume, LruIndex::new(memory, FINGERPRINT_BYTES))),
            Self::Caftl => Box::new(Inline::on(volume, caftl(true, false))),
            Self::CaftlAll => Box::new(Inline::on(volume, caftl(false, false))),
            Self::CaftlPrehash => Box::new(Inline::on(volume, caftl(true, true))),
            Self::Dmdedup => Box::new(Inline::on(volume, dmdedup_in_memory(memory))),
            Self::DmdedupTree => Box::new(Inline::on(volume, DmdedupTree::new(memory))),
            Self::Full => Box::new(Inline::on(volume, Full::default())),
            Self::None => Box::new(Inline::on(volume, NoIndex)),
        }
    }

    fn oncefs(self, volume: Volume, settings: Settings, two_levels: bool) -> Box<dyn Design> {
        let Settings { memory, directory_beside, prefix_bits, threshold, extends } = settings;
        let eviction = self.eviction();
        let papers = (eviction == Eviction::Groups).then(|| papers_prefix_bits(memory));
        let prefix_bits = prefix_bits.or(papers);
        let options = OncefsOptions { memory, directory_beside, eviction, prefix_bits, threshold, two_levels, extends };
        Box::new(Oncefs::on(volume, options))
    }
}

/// A prefix with which groups are as small as SmartDedup's, 5 to 9 hints: 14 bits for 3 MB and 18 for 40 with its
/// fingerprints of 32 bytes, so one bit more with hints of a third of that. Evicting whole groups finds the less, the
/// larger they are.
fn papers_prefix_bits(memory: u64) -> u32 {
    (memory / GROUP_BYTES).next_power_of_two().ilog2().clamp(PREFIX_BITS_MIN, PREFIX_BITS_MAX)
}

impl fmt::Display for DesignChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DesignChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, name, _)| *name == text);
        found.map(|(choice, ..)| *choice).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            format!("there is no design '{text}': choose from {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_small_as_the_papers() {
        assert_eq!(papers_prefix_bits(3 << 20), 15);
        assert_eq!(papers_prefix_bits(40 << 20), 19);
        assert_eq!(papers_prefix_bits(1), PREFIX_BITS_MIN);
    }

    #[test]
    fn names_lead_back_to_their_design() {
        for (choice, name, _) in DesignChoice::ALL {
            assert_eq!(name.parse(), Ok(choice));
            assert_eq!(choice.name(), name);
        }
        assert!("zfs".parse::<DesignChoice>().unwrap_err().contains("choose from oncefs, oncefs-groups"));
    }
}
