//! What a file system has to be, to be served.

use std::io;

use crate::protocol::negotiation::Negotiation;
use crate::protocol::request::Request;
use crate::reply::Reply;

/// Answers the kernel's requests. Many threads call it at the same time.
pub trait Service: Send + Sync + 'static {
    /// Sets what is negotiated, before the first request.
    ///
    /// # Errors
    /// End the session before it begins.
    fn init(&mut self, negotiation: &mut Negotiation) -> io::Result<()>;

    /// Answers a request, now or later and from any thread: what it borrows is gone when this returns, the reply may be
    /// kept. A reply that is dropped answers EIO. INIT, FORGET and INTERRUPT do not come this way.
    fn serve(&self, request: Request<'_>, reply: Reply);

    /// The kernel no longer holds an inode that it had been told of `lookups` times.
    fn forget(&self, inode: u64, lookups: u64);

    /// The caller of the request `unique` got a signal and would rather have EINTR than wait on. False: no such request
    /// waits here. Then, if it is yet to be served, it will be with [`Reply::is_interrupted`].
    fn interrupt(&self, unique: u64) -> bool {
        let _ = unique;
        false
    }

    /// The mount is gone and no request will come.
    fn destroy(&self) {}
}
