//! Who makes a request.

use fuser::Request;
use oncefs_fs::Caller;

pub(crate) fn caller(req: &Request, umask: u32) -> Caller {
    Caller { uid: req.uid(), gid: req.gid(), umask }
}
