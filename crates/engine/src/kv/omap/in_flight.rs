//! Changes of records that were submitted and are not known to be durable yet. No two of them concern the same record,
//! so one that the pool refused because it is full may be repeated.

use oncefs_rados::{Change, Error, KeyChange, KeyedObjects, Pending, WhenFull};

use super::terms::{Changes, failed};
use crate::Result;
use crate::objects::pool_room::ObjectRoom;

/// A change of one object.
struct Flight {
    object: String,
    changes: Changes,
    pending: Box<dyn Pending>,
}

/// The changes in flight, oldest first.
#[derive(Default)]
pub struct Flights {
    flights: Vec<Flight>,
    bytes: usize,
}

impl Flights {
    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Bytes in flight.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins a change of an object.
    pub fn begin(&mut self, objects: &dyn KeyedObjects, object: String, changes: Changes) {
        let pending = submit(objects, &object, &changes, WhenFull::Fails);
        self.bytes += changes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>();
        self.flights.push(Flight { object, changes, pending });
    }

    /// Waits for all changes. What a full pool refused is written in its reserve: it belongs to changes that were
    /// acknowledged.
    pub fn land(&mut self, objects: &dyn KeyedObjects, room: &ObjectRoom) -> Result<()> {
        self.bytes = 0;
        let landed = |Flight { object, changes, pending }: Flight| match pending.wait() {
            Err(Error::Full) => {
                room.note_full();
                submit(objects, &object, &changes, WhenFull::UsesReserve).wait()
            }
            result => result,
        };
        // All are awaited, also after one failed.
        let results: Vec<_> = std::mem::take(&mut self.flights).into_iter().map(landed).collect();
        results.into_iter().try_for_each(|result| result.map_err(failed("writing records")))
    }
}

fn submit(objects: &dyn KeyedObjects, object: &str, changes: &Changes, full: WhenFull) -> Box<dyn Pending> {
    let (set, removed): (Vec<_>, Vec<_>) = changes.iter().partition(|(_, value)| value.is_some());
    let set = set.into_iter().filter_map(|(key, value)| Some(KeyChange::Set { key, value: value.as_deref()? }));
    let changes: Vec<_> = set.chain(removed.into_iter().map(|(key, _)| KeyChange::Remove { key })).collect();
    objects.begin(object, Change::Keys { changes: &changes, attribute: None }, None, full)
}
