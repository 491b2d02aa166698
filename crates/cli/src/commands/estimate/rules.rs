//! The rule by which each profile shares, for the estimator and as text.

use oncefs_engine::{PieceCost, Profile, ShareLimit, Sharing};
use oncefs_estimate::Rule;

/// One profile.
pub struct ProfileRule {
    pub profile: Profile,
    pub rule: Rule,
    /// A description of what it shares.
    pub limit: String,
}

/// All profiles, the default one first.
pub fn of_profiles(piece_cost: PieceCost) -> Vec<ProfileRule> {
    let others = Profile::ALL.into_iter().filter(|profile| *profile != Profile::default());
    let profiles = [Profile::default()].into_iter().chain(others);
    let rule = |profile| {
        let sharing = Sharing::of(profile);
        let rule = Rule { limit: sharing.limit, piece_cost, hint_sample: sharing.hint_sample };
        ProfileRule { profile, rule, limit: in_words(&sharing) }
    };
    profiles.map(rule).collect()
}

fn in_words(sharing: &Sharing) -> String {
    let mut words = match sharing.limit {
        ShareLimit::Runs(0 | 1) => "every block".to_owned(),
        ShareLimit::Runs(blocks) => format!("runs of {blocks} blocks or more"),
        ShareLimit::Budget(slowdown) => format!("while a file reads at most {slowdown} % slower"),
    };
    if sharing.hint_sample > 1 {
        words += &format!(", hints for one block in {}", sharing.hint_sample);
    }
    if !sharing.keeps_hints {
        words += ", as long as memory has all hints";
    }
    if sharing.waits_for_rank {
        words += " of cold files, nothing of new ones";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_there_and_the_default_comes_first() {
        let rules = of_profiles(PieceCost::EXPECTED);
        assert_eq!(rules.len(), Profile::ALL.len());
        let words: Vec<(&str, &str)> = rules.iter().map(|rule| (rule.profile.name(), rule.limit.as_str())).collect();
        assert_eq!(words[0], ("desktop", "while a file reads at most 100 % slower"));
        assert!(words.contains(&("idedup", "runs of 4 blocks or more, as long as memory has all hints")));
        assert!(words.contains(&("selective", "every block of cold files, nothing of new ones")));
    }
}
