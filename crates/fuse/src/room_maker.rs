//! Makes room on a full volume and retries requests, on a thread of its own: no event loop waits for room, and no
//! request waits for another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use oncefs_fs::{Error, FileSystem, Result, Room};
use oncefs_transport::may_be_late;

use crate::patience::{Deadline, OtherWaits, REQUESTS_MAX, Wait};

/// How long a request waits while deleted files are being freed, while the figures of a cluster may show room, which
/// have everything after twenty seconds, and how long if room is only possible.
const WHILE_COMING: Duration = Duration::from_secs(10);
const WHILE_UNCOUNTED: Duration = Duration::from_secs(30);
const WHILE_PERHAPS: Duration = Duration::from_millis(500);
/// How often room is made while requests wait, ...
const ROOM_EVERY: Duration = Duration::from_millis(50);
/// ... and how often if none is to be expected, for writes of disks.
const ROOM_OF_OTHERS_EVERY: Duration = Duration::from_millis(250);
const _: () = assert!(ROOM_EVERY.as_millis() < WHILE_PERHAPS.as_millis());

/// Bound on the memory of waiting requests: the bytes that they would write, ...
const WAITING_BYTES_MAX: usize = 16 << 20;
/// ... and the overhead of each.
const WAITER_BYTES: usize = 4096;
/// As much for writes of disks, which are a MiB at most.
const DISKS_BYTES_MAX: usize = REQUESTS_MAX * ((1 << 20) + WAITER_BYTES);

/// A request's share of the memory of waiting requests. Dropping it frees it for others.
pub(crate) struct Place {
    bytes: usize,
    taken: Arc<AtomicUsize>,
    /// Of a write of a disk.
    wait: Option<Wait>,
    /// Of any other request.
    other: Option<OtherWaits>,
}

impl Place {
    /// The request is about to be answered.
    fn end(mut self, has_found_room: bool) {
        if let Some(wait) = self.wait.take() {
            wait.end(has_found_room);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A request that found no room.
struct Waiter {
    since: Instant,
    /// It waits so long though no room is to be expected.
    until: Option<Deadline>,
    /// Tries it again. False: there is still no room and the request may wait on. True: it has replied.
    try_again: Box<dyn FnMut(bool) -> bool + Send>,
}

/// Retries all waiting requests until they have an answer. After a drop the thread replies to those that it has, and
/// ends.
pub(crate) struct RoomMaker {
    /// Bounded by the places given out.
    waiters: Sender<Waiter>,
    /// Bytes of all places given out, ...
    taken: Arc<AtomicUsize>,
    /// ... and of those for writes of disks.
    taken_by_disks: Arc<AtomicUsize>,
    /// Requests wait, and room is being made or may be. Not where writes of disks wait for others to make some.
    is_room_coming: Arc<AtomicBool>,
}

impl RoomMaker {
    pub(crate) fn start(file_system: Arc<FileSystem>) -> io::Result<Self> {
        // If making room fails, the retried requests report why.
        Self::start_with(move || file_system.make_room().unwrap_or(Room::None))
    }

    fn start_with(make_room: impl FnMut() -> Room + Send + 'static) -> io::Result<Self> {
        let (waiters, received) = channel();
        let is_room_coming: Arc<AtomicBool> = Arc::default();
        let coming = is_room_coming.clone();
        thread::Builder::new().name("room-maker".to_owned()).spawn(move || serve(&received, make_room, &coming))?;
        Ok(Self { waiters, taken: Arc::default(), taken_by_disks: Arc::default(), is_room_coming })
    }

    /// Whether requests wait for room that is being made, or may be.
    pub(crate) fn is_room_coming(&self) -> bool {
        self.is_room_coming.load(Ordering::Relaxed)
    }

    /// A place for the present request, which keeps `bytes` bytes. None: the waiting requests already take too much, or
    /// this request must not wait, because the requests that make room for it come through the same queue.
    pub(crate) fn place(&self, bytes: usize, other: OtherWaits) -> Option<Place> {
        let mut place = Self::place_of(&self.taken, WAITING_BYTES_MAX, bytes)?;
        place.other = Some(other);
        Some(place)
    }

    /// As [`RoomMaker::place`], for a write of a disk.
    pub(crate) fn place_for_disk(&self, bytes: usize, wait: Wait) -> Option<Place> {
        let mut place = Self::place_of(&self.taken_by_disks, DISKS_BYTES_MAX, bytes)?;
        place.wait = Some(wait);
        Some(place)
    }

    fn place_of(taken: &Arc<AtomicUsize>, bytes_max: usize, bytes: usize) -> Option<Place> {
        let bytes = bytes + WAITER_BYTES;
        let more = |taken: usize| (taken + bytes <= bytes_max).then_some(taken + bytes);
        let is_free = may_be_late() && taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        is_free.then(|| Place { bytes, taken: taken.clone(), wait: None, other: None })
    }

    /// Makes room, retries a request that found none, and then replies.
    pub(crate) fn try_again<T>(
        &self,
        place: Place,
        again: impl Fn() -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let until = place.wait.as_ref().map(Wait::deadline);
        let mut reply = Some((reply, place));
        let try_again = move |may_wait: bool| match again() {
            Err(Error::NoSpace) if may_wait => false,
            result => {
                if let Some((reply, mut place)) = reply.take() {
                    // Its entry is not free before the reply.
                    let _other = place.other.take();
                    place.end(!matches!(result, Err(Error::NoSpace)));
                    reply(result);
                }
                true
            }
        };
        if until.is_none() {
            // Nothing is known before the thread has tried to make some.
            self.is_room_coming.store(true, Ordering::Relaxed);
        }
        // The thread receives as long as `self` lives. If it were gone, dropping the waiter's reply would answer EIO.
        let _ = self.waiters.send(Waiter { since: Instant::now(), until, try_again: Box::new(try_again) });
    }
}

/// Makes room for all waiting requests, lets each of them try, and begins again.
fn serve(received: &Receiver<Waiter>, mut make_room: impl FnMut() -> Room, is_room_coming: &AtomicBool) {
    let mut waiting: Vec<Waiter> = Vec::new();
    let mut every = ROOM_EVERY;
    loop {
        let is_open = take_in(received, &mut waiting, every);
        if waiting.iter().any(|waiter| waiter.until.is_none()) {
            // One may have come while the last answer was noted.
            is_room_coming.store(true, Ordering::Relaxed);
        }
        if waiting.is_empty() && !is_open {
            return;
        }
        let patience = match make_room() {
            Room::Coming => WHILE_COMING,
            Room::Uncounted => WHILE_UNCOUNTED,
            Room::Perhaps => WHILE_PERHAPS,
            Room::None => Duration::ZERO,
        };
        is_room_coming.store(!patience.is_zero(), Ordering::Relaxed);
        every = if patience.is_zero() { ROOM_OF_OTHERS_EVERY } else { ROOM_EVERY };
        // Retried even if no room was made: another thread may have made some just before. When the mount ends, nothing
        // makes room that has not begun.
        waiting.retain_mut(|waiter| {
            let is_patient = is_open && waiter.until.as_ref().is_some_and(|until| !until.is_over(Instant::now()));
            !(waiter.try_again)(is_patient || waiter.since.elapsed() < patience)
        });
        if waiting.is_empty() {
            is_room_coming.store(false, Ordering::Relaxed);
        }
    }
}

/// Receives new requests. Blocks without limit if none is waiting, otherwise at most until room is due. False: the
/// sender is gone.
fn take_in(received: &Receiver<Waiter>, waiting: &mut Vec<Waiter>, every: Duration) -> bool {
    let first = match waiting.is_empty() {
        true => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
        false => received.recv_timeout(every),
    };
    if matches!(first, Err(RecvTimeoutError::Disconnected)) && !waiting.is_empty() {
        thread::sleep(ROOM_EVERY);
    }
    let is_open = !matches!(first, Err(RecvTimeoutError::Disconnected));
    waiting.extend(first);
    waiting.extend(received.try_iter());
    is_open
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    use oncefs_fs::Ino;

    use super::*;
    use crate::patience::Patience;

    fn place(room_maker: &RoomMaker, bytes: usize) -> Option<Place> {
        room_maker.place(bytes, Patience::default().other_waits().unwrap())
    }

    /// Requests that find room when `is_room`; each sends its number and whether it found some.
    fn send(room_maker: &RoomMaker, requests: usize, is_room: &Arc<AtomicBool>) -> Receiver<(usize, bool)> {
        let (told, replies) = channel();
        for number in 0..requests {
            let (told, is_room) = (told.clone(), is_room.clone());
            let again = move || if is_room.load(SeqCst) { Ok(()) } else { Err(Error::NoSpace) };
            let place = place(room_maker, 0).unwrap();
            room_maker.try_again(place, again, move |result| told.send((number, result.is_ok())).unwrap());
        }
        replies
    }

    #[test]
    fn requests_are_replied_to_in_order_and_all_of_them_also_when_the_mount_ends() {
        let is_room = Arc::new(AtomicBool::new(true));
        let room_maker = RoomMaker::start_with(|| Room::Coming).unwrap();
        let replies = send(&room_maker, 100, &is_room);
        drop(room_maker);
        assert_eq!(replies.into_iter().collect::<Vec<_>>(), (0..100).map(|number| (number, true)).collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_its_places_come_back() {
        let room_maker = RoomMaker::start_with(|| Room::None).unwrap();
        let large = place(&room_maker, WAITING_BYTES_MAX - 3 * WAITER_BYTES).unwrap();
        let (small, none) = (place(&room_maker, 0), place(&room_maker, 1));
        assert!(small.is_some() && none.is_none() && place(&room_maker, usize::MAX / 2).is_none());
        drop(large);
        assert!(place(&room_maker, 1 << 20).is_some());
        let (told, replies) = channel();
        let again = || Err::<(), _>(Error::NoSpace);
        room_maker.try_again(small.unwrap(), again, move |result| told.send(result.is_err()).unwrap());
        assert!(replies.recv().unwrap());
        drop(room_maker);
    }

    #[test]
    fn requests_wait_beside_each_other_and_all_get_the_room_that_comes() {
        let is_room = Arc::new(AtomicBool::new(false));
        let room_maker = RoomMaker::start_with(|| Room::Coming).unwrap();
        let replies = send(&room_maker, 50, &is_room);
        assert!(replies.recv_timeout(4 * ROOM_EVERY).is_err(), "there is none");
        is_room.store(true, SeqCst);
        // Had they to wait one after the other, most would have been refused.
        assert_eq!(replies.iter().filter(|(_, found)| *found).count(), 50);
    }

    #[test]
    fn requests_that_wait_in_vain_end_together() {
        let (rounds, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let counter = rounds.clone();
        // The first round ends when all are queued: the second one finds all of them waiting.
        let (all_queued, begin) = channel();
        let room_maker = RoomMaker::start_with(move || {
            if counter.fetch_add(1, SeqCst) == 0 {
                begin.recv().unwrap();
            }
            Room::Perhaps
        })
        .unwrap();
        let replies = send(&room_maker, 50, &Arc::default());
        all_queued.send(()).unwrap();
        drop(room_maker);
        assert_eq!(replies.iter().filter(|(_, found)| !*found).count(), 50);
        assert!(began.elapsed() >= WHILE_PERHAPS, "{:?}", began.elapsed());
        let rounds_of_all = WHILE_PERHAPS.as_millis() / ROOM_EVERY.as_millis();
        assert!(u128::from(rounds.load(SeqCst)) <= 2 + rounds_of_all, "room is made for all at once");
    }

    #[test]
    fn where_no_room_can_come_requests_are_tried_once_more_and_refused() {
        let room_maker = RoomMaker::start_with(|| Room::None).unwrap();
        assert_eq!(
            send(&room_maker, 3, &Arc::default()).iter().collect::<Vec<_>>(),
            [(0, false), (1, false), (2, false)]
        );
    }

    #[test]
    fn a_write_of_a_disk_waits_where_no_room_is_to_be_expected_until_some_comes_or_the_mount_ends() {
        let room_maker = RoomMaker::start_with(|| Room::None).unwrap();
        let patience = Arc::new(Patience::default());
        let disk = Ino(7);
        patience.set(disk, Duration::from_secs(1 << 30));
        let (told, replies) = channel();
        let is_room = Arc::new(AtomicBool::new(false));
        let send = |number: usize, place: Place| {
            let (told, is_room) = (told.clone(), is_room.clone());
            // Room for the first only.
            let again = move || if number == 0 && is_room.load(SeqCst) { Ok(()) } else { Err(Error::NoSpace) };
            room_maker.try_again(place, again, move |result| told.send((number, result.is_ok())).unwrap());
        };
        for number in [0, 1] {
            send(number, room_maker.place_for_disk(0, patience.begin(disk, Instant::now()).unwrap()).unwrap());
        }
        send(9, place(&room_maker, 0).unwrap());
        assert_eq!(replies.recv(), Ok((9, false)), "a request of another file does not wait with them");
        assert_eq!(patience.waiting(), [(disk, 2)]);
        is_room.store(true, SeqCst);
        assert_eq!(replies.recv(), Ok((0, true)));
        drop(room_maker);
        assert_eq!(replies.recv(), Ok((1, false)), "the mount ends");
        assert_eq!(patience.waiting(), []);
    }

    #[test]
    fn writes_of_disks_are_answered_when_the_daemon_is_asked_to_end() {
        let room_maker = RoomMaker::start_with(|| Room::None).unwrap();
        let patience = Arc::new(Patience::default());
        patience.set(Ino(7), Duration::from_secs(1 << 30));
        let wait = patience.begin(Ino(7), Instant::now()).unwrap();
        let (told, replies) = channel();
        let place = room_maker.place_for_disk(0, wait).unwrap();
        room_maker.try_again(place, || Err::<(), _>(Error::NoSpace), move |result| told.send(result.is_ok()).unwrap());
        assert!(replies.recv_timeout(2 * ROOM_OF_OTHERS_EVERY).is_err(), "it waits");
        patience.end_all();
        assert_eq!(replies.recv(), Ok(false));
    }

    #[test]
    fn a_write_of_a_disk_whose_time_is_over_is_tried_once_more_and_fails() {
        let room_maker = RoomMaker::start_with(|| Room::None).unwrap();
        let patience = Arc::new(Patience::default());
        patience.set(Ino(7), Duration::from_nanos(1));
        let wait = patience.begin(Ino(7), Instant::now()).unwrap();
        let (told, replies) = channel();
        let place = room_maker.place_for_disk(0, wait).unwrap();
        room_maker.try_again(place, || Err::<(), _>(Error::NoSpace), move |result| told.send(result.is_ok()).unwrap());
        assert_eq!(replies.recv(), Ok(false));
    }
}
