//! One process at a time has the objects of a volume: a lock in the cluster, and the fence for a holder that died.
//!
//! A process that is killed leaves its lock, and its last changes may still be on their way to the cluster. The next
//! process of the same volume's directory on the same machine (the same path and inode) knows that it is dead, because
//! it holds the lock file there. It blocklists the dead client, waits for that map, and only then takes the lock. A
//! holder on another machine, or in another directory, may be alive: it is named and left alone, unless the caller saw
//! its lease run out.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use crate::io_context::Context;
use crate::librados::c_text;
use crate::{Error, Result};

/// The object with the lock.
pub const LOCK_OBJECT: &str = "lock";
/// The lock's name.
const LOCK: &str = "head";
/// A fenced client stays blocklisted for ten years. A machine may be suspended for any time, and sends what its client
/// had under way when it runs again.
const FENCE_SECONDS: u32 = 315_360_000;
/// Room for the list of holders. An exclusive lock has one.
const HOLDER_BYTES_MAX: usize = 8192;

/// The objects belong to this process until this is dropped.
pub struct Hold {
    held: Option<(Arc<Context>, String)>,
    address: String,
    has_fenced: bool,
}

/// Who has the lock.
struct Holder {
    client: String,
    cookie: String,
    address: String,
}

impl Hold {
    /// A hold of nothing, for objects in memory.
    pub fn of_nothing() -> Self {
        Self { held: None, address: String::new(), has_fenced: false }
    }

    /// This process, as the cluster blocklists it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// This process, as the lock names it: machine and directory.
    pub fn holder(&self) -> &str {
        self.held.as_ref().map_or("", |(_, cookie)| cookie.as_str())
    }

    /// Whether a holder that had not let go was fenced for it.
    pub fn has_fenced(&self) -> bool {
        self.has_fenced
    }

    /// Leaves the lock in the cluster when the process ends, as if it had died: the next one fences this client first.
    pub fn leave_to_the_next(&mut self) {
        self.held = None;
    }

    /// The address of the holder, if there is one.
    pub(crate) fn address_of_holder(context: &Context) -> Result<Option<String>> {
        match holder(context) {
            Err(Error::NotFound(_)) => Ok(None),
            found => Ok(found?.map(|holder| holder.address)),
        }
    }

    pub(crate) fn take(context: Arc<Context>, place: &str, succeeds: Option<&str>) -> Result<Self> {
        let cookie = format!("{}:{place}", context.cluster.machine);
        if lock(&context, &cookie)? {
            return Self::taken(context, cookie, false);
        }
        let mut has_fenced = false;
        if let Some(holder) = holder(&context)? {
            let Holder { address, .. } = &holder;
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
        let mut held = Self { held: Some((context.clone(), cookie)), address: String::new(), has_fenced };
        let address = holder(&context)?.map(|holder| holder.address).unwrap_or_default();
        held.address = address;
        Ok(held)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some((context, cookie)) = &self.held else { return };
        let (object, name, cookie) = (c_text(LOCK_OBJECT), c_text(LOCK), c_text(cookie));
        // SAFETY: the context is open, and the texts end with NUL. A failure leaves the lock to the next holder's fence.
        unsafe { (context.library.rados_unlock)(context.handle, object.as_ptr(), name.as_ptr(), cookie.as_ptr()) };
    }
}

fn locked(context: &Context, Holder { client, cookie, address }: Holder) -> Error {
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
    if -answer == libc::EBUSY { Ok(false) } else { Error::check(answer, "locking", LOCK_OBJECT).map(|_| true) }
}

fn holder(context: &Context) -> Result<Option<Holder>> {
    let (object, name) = (c_text(LOCK_OBJECT), c_text(LOCK));
    let mut is_exclusive = 0;
    let mut texts = [[0 as c_char; HOLDER_BYTES_MAX]; 4];
    let mut lens = [HOLDER_BYTES_MAX; 4];
    let [tag, clients, cookies, addresses] = &mut texts;
    let [tag_len, clients_len, cookies_len, addresses_len] = &mut lens;
    // SAFETY: the context is open, the names end with NUL, and each buffer has the length beside it.
    let count = unsafe {
        (context.library.rados_list_lockers)(
            context.handle,
            object.as_ptr(),
            name.as_ptr(),
            &mut is_exclusive,
            tag.as_mut_ptr(),
            tag_len,
            clients.as_mut_ptr(),
            clients_len,
            cookies.as_mut_ptr(),
            cookies_len,
            addresses.as_mut_ptr(),
            addresses_len,
        )
    };
    let count = Error::check(count as i32, "looking at the lock", LOCK_OBJECT)?;
    let [_, client, cookie, address] = texts.map(|text| first_text(&text));
    Ok((count > 0).then_some(Holder { client, cookie, address }))
}

/// The first of several texts, each of which ends with NUL.
fn first_text(texts: &[c_char]) -> String {
    let bytes: Vec<u8> = texts.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn break_lock(context: &Context, holder: &Holder) -> Result<()> {
    let [object, name, client, cookie] = [LOCK_OBJECT, LOCK, &holder.client, &holder.cookie].map(c_text);
    // SAFETY: the context is open, and the texts end with NUL.
    let answer = unsafe {
        let break_lock = context.library.rados_break_lock;
        break_lock(context.handle, object.as_ptr(), name.as_ptr(), client.as_ptr(), cookie.as_ptr())
    };
    // Another process may have broken it, or the holder let go.
    match Error::check(answer, "breaking the lock", LOCK_OBJECT) {
        Err(Error::NotFound(_)) => Ok(()),
        other => other.map(drop),
    }
}
