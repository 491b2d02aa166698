//! What is said of files about how they are deduplicated: the attribute `user.oncefs.policy` of files and directories.
//!
//! Owns what it may say, who inherits it and that it goes with its file. The engine, which treats blocks by their map,
//! is told in the publication that changes the attribute, so that both say the same after a crash too. What follows
//! from it is the engine's to say.

use oncefs_engine::{Change, EffectivePolicy, FilePolicy, PolicyOverride};

use crate::content::map::with_map;
use crate::format::inode::InodeRecord;
use crate::format::xattr;
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// The attribute's name.
pub const POLICY_ATTRIBUTE: &[u8] = b"user.oncefs.policy";

/// What a value may be.
const MALFORMED: &str = "a policy is off, inline, later, selective or run=N with N from 1 to 256";

/// How a file is deduplicated, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveView {
    /// What is said of the file. Of a directory: of a file that is made in it now.
    pub policy: FilePolicy,
    /// What follows from that, and from what is set for the mount.
    pub effective_policy: EffectivePolicy,
    /// The shortest run that is shared now, in blocks; None for a directory where each file has its own.
    pub run_blocks_min: Option<u32>,
    /// What set that, or why the file is left alone.
    pub why: String,
}

/// Whether an inode can have a policy.
fn can_have(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

/// The wish in the value of an attribute.
pub(crate) fn parse(value: &[u8]) -> Option<PolicyOverride> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The wish that an attribute carries, None for all other attributes. A value that is no wish is refused, and so is an
/// inode that cannot have one.
pub(crate) fn checked(record: &InodeRecord, name: &[u8], value: &[u8]) -> Result<Option<PolicyOverride>> {
    match (name == POLICY_ATTRIBUTE, can_have(record.kind)) {
        (false, _) => Ok(None),
        (true, false) => Err(Error::OperationNotPermitted),
        (true, true) => parse(value).map(Some).ok_or(Error::Invalid(MALFORMED)),
    }
}

impl FileSystem {
    /// How a file, or what is made in a directory, is deduplicated.
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
                run_blocks_min: effective_policy.run_blocks_min,
                why,
            });
        }
        with_map(&inode, |map, _| {
            let policy = self.store.file_policy(map);
            let (effective_policy, why) = self.store.effective_policy_of(policy);
            Ok(EffectiveView { policy, effective_policy, run_blocks_min: Some(self.store.run_blocks_min(map)), why })
        })
    }

    /// The wish of an inode whose record is at hand. What is damaged, or was an ordinary attribute for an older
    /// version, is none.
    pub(crate) fn read_override(&self, ino: Ino, record: &InodeRecord) -> Result<Option<PolicyOverride>> {
        if record.xattrs == 0 {
            return Ok(None);
        }
        let bytes = self.store.get(&xattr::key(ino, POLICY_ATTRIBUTE))?;
        Ok(bytes.and_then(|bytes| xattr::decode(ino, &bytes).ok()).and_then(|value| parse(&value)))
    }

    /// What a new inode inherits.
    pub(crate) fn inherit_override(
        &self,
        parent: Ino,
        above: &InodeRecord,
        kind: FileKind,
    ) -> Result<Option<PolicyOverride>> {
        if can_have(kind) { self.read_override(parent, above) } else { Ok(None) }
    }

    /// Tells the engine of a file's new wish. The caller holds the inode.
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
    fn what_is_refused_says_what_there_is() {
        assert_eq!(MALFORMED, InvalidOverride.to_string());
    }
}
