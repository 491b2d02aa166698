//! Ranges that grow are split, and ranges without records go.
//!
//! The order of a split, and what a crash leaves: (1) the upper half of the records is copied to a new object; a crash
//! leaves an object that no range names, which the next opener removes. (2) One change of the index gives the object its
//! range, and notes the old object's surplus keys. From then on readers look in the new object. (3) The old object's
//! copies are removed, and then the note; a crash leaves keys outside of the object's range, which readers ignore and the
//! next opener removes.
//!
//! A range without records goes in the same way: one change of the index takes the range away and notes the object,
//! then the object is removed, and then the note.

use std::collections::BTreeSet;

use oncefs_rados::{Change, Error as ObjectError, KeyChange, KeyScan, WhenFull};

use super::split_copies::Copies;
use super::terms::{Changes, after, failed};
use super::{OmapKv, Writer};
use crate::Result;
use crate::format::records_index::{HEADER_BYTES, IndexEntry, header, object};

/// Records of one copy. One of them may have tens of KiB.
const COPIED_KEYS_MAX: usize = 32;
/// Records that are read together to be counted.
const COUNTED_KEYS_MAX: usize = 256;

/// A range whose records were counted.
struct Counted {
    first: Vec<u8>,
    number: u64,
    end: Option<Vec<u8>>,
    keys: Vec<Vec<u8>>,
}

impl OmapKv {
    /// Splits ranges that these changes would make too large. While the pool is full, they grow beyond their bound
    /// instead: a copy takes room before the old records give theirs back.
    pub(super) fn make_room(&self, writer: &mut Writer, changes: &Changes) -> Result<()> {
        if self.room.is_full() {
            return Ok(());
        }
        let mut touched: BTreeSet<Vec<u8>> = {
            let ranges = self.ranges.read();
            changes.keys().map(|key| ranges.of(key).first.to_vec()).collect()
        };
        while let Some(first) = touched.pop_first() {
            if self.is_to_be_counted(&first, changes) {
                self.land(writer)?;
                let counted = self.count(&first)?;
                if counted.keys.len() as u64 <= self.terms.keys_max / 2 {
                    self.ranges.read().set_count(&first, counted.keys.len() as u64);
                    continue;
                }
                let Some(middle) = self.split(writer, &counted)? else { return Ok(()) };
                touched.extend([middle, first]);
            }
        }
        Ok(())
    }

    fn is_to_be_counted(&self, first: &[u8], changes: &Changes) -> bool {
        let ranges = self.ranges.read();
        let range = ranges.of(first);
        let here = changes.range(first.to_vec()..).take_while(|(key, _)| range.end.is_none_or(|end| key[..] < *end));
        let set = here.filter(|(_, value)| value.is_some()).count() as u64;
        set > 0 && range.keys + set > self.terms.keys_max
    }

    fn count(&self, first: &[u8]) -> Result<Counted> {
        let (number, end) = {
            let ranges = self.ranges.read();
            let range = ranges.of(first);
            (range.number, range.end.map(<[u8]>::to_vec))
        };
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = Some(first.to_vec());
        while let Some(from) = next {
            let (pairs, rest) = self.portion(&from, end.as_deref(), COUNTED_KEYS_MAX)?;
            keys.extend(pairs.into_iter().map(|(key, _)| key));
            next = rest.filter(|rest| end.as_ref().is_none_or(|end| rest < end));
        }
        Ok(Counted { first: first.to_vec(), number, end, keys })
    }

    /// Moves the upper half of a range to a new object. Returns the first key of the new range. None: the pool is full,
    /// and nothing changed.
    fn split(&self, writer: &mut Writer, counted: &Counted) -> Result<Option<Vec<u8>>> {
        let Counted { first, number, end, keys } = counted;
        let (lower, upper) = keys.split_at(keys.len() / 2);
        let (middle, last) = (&upper[0], &upper[upper.len() - 1]);
        let new = writer.next;
        if !self.copy(middle, end.as_deref(), new)? {
            return Ok(None);
        }
        let moved = IndexEntry::Moved { number: *number, from: middle.clone(), to: after(last) };
        let range = |first: &Vec<u8>, number, keys: &[Vec<u8>]| IndexEntry::Range {
            first: first.clone(),
            number,
            keys: keys.len() as u64,
        };
        let ranges = [range(first, *number, lower), range(middle, new, upper)];
        self.index.change(&[&ranges[..], &[moved, IndexEntry::Next(new + 1)]].concat(), &[])?;
        writer.next += 1;
        {
            // Readers of the old object have ended when this lock is taken.
            let mut ranges = self.ranges.write();
            ranges.add(first.clone(), *number, lower.len() as u64);
            ranges.add(middle.clone(), new, upper.len() as u64);
        }
        self.index.remove_moved(*number, middle, &after(last))?;
        Ok(Some(middle.clone()))
    }

    /// Makes an object with a copy of the records from a key to the end of its range. False: the pool is full, and the
    /// object is gone again.
    fn copy(&self, middle: &[u8], end: Option<&[u8]>, number: u64) -> Result<bool> {
        let mut copies = Copies::default();
        let read = self.begin_copies(&mut copies, middle, end, number);
        // All are awaited before an error returns: none may reach the object after what follows.
        let landed = copies.land();
        read?;
        match landed {
            Ok(()) => Ok(true),
            Err(ObjectError::Full) => {
                self.room.note_full();
                self.index.remove_object(number)?;
                Ok(false)
            }
            Err(error) => Err(failed("copying records to a new object")(error)),
        }
    }

    /// Begins the copies, until one fails.
    fn begin_copies(&self, copies: &mut Copies, middle: &[u8], end: Option<&[u8]>, number: u64) -> Result<()> {
        let name = object(number);
        let made = Change::Create { bytes: &header(self.terms.volume_id, Some(number)) };
        copies.add(HEADER_BYTES, self.objects.begin(&name, made, None, WhenFull::Fails));
        let mut next = Some(middle.to_vec());
        while let Some(from) = next {
            let (pairs, rest) = self.portion(&from, end, COPIED_KEYS_MAX)?;
            let bytes = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
            if !copies.wait_for_room(bytes) {
                return Ok(());
            }
            let changes: Vec<_> = pairs.iter().map(|(key, value)| KeyChange::Set { key, value }).collect();
            let change = Change::Keys { changes: &changes, attribute: None };
            copies.add(bytes, self.objects.begin(&name, change, None, WhenFull::Fails));
            next = rest.filter(|rest| end.is_none_or(|end| rest[..] < *end));
        }
        Ok(())
    }

    /// Removes those of these ranges that have no records, except for the first of all. Nothing is in flight.
    pub(super) fn remove_empty(&self, firsts: BTreeSet<Vec<u8>>) -> Result<()> {
        let candidates: Vec<(Vec<u8>, u64)> = {
            let ranges = self.ranges.read();
            let is_there = |first: &Vec<u8>| !first.is_empty() && ranges.of(first).first == &first[..];
            firsts.into_iter().filter(is_there).map(|first| (first.clone(), ranges.of(&first).number)).collect()
        };
        let mut scans: Vec<KeyScan<'_>> =
            candidates.iter().map(|(first, number)| KeyScan::new(object(*number), first, 1)).collect();
        self.objects.scan_all(&mut scans);
        let mut empty = Vec::new();
        for ((first, number), scan) in candidates.iter().zip(scans) {
            if scan.result.map_err(failed("looking for records"))?.pairs.is_empty() {
                empty.push((first, *number));
            }
        }
        if empty.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u64> = empty.iter().map(|(_, number)| *number).collect();
        let notes: Vec<_> = numbers.iter().map(|number| IndexEntry::Removed(*number)).collect();
        let gone =
            |(first, number): &(&Vec<u8>, u64)| IndexEntry::Range { first: (*first).clone(), number: *number, keys: 0 };
        self.index.change(&notes, &empty.iter().map(gone).collect::<Vec<_>>())?;
        {
            let mut ranges = self.ranges.write();
            empty.iter().for_each(|(first, _)| ranges.remove(first));
        }
        self.index.remove_objects(&numbers)
    }

    /// Notes how many keys the ranges have, if that changed much, so that the next opener knows when to split.
    pub(super) fn note_counts(&self) -> Result<()> {
        let counts = self.ranges.read().unnoted(self.terms.keys_max);
        if counts.is_empty() {
            return Ok(());
        }
        let entries: Vec<_> = counts
            .iter()
            .map(|(first, number, keys)| IndexEntry::Range { first: first.clone(), number: *number, keys: *keys })
            .collect();
        self.index.change(&entries, &[])?;
        self.ranges.read().set_noted(&counts);
        Ok(())
    }
}
