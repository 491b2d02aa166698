//! The room that the pool below a volume has. A cluster refuses growth when one of its OSDs reaches the full ratio, or
//! the pool its quota.
//!
//! A thread asks the cluster for the pool's space from time to time, and no request waits for its answer. The figures
//! are some seconds old when they come, so what was taken meanwhile is taken off. They may have some of it already: a
//! write that would find room then waits for later figures, which must. Programs' writes find no room while less than a
//! reserve is left: that is for deleting, for checkpoints, and for what was acknowledged before.
//!
//! If the cluster refuses a write first, because it has no figures or others filled it, then that write was
//! acknowledged to a program before, or is part of a checkpoint. So it is repeated in the reserve that the cluster keeps
//! above its full ratio, and from then on programs' writes find no room. What they had in flight bounds what the
//! reserve takes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_rados::{Objects, PoolSpace, Waits};

use super::taken_bytes::Taken;
use crate::format::image::OBJECT_BYTES;
use crate::sync::{AtomicBool, AtomicU64, LockRank, Mutex};

/// Bytes of a pool that programs cannot use, beside the margin that every host has.
pub const RESERVE_BYTES: u64 = 192 << 20;

/// The room of a pool.
pub struct ObjectRoom {
    objects: Arc<dyn Objects>,
    /// The pool, for messages.
    pool: String,
    /// The cluster refused a write, and has not been seen to have room since.
    is_refused: AtomicBool,
    /// The cluster's figures leave nothing beside the reserve.
    is_short: AtomicBool,
    taken: Taken,
    /// Bytes beside the reserve, before what was taken since.
    counted: AtomicU64,
    space: Mutex<Option<PoolSpace>>,
    /// The cluster gave no figures when it was asked last.
    is_unknown: AtomicBool,
}

impl ObjectRoom {
    /// The room for these objects. It is not known to have a bound.
    pub fn of(objects: Arc<dyn Objects>) -> Self {
        Self::of_pool(objects, "of this volume")
    }

    /// The same, with the name of the pool for messages.
    pub fn of_pool(objects: Arc<dyn Objects>, pool: &str) -> Self {
        Self {
            objects,
            pool: pool.to_owned(),
            is_refused: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            taken: Taken::default(),
            counted: AtomicU64::new(u64::MAX),
            space: Mutex::new(LockRank::Leaf, None),
            is_unknown: AtomicBool::new(false),
        }
    }

    /// The cluster refused a write.
    pub fn note_full(&self) {
        if !self.is_refused.swap(true, Relaxed) {
            log::warn!("the pool {} is full: writes of new data are refused until it has room", self.pool);
        }
    }

    /// Takes bytes for programs' data, which will be written soon.
    pub fn take(&self, bytes: u64) {
        self.taken.add(bytes);
    }

    /// Whether the cluster refused a write, and has not been seen to have room since.
    pub fn is_full(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// Whether requests wait for a cluster that does not answer.
    pub fn is_silent(&self) -> bool {
        self.objects.is_silent()
    }

    /// Requests that waited for long.
    pub fn waits(&self) -> Waits {
        self.objects.waits()
    }

    /// The pool's space when the cluster was asked last.
    pub fn space(&self) -> Option<PoolSpace> {
        *self.space.lock()
    }

    /// Bytes that programs' data may still take. The largest number: no bound is known.
    pub fn look(&self) -> u64 {
        match (self.is_full(), self.counted.load(Relaxed)) {
            (true, _) => 0,
            (false, u64::MAX) => u64::MAX,
            (false, counted) => counted.saturating_sub(self.taken.since_figures()),
        }
    }

    /// Whether later figures may show room that `look` does not: those that are known may have what was taken already.
    /// Within four questions they must have it.
    pub fn may_turn_out_larger(&self, margin_bytes: u64) -> bool {
        let at_best = self.counted.load(Relaxed).saturating_sub(self.taken.since_question());
        !self.is_full() && self.taken.since_figures() > 0 && at_best > margin_bytes
    }

    /// Asks the cluster. Waits for the answer, so no thread that serves requests calls this.
    pub fn ask(&self) {
        self.ask_whether_full();
        self.taken.note_question();
        match self.objects.space() {
            Ok(Some(space)) => self.learn(space),
            Ok(None) => self.learn_nothing("its cluster has no figures; does a manager (ceph-mgr) run?"),
            Err(error) => self.learn_nothing(&error.to_string()),
        }
    }

    fn learn(&self, space: PoolSpace) {
        let left = space.left_bytes(OBJECT_BYTES);
        self.counted.store(left.saturating_sub(RESERVE_BYTES), Relaxed);
        *self.space.lock() = Some(space);
        self.is_unknown.store(false, Relaxed);
        let is_short = left <= RESERVE_BYTES;
        if is_short != self.is_short.swap(is_short, Relaxed) {
            let (mib, pool) = (left >> 20, &self.pool);
            match is_short {
                true => log::warn!(
                    "the pool {pool} has {mib} MiB left, which are kept for deleting: writes of new data are refused \
                     until it has room"
                ),
                false => log::info!("the pool {pool} has {mib} MiB left again"),
            }
        }
    }

    /// Old figures say nothing of now, so no write is refused for them.
    fn learn_nothing(&self, why: &str) {
        self.counted.store(u64::MAX, Relaxed);
        *self.space.lock() = None;
        self.is_short.store(false, Relaxed);
        if !self.is_unknown.swap(true, Relaxed) {
            log::warn!("the room of the pool {} is not known until it is full: {why}", self.pool);
        }
    }

    /// Asks only whether a cluster that refused a write takes data again. Waits for the answer.
    pub fn ask_whether_full(&self) {
        if !self.is_full() {
            return;
        }
        match self.objects.has_room() {
            Ok(true) => {
                self.is_refused.store(false, Relaxed);
                log::info!("the pool {} takes data again", self.pool);
            }
            Ok(false) => {}
            Err(error) => log::warn!("cannot see whether the pool {} has room: {error}", self.pool),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use oncefs_rados::MemoryObjects;

    use super::*;

    fn room() -> (MemoryObjects, ObjectRoom) {
        let objects = MemoryObjects::default();
        (objects.clone(), ObjectRoom::of(Arc::new(objects)))
    }

    fn with(osds_left_bytes: u64) -> Option<PoolSpace> {
        Some(PoolSpace { osds_left_bytes, ..PoolSpace::default() })
    }

    #[test]
    fn a_full_pool_has_no_room_until_the_cluster_takes_data_again() {
        let (objects, room) = room();
        assert_eq!(room.look(), u64::MAX);
        objects.set_full(true);
        room.ask();
        assert_eq!(room.look(), u64::MAX, "nothing was refused yet");
        room.note_full();
        room.ask();
        assert_eq!((room.is_full(), room.look()), (true, 0));
        objects.set_full(false);
        assert_eq!(room.look(), 0, "nobody asked");
        room.ask();
        assert_eq!((room.look(), room.is_full()), (u64::MAX, false));
    }

    #[test]
    fn what_the_cluster_tells_bounds_what_programs_write_less_the_reserve() {
        let (objects, room) = room();
        objects.set_space(with(RESERVE_BYTES + 1000));
        assert_eq!(room.look(), u64::MAX, "it was not asked yet");
        room.ask();
        assert_eq!(room.look(), 1000);
        room.take(300);
        assert_eq!(room.look(), 700);
        room.take(3000);
        assert_eq!(room.look(), 0);
        objects.set_space(with(RESERVE_BYTES));
        room.ask();
        assert_eq!((room.look(), room.is_full()), (0, false), "the reserve is not for programs");
        objects.set_space(None);
        room.ask();
        assert_eq!((room.look(), room.space()), (u64::MAX, None), "figures that are not known bound nothing");
    }

    /// The figures lag behind what was taken, so the same figure may come several times.
    #[test]
    fn what_was_taken_is_taken_off_until_the_figures_must_have_it() {
        let (objects, room) = room();
        objects.set_space(with(RESERVE_BYTES + 1000));
        room.ask();
        room.take(300);
        for _ in 0..3 {
            room.ask();
            assert_eq!(room.look(), 700, "the figures may be older");
        }
        room.ask();
        assert_eq!(room.look(), 1000, "they are younger by now");
    }

    /// At full speed a program takes more in the time that figures lag than a small pool has.
    #[test]
    fn what_the_figures_may_have_already_is_waited_for_and_not_refused() {
        let (objects, room) = room();
        const MARGIN: u64 = 64 << 20;
        let left = 3 * MARGIN;
        objects.set_space(with(RESERVE_BYTES + left));
        room.ask();
        assert!(!room.may_turn_out_larger(MARGIN), "nothing was taken");
        room.take(2 * MARGIN);
        assert!(!room.may_turn_out_larger(MARGIN), "the figures that are known cannot have it");
        objects.set_space(with(RESERVE_BYTES + 2 * MARGIN));
        room.ask();
        assert_eq!(room.look(), 0, "it is taken off");
        assert!(room.may_turn_out_larger(MARGIN), "and it may be in them");
        for _ in 0..3 {
            room.ask();
        }
        assert_eq!((room.look(), room.may_turn_out_larger(MARGIN)), (2 * MARGIN, false), "it was");
        room.take(MARGIN);
        objects.set_space(with(RESERVE_BYTES + MARGIN));
        room.ask();
        assert!(!room.may_turn_out_larger(MARGIN), "no figures show room beside the margin");
    }
}
