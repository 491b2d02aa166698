//! Tells the kernel which cached data is outdated.

use std::io;
use std::sync::Arc;

use crate::protocol::notification;
use crate::reply::Connection;

/// Sends notifications for one mount. All of them go through `/dev/fuse`, even if requests come over rings.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Connection>);

impl Notifier {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }

    /// Invalidates the attributes of an inode, and its pages from `offset` on: `len` bytes, 0 for all. A negative
    /// offset invalidates the attributes alone. The kernel first writes dirty pages back and waits for that, so a
    /// thread that answers requests must not call this with an offset that is not negative.
    ///
    /// # Errors
    /// ENOENT: the kernel does not know the inode.
    pub fn invalidate_inode(&self, inode: u64, offset: i64, len: i64) -> io::Result<()> {
        self.0.device.notify(&notification::invalidate_inode(inode, offset, len))
    }

    /// Makes the kernel look up a name again, and everything below it. It waits for a program that is changing names of
    /// the directory, so a thread that answers requests must not call this.
    ///
    /// # Errors
    /// ENOENT: the kernel knows neither the name nor its absence.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.0.device.notify(&notification::invalidate_entry(parent, name))
    }

    /// Makes the kernel forget an inode that is not open, with its cached names. The next lookup reads everything
    /// again.
    ///
    /// # Errors
    /// EINVAL: the kernel is older than Linux 6.18.
    pub fn prune(&self, inode: u64) -> io::Result<()> {
        self.0.device.notify(&notification::prune(inode))
    }
}
