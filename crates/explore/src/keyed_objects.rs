//! Records in objects on a tape. Each change of an object is a step, and so is the moment from which it is durable. A
//! crash may leave any number of the changes of each object that were not awaited, in their order, whatever it leaves of
//! other objects.
//!
//! The sorted state on the tape has all of it: keys, attributes and bytes of an object lie under its name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use oncefs_engine::kv::Put;
use oncefs_engine::kv::omap::{OmapKv, OmapTerms};
use oncefs_engine::objects::pool_room::ObjectRoom;
use oncefs_rados::{
    Change, Error, Guard, Hold, KeyChange, KeyLookUp, KeyScan, KeyedObjects, Objects, Pair, Pending, Portion, Read,
    Result, SCANNED_KEYS_MAX, WhenFull,
};

use crate::tape::Tape;

/// Memory for records that were read: hardly any, so that most reads reach the objects.
const CACHE_BYTES_MAX: u64 = 4 << 10;

/// The kind of an object, by its name.
#[derive(Clone, Copy)]
enum Kind {
    Bytes,
    Key,
    Attribute,
    End,
}

type Stored = BTreeMap<Vec<u8>, Vec<u8>>;

/// Where a part of an object lies. Names have no NUL.
fn place(object: &str, kind: Kind, key: &[u8]) -> Vec<u8> {
    [object.as_bytes(), &[0, kind as u8], key].concat()
}

fn exists(stored: &Stored, object: &str) -> bool {
    stored.contains_key(&place(object, Kind::Bytes, &[]))
}

/// The places of an object's parts from one on, up to the next kind or the end of the object.
fn places_from(stored: &Stored, object: &str, kind: Kind, key: &[u8], end: Kind) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (from, to) = (place(object, kind, key), place(object, end, &[]));
    let range = stored.range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
    range.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn keys_from(stored: &Stored, object: &str, from: &[u8]) -> Vec<Pair> {
    let skipped = place(object, Kind::Key, &[]).len();
    let found = places_from(stored, object, Kind::Key, from, Kind::Attribute);
    found.into_iter().map(|(place, value)| (place[skipped..].to_vec(), value)).collect()
}

/// The effect of a change on the places of its object.
fn effect(stored: &Stored, object: &str, change: Change<'_>, guard: Option<Guard<'_>>) -> Result<Vec<Put>> {
    let attribute = |guard: Guard<'_>| (place(object, Kind::Attribute, guard.name.as_bytes()), guard.value.to_vec());
    if let Some((key, value)) = guard.map(attribute)
        && stored.get(&key) != Some(&value)
    {
        return Err(Error::Guarded(object.to_owned()));
    }
    let bytes = place(object, Kind::Bytes, &[]);
    match change {
        Change::Create { .. } if exists(stored, object) => Err(Error::Exists(object.to_owned())),
        Change::Create { bytes: content } => Ok(vec![(bytes, Some(content.to_vec()))]),
        Change::Remove if !exists(stored, object) => Err(Error::NotFound(object.to_owned())),
        Change::Remove => {
            let all = places_from(stored, object, Kind::Bytes, &[], Kind::End);
            Ok(all.into_iter().map(|(place, _)| (place, None)).collect())
        }
        Change::Keys { changes, attribute: set } => {
            assert!(exists(stored, object), "the store makes {object} before it has keys");
            let mut puts = Vec::new();
            for change in changes {
                match change {
                    KeyChange::Set { key, value } => puts.push((place(object, Kind::Key, key), Some(value.to_vec()))),
                    KeyChange::Remove { key } => puts.push((place(object, Kind::Key, key), None)),
                    KeyChange::RemoveRange { from, to } => {
                        let found = keys_from(stored, object, from).into_iter().filter(|(key, _)| key[..] < **to);
                        puts.extend(found.map(|(key, _)| (place(object, Kind::Key, &key), None)));
                    }
                }
            }
            puts.extend(set.map(attribute).map(|(key, value)| (key, Some(value))));
            Ok(puts)
        }
        other => panic!("the store does not change {object} by {other:?}"),
    }
}

/// The objects with records.
struct TapeRecords(Arc<Tape>);

/// A change of an object, by its number on the tape.
struct Changing {
    tape: Arc<Tape>,
    object: Arc<str>,
    begun: Result<u64>,
}

impl Pending for Changing {
    fn wait(&self) -> Result<()> {
        self.tape.land(&self.object, self.begun.clone()?);
        Ok(())
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl Objects for TapeRecords {
    fn read_all(&self, reads: &mut [Read<'_>]) {
        self.0.with_records(|stored| {
            for read in reads {
                let content = stored.get(&place(&read.object, Kind::Bytes, &[])).map_or(&[][..], Vec::as_slice);
                let there = content.get(read.at as usize..).unwrap_or_default();
                let len = there.len().min(read.bytes.len());
                read.bytes[..len].copy_from_slice(&there[..len]);
                read.bytes[len..].fill(0);
            }
        });
    }

    fn begin(&self, object: &str, change: Change<'_>, guard: Option<Guard<'_>>, _: WhenFull) -> Box<dyn Pending> {
        let object: Arc<str> = object.into();
        let puts = self.0.with_records(|stored| effect(stored, &object, change, guard));
        let begun = puts.map(|puts| self.0.change_object(&object, puts));
        Box::new(Changing { tape: self.0.clone(), object, begun })
    }

    fn sizes(&self, objects: &[String]) -> Result<Vec<Option<u64>>> {
        let size = |stored: &Stored, object: &String| Some(stored.get(&place(object, Kind::Bytes, &[]))?.len() as u64);
        Ok(self.0.with_records(|stored| objects.iter().map(|object| size(stored, object)).collect()))
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn hold(&self, _: &str, _: Option<&str>) -> Result<Hold> {
        Ok(Hold::of_nothing())
    }

    fn holder(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn has_room(&self) -> Result<bool> {
        Ok(true)
    }
}

impl KeyedObjects for TapeRecords {
    fn scan_all(&self, scans: &mut [KeyScan<'_>]) {
        self.0.with_records(|stored| {
            for scan in scans {
                let missing = || Err(Error::NotFound(scan.object.clone()));
                let mut pairs = keys_from(stored, &scan.object, scan.from);
                let limit = scan.limit.min(SCANNED_KEYS_MAX);
                let has_more = pairs.len() > limit;
                pairs.truncate(limit);
                scan.result = if exists(stored, &scan.object) { Ok(Portion { pairs, has_more }) } else { missing() };
            }
        });
    }

    fn look_up_all(&self, look_ups: &mut [KeyLookUp<'_>]) {
        self.0.with_records(|stored| {
            for look_up in look_ups {
                let value = |key: &[u8]| stored.get(&place(&look_up.object, Kind::Key, key)).cloned();
                look_up.result = Ok(look_up.keys.iter().filter_map(|key| Some((key.to_vec(), value(key)?))).collect());
            }
        });
    }
}

/// Makes an empty store of records on a tape.
pub fn create(tape: &Arc<Tape>, volume_id: [u8; 16]) -> oncefs_engine::Result<()> {
    OmapKv::create(&TapeRecords(tape.clone()), volume_id)
}

/// The store of records of a tape, in objects of so many keys.
pub fn open(tape: &Arc<Tape>, volume_id: [u8; 16], keys_max: u64) -> oncefs_engine::Result<OmapKv> {
    let objects: Arc<dyn KeyedObjects> = Arc::new(TapeRecords(tape.clone()));
    let room = Arc::new(ObjectRoom::of(objects.clone()));
    let terms = OmapTerms { volume_id, cache_bytes_max: CACHE_BYTES_MAX, keys_max, read_only: false };
    OmapKv::open(objects, room, terms)
}
