//! How the blocks of each file are treated: whether they are looked up as they are written, whether the worker looks
//! at them, and which runs it shares. Decided in `dedup` ([`oncefs_dedup::treatment`]) from what is said of the file,
//! which is kept in a record by its map, and of the mount.
//!
//! Owns what follows when that changes: a file of which more is allowed is looked at by the worker, as a whole. The
//! record changes with whatever else its publication says, is durable with its group, and goes in the publication that
//! detaches its map; so a crash leaves both or neither.

use oncefs_dedup::{EffectivePolicy, FilePolicy, PolicyOverride, Rank, Ranks, Work, effective_policy};

use crate::core::Core;
use crate::format::file_policy;
use crate::format::keys;
use crate::types::PolicyChange;
use crate::{Change, MapId, Store};

impl Store {
    /// What is said of the file of a map, as last published. What cannot be read is told in the log, and is as if
    /// nothing was said.
    pub fn file_policy(&self, map: MapId) -> FilePolicy {
        self.core.file_policy(map)
    }

    /// How the blocks of a map are treated.
    pub fn effective_policy(&self, map: MapId) -> EffectivePolicy {
        self.core.effective_policy(map)
    }

    /// How the blocks of a file are treated of which this is said, and what makes them so.
    pub fn effective_policy_of(&self, policy: FilePolicy) -> (EffectivePolicy, String) {
        (self.core.effective_policy_by(policy), self.core.why_effective(policy))
    }

    /// Adds to a change what is said of a file from then on. If that allows more than before, the worker looks at the
    /// file once the change is published. The caller holds what keeps others from saying something of this file.
    pub fn policy_change(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        self.core.policy_change(change, map, policy);
    }

    /// As [`Store::policy_change`], for a map that has nothing yet: there is nothing to look at.
    pub fn first_policy(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        self.core.first_policy(change, map, policy);
    }
}

impl Core {
    /// See [`Store::file_policy`].
    pub fn file_policy(&self, map: MapId) -> FilePolicy {
        let ticket = match self.policy.policies.get(map) {
            Ok(policy) => return policy,
            Err(ticket) => ticket,
        };
        let policy = match self.get(&keys::file_policy(map)) {
            Ok(None) => FilePolicy::default(),
            Ok(Some(bytes)) => file_policy::decode(map, &bytes).unwrap_or_else(|| {
                log::warn!(
                    "the policy of map {} is damaged; using the mount's policy for its file, run oncefs fsck to fix it",
                    map.0
                );
                FilePolicy::default()
            }),
            Err(error) => {
                self.health.tell("cannot read the policy of a file, using the mount's", &error);
                return FilePolicy::default();
            }
        };
        self.policy.policies.enter(map, policy, ticket);
        policy
    }

    /// See [`Store::treatment`].
    pub fn effective_policy(&self, map: MapId) -> EffectivePolicy {
        self.effective_policy_by(self.file_policy(map))
    }

    fn effective_policy_by(&self, policy: FilePolicy) -> EffectivePolicy {
        let mount = self.tuning.with(|settings| settings.mount_policy());
        effective_policy(policy, mount)
    }

    /// See [`Store::policy_change`].
    pub fn policy_change(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        let allows_more = self.allows_more_of(map, self.file_policy(map), policy);
        self.add_policy(change, PolicyChange { map, policy, allows_more });
    }

    /// See [`Store::first_policy`]. A map that goes ends as it began: nothing is said of it.
    pub fn first_policy(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        self.add_policy(change, PolicyChange { map, policy, allows_more: false });
    }

    /// Adds a record to a change; one that says nothing goes.
    fn add_policy(&self, change: &mut Change, said: PolicyChange) {
        let key = keys::file_policy(said.map);
        if said.policy != FilePolicy::default() {
            change.put(key, file_policy::encode(said.map, &said.policy));
        } else if change.policies.iter().any(|other| other.map == said.map) || !matches!(self.get(&key), Ok(None)) {
            change.delete(key);
        } else {
            return;
        }
        change.policies.push(said);
    }

    /// Whether the worker is to look at a file again of which something else is said. That a file is new again says that
    /// it was written: what was written is noted block by block, and what it holds beside stays as its rank had it.
    fn allows_more_of(&self, map: MapId, before: FilePolicy, after: FilePolicy) -> bool {
        if before.policy_override == after.policy_override && after.rank == Rank::New {
            return false;
        }
        let (before, after) = (self.effective_policy_by(before), self.effective_policy_by(after));
        let shortest = |effective_policy: EffectivePolicy| {
            effective_policy.run_blocks_min.unwrap_or_else(|| self.automatic_run(map))
        };
        let shares_shorter = shortest(after) < shortest(before) || after.shares_ends && !before.shares_ends;
        after.is_later && (!before.is_later || shares_shorter)
    }

    /// Behind a publication: the worker looks at files of which more is allowed now.
    pub fn look_at_allowed(&self, said: &[PolicyChange]) {
        let mut is_any = false;
        for PolicyChange { map, .. } in said.iter().filter(|said| said.allows_more) {
            self.look_again_at_refused(Work::Owner(map.0));
            is_any = true;
        }
        if is_any {
            self.signals.wake_worker();
        }
    }

    /// Why a file is treated as it is of which this is said: what set its shortest run, or leaves it alone.
    pub fn why_effective(&self, policy: FilePolicy) -> String {
        let mount = self.tuning.with(|settings| settings.mount_policy());
        let EffectivePolicy { is_inline, is_later, run_blocks_min, .. } = effective_policy(policy, mount);
        let ranked = || format!("rank {}", policy.rank.number());
        let policy_override = policy.policy_override.map(|policy_override| format!("policy {policy_override}"));
        match run_blocks_min {
            _ if !is_inline && !is_later => match (policy_override, mount.ranks) {
                (Some(policy_override), _) if policy.policy_override == Some(PolicyOverride::Off) => policy_override,
                (Some(policy_override), _) => format!("{policy_override}, {}", ranked()),
                (None, Ranks::Paper) => ranked(),
                (None, _) => "rewritten on several days".to_owned(),
            },
            None => {
                format!("automatic: by its reads; a seek costs {:.1} blocks", self.policy.device_reads.seek_blocks())
            }
            Some(_) if matches!(policy.policy_override, Some(PolicyOverride::Run(_))) => "set by its policy".to_owned(),
            fixed if fixed == mount.run_blocks_min => "set by run_blocks_min".to_owned(),
            Some(_) => format!("set by its {}", ranked()),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests;
