//! The names that one publication adds and removes.
//!
//! A name and the counts of the places that it passed change in one publication, so a crash leaves both or neither.

use oncefs_engine::Change;

use crate::format::dirent::{self, Dirent, Names, Place};
use crate::names::name_table::NameTable;
use crate::names::used_places::UsedPlaces;
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// Names to add and to remove. Sees its own additions and removals. The caller holds the locks of the directories.
pub(crate) struct NameChange<'a> {
    table: NameTable<'a>,
    touched: Vec<Touched>,
    /// Of directories that no program sees yet: the places that may have names. Others are not looked up.
    used: Option<&'a UsedPlaces>,
}

/// The names at a place, as the change leaves them.
struct Touched {
    parent: Ino,
    place: Place,
    names: Names,
    is_changed: bool,
}

impl<'a> NameChange<'a> {
    pub(crate) fn new(file_system: &'a FileSystem) -> Self {
        Self::of(file_system.name_table())
    }

    pub(crate) fn of(table: NameTable<'a>) -> Self {
        Self { table, touched: Vec::with_capacity(2), used: None }
    }

    /// For directories that no program sees yet. All their names come from changes with these places.
    pub(crate) fn of_unseen(file_system: &'a FileSystem, used: &'a UsedPlaces) -> Self {
        Self { used: Some(used), ..Self::new(file_system) }
    }

    fn at(&mut self, parent: Ino, place: Place) -> Result<&mut Touched> {
        let at = self.touched.iter().position(|touched| (touched.parent, touched.place) == (parent, place));
        let at = match at {
            Some(at) => at,
            None => {
                let names = match self.used.is_some_and(|used| !used.may_contain(parent, place)) {
                    true => Names::default(),
                    false => self.table.names_at(parent, place)?,
                };
                self.touched.push(Touched { parent, place, names, is_changed: false });
                self.touched.len() - 1
            }
        };
        Ok(&mut self.touched[at])
    }

    fn edit(&mut self, parent: Ino, place: Place) -> Result<&mut Names> {
        let touched = self.at(parent, place)?;
        touched.is_changed = true;
        Ok(&mut touched.names)
    }

    /// The place that has a name.
    fn place_of(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Place>> {
        for place in self.table.placement.places(parent, name) {
            let names = &self.at(parent, place)?.names;
            if names.find(name).is_some() {
                return Ok(Some(place));
            }
            if !names.has_overflowed() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The entry of a name.
    pub(crate) fn entry(&mut self, parent: Ino, name: &[u8]) -> Result<Option<&Dirent>> {
        let Some(place) = self.place_of(parent, name)? else { return Ok(None) };
        Ok(self.at(parent, place)?.names.find(name))
    }

    /// Adds a name, or points an existing one to another inode. A new name goes to the first of its places that has
    /// room, and the full places before it count it as passed on. Fails with `NoSpace` if all 256 places are full.
    pub(crate) fn set(&mut self, parent: Ino, name: &[u8], ino: Ino, kind: FileKind) -> Result<()> {
        if let Some(place) = self.place_of(parent, name)? {
            let is_set = self.edit(parent, place)?.set(name, ino, kind);
            debug_assert!(is_set, "directory {}: the name is there, and cannot be set", parent.0);
            return Ok(());
        }
        let (table, names_max) = (self.table, self.table.placement.names_max());
        let mut full = Vec::new();
        for place in table.placement.places(parent, name) {
            if self.at(parent, place)?.names.len() < names_max && self.edit(parent, place)?.set(name, ino, kind) {
                return full.into_iter().try_for_each(|place| {
                    self.edit(parent, place)?.name_passed_on();
                    Ok(())
                });
            }
            full.push(place);
        }
        Err(Error::NoSpace)
    }

    /// Removes a name.
    pub(crate) fn remove(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.place_of(parent, name)? {
            Some(place) => self.remove_at(parent, place, name),
            None => Ok(()),
        }
    }

    /// Removes a name from a place. If that is one of its places, the places before it stop counting it.
    pub(crate) fn remove_at(&mut self, parent: Ino, place: Place, name: &[u8]) -> Result<()> {
        self.edit(parent, place)?.remove(name);
        let mut passed = Vec::new();
        for one in self.table.placement.places(parent, name) {
            if one == place {
                return passed.into_iter().try_for_each(|place| {
                    self.edit(parent, place)?.passed_name_removed();
                    Ok(())
                });
            }
            passed.push(one);
        }
        Ok(())
    }

    /// The places that it touches.
    pub(crate) fn places(&self) -> Vec<(Ino, Place)> {
        self.touched.iter().map(|touched| (touched.parent, touched.place)).collect()
    }

    /// Adds the records to `change`.
    pub(crate) fn finish(self, change: &mut Change) {
        for Touched { parent, place, names, .. } in self.touched.into_iter().filter(|touched| touched.is_changed) {
            let key = dirent::key(parent, place);
            if names.is_empty() {
                change.delete(key);
            } else {
                change.put(key, names.encode(parent));
            }
        }
    }
}
