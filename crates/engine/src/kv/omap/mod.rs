//! The sorted state in objects of a cluster: each object has the records of one range of keys, and an index says which.
//!
//! A batch is split at the borders of ranges. Each part is one change of one object, applied whole or not at all; after
//! a crash any of the parts since the last flush may be there. A record that must come after all others is written by
//! [`Kv::seal`]. One process at a time has the objects.
//!
//! Writes are submitted and not awaited; a flush waits for all of them. Until then memory keeps what they write, and
//! reads look there first. A read holds the ranges shared while it reads an object, so a split waits for readers of the
//! old range before it removes what it moved.

mod cache;
mod in_flight;
mod index;
mod ranges;
mod split;
mod split_copies;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use oncefs_rados::{KeyLookUp, KeyedObjects, Pair, SCANNED_KEYS_MAX};
use parking_lot::{Mutex, RwLock};

use self::cache::Cache;
use self::in_flight::Flights;
use self::index::Index;
use self::ranges::{Range, Ranges};
pub use self::terms::OmapTerms;
use self::terms::{Changes, after, failed};
use super::{Kv, KvMemory, Put};
use crate::format::records_index::object;
use crate::objects::pool_room::ObjectRoom;
use crate::{Error, Result};

/// A look-up reads so many records from its key on: neighbours are often wanted next.
const LOOK_AHEAD: usize = 16;
/// Bytes of records in flight. A writer that comes above this waits for them.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

/// Records in objects.
pub struct OmapKv {
    objects: Arc<dyn KeyedObjects>,
    room: Arc<ObjectRoom>,
    terms: OmapTerms,
    index: Index,
    /// Held shared while an object of a range is read, so only a change of the ranges themselves takes it alone.
    ranges: RwLock<Ranges>,
    /// Held by the only thread that changes records, before all other locks.
    writer: Mutex<Writer>,
    /// Records that were written and are not yet known to be durable.
    fresh: Mutex<Changes>,
    cache: Mutex<Cache>,
    /// Whether a change failed, so that none may follow.
    has_failed: AtomicBool,
}

/// The state of changes under way.
#[derive(Default)]
struct Writer {
    flights: Flights,
    /// The number of the next new object.
    next: u64,
    /// Ranges from which records were removed since the last flush, by their first keys.
    thinned: BTreeSet<Vec<u8>>,
}

impl OmapKv {
    /// Makes an empty store.
    ///
    /// # Errors
    ///
    /// Those of [`Kv`]; also if there is one.
    pub fn create(objects: &dyn KeyedObjects, volume_id: [u8; 16]) -> Result<()> {
        Index::create(objects, volume_id)
    }

    /// Opens a store, and ends what a crash interrupted.
    ///
    /// # Errors
    ///
    /// Those of [`Kv`].
    pub fn open(objects: Arc<dyn KeyedObjects>, room: Arc<ObjectRoom>, terms: OmapTerms) -> Result<Self> {
        assert!(terms.keys_max >= 2, "objects of {} keys cannot be split", terms.keys_max);
        let (index, found) = Index::open(&objects, terms)?;
        if !terms.read_only {
            index.end_what_was_interrupted(&found)?;
        }
        Ok(Self {
            objects,
            room,
            terms,
            index,
            ranges: RwLock::new(found.ranges),
            writer: Mutex::new(Writer { next: found.next, ..Writer::default() }),
            fresh: Mutex::default(),
            cache: Mutex::new(Cache::new(terms.cache_bytes_max)),
            has_failed: AtomicBool::new(false),
        })
    }

    /// How many objects have records.
    pub fn objects(&self) -> usize {
        self.ranges.read().len()
    }

    /// The number of the next new object.
    #[cfg(all(test, not(feature = "schedules")))]
    fn index_next(&self) -> u64 {
        self.writer.lock().next
    }

    /// Reads the header of every object and every record, and drops them.
    ///
    /// # Errors
    ///
    /// Those of [`Kv`].
    pub fn read_all(&self) -> Result<()> {
        self.ranges.read().forget_checked();
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            next = self.portion(&from, None, SCANNED_KEYS_MAX)?.1;
        }
        Ok(())
    }

    fn refuse_to_go_on(&self) -> Result<()> {
        if self.has_failed.load(Relaxed) || self.terms.read_only {
            let why = if self.terms.read_only { "they are read-only" } else { "an earlier change failed" };
            return Err(Error::io("writing records to objects", std::io::Error::other(why)));
        }
        Ok(())
    }

    /// Does a part of a change. If it fails, no change may follow: what the cluster has is not known.
    fn changing<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        work().inspect_err(|_| self.has_failed.store(true, Relaxed))
    }

    /// Waits until all that is in flight is durable. Readers then find it in the cache or in the objects.
    fn land(&self, writer: &mut Writer) -> Result<()> {
        if writer.flights.is_empty() {
            return Ok(());
        }
        self.changing(|| writer.flights.land(&*self.objects, &self.room))?;
        let mut fresh = self.fresh.lock();
        self.cache.lock().take_landed(std::mem::take(&mut *fresh));
        Ok(())
    }

    fn write_holding(&self, writer: &mut Writer, batch: Vec<Put>) -> Result<()> {
        self.refuse_to_go_on()?;
        let changes: Changes = batch.into_iter().collect();
        // Changes in flight never concern the same key, so that one may be repeated.
        let is_in_flight = {
            let fresh = self.fresh.lock();
            changes.keys().any(|key| fresh.contains_key(key))
        };
        if is_in_flight {
            self.land(writer)?;
        }
        self.changing(|| self.make_room(writer, &changes))?;
        let parts = self.changing(|| self.parts_of(&changes))?;
        self.fresh.lock().extend(changes.clone());
        self.cache.lock().forget(changes.keys());
        for (first, (number, part)) in parts {
            if part.values().any(Option::is_none) {
                writer.thinned.insert(first);
            }
            writer.flights.begin(&*self.objects, object(number), part);
        }
        match writer.flights.bytes() > IN_FLIGHT_BYTES_MAX {
            true => self.land(writer),
            false => Ok(()),
        }
    }

    /// The changes by the first keys of their ranges, with the numbers of the objects. Counts them.
    fn parts_of(&self, changes: &Changes) -> Result<BTreeMap<Vec<u8>, (u64, Changes)>> {
        let ranges = self.ranges.read();
        let mut parts: BTreeMap<Vec<u8>, (u64, Changes)> = BTreeMap::new();
        for (key, value) in changes {
            let range = ranges.of(key);
            self.check_first_use(&ranges, range)?;
            if value.is_some() {
                ranges.note_set(range.first);
            }
            let (_, part) = parts.entry(range.first.to_vec()).or_insert_with(|| (range.number, Changes::new()));
            part.insert(key.clone(), value.clone());
        }
        Ok(parts)
    }

    /// Compares the header of a range's object, if that was not done yet.
    fn check_first_use(&self, ranges: &Ranges, range: Range<'_>) -> Result<()> {
        if !range.is_checked {
            self.index.check_object(range.number, self.terms.volume_id)?;
            ranges.note_checked(range.first);
        }
        Ok(())
    }

    fn flush_holding(&self, writer: &mut Writer) -> Result<()> {
        self.land(writer)?;
        if self.terms.read_only {
            return Ok(());
        }
        self.refuse_to_go_on()?;
        let thinned = std::mem::take(&mut writer.thinned);
        self.changing(|| {
            self.remove_empty(thinned)?;
            self.note_counts()
        })
    }

    /// The first records of `from <= key < to` in the objects, at most `limit` and of one range, and the key from which
    /// the rest follows. None: no more follow. Without `to`, all that follow count.
    fn portion(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<(Vec<Pair>, Option<Vec<u8>>)> {
        let ranges = self.ranges.read();
        let range = ranges.of(from);
        self.check_first_use(&ranges, range)?;
        let scanned = self.objects.scan(object(range.number), from, limit).map_err(failed("reading records"))?;
        let is_before = |key: &[u8], end: Option<&[u8]>| end.is_none_or(|end| key < end);
        let end = range.end.filter(|end| is_before(end, to));
        let within = end.or(to);
        let next = scanned.pairs.last().filter(|_| scanned.has_more).map(|(key, _)| after(key));
        let next = next.filter(|next| is_before(next, within));
        let mut pairs = scanned.pairs;
        pairs.retain(|(key, _)| is_before(key, within));
        Ok((pairs, next.or_else(|| end.map(<[u8]>::to_vec))))
    }
}

impl Drop for OmapKv {
    /// The objects may be freed for another process next, and no change may be under way then.
    fn drop(&mut self) {
        if let Err(error) = self.writer.get_mut().flights.land(&*self.objects, &self.room) {
            log::error!("records were lost when the volume was closed: {error}");
        }
    }
}

impl Kv for OmapKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.fresh.lock().get(key) {
            return Ok(value.clone());
        }
        let generation = {
            let mut cache = self.cache.lock();
            if let Some(value) = cache.get(key) {
                return Ok(value);
            }
            cache.generation()
        };
        let (found, _) = self.portion(key, None, LOOK_AHEAD)?;
        let value = found.first().filter(|(first, _)| first == key).map(|(_, value)| value.clone());
        self.cache.lock().admit(generation, key, found);
        Ok(value)
    }

    fn get_all(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut known: BTreeMap<&[u8], Option<Vec<u8>>> = BTreeMap::new();
        {
            let fresh = self.fresh.lock();
            known.extend(keys.iter().filter_map(|key| Some((&key[..], fresh.get(key)?.clone()))));
        }
        let generation = {
            let mut cache = self.cache.lock();
            let unknown: Vec<&Vec<u8>> = keys.iter().filter(|key| !known.contains_key(&key[..])).collect();
            known.extend(unknown.into_iter().filter_map(|key| Some((&key[..], cache.get(key)?))));
            cache.generation()
        };
        let unknown: BTreeSet<&[u8]> = keys.iter().map(|key| &key[..]).filter(|key| !known.contains_key(key)).collect();
        let ranges = self.ranges.read();
        let mut by_object: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
        for key in &unknown {
            let range = ranges.of(key);
            self.check_first_use(&ranges, range)?;
            by_object.entry(range.number).or_default().push(key);
        }
        let mut look_ups: Vec<KeyLookUp<'_>> =
            by_object.into_iter().map(|(number, keys)| KeyLookUp::new(object(number), keys)).collect();
        self.objects.look_up_all(&mut look_ups);
        drop(ranges);
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for look_up in look_ups {
            found.extend(look_up.result.map_err(failed("reading records"))?);
        }
        for key in unknown {
            let value = found.remove(key);
            self.cache.lock().admit(generation, key, value.iter().map(|value| (key.to_vec(), value.clone())).collect());
            known.insert(key, value);
        }
        Ok(keys.iter().map(|key| known.get(&key[..]).cloned().flatten()).collect())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>> {
        if from >= to {
            return Ok(Vec::new());
        }
        // Taken first: what lands meanwhile is in this copy, or in the objects.
        let fresh: Changes = self
            .fresh
            .lock()
            .range(from.to_vec()..to.to_vec())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut found = Vec::new();
        let mut next = Some(from.to_vec());
        while let Some(here) = next.filter(|_| found.len() < limit) {
            let (pairs, rest) = self.portion(&here, Some(to), limit - found.len())?;
            let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = pairs.into_iter().collect();
            for (key, value) in fresh.range(here..rest.clone().unwrap_or_else(|| to.to_vec())) {
                match value {
                    Some(value) => drop(merged.insert(key.clone(), value.clone())),
                    None => drop(merged.remove(key)),
                }
            }
            let wanted = limit - found.len();
            found.extend(merged.into_iter().take(wanted));
            next = rest;
        }
        Ok(found)
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.write_holding(&mut self.writer.lock(), batch)
    }

    fn flush(&self) -> Result<()> {
        self.flush_holding(&mut self.writer.lock())
    }

    fn seal(&self, last: Put) -> Result<()> {
        let mut writer = self.writer.lock();
        self.flush_holding(&mut writer)?;
        self.write_holding(&mut writer, vec![last])?;
        self.land(&mut writer)
    }

    fn memory(&self) -> KvMemory {
        self.cache.lock().memory()
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests;
