//! Profiles: named sets of settings. One is chosen when a volume is made, and another may be chosen for a mount.

/// A named set of settings (`docs/profiles.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Complete index in memory, in-line, no worker (the paper LRLFS).
    Lrlfs,
    /// The paper SmartDedup: 3 MB of hints with a 14-bit prefix, 0.5 MB of skipped buffer, its controller.
    Smartdedup,
    /// Small boards: dedup in 3.5 MB, work out of line when idle and powered.
    Edge,
    /// Everyday machines: hints in a share of the memory, the rest on disk, work out of line when idle.
    #[default]
    Desktop,
    /// Large volumes: as desktop, with hints on one content of 64 in 32 MiB for each TiB of the data area.
    Server,
    /// The paper iDedup: its cache of dedup metadata in memory alone, runs of at least four blocks, no worker.
    Idedup,
    /// The paper Selective: files are deduplicated out of line, each as its rank says, new ones not at all.
    Selective,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 7] =
        [Self::Lrlfs, Self::Smartdedup, Self::Edge, Self::Desktop, Self::Server, Self::Idedup, Self::Selective];

    /// Its name in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lrlfs => "lrlfs",
            Self::Smartdedup => "smartdedup",
            Self::Edge => "edge",
            Self::Desktop => "desktop",
            Self::Server => "server",
            Self::Idedup => "idedup",
            Self::Selective => "selective",
        }
    }

    /// The profile of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Its number in the superblock.
    pub fn number(self) -> u32 {
        match self {
            Self::Lrlfs => 1,
            Self::Smartdedup => 2,
            Self::Edge => 3,
            Self::Desktop => 4,
            Self::Server => 5,
            Self::Idedup => 6,
            Self::Selective => 7,
        }
    }

    /// The profile of that number in a superblock.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_come_back() {
        for profile in Profile::ALL {
            assert_eq!(Profile::from_name(profile.name()), Some(profile));
            assert_eq!(Profile::from_number(profile.number()), Some(profile));
        }
        assert_eq!((Profile::from_name("fast"), Profile::from_number(0)), (None, None));
    }
}
