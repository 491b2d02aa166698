//! Names by directory, as they are stored: which record holds a name.

use oncefs_engine::Store;

use crate::format::dirent::{self, Dirent, Names, Place};
use crate::names::placement::Placement;
use crate::{Ino, Result};

/// The names of a volume.
#[derive(Clone, Copy)]
pub(crate) struct NameTable<'a> {
    pub store: &'a Store,
    pub placement: &'a Placement,
}

impl NameTable<'_> {
    /// All names of a directory at one place.
    pub(crate) fn names_at(&self, parent: Ino, place: Place) -> Result<Names> {
        match self.store.get(&dirent::key(parent, place))? {
            Some(bytes) => Names::decode(parent, &bytes),
            None => Ok(Names::default()),
        }
    }

    /// The entry `name` of `parent`. Reads one record, unless the name's first place overflowed.
    pub(crate) fn find(&self, parent: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        for place in self.placement.places(parent, name) {
            let names = self.names_at(parent, place)?;
            let has_overflowed = names.has_overflowed();
            match names.into_entry(name) {
                None if has_overflowed => {}
                found => return Ok(found),
            }
        }
        Ok(None)
    }
}
