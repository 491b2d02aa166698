//! Objects of a namespace in a pool of a cluster.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::Arc;

use crate::completion::Completion;
use crate::io_context::Context;
use crate::key_lists;
use crate::librados::{EQUAL, FULL_FORCE, FULL_TRY, Handle, Library, c_text};
use crate::pool_space::Quotas;
use crate::{
    Access, Change, Cluster, Error, Guard, Hold, Objects, Pending, PoolKind, PoolSpace, Read, Result, Waits, WhenFull,
    pool_kind, pool_space,
};

/// Tells by being made whether a pool has room.
const PROBE: &str = "probe";
/// Objects that are looked at in parallel.
const PARALLEL: usize = 64;

/// A namespace of a pool.
#[derive(Clone)]
pub struct Pool(pub(crate) Arc<Context>);

impl Pool {
    /// The objects of an address, through a connection to its cluster.
    ///
    /// # Errors
    ///
    /// [`Error::NoPool`], [`Error::Denied`], [`Error::Failed`].
    pub fn open(cluster: &Arc<Cluster>, access: &Access) -> Result<Self> {
        Ok(Self(Arc::new(Context::open(cluster.clone(), access.clone())?)))
    }

    /// How the pool keeps its objects. Asks the monitors.
    ///
    /// # Errors
    ///
    /// [`Error::NoPool`], [`Error::Denied`], [`Error::Answer`], [`Error::Failed`].
    pub fn kind(&self) -> Result<PoolKind> {
        let answer = self.0.cluster.ask_monitor(pool_kind::COMMAND, "the kind of the pool")?;
        PoolKind::of_answer(&answer, &self.0.access.pool)
    }
}

/// A change under way.
struct Changing {
    completion: Arc<Completion>,
    context: Arc<Context>,
    object: String,
    what: &'static str,
}

impl Pending for Changing {
    fn wait(&self) -> Result<()> {
        self.context.check(self.context.wait(&self.completion), self.what, &self.object).map(drop)
    }

    fn is_done(&self) -> bool {
        self.completion.is_done()
    }
}

/// A write operation, which is released when it was submitted.
struct Operation<'a> {
    library: &'a Library,
    handle: Handle,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `rados_create_write_op`, released once. librados copied what it needs when it was submitted.
        unsafe { (self.library.rados_release_write_op)(self.handle) };
    }
}

impl Operation<'_> {
    fn guard(&self, guard: Guard<'_>) {
        let (name, value) = (c_text(guard.name), guard.value);
        // SAFETY: the operation is valid; librados copies name and value.
        unsafe {
            let compare = self.library.rados_write_op_cmpxattr;
            compare(self.handle, name.as_ptr(), EQUAL, value.as_ptr().cast(), value.len());
        }
    }

    fn set(&self, Guard { name, value }: Guard<'_>) {
        let name = c_text(name);
        // SAFETY: the operation is valid; librados copies name and value.
        unsafe {
            let set = self.library.rados_write_op_setxattr;
            set(self.handle, name.as_ptr(), value.as_ptr().cast(), value.len());
        }
    }

    /// Adds a change. Returns what it does, for messages.
    fn add(&self, change: Change<'_>) -> &'static str {
        let (library, handle) = (self.library, self.handle);
        // SAFETY: the operation is valid; librados copies all bytes and names.
        unsafe {
            match change {
                Change::Write { at, bytes } => {
                    (library.rados_write_op_write)(handle, bytes.as_ptr().cast(), bytes.len(), at);
                    "writing"
                }
                Change::WriteFull { bytes } => {
                    (library.rados_write_op_write_full)(handle, bytes.as_ptr().cast(), bytes.len());
                    "writing"
                }
                Change::Create { bytes } => {
                    (library.rados_write_op_create)(handle, 1, ptr::null());
                    (library.rados_write_op_write_full)(handle, bytes.as_ptr().cast(), bytes.len());
                    "making"
                }
                Change::Zero { at, len } => {
                    (library.rados_write_op_zero)(handle, at, len);
                    "zeroing"
                }
                Change::Remove => {
                    (library.rados_write_op_remove)(handle);
                    "removing"
                }
                Change::Keys { changes, attribute } => {
                    // Otherwise keys that are set make a missing object, and what it had is lost without an error.
                    (library.rados_write_op_assert_exists)(handle);
                    key_lists::add_changes(library, handle, changes);
                    attribute.into_iter().for_each(|attribute| self.set(attribute));
                    "changing keys of"
                }
                Change::SetAttribute { guard } => {
                    self.set(guard);
                    "setting an attribute of"
                }
            }
        }
    }
}

impl Objects for Pool {
    fn read_all(&self, reads: &mut [Read<'_>]) {
        let context = &self.0;
        let begin = |read: &mut Read<'_>| {
            let object = c_text(&read.object);
            Completion::begin(context.library, |completion| {
                // SAFETY: the buffer is borrowed until this function ends, which is after the completion.
                unsafe {
                    let (bytes, len) = (read.bytes.as_mut_ptr().cast(), read.bytes.len());
                    (context.library.rados_aio_read)(context.handle, object.as_ptr(), completion, bytes, len, read.at)
                }
            })
        };
        let begun: Vec<_> = reads.iter_mut().map(begin).collect();
        for (read, completion) in reads.iter_mut().zip(begun) {
            let there = match context.check(context.wait(&completion), "reading", &read.object) {
                Err(Error::NotFound(_)) => Ok(0),
                other => other,
            };
            read.result = there.map(|there| read.bytes[there..].fill(0));
        }
    }

    fn begin(&self, object: &str, change: Change<'_>, guard: Option<Guard<'_>>, full: WhenFull) -> Box<dyn Pending> {
        let Context { library, handle, .. } = *self.0;
        // SAFETY: the function has no arguments.
        let operation = Operation { library, handle: unsafe { (library.rados_create_write_op)() } };
        if let Some(guard) = guard {
            operation.guard(guard);
        }
        let what = operation.add(change);
        let name = c_text(object);
        let flags = match full {
            WhenFull::Fails => FULL_TRY,
            WhenFull::UsesReserve => FULL_FORCE,
        };
        let completion = Completion::begin(library, |completion| {
            // SAFETY: operation, context and completion are valid, the name ends with NUL, and no time is given.
            unsafe {
                let operate = library.rados_aio_write_op_operate;
                operate(operation.handle, handle, completion, name.as_ptr(), ptr::null_mut(), flags)
            }
        });
        Box::new(Changing { completion, context: self.0.clone(), object: object.to_owned(), what })
    }

    fn sizes(&self, objects: &[String]) -> Result<Vec<Option<u64>>> {
        let context = &self.0;
        let mut found = Vec::with_capacity(objects.len());
        for portion in objects.chunks(PARALLEL) {
            let mut sizes = vec![(0u64, 0 as libc::time_t); portion.len()];
            let begin = |(object, (size, time)): (&String, &mut (u64, libc::time_t))| {
                let object = c_text(object);
                Completion::begin(context.library, |completion| {
                    // SAFETY: `sizes` outlives the completion, which is awaited below.
                    unsafe { (context.library.rados_aio_stat)(context.handle, object.as_ptr(), completion, size, time) }
                })
            };
            let begun: Vec<_> = portion.iter().zip(&mut sizes).map(begin).collect();
            // All are awaited before any error returns, because librados writes to `sizes` until then.
            let answers: Vec<c_int> = begun.iter().map(|completion| context.wait(completion)).collect();
            for ((object, answer), (size, _)) in portion.iter().zip(answers).zip(sizes) {
                found.push(match context.check(answer, "looking at", object) {
                    Ok(_) => Some(size),
                    Err(Error::NotFound(_)) => None,
                    Err(other) => return Err(other),
                });
            }
        }
        Ok(found)
    }

    fn names(&self) -> Result<Vec<String>> {
        let Context { library, handle, .. } = *self.0;
        let namespace = &self.0.access.namespace;
        let mut list = ptr::null_mut();
        // SAFETY: the context is open, and `list` is writable.
        let answer = unsafe { (library.rados_nobjects_list_open)(handle, &mut list) };
        self.0.check(answer, "listing", namespace)?;
        let mut names = Vec::new();
        let answer = loop {
            let mut name = ptr::null();
            // SAFETY: the list is open. The name stays valid until the next call; the other results are not wanted.
            let answer =
                unsafe { (library.rados_nobjects_list_next)(list, &mut name, ptr::null_mut(), ptr::null_mut()) };
            if answer < 0 {
                break answer;
            }
            // SAFETY: as above.
            names.push(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        };
        // SAFETY: the list is open, and closed once.
        unsafe { (library.rados_nobjects_list_close)(list) };
        match self.0.check(answer, "listing", namespace) {
            // The end of the list.
            Err(Error::NotFound(_)) => Ok(names),
            other => other.map(|_| names),
        }
    }

    fn hold(&self, place: &str, succeeds: Option<&str>) -> Result<Hold> {
        Hold::take(self.0.clone(), place, succeeds)
    }

    fn holder(&self) -> Result<Option<String>> {
        Hold::address_of_holder(&self.0)
    }

    fn space(&self) -> Result<Option<PoolSpace>> {
        let (cluster, pool) = (&self.0.cluster, &self.0.access.pool);
        let ask = |command: &str| cluster.ask_monitor(command, "the space of the pool");
        let Some((space, has_quotas)) = PoolSpace::of_answer(&ask(pool_space::COMMAND)?, pool)? else {
            return Ok(None);
        };
        let quotas = match has_quotas {
            true => Some(Quotas::of_answer(&ask(&pool_space::quota_command(pool))?)?),
            false => None,
        };
        Ok(Some(PoolSpace { quotas, ..space }))
    }

    fn is_silent(&self) -> bool {
        self.0.cluster.silence.is_told()
    }

    fn waits(&self) -> Waits {
        self.0.cluster.silence.waits()
    }

    fn has_room(&self) -> Result<bool> {
        match self.change(PROBE, Change::Remove) {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        match self.change(PROBE, Change::WriteFull { bytes: PROBE.as_bytes() }) {
            Ok(()) => Ok(true),
            Err(Error::Full) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
