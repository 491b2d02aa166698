//! Extended attributes, and the ones with a meaning here: two access control lists and the deduplication policy.

use std::sync::Arc;

use oncefs_engine::{Change, Compress};

use crate::attributes::policy;
use crate::attributes::xattr_bounds::{NAMES_BYTES_MAX, PAGE_RECORDS, VALUE_BYTES_MAX};
use crate::format::acl::{self, Acl};
use crate::format::codec::after;
use crate::format::inode::InodeRecord;
use crate::format::xattr;
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::{Error, FileKind, FileSystem, Ino, NAME_BYTES_MAX, Result};

/// The prefix of security modules' attributes.
pub(crate) const SECURITY: &[u8] = b"security.";

/// Name spaces whose attributes are stored.
const NAME_SPACES: [&[u8]; 3] = [b"user.", b"trusted.", SECURITY];

/// How `setxattr` handles an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Replaces it, or creates a new one.
    Any,
    /// Refuses to replace it.
    Create,
    /// Requires that it exists.
    Replace,
}

impl FileSystem {
    /// The value of an attribute, at most 64 KiB.
    ///
    /// # Errors
    ///
    /// - `NoData`: the inode has no such attribute.
    /// - `Range`: the name is longer than [`NAME_BYTES_MAX`].
    /// - `NotSupported`: the name is in none of the name spaces `user.`, `trusted.` and `security.`, and is not an ACL.
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        let inode = self.inode(ino)?;
        if inode.lock().xattrs == 0 {
            return Err(Error::NoData);
        }
        let bytes = self.store.get(&xattr::key(ino, name))?.ok_or(Error::NoData)?;
        xattr::decode(ino, &bytes)
    }

    /// The names of all attributes, each followed by a NUL byte.
    ///
    /// # Errors
    ///
    /// - `ListTooBig`: the names take more than 64 KiB, which an older version allowed.
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut list = Vec::new();
        let inode = self.inode(ino)?;
        if inode.lock().xattrs == 0 {
            return Ok(list);
        }
        let (mut from, to) = xattr::range(ino);
        loop {
            let page = self.store.scan(&from, &to, PAGE_RECORDS)?;
            for (_, name) in page.iter().filter_map(|(key, _)| xattr::parse_key(key)) {
                list.extend_from_slice(name);
                list.push(0);
            }
            if list.len() > NAMES_BYTES_MAX {
                return Err(Error::ListTooBig);
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_RECORDS => from = after(key),
                _ => return Ok(list),
            }
        }
    }

    /// Sets an attribute to a value of at most 64 KiB. Setting an access ACL also sets the permission bits, and clears
    /// set-group-id unless `keep_set_group_id`: the caller is privileged or a member of the file's group.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Range`, `NotSupported`: the name is too long, or in no supported name space; see [`FileSystem::getxattr`].
    /// - `TooBig`: the value is longer than 64 KiB.
    /// - `Exists`, `NoData`: the attribute exists (`Create`), or does not (`Replace`).
    /// - `Invalid`: the value is not a valid ACL or policy.
    /// - `PermissionDenied`: a default ACL is set on an inode that is not a directory.
    /// - `OperationNotPermitted`: the inode is immutable or append-only, or a policy is set on one that is neither a
    ///   regular file nor a directory.
    /// - `NeverCompressed`: a policy for compression is set on a volume that was never mounted with compression.
    /// - `NotSupported`: an access ACL is set on a symbolic link.
    /// - `Stale`: the inode does not exist.
    /// - `NoSpace`: the inode's attributes would take more room than one inode may have, or the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        keep_set_group_id: bool,
    ) -> Result<()> {
        let _room = self.begin_change()?;
        check_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::TooBig);
        }
        let inodes = [self.inode(ino)?];
        let mut staged = Staged::lock(&inodes);
        staged.get(ino).check_changeable()?;
        if name == acl::ACCESS {
            return self.set_access_acl(&inodes[0], staged, value, keep_set_group_id);
        }
        if name == acl::DEFAULT {
            if !staged.get(ino).is_directory() {
                return Err(Error::PermissionDenied);
            }
            if Acl::decode(value)?.is_none() {
                return self.remove_staged(staged, ino, name);
            }
        }
        self.check_value(staged.get(ino), name, value)?;
        let held = self.stored_bytes(ino, staged.get(ino), name)?;
        let exists = held.is_some();
        match (mode, exists) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoData),
            _ => {}
        }
        self.check_attribute_room(ino, staged.get(ino), name, value.len(), held)?;
        let record = staged.edit(ino);
        record.ctime = self.clock.now();
        record.xattrs += u32::from(!exists);
        debug_assert!(record.xattrs > 0, "inode {} has an attribute, but counts none", ino.0);
        let mut change = Change::new();
        change.put(xattr::key(ino, name), xattr::encode(ino, value));
        self.attributes_changed(&mut change, staged.get(ino), [(name, Some(value))]);
        staged.publish(&self.store, change)
    }

    /// Removes an attribute. Removing an ACL that does not exist succeeds.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoData`: the inode has no such attribute.
    /// - `OperationNotPermitted`: the inode is immutable or append-only.
    /// - `Range`, `NotSupported`: the name is too long, or in no supported name space.
    /// - `Stale`: the inode does not exist.
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.remove_permitted(ino, name, InodeRecord::check_changeable)
    }

    /// Removes an attribute that a write ends, such as a program's capabilities. A caller that may append to a file may
    /// end its privileges this way.
    ///
    /// # Errors
    ///
    /// As [`FileSystem::removexattr`], but only the immutable flag forbids it.
    pub fn removexattr_for_write(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.remove_permitted(ino, name, InodeRecord::check_grows)
    }

    fn remove_permitted(&self, ino: Ino, name: &[u8], permit: impl Fn(&InodeRecord) -> Result<()>) -> Result<()> {
        let _room = self.begin_change()?;
        check_name(name)?;
        let inodes = [self.inode(ino)?];
        let staged = Staged::lock(&inodes);
        permit(staged.get(ino))?;
        self.remove_staged(staged, ino, name)
    }

    fn remove_staged(&self, mut staged: Staged, ino: Ino, name: &[u8]) -> Result<()> {
        if self.stored_bytes(ino, staged.get(ino), name)?.is_none() {
            return if is_acl(name) { Ok(()) } else { Err(Error::NoData) };
        }
        let record = staged.edit(ino);
        record.ctime = self.clock.now();
        record.xattrs = record.xattrs.saturating_sub(1);
        let mut change = Change::new();
        change.delete(xattr::key(ino, name));
        self.attributes_changed(&mut change, staged.get(ino), [(name, None)]);
        staged.publish(&self.store, change)
    }

    /// Adds a new value of the attribute for compression to a change, or its removal.
    pub(crate) fn put_compression(
        &self,
        change: &mut Change,
        staged: &mut Staged,
        ino: Ino,
        compress: Option<Compress>,
    ) -> Result<()> {
        let name = policy::COMPRESS_ATTRIBUTE;
        let held = self.stored_bytes(ino, staged.get(ino), name)?;
        let exists = held.is_some();
        let value = compress.map(|compress| compress.word().as_bytes());
        match value {
            Some(value) => {
                self.check_attribute_room(ino, staged.get(ino), name, value.len(), held)?;
                change.put(xattr::key(ino, name), xattr::encode(ino, value));
            }
            None if exists => change.delete(xattr::key(ino, name)),
            None => return Ok(()),
        }
        self.attributes_changed(change, staged.get(ino), [(name, value)]);
        let record = staged.edit(ino);
        record.xattrs = (record.xattrs + u32::from(value.is_some())).saturating_sub(u32::from(exists));
        Ok(())
    }

    /// Sets an access ACL and the permission bits. An ACL that the permission bits fully express is not stored.
    fn set_access_acl(&self, inode: &Arc<Inode>, mut staged: Staged, value: &[u8], keep_sgid: bool) -> Result<()> {
        let ino = inode.ino;
        if staged.get(ino).kind == FileKind::Symlink {
            return Err(Error::NotSupported);
        }
        let Some(list) = Acl::decode(value)? else {
            return self.remove_staged(staged, ino, acl::ACCESS);
        };
        let held = self.stored_bytes(ino, staged.get(ino), acl::ACCESS)?;
        let (existed, keep) = (held.is_some(), !list.is_only_mode());
        if keep {
            self.check_attribute_room(ino, staged.get(ino), acl::ACCESS, value.len(), held)?;
        }
        debug_assert!(!existed || staged.get(ino).xattrs > 0, "inode {} has an ACL, but counts no attributes", ino.0);
        let record = staged.edit(ino);
        record.permissions = record.permissions & !0o777 | list.mode();
        if !keep_sgid {
            record.permissions &= !libc::S_ISGID;
        }
        record.ctime = self.clock.now();
        record.xattrs = record.xattrs + u32::from(keep) - u32::from(existed);
        let mut change = Change::new();
        if keep {
            change.put(xattr::key(ino, acl::ACCESS), xattr::encode(ino, &list.encode()));
        } else {
            change.delete(xattr::key(ino, acl::ACCESS));
        }
        staged.publish(&self.store, change)
    }

    /// Whether a user may write a file, by owner, permission bits and access control list.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn lets_write(&self, ino: Ino, user: u32, is_in_group: impl Fn(u32) -> bool) -> Result<bool> {
        let record = self.inode(ino)?.lock().clone();
        if user == record.uid {
            return Ok(true);
        }
        if let Some(list) = self.read_acl(ino, &record, acl::ACCESS)? {
            return Ok(list.lets_write(user, record.gid, is_in_group));
        }
        let bit = if is_in_group(record.gid) { libc::S_IWGRP } else { libc::S_IWOTH };
        Ok(record.permissions & bit != 0)
    }

    /// How many bytes an attribute's record has. None: the inode has no such attribute.
    fn stored_bytes(&self, ino: Ino, record: &InodeRecord, name: &[u8]) -> Result<Option<usize>> {
        if record.xattrs == 0 {
            return Ok(None);
        }
        Ok(self.store.get(&xattr::key(ino, name))?.map(|bytes| bytes.len()))
    }

    /// An access control list of an inode with this record.
    pub(crate) fn read_acl(&self, ino: Ino, record: &InodeRecord, name: &[u8]) -> Result<Option<Acl>> {
        if record.xattrs == 0 {
            return Ok(None);
        }
        match self.store.get(&xattr::key(ino, name))? {
            Some(bytes) => Acl::decode(&xattr::decode(ino, &bytes)?),
            None => Ok(None),
        }
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS || name == acl::DEFAULT
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::Range);
    }
    if is_acl(name) || NAME_SPACES.iter().any(|space| name.starts_with(space) && name.len() > space.len()) {
        Ok(())
    } else {
        Err(Error::NotSupported)
    }
}
