//! Changes of objects that were submitted and are not known to be durable yet. A flush lands all of them; a read lands
//! those of the objects that it reads.
//!
//! Changes in flight of one range do not follow each other: the engine flushes between them. So one that is repeated,
//! because the pool was full, undoes none that came after it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use oncefs_rados::{Change, Error, Objects, Pending, WhenFull};

use super::epoch::Epoch;
use super::pool_room::ObjectRoom;
use crate::sync::{LockRank, Mutex};

/// Bytes in flight. A writer that comes above this waits for the oldest. librados keeps a copy of them too.
const BYTES_MAX: usize = 16 << 20;
/// Changes in flight.
const COUNT_MAX: usize = 256;

/// A change of an object, with its bytes, which are needed again if the pool is full.
pub enum Owned {
    /// Bytes at a place.
    Write {
        /// The first byte.
        at: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A hole.
    Zero {
        /// The first byte.
        at: u64,
        /// Its length.
        len: u64,
    },
    /// The object goes.
    Remove,
}

impl Owned {
    fn change(&self) -> Change<'_> {
        match self {
            Self::Write { at, bytes } => Change::Write { at: *at, bytes },
            Self::Zero { at, len } => Change::Zero { at: *at, len: *len },
            Self::Remove => Change::Remove,
        }
    }

    fn bytes(&self) -> usize {
        if let Self::Write { bytes, .. } = self { bytes.len() } else { 0 }
    }
}

/// One change in flight.
struct Flight {
    number: u64,
    name: String,
    owned: Owned,
    pending: Box<dyn Pending>,
    /// The result, once it landed.
    landed: Mutex<Option<Result<(), Error>>>,
}

/// The changes of one device in flight, oldest first.
#[derive(Default)]
struct Queue {
    flights: VecDeque<Arc<Flight>>,
    bytes: usize,
}

/// The changes of a device on their way to a cluster.
pub struct Flights {
    objects: Arc<dyn Objects>,
    room: Arc<ObjectRoom>,
    /// An object of another epoch takes none of the changes.
    epoch: Option<Epoch>,
    queue: Mutex<Queue>,
    failed: Mutex<Failed>,
}

/// Changes that failed. They cannot be written again, so every later flush fails, and so does a read of an object
/// that they concern.
#[derive(Default)]
struct Failed {
    first: Option<Error>,
    numbers: HashSet<u64>,
}

impl Flights {
    /// Nothing is in flight.
    pub fn new(objects: Arc<dyn Objects>, room: Arc<ObjectRoom>, epoch: Option<Epoch>) -> Self {
        let queue = Mutex::new(LockRank::Leaf, Queue::default());
        Self { objects, room, epoch, queue, failed: Mutex::new(LockRank::Leaf, Failed::default()) }
    }

    /// Begins a change of the object with this number and name. Waits for older ones if too much is in flight.
    pub fn begin(&self, number: u64, name: String, owned: Owned) {
        let pending = self.submit(&name, &owned, WhenFull::Fails);
        let flight = Flight { number, name, owned, pending, landed: Mutex::new(LockRank::Leaf, None) };
        let mut queue = self.queue.lock();
        queue.bytes += flight.owned.bytes();
        queue.flights.push_back(Arc::new(flight));
        let mut rest = (queue.bytes, queue.flights.len());
        let mut oldest = Vec::new();
        for flight in &queue.flights {
            if rest.0 <= BYTES_MAX && rest.1 <= COUNT_MAX {
                break;
            }
            rest = (rest.0 - flight.owned.bytes(), rest.1 - 1);
            oldest.push(flight.clone());
        }
        drop(queue);
        self.land(&oldest);
    }

    fn submit(&self, name: &str, owned: &Owned, full: WhenFull) -> Box<dyn Pending> {
        let value = self.epoch.map(Epoch::bytes);
        self.objects.begin(name, owned.change(), value.as_ref().map(Epoch::guard), full)
    }

    /// Waits until the changes of these objects are durable. A failure is the next flush's, and that of reads
    /// ([`Flights::loss_of`]).
    pub fn land_those_of(&self, numbers: &[u64]) {
        let concerned: Vec<_> =
            self.queue.lock().flights.iter().filter(|flight| numbers.contains(&flight.number)).cloned().collect();
        self.land(&concerned);
    }

    /// Waits until every change that has begun is durable.
    pub fn land_all(&self) -> Result<(), Error> {
        let all: Vec<_> = self.queue.lock().flights.iter().cloned().collect();
        self.land(&all);
        self.failed.lock().first.clone().map_or(Ok(()), Err)
    }

    /// The error of changes of an object that failed: the cluster has other bytes of it than were written.
    pub fn loss_of(&self, number: u64) -> Option<Error> {
        let failed = self.failed.lock();
        failed.first.clone().filter(|_| failed.numbers.contains(&number))
    }

    /// Lands flights, and takes them out of the queue. They stay in it until then, so that other readers and flushes
    /// wait for them too.
    fn land(&self, flights: &[Arc<Flight>]) {
        if flights.is_empty() {
            return;
        }
        for flight in flights {
            let mut landed = flight.landed.lock();
            if landed.is_none() {
                *landed = Some(self.result_of(flight));
            }
        }
        let results = flights.iter().filter_map(|flight| Some((flight.number, flight.landed.lock().clone()?.err()?)));
        for (number, error) in results {
            let mut failed = self.failed.lock();
            failed.first.get_or_insert(error);
            failed.numbers.insert(number);
        }
        let mut queue = self.queue.lock();
        queue.flights.retain(|flight| !flights.iter().any(|landed| Arc::ptr_eq(flight, landed)));
        queue.bytes = queue.flights.iter().map(|flight| flight.owned.bytes()).sum();
    }

    fn result_of(&self, flight: &Flight) -> Result<(), Error> {
        match (flight.pending.wait(), &flight.owned) {
            // Removed before, or never written.
            (Err(Error::NotFound(_)), Owned::Remove) => Ok(()),
            (Err(Error::Full), owned) => {
                self.room.note_full();
                self.submit(&flight.name, owned, WhenFull::UsesReserve).wait()
            }
            // A hole that is not made costs space and nothing else.
            (Err(error), Owned::Zero { .. } | Owned::Remove)
                if !matches!(error, Error::Fenced | Error::Guarded(_) | Error::Gone(_)) =>
            {
                log::warn!("cannot give space of the object {} back: {error}", flight.name);
                Ok(())
            }
            (result, _) => result,
        }
    }
}
