//! Shared types of the store in objects: its terms, changes by key, and errors.

use std::collections::BTreeMap;

use crate::Error;

/// Records by key. None: the record is removed.
pub type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The terms that a store in objects is opened with.
#[derive(Clone, Copy, Debug)]
pub struct OmapTerms {
    /// The volume.
    pub volume_id: [u8; 16],
    /// Memory for records that were read.
    pub cache_bytes_max: u64,
    /// Most keys of an object. Ceph warns at 200,000.
    pub keys_max: u64,
    /// Nothing is written.
    pub read_only: bool,
}

/// The key that follows a key.
pub fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// An error of an object, for callers of the store. A missing object had records.
pub fn failed(what: &'static str) -> impl Fn(oncefs_rados::Error) -> Error {
    move |error| match error {
        oncefs_rados::Error::NotFound(object) => {
            Error::corrupt("the record store", format!("the object {object} is missing"))
        }
        error => Error::io(what, error.into()),
    }
}
