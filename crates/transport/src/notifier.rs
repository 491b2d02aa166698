//! Tells the kernel what it has cached and should not rely on.

use std::io;
use std::sync::Arc;

use crate::protocol::notification;
use crate::reply::Connection;

/// Sends notifications for one mount. All of them go through `/dev/fuse`, also where requests come over rings.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Connection>);

impl Notifier {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }

    /// The attributes of an inode are outdated, and its pages from `offset` on: `len` bytes, 0 for all; with a negative
    /// offset the attributes alone. The kernel writes dirty pages back first and waits for it, so whoever answers
    /// requests must not call this with an offset.
    ///
    /// # Errors
    /// ENOENT: the kernel does not know the inode.
    pub fn invalidate_inode(&self, inode: u64, offset: i64, len: i64) -> io::Result<()> {
        self.0.device.notify(&notification::invalidate_inode(inode, offset, len))
    }

    /// Lets the kernel forget an inode that nobody has open, with the names by which it knows it: the next look-up tells it
    /// everything anew.
    ///
    /// # Errors
    /// EINVAL: the kernel is older than Linux 6.18.
    pub fn prune(&self, inode: u64) -> io::Result<()> {
        self.0.device.notify(&notification::prune(inode))
    }
}
