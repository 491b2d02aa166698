//! The index of records in objects: it says which object has which range, and what is still to be removed.
//!
//! Each change of it is one change of one object, guarded by an attribute that every opener sets anew. So a process that
//! lost the objects to another cannot change it any more.

use std::sync::Arc;

use oncefs_rados::{Change, Error as ObjectError, Guard, KeyChange, KeyedObjects, SCANNED_KEYS_MAX, WhenFull};

use super::ranges::Ranges;
use super::terms::{OmapTerms, after, failed};
use crate::format::records_index::{HEADER_BYTES, INDEX, IndexEntry, check_header, header, object};
use crate::{Error, Result};

/// The attribute that guards the index.
const OPENED: &str = "opened";

/// The index, and the right to change it.
pub struct Index {
    objects: Arc<dyn KeyedObjects>,
    /// The value of the attribute.
    opened: [u8; 8],
}

/// The content of the index when it was opened.
pub struct Found {
    /// The ranges.
    pub ranges: Ranges,
    /// The number of the next new object.
    pub next: u64,
    /// Keys that moved to another object: the object that had them, the first, and the key after the last.
    moved: Vec<(u64, Vec<u8>, Vec<u8>)>,
    /// Objects without a range.
    removed: Vec<u64>,
}

impl Index {
    /// Makes the index with one range of no records, and the object of that range.
    pub fn create(objects: &dyn KeyedObjects, volume_id: [u8; 16]) -> Result<()> {
        let failed = failed("making the objects of records");
        let make = |name: &str, number| objects.change(name, Change::Create { bytes: &header(volume_id, number) });
        make(&object(0), Some(0)).map_err(&failed)?;
        make(INDEX, None).map_err(&failed)?;
        let first = IndexEntry::Range { first: Vec::new(), number: 0, keys: 0 };
        change(objects, &[IndexEntry::Next(1), IndexEntry::Opened(0), first], &[], None, Some(0))
    }

    /// Reads the index. Unless the store is read-only, others that opened it before cannot change it from now on.
    pub fn open(objects: &Arc<dyn KeyedObjects>, terms: OmapTerms) -> Result<(Self, Found)> {
        let failed = failed("reading the index of the records");
        let bytes = objects.content(INDEX, HEADER_BYTES).map_err(&failed)?;
        let damaged = |why: &str| Error::corrupt("the index of the records", why);
        check_header(&bytes.ok_or_else(|| damaged("it is missing"))?, terms.volume_id, None)?;
        let mut found = Found { ranges: Ranges::default(), next: 0, moved: Vec::new(), removed: Vec::new() };
        let mut opened = None;
        for entry in entries(&**objects)? {
            match entry {
                IndexEntry::Next(next) => found.next = next,
                IndexEntry::Opened(count) => opened = Some(count),
                IndexEntry::Range { first, number, keys } => {
                    found.ranges.add_noted(first, number, keys, terms.keys_max);
                }
                IndexEntry::Moved { number, from, to } => found.moved.push((number, from, to)),
                IndexEntry::Removed(number) => found.removed.push(number),
            }
        }
        let opened = opened.ok_or_else(|| damaged("it does not say how often it was opened"))?;
        if found.next == 0 || !found.ranges.are_whole() {
            return Err(damaged("it has no first range"));
        }
        let opened = opened + u64::from(!terms.read_only);
        if !terms.read_only {
            change(&**objects, &[IndexEntry::Opened(opened)], &[], None, Some(opened))?;
        }
        Ok((Self { objects: objects.clone(), opened: opened.to_le_bytes() }, found))
    }

    /// Sets and removes entries, all or none.
    pub fn change(&self, set: &[IndexEntry], removed: &[IndexEntry]) -> Result<()> {
        change(&*self.objects, set, removed, Some(self.opened), None)
    }

    /// Removes what a crash left that belongs to no range: keys that moved, objects whose range went, and the object of
    /// a split that did not come to count.
    pub fn end_what_was_interrupted(&self, found: &Found) -> Result<()> {
        for (number, from, to) in &found.moved {
            self.remove_moved(*number, from, to)?;
        }
        self.remove_objects(&found.removed)?;
        self.remove_object(found.next)
    }

    /// Removes keys that moved from an object, and the note of them.
    pub fn remove_moved(&self, number: u64, from: &[u8], to: &[u8]) -> Result<()> {
        let changes = [KeyChange::RemoveRange { from, to }];
        let change = Change::Keys { changes: &changes, attribute: None };
        let removed = self.objects.begin(&object(number), change, None, WhenFull::UsesReserve).wait();
        removed.map_err(failed("removing records that moved"))?;
        self.change(&[], &[IndexEntry::Moved { number, from: from.to_vec(), to: to.to_vec() }])
    }

    /// Removes objects without a range, and the notes of them.
    pub fn remove_objects(&self, numbers: &[u64]) -> Result<()> {
        numbers.iter().try_for_each(|number| self.remove_object(*number))?;
        let notes: Vec<IndexEntry> = numbers.iter().map(|number| IndexEntry::Removed(*number)).collect();
        if notes.is_empty() { Ok(()) } else { self.change(&[], &notes) }
    }

    /// Compares the header of an object: it may be missing, or be another's.
    pub fn check_object(&self, number: u64, volume_id: [u8; 16]) -> Result<()> {
        let (name, failed) = (object(number), failed("reading the header of an object of records"));
        let bytes = self.objects.content(&name, HEADER_BYTES).map_err(&failed)?;
        check_header(&bytes.ok_or_else(|| failed(ObjectError::NotFound(name)))?, volume_id, Some(number))
    }

    /// Removes an object, if it is there.
    pub fn remove_object(&self, number: u64) -> Result<()> {
        match self.objects.change(&object(number), Change::Remove) {
            Ok(()) | Err(ObjectError::NotFound(_)) => Ok(()),
            Err(error) => Err(failed("removing an object of records")(error)),
        }
    }
}

fn entries(objects: &dyn KeyedObjects) -> Result<Vec<IndexEntry>> {
    let (mut entries, mut from) = (Vec::new(), Vec::new());
    loop {
        let portion = objects.scan(INDEX.to_owned(), &from, SCANNED_KEYS_MAX);
        let portion = portion.map_err(failed("reading the index of the records"))?;
        for (key, value) in &portion.pairs {
            entries.push(IndexEntry::decode(key, value)?);
        }
        match portion.pairs.last().filter(|_| portion.has_more) {
            Some((last, _)) => from = after(last),
            None => return Ok(entries),
        }
    }
}

/// Sets and removes entries, if the attribute has the value of the guard, and sets it.
fn change(
    objects: &dyn KeyedObjects,
    set: &[IndexEntry],
    removed: &[IndexEntry],
    guard: Option<[u8; 8]>,
    opened: Option<u64>,
) -> Result<()> {
    let set: Vec<_> = set.iter().map(|entry| (entry.key(), entry.value())).collect();
    let removed: Vec<_> = removed.iter().map(IndexEntry::key).collect();
    let set = set.iter().map(|(key, value)| KeyChange::Set { key, value });
    let changes: Vec<_> = set.chain(removed.iter().map(|key| KeyChange::Remove { key })).collect();
    let opened = opened.map(u64::to_le_bytes);
    let attribute = |value| Guard { name: OPENED, value };
    let change = Change::Keys { changes: &changes, attribute: opened.as_ref().map(|value| attribute(&value[..])) };
    let guard = guard.as_ref().map(|value| attribute(&value[..]));
    let changed = objects.begin(INDEX, change, guard, WhenFull::UsesReserve).wait();
    changed.map_err(failed("changing the index of the records"))
}
