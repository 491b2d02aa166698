//! One process at a time has the objects of a volume: a lock in the cluster, and the fence for a holder that died.
//!
//! A process that is killed leaves its lock, and its last changes may still be on their way to the cluster. The next
//! process of the same volume's directory on the same machine (the same path and inode) knows that it is dead, because
//! it holds the lock file there. It blocklists the dead client, waits for that map, and only then takes the lock. A
//! holder on another machine, or in another directory, may be alive: it is named and left alone, unless the caller saw
//! its lease run out.

use std::ptr;
use std::sync::Arc;

use crate::io_context::Context;
use crate::librados::c_text;
use crate::lockers::{LOCK_OBJECT, Locker, lockers};
use crate::{Error, Result};

/// The lock's name.
const LOCK: &str = "head";
/// A fenced client stays blocklisted for ten years. A machine may be suspended for any time, and sends what its client
/// had under way when it runs again.
const FENCE_SECONDS: u32 = 315_360_000;

/// Gives a lock up.
type GiveUp = Box<dyn FnOnce() -> Result<()> + Send + Sync>;

/// The objects belong to this process until this is dropped.
pub struct Hold {
    /// None: the lock stays when the hold is dropped, or there is none.
    give_up: Option<GiveUp>,
    holder: String,
    address: String,
    has_fenced: bool,
}

impl Hold {
    /// A hold of nothing, for objects in memory.
    pub fn of_nothing() -> Self {
        Self { give_up: None, holder: String::new(), address: String::new(), has_fenced: false }
    }

    /// A hold of `holder` in a twin of the cluster, which calls `give_up` at its end.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_twin(holder: &str, give_up: impl FnOnce() -> Result<()> + Send + Sync + 'static) -> Self {
        let (give_up, holder) = (Some(Box::new(give_up) as Box<_>), holder.to_owned());
        Self { give_up, holder, address: String::new(), has_fenced: false }
    }

    /// This process, as the cluster blocklists it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// This process, as the lock names it: machine and directory.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Whether a holder that had not let go was fenced for it.
    pub fn has_fenced(&self) -> bool {
        self.has_fenced
    }

    /// Leaves the lock in the cluster when the process ends, as if it had died: the next one fences this client first.
    pub fn leave_to_the_next(&mut self) {
        self.give_up = None;
    }

    /// Gives the lock up before this is dropped.
    ///
    /// # Errors
    ///
    /// The cluster refuses it: the next holder fences this client first.
    pub fn give_up(&mut self) -> Result<()> {
        self.give_up.take().map_or(Ok(()), |give_up| give_up())
    }

    /// The address of the holder, if there is one.
    pub(crate) fn address_of_holder(context: &Context) -> Result<Option<String>> {
        match holder(context) {
            Err(Error::NotFound(_)) => Ok(None),
            found => Ok(found?.map(|holder| holder.address)),
        }
    }

    pub(crate) fn take(context: Arc<Context>, place: &str, succeeds: Option<&str>) -> Result<Self> {
        let cookie = context.cookie(place);
        if lock(&context, &cookie)? {
            return Self::taken(context, cookie, false);
        }
        let mut has_fenced = false;
        if let Some(holder) = holder(&context)? {
            let Locker { address, .. } = &holder;
            if holder.cookie == cookie {
                log::info!("the last process with {place} ended without a word: blocklisting {address}");
            } else if succeeds == Some(address) {
                log::warn!("the lease of {} ran out: taking over, and blocklisting {address}", holder.cookie);
            } else {
                return Err(locked(&context, holder));
            }
            context.cluster.fence(&holder.address, FENCE_SECONDS)?;
            break_lock(&context, &holder)?;
            has_fenced = true;
        }
        match lock(&context, &cookie)? {
            true => Self::taken(context, cookie, has_fenced),
            false => Err(holder(&context)?.map_or(Error::Fenced, |holder| locked(&context, holder))),
        }
    }
}

impl Hold {
    fn taken(context: Arc<Context>, cookie: String, has_fenced: bool) -> Result<Self> {
        let (locked, name) = (context.clone(), cookie.clone());
        let give_up: GiveUp = Box::new(move || unlock(&locked, &name));
        let mut held = Self { give_up: Some(give_up), holder: cookie, address: String::new(), has_fenced };
        held.address = holder(&context)?.map(|holder| holder.address).unwrap_or_default();
        Ok(held)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            log::warn!("cannot give up the lock, so the next holder fences this client: {error}");
        }
    }
}

fn unlock(context: &Context, cookie: &str) -> Result<()> {
    let (object, name, cookie) = (c_text(LOCK_OBJECT), c_text(LOCK), c_text(cookie));
    // SAFETY: the context is open, and the texts end with NUL.
    let answer =
        unsafe { (context.library.rados_unlock)(context.handle, object.as_ptr(), name.as_ptr(), cookie.as_ptr()) };
    match context.check(answer, "giving up the lock", LOCK_OBJECT) {
        // Another process broke it.
        Err(Error::NotFound(_)) => Ok(()),
        other => other.map(drop),
    }
}

fn locked(context: &Context, Locker { client, cookie, address }: Locker) -> Error {
    let (pool, namespace) = (context.access.pool.clone(), context.access.namespace.clone());
    Error::Locked { pool, namespace, holder: cookie, client, address }
}

/// Takes the lock. False: another client has it.
fn lock(context: &Context, cookie: &str) -> Result<bool> {
    let (object, name, cookie) = (c_text(LOCK_OBJECT), c_text(LOCK), c_text(cookie));
    // SAFETY: the context is open, and the texts end with NUL. Without a time the lock does not run out.
    let answer = unsafe {
        let lock = context.library.rados_lock_exclusive;
        lock(context.handle, object.as_ptr(), name.as_ptr(), cookie.as_ptr(), cookie.as_ptr(), ptr::null_mut(), 0)
    };
    if -answer == libc::EBUSY { Ok(false) } else { context.check(answer, "locking", LOCK_OBJECT).map(|_| true) }
}

fn holder(context: &Context) -> Result<Option<Locker>> {
    // An exclusive lock has one.
    Ok(lockers(context, LOCK)?.into_iter().next())
}

fn break_lock(context: &Context, holder: &Locker) -> Result<()> {
    let [object, name, client, cookie] = [LOCK_OBJECT, LOCK, &holder.client, &holder.cookie].map(c_text);
    // SAFETY: the context is open, and the texts end with NUL.
    let answer = unsafe {
        let break_lock = context.library.rados_break_lock;
        break_lock(context.handle, object.as_ptr(), name.as_ptr(), client.as_ptr(), cookie.as_ptr())
    };
    // Another process may have broken it, or the holder let go.
    match context.check(answer, "breaking the lock", LOCK_OBJECT) {
        Err(Error::NotFound(_)) => Ok(()),
        other => other.map(drop),
    }
}
