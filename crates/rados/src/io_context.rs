//! The way to the objects of one namespace, over a connection that several may share.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::completion::Completion;
use crate::librados::{Handle, Library, c_text};
use crate::{Access, Cluster, Error, Result};

/// An I/O context. It outlives the operations that use it.
pub struct Context {
    pub library: &'static Library,
    pub handle: Handle,
    pub cluster: Arc<Cluster>,
    pub access: Access,
    /// Whether the log said that the pool is gone.
    is_gone_told: AtomicBool,
}

// SAFETY: librados synchronizes all calls on a context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is open. librados keeps it for operations that are under way.
        unsafe { (self.library.rados_ioctx_destroy)(self.handle) };
    }
}

impl Context {
    /// Opens the namespace of an address.
    pub fn open(cluster: Arc<Cluster>, access: Access) -> Result<Self> {
        let library = cluster.library;
        let mut handle = ptr::null_mut();
        let name = c_text(&access.pool);
        // SAFETY: the connection is open, the name ends with NUL, and `handle` is writable.
        let answer = unsafe { (library.rados_ioctx_create)(cluster.handle, name.as_ptr(), &mut handle) };
        match Error::check(answer, "opening the pool", &access.pool) {
            Err(Error::NotFound(_)) => return Err(Error::NoPool(access.pool)),
            other => other?,
        };
        let namespace = c_text(&access.namespace);
        // SAFETY: the context is new, and the name ends with NUL.
        unsafe { (library.rados_ioctx_set_namespace)(handle, namespace.as_ptr()) };
        // Operations on locks have no flags of their own. On a full pool they would wait, and no volume of it could be
        // opened after a crash. They take no space, so the pool accepts them.
        if let Some(set_full_try) = library.rados_set_pool_full_try {
            // SAFETY: the context is new.
            unsafe { set_full_try(handle) };
        }
        Ok(Self { library, handle, cluster, access, is_gone_told: AtomicBool::new(false) })
    }

    /// How a lock names a process of this machine with this place.
    pub fn cookie(&self, place: &str) -> String {
        format!("{}:{place}", self.cluster.machine)
    }

    /// The meaning of an answer of librados: a number, or below 0 an errno. A cluster has the same errno for a missing
    /// object and for any object of a pool that was deleted, so the pool is looked for before an object counts as
    /// missing: else data that is lost would be a hole, which reads as zeros.
    pub fn check(&self, answer: c_int, what: &str, object: &str) -> Result<usize> {
        match Error::check(answer, what, object) {
            Err(Error::NotFound(_)) if self.is_gone() => {
                let gone = Error::Gone(self.access.pool.clone());
                if !self.is_gone_told.swap(true, Relaxed) {
                    log::error!("{gone}");
                }
                Err(gone)
            }
            checked => checked,
        }
    }

    /// Whether the pool was deleted. One of the same name is another. librados looks in its own map, and waits for the
    /// newest one only if the pool is not in it.
    fn is_gone(&self) -> bool {
        // The name does not matter. A pool that is there, with a name that does not fit in, is another error.
        let mut name = [0 as c_char; 1];
        // SAFETY: the context and the connection are open, and `name` has the length that is passed.
        let answer = unsafe {
            let id = (self.library.rados_ioctx_get_id)(self.handle);
            (self.library.rados_pool_reverse_lookup)(self.cluster.handle, id, name.as_mut_ptr(), name.len())
        };
        -answer == libc::ENOENT
    }

    /// Waits for an operation, and returns its answer.
    pub fn wait(&self, completion: &Completion) -> c_int {
        completion.wait(&self.cluster.silence)
    }
}
