//! The lease of this process while it is the head: a thread renews it, and all who answer requests ask it first.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use oncefs_rados::{Change, Error, LOCK_OBJECT, Objects, Pending, WhenFull};

use super::epoch::Epoch;
use super::lease::{End, Lease};
use crate::format::head_record::{HeadRecord, HeadState};
use crate::sync::{AtomicBool, AtomicU64, LockRank, Mutex};

/// How often the thread looks at the time and at the renewal under way.
const LOOK: Duration = Duration::from_millis(100);
/// How often a request that waits for the lease asks for it.
const ASK: Duration = Duration::from_millis(20);
/// No answer is given any more.
const NEVER: u64 = 0;

/// Reads a clock.
pub type Clock = fn() -> Duration;

/// Whether this process may answer.
pub struct HeldLease {
    /// Nanoseconds of the clock.
    answers_until: AtomicU64,
    clock: Clock,
    is_closing: AtomicBool,
    /// Whether programs use the volume.
    serves: AtomicBool,
    /// Who alone may open the volume next.
    heir: Mutex<Option<String>>,
    end: Mutex<Option<End>>,
    length: Duration,
    /// Nanoseconds of the clock when the last renewal that succeeded was sent.
    renewed_at: AtomicU64,
    renewals: AtomicU64,
    failed_renewals: AtomicU64,
}

/// What became of the renewals of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewals {
    /// Length of the lease.
    pub length: Duration,
    /// Time since the last one that succeeded was sent.
    pub last: Duration,
    /// How many succeeded.
    pub succeeded: u64,
    /// How many failed.
    pub failed: u64,
}

impl HeldLease {
    /// What became of the renewals so far.
    pub fn renewals(&self) -> Renewals {
        let last = (self.clock)().saturating_sub(Duration::from_nanos(self.renewed_at.load(Relaxed)));
        let (succeeded, failed) = (self.renewals.load(Relaxed), self.failed_renewals.load(Relaxed));
        Renewals { length: self.length, last, succeeded, failed }
    }

    /// Whether an answer may be given now.
    pub fn is_held(&self) -> bool {
        nanos((self.clock)()) < self.answers_until.load(Acquire)
    }

    /// Why it is over for good.
    pub fn end(&self) -> Option<End> {
        *self.end.lock()
    }

    /// Waits until it is over for good. None: the volume was closed before.
    pub fn wait_for_end(&self) -> Option<End> {
        while !self.is_closing.load(Acquire) {
            if let Some(end) = self.end() {
                return Some(end);
            }
            thread::sleep(LOOK);
        }
        None
    }

    /// Waits until an answer may be given. False: never again.
    pub fn wait(&self) -> bool {
        while !self.is_held() {
            if self.end().is_some() {
                return false;
            }
            thread::sleep(ASK);
        }
        true
    }

    /// Programs use the volume from now on. The next renewal says so to whoever waits for it.
    pub fn note_serving(&self) {
        self.serves.store(true, Release);
    }

    /// When the volume is closed, it is reserved for the process with this name (as its lock has it) for the length of a
    /// lease. None: for nobody.
    pub fn reserve_for(&self, heir: Option<String>) {
        *self.heir.lock() = heir;
    }

    fn state(&self) -> HeadState {
        if self.serves.load(Acquire) { HeadState::Serves } else { HeadState::Open }
    }

    /// The record of the head at its end.
    fn released(&self, record: HeadRecord) -> HeadRecord {
        match self.heir.lock().take() {
            Some(owner) => HeadRecord { state: HeadState::Reserved, owner, ..record },
            None => HeadRecord { state: HeadState::Released, ..record },
        }
    }

    /// Counts a renewal that has ended.
    fn count(&self, has_succeeded: bool) {
        let counter = if has_succeeded { &self.renewals } else { &self.failed_renewals };
        counter.fetch_add(1, Relaxed);
    }

    fn publish(&self, lease: &Lease) {
        self.renewed_at.store(nanos(lease.renewed_at()), Relaxed);
        self.answers_until.store(lease.answers_until().map_or(NEVER, nanos), Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Time since the machine started, with the time that it slept.
pub fn boot_clock() -> Duration {
    // SAFETY: all-zero bytes are a valid timespec.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `time` is valid for writes during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The thread that renews the lease. Dropped, it ends; the record then says whether the volume was closed.
pub struct Renewer {
    lease: Arc<HeldLease>,
    thread: Option<JoinHandle<HeadRecord>>,
    objects: Arc<dyn Objects>,
}

impl Renewer {
    /// Starts the thread for the head with this record, which was written by a change that was sent at `sent`.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(objects: Arc<dyn Objects>, record: HeadRecord, sent: Duration, clock: Clock) -> std::io::Result<Self> {
        let length = Duration::from_millis(record.lease_millis.into());
        let state = Lease::new(length, sent);
        let lease = Arc::new(HeldLease {
            answers_until: AtomicU64::new(NEVER),
            clock,
            is_closing: AtomicBool::new(false),
            serves: AtomicBool::new(false),
            heir: Mutex::new(LockRank::Leaf, None),
            end: Mutex::new(LockRank::Leaf, None),
            length,
            renewed_at: AtomicU64::new(NEVER),
            renewals: AtomicU64::new(0),
            failed_renewals: AtomicU64::new(0),
        });
        lease.publish(&state);
        let (held, used) = (lease.clone(), objects.clone());
        let thread = thread::Builder::new().name("oncefs-lease".to_owned());
        let thread = Some(thread.spawn(move || renew(&held, state, &*used, record))?);
        Ok(Self { lease, thread, objects })
    }

    /// The lease.
    pub fn lease(&self) -> &Arc<HeldLease> {
        &self.lease
    }

    /// Ends the thread, and notes in the record that the volume is closed and nothing is on its way. The caller has
    /// flushed everything, and still holds the lock. A lease that is over is left as it is.
    ///
    /// # Errors
    ///
    /// The record is as it was, or not known: nobody finds a reservation.
    pub fn release(mut self) -> crate::Result<()> {
        let Some(record) = self.stop().filter(|_| self.lease.end().is_none()) else { return Ok(()) };
        let noted = begin(&*self.objects, &self.lease.released(record)).wait();
        noted.map_err(|e| crate::Error::io("noting that the volume is closed", e.into()))
    }

    fn stop(&mut self) -> Option<HeadRecord> {
        self.lease.is_closing.store(true, Release);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn begin(objects: &dyn Objects, record: &HeadRecord) -> Box<dyn Pending> {
    let epoch = Epoch(record.epoch).bytes();
    let change = Change::WriteFull { bytes: &record.encode() };
    objects.begin(LOCK_OBJECT, change, Some(Epoch::guard(&epoch)), WhenFull::UsesReserve)
}

/// Renews until the lease is over or the volume is closed. Returns the record that was written last.
fn renew(held: &HeldLease, mut lease: Lease, objects: &dyn Objects, mut record: HeadRecord) -> HeadRecord {
    let mut under_way: Option<Box<dyn Pending>> = None;
    while !held.is_closing.load(Acquire) {
        let now = (held.clock)();
        let mut end = lease.look(now);
        if let Some(renewal) = under_way.take_if(|renewal| renewal.is_done()) {
            let renewed = renewal.wait();
            held.count(renewed.is_ok());
            match renewed {
                Ok(()) => lease.renewed(),
                Err(error @ (Error::Guarded(_) | Error::Fenced | Error::Gone(_))) => {
                    log::error!("cannot renew the lease: {error}");
                    let why = if matches!(error, Error::Gone(_)) { End::Gone } else { End::TakenOver };
                    lease.refused(why);
                    end = end.or(Some(why));
                }
                Err(error) => log::warn!("cannot renew the lease, trying again: {error}"),
            }
        }
        held.publish(&lease);
        if end.is_some() {
            *held.end.lock() = end;
            return record;
        }
        if under_way.is_none() && lease.is_due(now) {
            record.renewals += 1;
            record.state = held.state();
            lease.send(now);
            under_way = Some(begin(objects, &record));
        }
        thread::sleep(LOOK);
    }
    // Its answer would come after the record that says that the volume is closed.
    under_way.into_iter().for_each(|renewal| drop(renewal.wait()));
    record
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::sync::atomic::AtomicU64 as Millis;

    use oncefs_rados::MemoryObjects;

    use super::*;
    use crate::objects::head;

    /// The clock of the one test that uses it.
    static NOW: Millis = Millis::new(1_000_000);

    fn clock() -> Duration {
        Duration::from_millis(NOW.load(Relaxed))
    }

    fn pass(millis: u64) {
        NOW.fetch_add(millis, Relaxed);
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        // Twenty times what a loaded machine was seen to take.
        let is_soon = (0..12_000).any(|_| {
            thread::sleep(Duration::from_millis(5));
            is_so()
        });
        assert!(is_soon, "never: {what}");
    }

    fn head(objects: &MemoryObjects) -> HeadRecord {
        head::begin(objects, HeadRecord::unbegun(), &[]).unwrap()
    }

    fn renewer(objects: &MemoryObjects, record: HeadRecord) -> Renewer {
        Renewer::start(Arc::new(objects.clone()), record, clock(), clock).unwrap()
    }

    #[test]
    fn a_lease_is_renewed_until_another_head_begins_and_a_closed_volume_says_so() {
        let objects = MemoryObjects::default();
        let first = renewer(&objects, head(&objects));
        let found = || head::last(&objects).unwrap().unwrap();
        assert!(first.lease().is_held());
        pass(1500);
        until("a renewal", || found().renewals == 1);
        pass(2400);
        until("another, by which the lease goes on", || found().renewals == 2 && first.lease().is_held());
        let both = Renewals { length: Duration::from_secs(5), last: Duration::ZERO, succeeded: 2, failed: 0 };
        until("both are counted", || first.lease().renewals() == both);
        let second = renewer(&objects, head(&objects));
        pass(1500);
        until("the first head learns of the second", || first.lease().end() == Some(End::TakenOver));
        assert!(!first.lease().is_held() && !first.lease().wait());
        assert_eq!(first.lease().wait_for_end(), Some(End::TakenOver));
        let counted = first.lease().renewals();
        assert_eq!((counted.succeeded, counted.failed), (2, 1), "the second head's record refuses a renewal");
        first.release().unwrap();
        until("the second renews", || found().renewals > 0);
        assert_eq!((found().epoch, found().state), (2, HeadState::Open), "a head that lost its lease says nothing");
        let lease = second.lease().clone();
        lease.note_serving();
        until("it says that programs use it", || {
            pass(200);
            found().state == HeadState::Serves
        });
        second.release().unwrap();
        assert_eq!(found().state, HeadState::Released);
        assert_eq!(lease.wait_for_end(), None);
        let third = renewer(&objects, head(&objects));
        third.lease().reserve_for(Some("heir:/srv".to_owned()));
        third.release().unwrap();
        assert_eq!((found().state, found().owner), (HeadState::Reserved, "heir:/srv".to_owned()));
        let last = renewer(&objects, head(&objects));
        objects.delete_pool();
        pass(1500);
        until("a head learns that the pool is gone", || last.lease().end() == Some(End::Gone));
        assert!(!last.lease().wait(), "no request waits for a pool that is gone");
    }
}
