//! The effective policy of each file: whether its blocks are looked up as they are written, whether the worker visits
//! them, and which runs are shared. `dedup` derives it ([`oncefs_dedup::effective_policy`]) from the file's own policy,
//! which is a record beside its map, and the mount's.
//!
//! Owns the consequences of a change: if a file's policy allows more, the worker visits the whole file. The record
//! changes in the same publication as its cause, is durable with its group, and is removed in the publication that
//! detaches its map. So a crash leaves both or neither.

use oncefs_dedup::{
    Compress, EffectivePolicy, FilePolicy, PolicyOverride, Rank, Ranks, Work, effective_compress, effective_policy,
};

use crate::base::part;
use crate::format::{file_policy, keys};
use crate::state::loading::Metadata;
use crate::types::PolicyChange;
use crate::{Change, MapId};

part! {
    /// Decides how each file is deduplicated, and which of its runs are shared.
    pub struct FilePolicies {
        pub(super) base: health, policy, tuning, backlog, signals;
        metadata: Metadata
    }
}

impl FilePolicies {
    /// See [`crate::Store::file_policy`].
    pub fn file_policy(&self, map: MapId) -> FilePolicy {
        let ticket = match self.policy.file_policy(map) {
            Ok(policy) => return policy,
            Err(ticket) => ticket,
        };
        let policy = match self.metadata.get(&keys::file_policy(map)) {
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
        self.policy.note_read_policy(map, policy, ticket);
        policy
    }

    /// See [`crate::Store::effective_policy`].
    pub fn effective_policy(&self, map: MapId) -> EffectivePolicy {
        self.effective_policy_by(self.file_policy(map))
    }

    /// The effective policy of a file with this policy.
    pub fn effective_policy_by(&self, policy: FilePolicy) -> EffectivePolicy {
        let mount = self.tuning.with(|settings| settings.mount_policy());
        effective_policy(policy, mount)
    }

    /// When blocks of a file are compressed. Where the mount compresses nothing, no file is looked up.
    pub fn compress(&self, map: MapId) -> Compress {
        match self.tuning.with(|settings| settings.compress) {
            Compress::Off => Compress::Off,
            mount => effective_compress(self.file_policy(map), mount),
        }
    }

    /// When blocks of a file with this policy are compressed.
    pub fn compress_by(&self, policy: FilePolicy) -> Compress {
        effective_compress(policy, self.tuning.with(|settings| settings.compress))
    }

    /// See [`crate::Store::policy_change`].
    pub fn policy_change(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        let before = self.file_policy(map);
        let allows_more = self.allows_more_of(map, before, policy);
        let is_compressed = |policy| self.compress_by(policy) != Compress::Off;
        let allows_compression = is_compressed(policy) && !is_compressed(before);
        self.add_policy(change, PolicyChange { map, policy, allows_more, allows_compression });
    }

    /// See [`crate::Store::first_policy`]. A map that is deleted ends as it began: without a policy of its own.
    pub fn first_policy(&self, change: &mut Change, map: MapId, policy: FilePolicy) {
        self.add_policy(change, PolicyChange { map, policy, allows_more: false, allows_compression: false });
    }

    /// Adds a policy's record to a change. The record of the default policy is deleted.
    fn add_policy(&self, change: &mut Change, new: PolicyChange) {
        let key = keys::file_policy(new.map);
        if new.policy != FilePolicy::default() {
            change.put(key, file_policy::encode(new.map, &new.policy));
        } else if change.policies.iter().any(|other| other.map == new.map)
            || !matches!(self.metadata.get(&key), Ok(None))
        {
            change.delete(key);
        } else {
            return;
        }
        change.policies.push(new);
    }

    /// Whether the worker must revisit a file whose policy changes. A file whose rank becomes new again was written:
    /// its new blocks are noted one by one, and the rest stays as its former rank had it.
    fn allows_more_of(&self, map: MapId, before: FilePolicy, after: FilePolicy) -> bool {
        if before.policy_override == after.policy_override && after.rank == Rank::New {
            return false;
        }
        let (before, after) = (self.effective_policy_by(before), self.effective_policy_by(after));
        let shares_more = self.limit_by(map, after).allows_more_than(self.limit_by(map, before))
            || after.shares_ends && !before.shares_ends;
        after.is_later && (!before.is_later || shares_more)
    }

    /// After a publication: lets the worker visit files whose policy allows more now, and compress those that may be.
    pub fn look_at_allowed(&self, changes: &[PolicyChange]) {
        let mut is_any = changes.iter().any(|change| change.allows_compression);
        if is_any {
            self.policy.note_compression_allowed();
        }
        for PolicyChange { map, .. } in changes.iter().filter(|change| change.allows_more) {
            self.backlog.requeue(Work::Owner(map.0));
            is_any = true;
        }
        if is_any {
            self.signals.wake_worker();
        }
    }

    /// The reason for the effective policy of a file with this policy: what set its shortest run, or excludes it.
    pub fn why_effective(&self, policy: FilePolicy) -> String {
        let mount = self.tuning.with(|settings| settings.mount_policy());
        let EffectivePolicy { is_inline, is_later, limit, .. } = effective_policy(policy, mount);
        let ranked = || format!("rank {}", policy.rank.number());
        let policy_override = policy.policy_override.map(|policy_override| format!("policy {policy_override}"));
        match limit {
            _ if !is_inline && !is_later => match (policy_override, mount.ranks) {
                (Some(policy_override), _) if policy.policy_override == Some(PolicyOverride::Off) => policy_override,
                (Some(policy_override), _) => format!("{policy_override}, {}", ranked()),
                (None, Ranks::Paper) => ranked(),
                (None, _) => "rewritten on several days".to_owned(),
            },
            _ if matches!(policy.policy_override, Some(PolicyOverride::Run(_) | PolicyOverride::Slowdown(_))) => {
                "set by its policy".to_owned()
            }
            of_mount if of_mount == mount.limit() && mount.run_blocks_min.is_some() => {
                "set by run_blocks_min".to_owned()
            }
            of_mount if of_mount == mount.limit() => "set by read_slowdown_percent_max".to_owned(),
            _ => format!("set by its {}", ranked()),
        }
    }

    /// Whether a file is deduplicated out of line.
    pub fn is_later(&self, map: MapId) -> bool {
        self.effective_policy(map).is_later
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests;
