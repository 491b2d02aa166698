//! The interface to keys with values in objects, which Ceph calls omap. Keys are any bytes, in the order of these bytes.
//!
//! Promises: those of [`Objects`], for [`Change::Keys`](crate::Change::Keys) too. A scan or a look-up sees one state of
//! its object. Two of them, also of one request, may see different ones.

use crate::{Objects, Result};

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Pairs of an object with `from <= key`, in order.
pub struct KeyScan<'a> {
    /// The object.
    pub object: String,
    /// The first key that is wanted.
    pub from: &'a [u8],
    /// Most pairs that are wanted.
    pub limit: usize,
    /// The result, once it was made. A missing object is an error.
    pub result: Result<Portion>,
}

impl<'a> KeyScan<'a> {
    /// A scan that was not made yet.
    pub fn new(object: String, from: &'a [u8], limit: usize) -> Self {
        Self { object, from, limit, result: Ok(Portion::default()) }
    }
}

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// The pairs, at most [`SCANNED_KEYS_MAX`].
    pub pairs: Vec<Pair>,
    /// Whether the object has more keys after them.
    pub has_more: bool,
}

/// A cluster gives at most this many pairs at a time, by its default.
pub const SCANNED_KEYS_MAX: usize = 1024;

/// The values of some keys of an object.
pub struct KeyLookUp<'a> {
    /// The object.
    pub object: String,
    /// The keys, each once.
    pub keys: Vec<&'a [u8]>,
    /// The result, once it was made: the pairs that exist, in order. A missing object is an error.
    pub result: Result<Vec<Pair>>,
}

impl<'a> KeyLookUp<'a> {
    /// A look-up that was not made yet.
    pub fn new(object: String, keys: Vec<&'a [u8]>) -> Self {
        Self { object, keys, result: Ok(Vec::new()) }
    }
}

/// Objects whose keys can be read.
pub trait KeyedObjects: Objects {
    /// Makes scans in parallel, waits for them, and leaves the result in each.
    fn scan_all(&self, scans: &mut [KeyScan<'_>]);
    /// Makes look-ups in parallel, waits for them, and leaves the result in each.
    fn look_up_all(&self, look_ups: &mut [KeyLookUp<'_>]);

    /// Makes one scan.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound), and what a read may fail with.
    fn scan(&self, object: String, from: &[u8], limit: usize) -> Result<Portion> {
        let mut scan = [KeyScan::new(object, from, limit)];
        self.scan_all(&mut scan);
        let [scan] = scan;
        scan.result
    }
}
