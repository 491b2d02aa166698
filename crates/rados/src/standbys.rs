//! Processes that wait for the objects of a volume. Each has a shared lock beside that of the holder, which runs out
//! unless it is taken again, so one that died is not listed for long.

use std::time::Duration;

use crate::io_context::Context;
use crate::librados::{MAY_RENEW, c_text};
use crate::lockers::{LOCK_OBJECT, lockers};
use crate::{Error, Pool, Result};

/// The lock's name, and the tag that all who have it share.
const LOCK: &str = "standby";

/// Those that wait for a namespace.
pub trait Standbys: Send + Sync {
    /// Says for some time that this process waits, in `place`.
    ///
    /// # Errors
    ///
    /// The cluster refuses it.
    fn announce(&self, place: &str, lasts: Duration) -> Result<()>;
    /// Takes that back.
    ///
    /// # Errors
    ///
    /// The cluster refuses it.
    fn withdraw(&self, place: &str) -> Result<()>;
    /// Machine and place of each process that waits, as a lock names its holder.
    ///
    /// # Errors
    ///
    /// The cluster refuses it.
    fn waiting(&self) -> Result<Vec<String>>;
}

impl Standbys for Pool {
    fn announce(&self, place: &str, lasts: Duration) -> Result<()> {
        announce(&self.0, place, lasts)
    }

    fn withdraw(&self, place: &str) -> Result<()> {
        withdraw(&self.0, place)
    }

    fn waiting(&self) -> Result<Vec<String>> {
        waiting(&self.0)
    }
}

fn announce(context: &Context, place: &str, lasts: Duration) -> Result<()> {
    let [object, name, cookie] = [LOCK_OBJECT, LOCK, &context.cookie(place)].map(c_text);
    let mut lasts =
        libc::timeval { tv_sec: lasts.as_secs() as libc::time_t, tv_usec: lasts.subsec_micros() as libc::suseconds_t };
    // SAFETY: the context is open, the texts end with NUL, and `lasts` is read during the call.
    let answer = unsafe {
        let lock = context.library.rados_lock_shared;
        let (object, name, cookie) = (object.as_ptr(), name.as_ptr(), cookie.as_ptr());
        lock(context.handle, object, name, cookie, name, cookie, &mut lasts, MAY_RENEW)
    };
    context.check(answer, "announcing a standby at", LOCK_OBJECT).map(drop)
}

fn withdraw(context: &Context, place: &str) -> Result<()> {
    let [object, name, cookie] = [LOCK_OBJECT, LOCK, &context.cookie(place)].map(c_text);
    // SAFETY: the context is open, and the texts end with NUL.
    let answer =
        unsafe { (context.library.rados_unlock)(context.handle, object.as_ptr(), name.as_ptr(), cookie.as_ptr()) };
    match context.check(answer, "withdrawing a standby at", LOCK_OBJECT) {
        Err(Error::NotFound(_)) => Ok(()),
        other => other.map(drop),
    }
}

fn waiting(context: &Context) -> Result<Vec<String>> {
    match lockers(context, LOCK) {
        Err(Error::NotFound(_)) => Ok(Vec::new()),
        found => Ok(found?.into_iter().map(|locker| locker.cookie).collect()),
    }
}
