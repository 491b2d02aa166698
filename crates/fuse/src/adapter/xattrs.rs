//! Extended attributes.

use oncefs_fs::{Ino, XattrMode};
use oncefs_transport::{Errno, Reply};

use super::Adapter;
use crate::privileges::{CAPABILITY, Credentials};
use crate::reply::reply_xattr;

impl Adapter {
    /// `flags` as in setxattr(2). `clears_set_group_id`: the kernel's decision for a new access control list, if it
    /// sends one.
    pub(super) fn setxattr(
        &self,
        credentials: Credentials,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        flags: i32,
        clears_set_group_id: bool,
        reply: Reply,
    ) {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::new(libc::EINVAL)),
        };
        let keeps = match self.is_told_of_groups {
            true => Ok(!clears_set_group_id),
            false => credentials.keeps_set_group_id(&self.file_system, ino),
        };
        self.reply_changed(keeps.and_then(|keeps| self.file_system.setxattr(ino, name, value, mode, keeps)), reply);
    }

    /// A size of 0 asks for the length.
    pub(super) fn getxattr(&self, ino: Ino, name: &[u8], size: u32, reply: Reply) {
        reply_xattr(self.file_system.getxattr(ino, name), size, reply);
    }

    pub(super) fn listxattr(&self, credentials: Credentials, ino: Ino, size: u32, reply: Reply) {
        reply_xattr(self.file_system.listxattr(ino).map(|names| credentials.names_shown(names)), size, reply);
    }

    /// The kernel removes a file's capabilities before a write. Any caller that has the file open for writing may do
    /// this.
    pub(super) fn removexattr(&self, credentials: Credentials, ino: Ino, name: &[u8], reply: Reply) {
        if name == CAPABILITY && self.kernel_cache.has_writer(ino) {
            return self.reply_changed(self.file_system.removexattr_for_write(ino, name), reply);
        }
        if name == CAPABILITY && !credentials.may_take_capability(&self.file_system, ino) {
            return reply.error(Errno::new(libc::EPERM));
        }
        self.reply_changed(self.file_system.removexattr(ino, name), reply);
    }
}
