//! The head of a volume in objects: the one process that has it open. Its record is the content of the object with the
//! lock. Each opening is an epoch of its own, with which all changes of the log are guarded.
//!
//! A process that opens the volume holds the lock first, and the last holder is fenced by then. It writes its record
//! with the next epoch, then begins this epoch in the objects of the log, and then reads the log. A crash before the
//! record leaves the last epoch. After it and before the end of the second step, some objects of the log have the new
//! epoch: the dead head writes no more, and the next one begins a later epoch in all of them.

use std::thread;
use std::time::Duration;

use oncefs_rados::{Change, Error as ObjectError, Hold, LOCK_OBJECT, Objects, WhenFull};

use super::epoch::Epoch;
use super::held_lease::Clock;
use super::lease::{Seen, Watch};
use crate::announcement::Asking;
use crate::format::head_record::{self, HeadRecord};
use crate::{Error, Result, WhenHeld};

/// Reads the record of the last head. None: there was none yet.
pub fn last(objects: &dyn Objects) -> Result<Option<HeadRecord>> {
    let found =
        objects.content(LOCK_OBJECT, head_record::BYTES).map_err(failed("reading the record of the last head"))?;
    found.map_or(Ok(None), |bytes| HeadRecord::decode(&bytes, LOCK_OBJECT))
}

/// Why a lease that ran out does not help.
const NO_TAKEOVER: &str = "the lease of the holder ran out, and only oncefs mount (also with --standby) takes a volume \
                           over, if its log lies in objects; the holder is";

/// How often a holder's record is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long the record of a holder may stay that of another. After that the holder is known to have died between taking
/// the lock and writing its record.
const WITHOUT_RECORD: Duration = Duration::from_secs(30);

/// The state that is watched: the holder's address, and epoch and renewals in its record.
type Watched = (String, u64, u64);

/// What came of a request for the objects.
enum Asked {
    Taken(Hold),
    /// They are free, and another has the time of a lease to take them.
    Reserved,
    /// Another has them.
    Refused(ObjectError),
}

/// The holder of the objects, as one look finds it.
enum Holder {
    /// Its lease is over.
    Over(String),
    /// It has renewed its lease.
    Alive,
    /// Not known yet.
    Watched,
}

/// Takes the objects for this process. If another holds them, its lease is watched, and `when_held` says what follows.
/// Objects that are reserved for another process are taken once that had the time of a lease for it.
pub fn take(objects: &dyn Objects, place: &str, when_held: &WhenHeld, clock: Clock) -> Result<Hold> {
    let (mut watch, mut succeeds, mut is_told) = (Watch::default(), None::<String>, false);
    let stands_by = matches!(when_held, WhenHeld::StandsBy(_));
    let mut reserved = Watch::default();
    loop {
        let began = clock();
        let is_free = |holder: &str| is_free(objects, holder, &mut reserved, clock);
        let asked = ask(objects, (place, succeeds.as_deref()), when_held, is_free);
        watch.asked(began, clock());
        let refused = match asked? {
            Asked::Taken(hold) => return Ok(hold),
            Asked::Refused(refused) => refused,
            Asked::Reserved => {
                thread::sleep(LOOK);
                continue;
            }
        };
        if stands_by && !is_told {
            log::info!("standing by for the volume: {refused}");
            is_told = true;
        }
        succeeds = match look(objects, &mut watch, clock)? {
            Holder::Over(_) if matches!(when_held, WhenHeld::Refused) => {
                return Err(Error::io(NO_TAKEOVER, refused.into()));
            }
            Holder::Over(address) => Some(address),
            Holder::Alive if !stands_by => return Err(failed("taking the objects of the volume")(refused)),
            Holder::Alive | Holder::Watched => None,
        };
        if succeeds.is_none() {
            thread::sleep(LOOK);
        }
    }
}

/// Asks for the objects once, in the name of `place`, also if the holder with the address `succeeds` has them. A process
/// that ends does not ask, or gives them back: as a closed volume, because no record says that it had them.
fn ask(
    objects: &dyn Objects,
    (place, succeeds): (&str, Option<&str>),
    when_held: &WhenHeld,
    is_free: impl FnOnce(&str) -> Result<bool>,
) -> Result<Asked> {
    let ends = || Error::Invalid("the process ends, so it takes no volume".to_owned());
    let asking = match when_held {
        WhenHeld::StandsBy(announcement) => Some(announcement.ask().ok_or_else(ends)?),
        WhenHeld::Refused | WhenHeld::TakesOver => None,
    };
    // The lock goes before the request is over.
    let hold = match objects.hold(place, succeeds) {
        Ok(hold) => hold,
        Err(refused @ ObjectError::Locked { .. }) => return Ok(Asked::Refused(refused)),
        Err(other) => return Err(failed("taking the objects of the volume")(other)),
    };
    if !is_free(hold.holder())? {
        return Ok(Asked::Reserved);
    }
    match asking.as_ref().is_none_or(Asking::keeps) {
        true => Ok(Asked::Taken(hold)),
        false => Err(ends()),
    }
}

/// Whether `holder`, which has the lock, may keep it. A head notes whom it reserves the volume for before it unlocks, so
/// a look with the lock in hand misses no reservation.
fn is_free(objects: &dyn Objects, holder: &str, reserved: &mut Watch<u64>, clock: Clock) -> Result<bool> {
    // What else is wrong with the record is found when the head begins.
    let Ok(Some(record)) = last(objects) else { return Ok(true) };
    if !record.is_reserved_for_another(holder) {
        return Ok(true);
    }
    let now = clock();
    let length = Duration::from_millis(record.lease_millis.into());
    let seen = reserved.look(record.epoch, length, now, now);
    if seen == Seen::First {
        log::info!("the volume was given up for {}, which has {length:?} to take it", record.owner);
    }
    Ok(seen == Seen::Over)
}

/// Looks at the holder once.
fn look(objects: &dyn Objects, watch: &mut Watch<Watched>, clock: Clock) -> Result<Holder> {
    let began = clock();
    // None: it has just let go.
    let Some(address) = objects.holder().map_err(failed("looking at the lock"))? else { return Ok(Holder::Watched) };
    let record = last(objects)?.filter(|record| record.address == address);
    let (found, length) = match record {
        Some(HeadRecord { epoch, renewals, lease_millis, .. }) => {
            ((address.clone(), epoch, renewals), Duration::from_millis(lease_millis.into()))
        }
        None => ((address.clone(), 0, 0), WITHOUT_RECORD),
    };
    Ok(match watch.look(found, length, began, clock()) {
        Seen::First | Seen::Still => Holder::Watched,
        Seen::Changed => Holder::Alive,
        Seen::Over => Holder::Over(address),
    })
}

/// Becomes the head: writes `record` with the next epoch, which begins in `guarded` too. The caller holds the lock.
pub fn begin(objects: &dyn Objects, record: HeadRecord, guarded: &[String]) -> Result<HeadRecord> {
    let epoch = match last(objects) {
        Ok(last) => last.map_or(0, |last| last.epoch) + 1,
        Err(error) => return Err(error),
    };
    let record = HeadRecord { epoch, ..record };
    let failed = failed("becoming the head of the volume");
    let own: Vec<String> = guarded.iter().cloned().chain([LOCK_OBJECT.to_owned()]).collect();
    let change = Change::WriteFull { bytes: &record.encode() };
    objects.begin(LOCK_OBJECT, change, None, WhenFull::UsesReserve).wait().map_err(&failed)?;
    Epoch(epoch).begin_in(objects, &own).map_err(&failed)?;
    Ok(record)
}

fn failed(what: &str) -> impl Fn(oncefs_rados::Error) -> Error {
    move |error| Error::io(what, error.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use oncefs_rados::{Guard, MemoryObjects, Pending, Read, Result as ObjectResult};

    use super::*;
    use crate::announcement::Announcement;
    use crate::device::Device;
    use crate::format::head_record::HeadState;
    use crate::format::image::ImageHeader;
    use crate::objects::device::ObjectDevice;
    use crate::objects::pool_room::ObjectRoom;

    static NOW: AtomicU64 = AtomicU64::new(1_000_000);

    fn clock() -> Duration {
        Duration::from_millis(NOW.load(Relaxed))
    }

    /// Objects that a client at another address has locked.
    struct Locked(MemoryObjects);

    impl Objects for Locked {
        fn read_all(&self, reads: &mut [Read<'_>]) {
            self.0.read_all(reads);
        }

        fn begin(&self, name: &str, change: Change<'_>, guard: Option<Guard<'_>>, full: WhenFull) -> Box<dyn Pending> {
            self.0.begin(name, change, guard, full)
        }

        fn sizes(&self, objects: &[String]) -> ObjectResult<Vec<Option<u64>>> {
            self.0.sizes(objects)
        }

        fn names(&self) -> ObjectResult<Vec<String>> {
            self.0.names()
        }

        fn hold(&self, _place: &str, succeeds: Option<&str>) -> ObjectResult<Hold> {
            let own = str::to_owned;
            match succeeds {
                Some("other") => Ok(Hold::of_nothing()),
                _ => Err(ObjectError::Locked {
                    pool: own("data"),
                    namespace: own("home"),
                    holder: own("head:/srv/home"),
                    client: own("client.7"),
                    address: own("other"),
                }),
            }
        }

        fn holder(&self) -> ObjectResult<Option<String>> {
            Ok(Some("other".to_owned()))
        }

        fn has_room(&self) -> ObjectResult<bool> {
            self.0.has_room()
        }
    }

    #[test]
    fn a_holder_that_died_before_its_record_is_succeeded_and_only_by_an_opener_that_may() {
        let objects = Locked(MemoryObjects::default());
        let mut watch = Watch::default();
        let mut look = |millis| {
            NOW.fetch_add(millis, Relaxed);
            look(&objects, &mut watch, clock).unwrap()
        };
        // The record is that of the head before.
        let (_, log) = {
            ObjectDevice::create(&objects.0, "log", HEADER).unwrap();
            next_head(&objects.0)
        };
        drop(log);
        assert!(matches!(look(0), Holder::Watched));
        assert!(matches!(look(29_000), Holder::Watched));
        assert!(matches!(look(1000), Holder::Over(address) if address == "other"));
        let fast = || {
            NOW.fetch_add(4000, Relaxed);
            clock()
        };
        let refused = take(&objects, "/srv/copy", &WhenHeld::Refused, fast).err().unwrap().to_string();
        assert!(refused.contains("oncefs mount") && refused.contains("--standby"), "{refused}");
    }

    const HEADER: ImageHeader = ImageHeader { volume_id: [1; 16], len: 16 << 10, object_bytes: 4 << 10 };

    /// The log's device, as the next head opens it.
    fn next_head(objects: &MemoryObjects) -> (u64, ObjectDevice) {
        let names = ObjectDevice::objects_of("log", &HEADER);
        let epoch = begin(objects, HeadRecord::unbegun(), &names).unwrap().epoch;
        let shared: Arc<dyn Objects> = Arc::new(objects.clone());
        let room = Arc::new(ObjectRoom::of(shared.clone()));
        (epoch, ObjectDevice::guarded(shared, "log", HEADER, room, Some(Epoch(epoch))))
    }

    #[test]
    fn no_write_of_a_head_lands_once_the_next_one_has_begun() {
        let objects = MemoryObjects::default();
        ObjectDevice::create(&objects, "log", HEADER).unwrap();
        let (first, old) = next_head(&objects);
        old.write_at(&[1; 8192], 2048).unwrap();
        old.flush().unwrap();
        let (second, new) = next_head(&objects);
        assert_eq!((first, second), (1, 2));
        old.write_at(&[2; 8192], 2048).unwrap();
        let refused = old.flush().unwrap_err().to_string();
        assert!(refused.contains("another machine took over"), "{refused}");
        old.punch(0, 4096).unwrap();
        assert!(old.flush().is_err(), "it stays refused");
        let mut bytes = [0; 8192];
        new.read_at(&mut bytes, 2048).unwrap();
        assert_eq!(bytes, [1; 8192]);
        new.write_at(&[3; 8192], 2048).unwrap();
        new.flush().unwrap();
    }

    #[test]
    fn a_crash_while_an_epoch_begins_leaves_a_volume_that_the_next_head_opens() {
        for survives in 0..8_usize {
            let objects = MemoryObjects::default();
            ObjectDevice::create(&objects, "log", HEADER).unwrap();
            drop(next_head(&objects));
            let bytes = Epoch(2).bytes();
            let change = Change::SetAttribute { guard: Epoch::guard(&bytes) };
            let names = ObjectDevice::objects_of("log", &HEADER);
            let full = oncefs_rados::WhenFull::Fails;
            let begun: Vec<_> = names.iter().map(|name| objects.begin(name, change, None, full)).collect();
            let mut left = survives;
            let crashed = objects.after_crash(|_, changes| {
                let kept = changes.min(left & 1);
                left >>= 1;
                kept
            });
            drop(begun);
            let (_, log) = next_head(&crashed);
            log.write_at(&[4; 16 << 10], 0).unwrap();
            log.flush().unwrap();
        }
    }

    /// Who has a lock.
    type Locks = Arc<std::sync::Mutex<Vec<String>>>;

    /// Objects with a lock that one holder has at a time, and what happens while it is taken.
    struct Lockable(MemoryObjects, Locks, Box<dyn Fn() + Send + Sync>);

    impl Objects for Lockable {
        fn read_all(&self, reads: &mut [Read<'_>]) {
            self.0.read_all(reads);
        }

        fn begin(&self, name: &str, change: Change<'_>, guard: Option<Guard<'_>>, full: WhenFull) -> Box<dyn Pending> {
            self.0.begin(name, change, guard, full)
        }

        fn sizes(&self, objects: &[String]) -> ObjectResult<Vec<Option<u64>>> {
            self.0.sizes(objects)
        }

        fn names(&self) -> ObjectResult<Vec<String>> {
            self.0.names()
        }

        fn hold(&self, place: &str, _succeeds: Option<&str>) -> ObjectResult<Hold> {
            let taken = self.1.clone();
            taken.lock().unwrap().push(place.to_owned());
            self.2();
            Ok(Hold::of_twin(place, move || {
                taken.lock().unwrap().pop();
                Ok(())
            }))
        }

        fn holder(&self) -> ObjectResult<Option<String>> {
            Ok(None)
        }

        fn has_room(&self) -> ObjectResult<bool> {
            self.0.has_room()
        }
    }

    /// The clock of the one test that uses it.
    static LATER: AtomicU64 = AtomicU64::new(1_000_000);

    #[test]
    fn a_reserved_volume_is_its_heirs_at_once_and_that_of_others_after_a_lease() {
        let clock = || Duration::from_millis(LATER.load(Relaxed));
        let fast = || Duration::from_millis(LATER.fetch_add(1000, Relaxed));
        let objects = Lockable(MemoryObjects::default(), Locks::default(), Box::new(|| {}));
        let owner = "heir".to_owned();
        begin(&objects, HeadRecord { state: HeadState::Reserved, owner, ..HeadRecord::unbegun() }, &[]).unwrap();
        let mut reserved = Watch::default();
        let mut is_free = |holder, later| {
            LATER.fetch_add(later, Relaxed);
            super::is_free(&objects, holder, &mut reserved, clock).unwrap()
        };
        assert!(is_free("heir", 0) && !is_free("other", 0) && !is_free("other", 4999));
        assert!(is_free("heir", 0) && is_free("other", 1));
        let standing_by = || WhenHeld::StandsBy(Announcement::default());
        let heir = take(&objects, "heir", &standing_by(), clock).unwrap();
        drop(heir);
        // Each look of another takes a lock, which it gives up again.
        for when_held in [standing_by(), WhenHeld::Refused] {
            let began = clock();
            let other = take(&objects, "other", &when_held, fast).unwrap();
            assert!(clock() - began >= Duration::from_secs(5));
            assert_eq!(*objects.1.lock().unwrap(), ["other"]);
            drop(other);
        }
        begin(&objects, HeadRecord { owner: "other".to_owned(), ..HeadRecord::unbegun() }, &[]).unwrap();
        let mut reserved = Watch::default();
        assert!(super::is_free(&objects, "heir", &mut reserved, clock).unwrap(), "a later head ends it");
    }

    #[test]
    fn a_standby_that_ends_takes_no_lock_and_gives_back_the_one_that_it_gets() {
        let locks = Locks::default();
        let take = |announcement: &Announcement, meanwhile| {
            let objects = Lockable(MemoryObjects::default(), locks.clone(), meanwhile);
            super::take(&objects, "standby", &WhenHeld::StandsBy(announcement.clone()), clock)
        };
        let announcement = Announcement::default();
        let hold = take(&announcement, Box::new(|| {})).unwrap();
        assert!(!announcement.end(), "it has the volume, and has to close it");
        drop(hold);
        let announcement = Announcement::default();
        let ((come, comes), ending) = (std::sync::mpsc::channel(), announcement.clone());
        // A signal comes while the cluster gives the lock.
        let meanwhile = Box::new(move || {
            come.send(()).unwrap();
            while !ending.is_ending() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let (ended, left) = (announcement.clone(), locks.clone());
        let signal = thread::spawn(move || {
            comes.recv().unwrap();
            (ended.end(), left.lock().unwrap().clone())
        });
        assert!(take(&announcement, meanwhile).is_err());
        assert_eq!(signal.join().unwrap(), (true, Vec::new()), "the process may exit, and nobody has the lock");
        assert!(take(&announcement, Box::new(|| panic!("it asks again"))).is_err());
    }
}
