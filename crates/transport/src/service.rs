//! The interface of a file system to be served.

use std::io;

use crate::protocol::negotiation::Negotiation;
use crate::protocol::request::Request;
use crate::reply::Reply;

/// Answers the kernel's requests. Many threads call it at the same time.
pub trait Service: Send + Sync + 'static {
    /// Negotiates before the first request.
    ///
    /// # Errors
    /// An error ends the session before it begins.
    fn init(&mut self, negotiation: &mut Negotiation) -> io::Result<()>;

    /// Answers a request, now or later and from any thread. The request's borrows end when this returns, but the reply
    /// may be kept. A dropped reply answers EIO. INIT, FORGET and INTERRUPT do not come this way.
    fn serve(&self, request: Request<'_>, reply: Reply);

    /// The kernel takes back `lookups` lookups of an inode.
    fn forget(&self, inode: u64, lookups: u64);

    /// The caller of the request `unique` got a signal, so EINTR is better than a further wait. False: no such request
    /// waits here. If it is yet to be served, its [`Reply::is_interrupted`] will return true.
    fn interrupt(&self, unique: u64) -> bool {
        let _ = unique;
        false
    }

    /// The mount is gone and no more requests come.
    fn destroy(&self) {}
}
