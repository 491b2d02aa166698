//! Who makes a request.

use oncefs_fs::Caller;
use oncefs_transport::protocol::header::InHeader;

/// Who makes an inode: the kernel says who is to own it, by the mount's own numbers.
pub(crate) fn caller(header: &InHeader, umask: u32) -> Caller {
    Caller { uid: header.uid, gid: header.gid, umask }
}
