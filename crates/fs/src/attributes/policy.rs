//! Policy overrides: the attribute `user.oncefs.policy` of files and directories, which sets how a file is deduplicated.
//!
//! Owns the attribute's values, its inheritance, and its tie to the file. The engine keeps the policy of each map.
//! Policy and attribute change in one publication, so that both agree after a crash. The engine defines what a policy
//! means.

use oncefs_engine::{Change, EffectivePolicy, FilePolicy, PolicyOverride, ShareLimit};

use crate::format::inode::InodeRecord;
use crate::format::xattr;
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// The name of the attribute with a policy override.
pub const POLICY_ATTRIBUTE: &[u8] = b"user.oncefs.policy";

/// The error for any other value.
const MALFORMED: &str = "a policy is off, inline, later, selective, run=N with N from 1 to 256, or slowdown=PERCENT with \
                         PERCENT from 0 to 1000 or 'none'";

/// The policy in force for a file, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveView {
    /// The stored policy: override, rank, update-heavy. For a directory: that of a file created in it now.
    pub policy: FilePolicy,
    /// The policy that follows from it and from the settings of the mount.
    pub effective_policy: EffectivePolicy,
    /// The shortest run that is shared now, in blocks. With a budget, the shortest run in which the whole file could be
    /// shared. None: a directory, whose files each have a length of their own.
    pub run_blocks_min: Option<u32>,
    /// What determines that, or why the file is not deduplicated.
    pub why: String,
}

/// Whether inodes of this kind can have a policy.
fn can_have(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

/// The override that a value of the attribute stands for.
pub(crate) fn parse(value: &[u8]) -> Option<PolicyOverride> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The override that an attribute sets. None: it is another attribute. Refuses an invalid value, and an inode that cannot
/// have a policy.
pub(crate) fn checked(record: &InodeRecord, name: &[u8], value: &[u8]) -> Result<Option<PolicyOverride>> {
    match (name == POLICY_ATTRIBUTE, can_have(record.kind)) {
        (false, _) => Ok(None),
        (true, false) => Err(Error::OperationNotPermitted),
        (true, true) => parse(value).map(Some).ok_or(Error::Invalid(MALFORMED)),
    }
}

impl FileSystem {
    /// The policy in force for a file, or for files created in a directory.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the inode is neither a regular file nor a directory.
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: its record or its attribute cannot be read.
    pub fn effective(&self, ino: Ino) -> Result<EffectiveView> {
        let inode = self.inode(ino)?;
        let record = inode.lock().clone();
        if !can_have(record.kind) {
            return Err(Error::Invalid("only files and directories have a policy"));
        }
        if record.is_directory() {
            let policy = FilePolicy { policy_override: self.read_override(ino, &record)?, ..FilePolicy::default() };
            let (effective_policy, why) = self.store.effective_policy_of(policy);
            return Ok(EffectiveView {
                policy,
                effective_policy,
                run_blocks_min: match effective_policy.limit {
                    ShareLimit::Runs(blocks) => Some(blocks),
                    ShareLimit::Budget(_) => None,
                },
                why,
            });
        }
        inode.with_map(|map, _| {
            let policy = self.store.file_policy(map);
            let (effective_policy, why) = self.store.effective_policy_of(policy);
            Ok(EffectiveView { policy, effective_policy, run_blocks_min: Some(self.store.run_blocks_min(map)), why })
        })
    }

    /// The override of an inode with this record. None also for a damaged attribute, and for one that an older version
    /// stored as an ordinary attribute.
    pub(crate) fn read_override(&self, ino: Ino, record: &InodeRecord) -> Result<Option<PolicyOverride>> {
        if record.xattrs == 0 {
            return Ok(None);
        }
        let bytes = self.store.get(&xattr::key(ino, POLICY_ATTRIBUTE))?;
        Ok(bytes.and_then(|bytes| xattr::decode(ino, &bytes).ok()).and_then(|value| parse(&value)))
    }

    /// The override that a new inode inherits from its directory.
    pub(crate) fn inherit_override(
        &self,
        parent: Ino,
        above: &InodeRecord,
        kind: FileKind,
    ) -> Result<Option<PolicyOverride>> {
        if can_have(kind) { self.read_override(parent, above) } else { Ok(None) }
    }

    /// Adds a file's new override to the change, for the engine. The caller holds the inode's lock.
    pub(crate) fn override_changed(
        &self,
        change: &mut Change,
        record: &InodeRecord,
        policy_override: Option<PolicyOverride>,
    ) {
        if record.kind == FileKind::Regular {
            let policy = FilePolicy { policy_override, ..self.store.file_policy(record.map) };
            self.store.policy_change(change, record.map, policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::InvalidOverride;

    use super::*;

    #[test]
    fn the_error_for_an_invalid_value_lists_the_valid_ones() {
        assert_eq!(MALFORMED, InvalidOverride.to_string());
    }
}
