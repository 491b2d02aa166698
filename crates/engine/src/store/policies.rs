//! The part of the interface for how files are deduplicated: their policies, and their ranks.

use oncefs_dedup::{Compress, EffectivePolicy, FilePolicy, RankRule, ShareLimit};

use crate::{Change, MapId, RankTurn, Result, Store};

impl Store {
    /// The policy of a map's file, as last published. If it cannot be read, that is logged and the mount's policy
    /// applies.
    pub fn file_policy(&self, map: MapId) -> FilePolicy {
        self.volume.file_policies.file_policy(map)
    }

    /// The effective policy of a map.
    pub fn effective_policy(&self, map: MapId) -> EffectivePolicy {
        self.volume.file_policies.effective_policy(map)
    }

    /// The shortest run worth sharing under a limit, in blocks. With a budget: the shortest run length at which a whole
    /// file could be shared.
    pub fn shortest_run(&self, limit: ShareLimit) -> u32 {
        self.volume.file_policies.shortest_run(limit)
    }

    /// The effective policy of a file with this policy, and the reason for it.
    pub fn effective_policy_of(&self, policy: FilePolicy) -> (EffectivePolicy, String) {
        (self.volume.file_policies.effective_policy_by(policy), self.volume.file_policies.why_effective(policy))
    }

    /// When blocks of a file with this policy are compressed.
    pub fn compress_of(&self, policy: FilePolicy) -> Compress {
        self.volume.file_policies.compress_by(policy)
    }

    /// Whether files may have a policy for compression. A volume that was never mounted with one is opened by earlier
    /// versions, which take the record of such a policy for damaged.
    pub fn takes_compression_policies(&self) -> bool {
        self.volume.base.stored.has_fragments()
    }

    /// Adds a file's new policy to a change. If it allows more than before, the worker visits the file once the change
    /// is published. The caller prevents other changes of this file's policy meanwhile.
    pub fn policy_change(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        self.volume.file_policies.policy_change(change, map, policy);
    }

    /// Like [`Store::policy_change`], for a map without blocks, which the worker need not visit.
    pub fn first_policy(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        self.volume.file_policies.first_policy(change, map, policy);
    }

    /// Makes the worker call `turn` while it has no other work and may run, repeatedly while anything is due. The first
    /// `turn` stays; later ones are ignored.
    pub fn rank_by(&self, turn: RankTurn) {
        self.volume.base.worker.rank_by(turn);
    }

    /// The rule by which files are ranked.
    pub fn rank_rule(&self) -> RankRule {
        self.volume.base.tuning.with(|settings| settings.rank_rule)
    }

    /// Like [`Store::publish`], for a few records of background work: it does not count as a request of a program, and
    /// does not wait for room.
    ///
    /// # Errors
    ///
    /// As [`Store::publish`].
    pub fn publish_in_background(&self, change: Change) -> Result<()> {
        self.volume.publisher.publish(change)
    }
}
