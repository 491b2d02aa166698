//! Policy overrides: the attributes `user.oncefs.policy` and `user.oncefs.compress` of files and directories, which set
//! how a file is deduplicated and when it is compressed.
//!
//! Owns the attributes' values, their inheritance, and their tie to the file. The engine keeps the policy of each map.
//! Policy and attribute change in one publication, so that both agree after a crash. The engine defines what a policy
//! means.

use std::str::FromStr;

use oncefs_engine::{Change, Compress, EffectivePolicy, FilePolicy, PolicyOverride, ShareLimit, Store};

use crate::format::inode::InodeRecord;
use crate::format::xattr;
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// The name of the attribute with a policy override.
pub const POLICY_ATTRIBUTE: &[u8] = b"user.oncefs.policy";

/// The name of the attribute that sets when a file is compressed.
pub const COMPRESS_ATTRIBUTE: &[u8] = b"user.oncefs.compress";

/// The error for any other value of the second one.
const MALFORMED_COMPRESS: &str = "compression is off, later, inline, auto";
/// The error for any other value of the first one.
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
    /// The setting that decided it, or why the file is not deduplicated.
    pub why: String,
    /// When the file is compressed.
    pub compress: Compress,
}

/// The settings in the attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// How it is deduplicated.
    pub dedup: Option<PolicyOverride>,
    /// When it is compressed.
    pub compress: Option<Compress>,
}

impl Overrides {
    /// Those of a file with this policy.
    fn of(policy: FilePolicy) -> Self {
        Self { dedup: policy.policy_override, compress: policy.compress }
    }

    /// Takes in an attribute that has this value now, or none. Other attributes change nothing, and a value that is not
    /// valid counts as none.
    pub(crate) fn take_in(&mut self, name: &[u8], value: Option<&[u8]>) {
        match name {
            POLICY_ATTRIBUTE => self.dedup = value.and_then(parse),
            COMPRESS_ATTRIBUTE => self.compress = value.and_then(parse),
            _ => {}
        }
    }

    /// Those that a volume takes. One that was never mounted with compression takes none for it: earlier versions open
    /// it, and they keep an attribute of this name as any other.
    pub(crate) fn on(self, store: &Store) -> Self {
        Self { compress: self.compress.filter(|_| store.takes_compression_policies()), ..self }
    }

    /// The policy of a file with these overrides.
    pub(crate) fn apply_to(self, policy: FilePolicy) -> FilePolicy {
        FilePolicy { policy_override: self.dedup, compress: self.compress, ..policy }
    }

    /// The attributes that store them.
    pub(crate) fn attributes(self) -> [(&'static [u8], Option<Vec<u8>>); 2] {
        [
            (POLICY_ATTRIBUTE, self.dedup.map(|dedup| dedup.to_string().into_bytes())),
            (COMPRESS_ATTRIBUTE, self.compress.map(|compress| compress.to_string().into_bytes())),
        ]
    }
}

/// Whether an attribute sets a policy.
pub(crate) fn is_override(name: &[u8]) -> bool {
    [POLICY_ATTRIBUTE, COMPRESS_ATTRIBUTE].contains(&name)
}

/// Whether inodes of this kind can have a policy.
fn can_have(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

/// The setting that a value of an attribute stands for.
fn parse<T: FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Refuses an invalid value of an attribute that sets a policy, and such an attribute of an inode that cannot have one.
fn check(record: &InodeRecord, name: &[u8], value: &[u8]) -> Result<()> {
    if is_override(name) && !can_have(record.kind) {
        return Err(Error::OperationNotPermitted);
    }
    match name {
        POLICY_ATTRIBUTE => parse(value).map(|_: PolicyOverride| ()).ok_or(Error::Invalid(MALFORMED)),
        COMPRESS_ATTRIBUTE => parse(value).map(|_: Compress| ()).ok_or(Error::Invalid(MALFORMED_COMPRESS)),
        _ => Ok(()),
    }
}

impl FileSystem {
    /// Refuses a value that an attribute cannot have: an invalid policy, one of an inode that cannot have it, and one
    /// that the volume does not take.
    pub(crate) fn check_value(&self, record: &InodeRecord, name: &[u8], value: &[u8]) -> Result<()> {
        check(record, name, value)?;
        if name == COMPRESS_ATTRIBUTE { self.check_takes_compression() } else { Ok(()) }
    }

    /// Refuses policies for compression on a volume that does not take them.
    pub(crate) fn check_takes_compression(&self) -> Result<()> {
        if self.store.takes_compression_policies() { Ok(()) } else { Err(Error::NeverCompressed) }
    }

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
            let policy = self.read_overrides(ino, &record)?.apply_to(FilePolicy::default());
            let (effective_policy, why) = self.store.effective_policy_of(policy);
            return Ok(EffectiveView {
                compress: self.store.compress_of(policy),
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
            let (run_blocks_min, compress) = (Some(self.store.run_blocks_min(map)), self.store.compress_of(policy));
            Ok(EffectiveView { policy, effective_policy, run_blocks_min, why, compress })
        })
    }

    /// The overrides of an inode with this record. None also for a damaged attribute, and for one that an older version
    /// stored as an ordinary attribute.
    pub(crate) fn read_overrides(&self, ino: Ino, record: &InodeRecord) -> Result<Overrides> {
        let mut overrides = Overrides::default();
        if record.xattrs > 0 {
            for name in [POLICY_ATTRIBUTE, COMPRESS_ATTRIBUTE] {
                let bytes = self.store.get(&xattr::key(ino, name))?;
                let value = bytes.and_then(|bytes| xattr::decode(ino, &bytes).ok());
                overrides.take_in(name, value.as_deref());
            }
        }
        Ok(overrides)
    }

    /// The overrides that a new inode inherits from its directory.
    pub(crate) fn inherit_overrides(&self, parent: Ino, above: &InodeRecord, kind: FileKind) -> Result<Overrides> {
        if !can_have(kind) {
            return Ok(Overrides::default());
        }
        Ok(self.read_overrides(parent, above)?.on(&self.store))
    }

    /// Adds what follows from new values of a file's attributes to their change, for the engine. None: the attribute is
    /// removed. The caller holds the inode's lock.
    pub(crate) fn attributes_changed<'a>(
        &self,
        change: &mut Change,
        record: &InodeRecord,
        attributes: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) {
        let mut changed = attributes.into_iter().filter(|(name, _)| is_override(name)).peekable();
        if record.kind == FileKind::Regular && changed.peek().is_some() {
            let policy = self.store.file_policy(record.map);
            let mut overrides = Overrides::of(policy);
            changed.for_each(|(name, value)| overrides.take_in(name, value));
            self.store.policy_change(change, record.map, overrides.on(&self.store).apply_to(policy));
        }
    }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::{InvalidCompress, InvalidOverride};

    use super::*;

    #[test]
    fn the_error_for_an_invalid_value_lists_the_valid_ones() {
        assert_eq!(MALFORMED, InvalidOverride.to_string());
        assert_eq!(MALFORMED_COMPRESS, InvalidCompress.to_string());
    }
}
