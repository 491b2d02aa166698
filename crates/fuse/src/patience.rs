//! Files whose writes wait for room on a full volume. Block devices show them, and the file systems on those devices
//! take an error for a broken device. So their writes wait until room is made, up to a time.
//!
//! The time counts from the first write that found no room. After it all writes of the file fail at once, or a file
//! system that writes on would wait again and again. A file that has room for a while gets its time back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oncefs_fs::Ino;
use parking_lot::Mutex;

/// Most writes that wait at a time, of all files: half of what the kernel has under way in the background (`init`), so
/// that the other half passes.
pub(crate) const REQUESTS_MAX: usize = 32;
/// The kernel bounds what a device has under way to no less.
const REQUESTS_MIN: usize = 4;
/// Of the requests over rings that can be late, so many are for other files while there are disks.
const OTHERS_BESIDE: usize = 3;
/// So many writes in a row that find room end a shortage that was waited for in vain. On a full volume some do:
/// duplicates need no room.
const IN_A_ROW: u32 = 64;
/// The share of a data area that disks leave to others while they wait, and its most, unless the mount says how much.
const RESERVE_SHARE: u64 = 128;
const RESERVE_BYTES_MAX: u64 = 64 << 20;
/// A reserve that is set is at most this share: the rest is for disks.
const RESERVE_SHARE_MAX: u64 = 2;
/// Longer is as good as for ever.
const PATIENCE_MAX: Duration = Duration::from_secs(1 << 30);

/// How long writes of each file wait, and how many wait now.
#[derive(Debug, Default)]
pub struct Patience {
    files: Mutex<BTreeMap<Ino, Waits>>,
    /// Some file has a shortage. Spares writes the lock.
    is_short: AtomicBool,
    /// There is a file whose writes wait. Spares writes the lock.
    is_any: AtomicBool,
    /// The daemon is asked to end: nothing waits any more.
    is_over: AtomicBool,
    /// The reserve, if the mount says how much.
    reserve_bytes: Option<u64>,
    /// Requests over rings that can be late. None: they come without rings, and nothing bounds them.
    late_max: Option<usize>,
    /// Those of other files that wait for room.
    others_waiting: Arc<AtomicUsize>,
    /// Writes that waited and were answered, ...
    waited: AtomicU64,
    /// ... and those of them for which no room came.
    waited_in_vain: AtomicU64,
}

/// One file.
#[derive(Debug, Default)]
struct Waits {
    patience: Duration,
    /// When the first write of this shortage found no room.
    short_since: Option<Instant>,
    waiting: usize,
    /// A write of this shortage waited in vain.
    has_given_up: bool,
    /// Writes that found room since the last that found none.
    in_a_row: u32,
}

impl Waits {
    fn end_shortage(&mut self) {
        *self = Self { patience: self.patience, waiting: self.waiting, ..Self::default() };
    }
}

impl Patience {
    /// Leaves so much room to others. None: a share of the data area. `late_max`: the number of requests over rings that
    /// can be late. None: they come without rings.
    pub fn new(reserve_bytes: Option<u64>, late_max: Option<usize>) -> Self {
        Self { reserve_bytes, late_max, ..Self::default() }
    }

    /// The room of a data area of this size that a write of a disk does not take without waiting.
    pub fn reserve(&self, data_bytes: u64) -> u64 {
        match self.reserve_bytes {
            Some(bytes) => bytes.min(data_bytes / RESERVE_SHARE_MAX),
            None => (data_bytes / RESERVE_SHARE).min(RESERVE_BYTES_MAX),
        }
    }

    /// Lets no write wait any more, and those that do no longer: the daemon ends, and would wait for them.
    pub fn end_all(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// How many writes waited and were answered since the mount, and for how many of them no room came.
    pub fn waited(&self) -> (u64, u64) {
        let in_vain = self.waited_in_vain.load(Ordering::Relaxed);
        (self.waited.load(Ordering::Relaxed), in_vain)
    }

    /// Writes of disks that can wait at a time.
    pub fn waits_max(&self) -> usize {
        let of_disks = |late: usize| late.saturating_sub(OTHERS_BESIDE).clamp(REQUESTS_MIN.min(late), REQUESTS_MAX);
        self.late_max.map_or(REQUESTS_MAX, of_disks)
    }

    /// Requests of other files that can wait for room beside those.
    fn others_max(&self) -> usize {
        self.late_max.map_or(usize::MAX, |late| late.saturating_sub(self.waits_max()))
    }

    /// A request of another file asks to wait for room. None: while there are disks, the rest of the entries is for their
    /// writes, which must not fail because others wait. Requests that waited before the first disk was attached still
    /// count.
    pub(crate) fn other_waits(&self) -> Option<OtherWaits> {
        let max = if self.is_any.load(Ordering::Acquire) { self.others_max() } else { usize::MAX };
        let more = |waiting: usize| (waiting < max).then_some(waiting + 1);
        let is_free = self.others_waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        is_free.then(|| OtherWaits(self.others_waiting.clone()))
    }

    /// Lets writes of a file wait for so long, until the mount ends. Zero: they fail at once, like those of any file.
    pub fn set(&self, ino: Ino, patience: Duration) {
        let mut files = self.files.lock();
        let file = files.entry(ino).or_default();
        file.patience = patience.min(PATIENCE_MAX);
        file.end_shortage();
        if patience.is_zero() && file.waiting == 0 {
            files.remove(&ino);
        }
        self.is_any.store(!files.is_empty(), Ordering::Release);
    }

    /// Whether writes of a file wait for room.
    pub(crate) fn is_patient(&self, ino: Ino) -> bool {
        self.is_any.load(Ordering::Acquire) && self.files.lock().get(&ino).is_some_and(|file| !file.patience.is_zero())
    }

    /// The number of waiting writes of each file that has some, by ascending inode number.
    pub fn waiting(&self) -> Vec<(Ino, usize)> {
        let files = self.files.lock();
        files.iter().map(|(ino, file)| (*ino, file.waiting)).filter(|(_, waiting)| *waiting > 0).collect()
    }

    /// A write of a file found no room. None: it is not to wait longer than one of any file.
    pub(crate) fn begin(self: &Arc<Self>, ino: Ino, now: Instant) -> Option<Wait> {
        let mut files = self.files.lock();
        let waiting: usize = files.values().map(|file| file.waiting).sum();
        let may_wait = !self.is_over() && waiting < REQUESTS_MAX;
        let file = files.get_mut(&ino).filter(|file| !file.patience.is_zero() && may_wait)?;
        if file.short_since.is_none() {
            let seconds = file.patience.as_secs();
            log::warn!(
                "the volume is full, or nearly: writes of the disk with inode {} wait for room, up to {seconds} s",
                ino.0
            );
        }
        file.waiting += 1;
        file.in_a_row = 0;
        self.is_short.store(true, Ordering::Release);
        let until = *file.short_since.get_or_insert(now) + file.patience;
        Some(Wait { patience: self.clone(), ino, until, has_time: now < until })
    }

    /// A write of a file found room.
    pub(crate) fn found_room(&self, ino: Ino) {
        if !self.is_short.load(Ordering::Acquire) {
            return;
        }
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&ino).filter(|file| file.waiting == 0 && file.short_since.is_some()) else {
            return;
        };
        file.in_a_row += 1;
        if file.in_a_row >= IN_A_ROW || !file.has_given_up {
            file.end_shortage();
            log::info!("the disk with inode {} has room again", ino.0);
        }
        let is_short = files.values().any(|file| file.short_since.is_some());
        self.is_short.store(is_short, Ordering::Release);
    }

    /// The beginning of a message.
    fn why_in_vain(&self) -> &'static str {
        match self.is_over() {
            true => "the daemon is asked to end before there is room for",
            false => "no room came for",
        }
    }

    fn waited_in_vain(&self, ino: Ino) {
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&ino).filter(|file| !file.has_given_up) else { return };
        file.has_given_up = true;
        let why = self.why_in_vain();
        log::error!("{why} the disk with inode {}: its writes wait no more, and fail without room", ino.0);
    }

    fn end(&self, ino: Ino) {
        let mut files = self.files.lock();
        if let Some(file) = files.get_mut(&ino) {
            file.waiting -= 1;
        }
    }
}

/// A waiting request of a file that is no disk. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct OtherWaits(Arc<AtomicUsize>);

impl Drop for OtherWaits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A waiting write. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Wait {
    patience: Arc<Patience>,
    ino: Ino,
    /// How long it waits though no room is to be expected.
    pub(crate) until: Instant,
    /// That was later than its beginning. Without this, it waits no longer than a write of any file.
    has_time: bool,
}

/// When a write waits no more, though no room is to be expected.
#[derive(Debug)]
pub(crate) struct Deadline {
    patience: Arc<Patience>,
    until: Instant,
}

impl Deadline {
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.until || self.patience.is_over()
    }
}

impl Wait {
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline { patience: self.patience.clone(), until: self.until }
    }

    /// The write is about to be answered.
    pub(crate) fn end(self, has_found_room: bool) {
        let (patience, ino, has_time) = (self.patience.clone(), self.ino, self.has_time);
        drop(self);
        patience.waited.fetch_add(u64::from(has_time), Ordering::Relaxed);
        patience.waited_in_vain.fetch_add(u64::from(has_time && !has_found_room), Ordering::Relaxed);
        match has_found_room {
            true => patience.found_room(ino),
            false => patience.waited_in_vain(ino),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.patience.end(self.ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Ino = Ino(7);
    const MINUTE: Duration = Duration::from_secs(60);

    fn patience() -> (Arc<Patience>, Instant) {
        let patience = Arc::new(Patience::default());
        patience.set(DISK, MINUTE);
        (patience, Instant::now())
    }

    #[test]
    fn writes_of_a_disk_are_counted_while_they_wait_and_those_of_other_files_do_not_wait() {
        let (patience, now) = patience();
        assert!(patience.begin(Ino(8), now).is_none());
        let waits = [patience.begin(DISK, now).unwrap(), patience.begin(DISK, now + MINUTE / 2).unwrap()];
        assert_eq!(patience.waiting(), [(DISK, 2)]);
        assert!(waits.iter().all(|wait| wait.until == now + MINUTE), "the time counts from the first");
        patience.set(DISK, Duration::ZERO);
        assert!(patience.begin(DISK, now).is_none());
        drop(waits);
        assert_eq!(patience.waiting(), []);
    }

    #[test]
    fn at_most_half_of_the_kernel_s_requests_wait() {
        let (patience, now) = patience();
        let waits: Vec<_> = (0..REQUESTS_MAX).map(|_| patience.begin(DISK, now).unwrap()).collect();
        assert!(patience.begin(DISK, now).is_none());
        drop(waits);
        assert!(patience.begin(DISK, now).is_some());
    }

    #[test]
    fn others_leave_the_entries_of_rings_to_disks_and_are_not_bounded_without_them() {
        let with = |late: Option<usize>| Patience::new(None, late);
        let bounds = |late| (with(late).waits_max(), with(late).others_max());
        assert_eq!([None, Some(40), Some(6), Some(4)].map(bounds), [(32, usize::MAX), (32, 8), (4, 2), (4, 0)]);
        for late in 0..50 {
            let (disks, others) = bounds(Some(late));
            assert!(disks + others <= late && disks >= late.min(REQUESTS_MIN), "{late}: {disks} and {others}");
        }

        let patience = with(Some(6));
        let before: Vec<_> = (0..5).map(|_| patience.other_waits().unwrap()).collect();
        patience.set(DISK, MINUTE);
        assert!(patience.other_waits().is_none(), "those from before count");
        drop(before);
        let beside = [0, 1].map(|_| patience.other_waits().unwrap());
        assert!(patience.other_waits().is_none());
        drop(beside);
        assert!(patience.other_waits().is_some());
        assert!((0..10).all(|_| with(None).other_waits().is_some()));
    }

    #[test]
    fn a_disk_that_waited_in_vain_gets_its_time_back_when_it_has_had_room_for_a_while() {
        let (patience, now) = patience();
        patience.begin(DISK, now).unwrap().end(false);
        let late = patience.begin(DISK, now + MINUTE).unwrap();
        assert_eq!(late.until, now + MINUTE, "it fails at once");
        late.end(false);
        for _ in 1..IN_A_ROW {
            patience.found_room(DISK);
        }
        assert_eq!(patience.begin(DISK, now + MINUTE).map(|wait| wait.until), Some(now + MINUTE));
        for _ in 0..IN_A_ROW {
            patience.found_room(DISK);
        }
        assert_eq!(patience.begin(DISK, now + MINUTE).map(|wait| wait.until), Some(now + 2 * MINUTE));
    }

    #[test]
    fn a_shortage_ends_when_all_that_waited_found_room() {
        let (patience, now) = patience();
        let [first, second] = [0, 1].map(|_| patience.begin(DISK, now).unwrap());
        first.end(true);
        assert_eq!(patience.begin(DISK, now + MINUTE).map(|wait| wait.until), Some(now + MINUTE));
        second.end(true);
        assert_eq!(patience.begin(DISK, now + MINUTE).map(|wait| wait.until), Some(now + 2 * MINUTE));
    }

    #[test]
    fn nothing_waits_any_more_once_the_daemon_ends() {
        let (patience, now) = patience();
        let wait = patience.begin(DISK, now).unwrap();
        assert!(!wait.deadline().is_over(now) && wait.deadline().is_over(now + MINUTE));
        patience.end_all();
        assert!(wait.deadline().is_over(now));
        assert!(patience.begin(DISK, now).is_none());
    }

    #[test]
    fn the_log_tells_a_wait_that_was_cut_short_from_one_whose_time_was_over() {
        let (patience, _) = patience();
        assert_eq!(patience.why_in_vain(), "no room came for");
        patience.end_all();
        assert!(patience.why_in_vain().contains("asked to end"));
    }

    #[test]
    fn a_write_that_comes_when_the_time_of_its_disk_is_over_did_not_wait() {
        let (patience, now) = patience();
        patience.begin(DISK, now).unwrap().end(false);
        for _ in 0..3 {
            patience.begin(DISK, now + MINUTE).unwrap().end(false);
        }
        assert_eq!(patience.waited(), (1, 1));
    }

    #[test]
    fn answered_waits_are_counted_and_those_in_vain_among_them() {
        let (patience, now) = patience();
        let waits: Vec<_> = (0..3).map(|_| patience.begin(DISK, now).unwrap()).collect();
        assert_eq!(patience.waited(), (0, 0));
        waits.into_iter().zip([true, false, true]).for_each(|(wait, found)| wait.end(found));
        drop(patience.begin(DISK, now).unwrap());
        assert_eq!(patience.waited(), (3, 1), "one that had no place did not wait");
    }

    #[test]
    fn the_reserve_is_a_128th_up_to_64_mib_or_what_is_set_up_to_a_half() {
        const MIB: u64 = 1 << 20;
        let of = |set: Option<u64>| [64 * MIB, 1 << 40].map(|data| Patience::new(set, None).reserve(data));
        assert_eq!(of(None), [MIB / 2, 64 * MIB]);
        assert_eq!(of(Some(0)), [0, 0]);
        assert_eq!(of(Some(100 * MIB)), [32 * MIB, 100 * MIB]);
    }
}
