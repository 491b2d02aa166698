//! The interface to objects, which a cluster and the twin in memory have.
//!
//! Promises: a change is applied whole or not at all. Changes of one object are applied in the order in which they
//! begin. A change is durable once it was awaited. Until then it may be lost, and changes of other objects may survive
//! it. A read sees every change of its object that was awaited before.

use crate::key_change::KeyChange;
use crate::{Hold, PoolSpace, Result, Waits};

/// A read of one object. Bytes that the object does not have become zeros.
pub struct Read<'a> {
    /// The object.
    pub object: String,
    /// The first byte.
    pub at: u64,
    /// Filled by the read.
    pub bytes: &'a mut [u8],
    /// The result, once it was made. A missing object is no error, unless its pool is gone.
    pub result: Result<()>,
}

impl<'a> Read<'a> {
    /// A read that was not made yet.
    pub fn new(object: String, at: u64, bytes: &'a mut [u8]) -> Self {
        Self { object, at, bytes, result: Ok(()) }
    }
}

/// A change of one object.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Writes bytes at a place. Makes the object if it is missing.
    Write {
        /// The first byte.
        at: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Replaces the whole content.
    WriteFull {
        /// The content.
        bytes: &'a [u8],
    },
    /// Makes the object with this content. Fails if it exists.
    Create {
        /// The content.
        bytes: &'a [u8],
    },
    /// Makes a range read as zeros, and gives its space back. A missing object stays missing.
    Zero {
        /// The first byte.
        at: u64,
        /// Length.
        len: u64,
    },
    /// Removes the object. A missing one is an error of the awaited change.
    Remove,
    /// Changes keys of the object. A missing one is an error of the awaited change.
    Keys {
        /// The changes, in their order.
        changes: &'a [KeyChange<'a>],
        /// An attribute that is set with them.
        attribute: Option<Guard<'a>>,
    },
    /// Sets an attribute, by which other changes can be guarded.
    SetAttribute {
        /// Its name and value.
        guard: Guard<'a>,
    },
}

/// An attribute with a value. A guarded change is made only if the object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The attribute's name.
    pub name: &'a str,
    /// Its value.
    pub value: &'a [u8],
}

/// What a change does if the pool is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It fails.
    Fails,
    /// It uses the reserve that the cluster keeps above its full ratio.
    UsesReserve,
}

/// A change under way.
pub trait Pending: Send + Sync {
    /// Waits until the change is durable, or failed. Later calls return the same.
    fn wait(&self) -> Result<()>;
    /// Whether it is durable, or failed, so that nothing has to be waited for.
    fn is_done(&self) -> bool;
}

/// Objects of one namespace.
pub trait Objects: Send + Sync {
    /// Makes reads in parallel, waits for them, and leaves the result in each.
    fn read_all(&self, reads: &mut [Read<'_>]);
    /// Begins a change. The bytes are copied.
    fn begin(&self, object: &str, change: Change<'_>, guard: Option<Guard<'_>>, full: WhenFull) -> Box<dyn Pending>;
    /// The size of each object, in bytes. None: it is missing.
    fn sizes(&self, objects: &[String]) -> Result<Vec<Option<u64>>>;
    /// The names of all objects, in no order.
    fn names(&self) -> Result<Vec<String>>;
    /// Takes the namespace for this process until the hold is dropped. `place` names the volume's directory on this
    /// machine; a dead holder with the same place is fenced first.
    /// `succeeds`: the address of a holder whose lease was seen to run out, which is fenced too.
    fn hold(&self, place: &str, succeeds: Option<&str>) -> Result<Hold>;
    /// The address of the process that holds the namespace, if one does. It may have died.
    fn holder(&self) -> Result<Option<String>>;
    /// Whether the pool accepts new data. Asks the cluster.
    fn has_room(&self) -> Result<bool>;

    /// The space of the pool, as far as the cluster knows it. Asks the cluster, which may take as long as the bound on
    /// questions to its monitors.
    fn space(&self) -> Result<Option<PoolSpace>> {
        Ok(None)
    }

    /// Whether requests have been waiting for so long that the log says so.
    fn is_silent(&self) -> bool {
        false
    }

    /// Requests that waited for long since the connection was made.
    fn waits(&self) -> Waits {
        Waits::default()
    }

    /// Makes a change and waits for it.
    fn change(&self, object: &str, change: Change<'_>) -> Result<()> {
        self.begin(object, change, None, WhenFull::Fails).wait()
    }

    /// The content of a small object, at most `most` bytes. None: there is none.
    fn content(&self, object: &str, most: usize) -> Result<Option<Vec<u8>>> {
        let Some(size) = self.sizes(&[object.to_owned()])?[0] else { return Ok(None) };
        let mut bytes = vec![0; most.min(size as usize)];
        let mut read = [Read::new(object.to_owned(), 0, &mut bytes)];
        self.read_all(&mut read);
        read.into_iter().try_for_each(|read| read.result)?;
        Ok(Some(bytes))
    }
}
