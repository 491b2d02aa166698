//! The sharing of a profile once all work is done, computed without a volume: the basis of `oncefs estimate`.

use oncefs_dedup::{FilePolicy, Rank, Ranks, ShareLimit, effective_policy};

use super::profile::Profile;
use super::values::Settings;

/// The sharing of a volume of a profile once its worker has no work left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The limit of a file's sharing: of an unranked file, or, if these share nothing, of a cold one.
    pub limit: ShareLimit,
    /// Whether a file shares nothing before it is ranked.
    pub waits_for_rank: bool,
    /// Hints name one content in this many.
    pub hint_sample: u32,
    /// Whether hints that do not fit into memory are kept on disk. Otherwise they are dropped.
    pub keeps_hints: bool,
}

impl Sharing {
    /// The sharing of a profile with its own settings.
    pub fn of(profile: Profile) -> Self {
        // None of it depends on the memory.
        let settings = Settings::of(profile, 0);
        let waits_for_rank = settings.ranks == Ranks::Paper;
        let rank = if waits_for_rank { Rank::Cold } else { Rank::New };
        let policy = effective_policy(FilePolicy { rank, ..FilePolicy::default() }, settings.mount_policy());
        let (hint_sample, keeps_hints) = (settings.hint_sample, settings.disk_level);
        Self { limit: policy.limit, waits_for_rank, hint_sample, keeps_hints }
    }
}

#[cfg(test)]
mod tests {
    use oncefs_dedup::Slowdown;

    use super::*;

    #[test]
    fn profiles_share_what_their_page_says() {
        let limits = Profile::ALL.map(|profile| Sharing::of(profile).limit);
        let (budget, runs) = (|percent| ShareLimit::Budget(Slowdown(percent)), ShareLimit::Runs);
        assert_eq!(limits, [runs(1), runs(1), runs(1), budget(100), budget(10), runs(4), runs(1)]);
        assert!(Profile::ALL.iter().all(|profile| {
            let sharing = Sharing::of(*profile);
            sharing.waits_for_rank == (*profile == Profile::Selective)
                && (sharing.hint_sample > 1) == (*profile == Profile::Server)
                && sharing.keeps_hints != matches!(profile, Profile::Lrlfs | Profile::Idedup)
        }));
    }
}
