//! The order of all locks, in one table, and its check at run time.

/// Every lock of `fs` and of the engine, outermost first: a thread takes only locks that stand below those it holds.
/// Locks of one rank have numbers and are taken in their order. A thread waits for room for changes between `Map` and
/// `Log`, and without `Checkpointing` ([`assert_may_wait_for_room`]). A thread that has claimed room in the log takes
/// none of the locks down to `Map`, except `Rename`, because a lock's holder may be waiting for that room
/// ([`RoomHeld`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockRank {
    /// `fs`: the join handle of a thread, while it is started or joined.
    Thread,
    /// `fs`: held by the ranker for its turn.
    RankTurn,
    /// `fs`: a directory moves to another parent.
    Rename,
    /// Engine: settings change.
    Tuning,
    /// Engine: one checkpoint at a time.
    Checkpointing,
    /// Engine: one portion of a file is defragmented at a time.
    Defragging,
    /// Engine: one portion of one `oncefs compress` or `oncefs expand` at a time.
    Converting,
    /// Engine: the file of skipped blocks.
    BacklogFile,
    /// Engine: the progress of the worker's pass over all maps.
    Pass,
    /// Engine: a map, shared for look-ups, exclusive for changes. Two maps in the order of their locks' numbers.
    Map,
    /// Engine: the log; only the committer writes. It takes the gate below to end a group.
    Log,
    /// Engine: shared while a change is published in pieces that belong in one group.
    GroupGate,
    /// `fs`: an inode, in ascending number.
    Inode,
    /// `fs`: shared by a thread that creates an inode, until it is published.
    InodeBeingMade,
    /// `fs`: inode numbers that are leased and free.
    InodeNumbers,
    /// `fs`: a shard of the inode cache.
    InodeCache,
    /// Engine: shared while staged blocks are on their way to the data area.
    WriteOuts,
    /// Engine: the disk level of the hint store.
    DiskHints,
    /// Engine: the table of fragments grows.
    Numbers,
    /// Engine: free space.
    Allocator,
    /// Engine: the publish lock.
    State,
    /// Engine: the data area is flushed.
    Flushing,
    /// Engine: shared to read table pages, exclusive to write some.
    TableIo,
    /// Engine and `fs`: parts that take no other lock while they hold theirs, except those below.
    Part,
    /// Engine: the memory level of the hint store, and hints on their way to disk.
    Hints,
    /// Engine: the settings of the mount.
    Settings,
    /// Engine and `fs`: locks whose holder takes no other.
    Leaf,
}

/// A lock's place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg(feature = "checked")]
pub struct Place {
    rank: LockRank,
    number: u64,
}

/// The most work done under one lock in this process, known where it is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MostHeld {
    /// Reads from the disk under a lock that other requests need.
    pub reads: u64,
    /// Pages of the block table, leaves and regions read in memory under a lock that all requests need.
    pub looks: u64,
}

#[cfg(feature = "checked")]
mod check {
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use super::{LockRank, MostHeld, Place};

    /// Most reads from the disk under one lock that other requests need.
    const READS_HELD_MAX: u64 = 32;

    /// The largest counts in this process.
    static MOST_READS_HELD: AtomicU64 = AtomicU64::new(0);
    static MOST_LOOKS_HELD: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static HELD: RefCell<Vec<Taken>> = const { RefCell::new(Vec::new()) };
        /// The largest counts of this thread.
        static MOST: Cell<MostHeld> = const { Cell::new(MostHeld { reads: 0, looks: 0 }) };
        /// Whether the present reads are repeated because a read failed.
        static READS_AGAIN: Cell<bool> = const { Cell::new(false) };
        /// Bytes of the log that this thread has claimed and not used yet.
        static CLAIMED: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// A lock that this thread holds, and what it has done meanwhile.
    struct Taken {
        place: Place,
        /// Reads from the disk.
        reads: u64,
        /// Pages of the block table and leaves read in memory.
        looks: u64,
    }

    /// Whether requests wait for locks of a rank while other threads read from the disk under them. No thread reads
    /// under the gate, the allocator or the publish lock.
    fn is_needed_by_requests(rank: LockRank) -> bool {
        use LockRank::{Inode, InodeBeingMade, InodeCache, InodeNumbers, Map, Rename, WriteOuts};
        matches!(rank, Rename | Map | Inode | InodeBeingMade | InodeNumbers | InodeCache | WriteOuts)
    }

    /// Whether every request briefly needs a lock of this rank.
    fn is_needed_by_all(rank: LockRank) -> bool {
        matches!(rank, LockRank::GroupGate | LockRank::Allocator | LockRank::State)
    }

    /// Marks that this thread has claimed room in the log, until it is dropped.
    pub struct RoomHeld(());

    impl RoomHeld {
        /// A thread claims once per change.
        pub fn new(bytes: u64) -> Self {
            let before = CLAIMED.replace(Some(bytes));
            assert_eq!(before, None, "a thread that has claimed room in the log claims {bytes} bytes more");
            Self(())
        }
    }

    impl Drop for RoomHeld {
        fn drop(&mut self) {
            CLAIMED.set(None);
        }
    }

    /// Asserts that a thread that has claimed room in the log publishes no more bytes than it claimed.
    pub fn assert_claimed(published_bytes: u64) {
        if let Some(claimed) = CLAIMED.get() {
            let left = claimed.checked_sub(published_bytes);
            assert!(left.is_some(), "{published_bytes} bytes are published, {claimed} were claimed for them");
            CLAIMED.set(left);
        }
    }

    /// Marks that this thread holds a lock, until it is dropped.
    pub struct Held(Place);

    impl Place {
        pub fn new(rank: LockRank, number: u64) -> Self {
            Self { rank, number }
        }

        /// Called before waiting for a lock: it has to stand below all locks that this thread holds.
        pub fn take_in_order(self) -> Held {
            HELD.with_borrow(|held| {
                if let Some(lowest) = held.iter().map(|taken| taken.place).max() {
                    assert!(lowest < self, "lock order: {self:?} is taken while {lowest:?} is held");
                }
            });
            let may_wait = CLAIMED.get().is_none() || self.rank > LockRank::Map || self.rank == LockRank::Rename;
            assert!(may_wait, "lock order: {self:?} is taken while room in the log is claimed");
            self.take()
        }

        /// Notes a lock that was taken without waiting.
        pub fn take(self) -> Held {
            HELD.with_borrow_mut(|held| held.push(Taken { place: self, reads: 0, looks: 0 }));
            Held(self)
        }
    }

    /// Asserts that a thread that waits for room in the log or in memory holds no lock that a commit or a checkpoint
    /// may need.
    pub fn assert_may_wait_for_room() {
        HELD.with_borrow(|held| {
            let places = held.iter().map(|taken| taken.place);
            let needed = places.into_iter().find(|it| it.rank > LockRank::Map || it.rank == LockRank::Checkpointing);
            assert!(needed.is_none(), "lock order: {needed:?} is held by a thread that waits for room");
        });
    }

    /// Asserts that a thread that waits for requests of other threads holds no lock that one of them may need.
    pub fn assert_may_wait_for_requests() {
        HELD.with_borrow(|held| {
            let places = held.iter().map(|taken| taken.place);
            let needed = places.into_iter().find(|it| it.rank >= LockRank::Map || it.rank == LockRank::Checkpointing);
            assert!(needed.is_none(), "lock order: {needed:?} is held by a thread that waits for requests");
        });
    }

    /// Asserts that a thread that reads from the disk holds nothing that a commit or a publication waits for. Counts
    /// the reads.
    pub fn assert_may_read_disk(reads: u64) {
        HELD.with_borrow(|held| {
            let needed = held.iter().map(|taken| taken.place).find(|place| is_needed_by_all(place.rank));
            assert!(needed.is_none(), "{needed:?} is held by a thread that reads from the disk");
        });
        count_reads(reads);
    }

    /// Counts reads from the disk for every lock that this thread holds and that other requests need. Panics if there
    /// are more than the rule allows.
    pub fn count_reads(reads: u64) {
        if READS_AGAIN.get() {
            return;
        }
        HELD.with_borrow_mut(|held| {
            for taken in held.iter_mut().filter(|taken| is_needed_by_requests(taken.place.rank)) {
                taken.reads += reads;
                MOST.set(MostHeld { reads: MOST.get().reads.max(taken.reads), ..MOST.get() });
                MOST_READS_HELD.fetch_max(taken.reads, Relaxed);
                let (place, reads) = (taken.place, taken.reads);
                assert!(reads <= READS_HELD_MAX, "{place:?} is held for {reads} reads, {READS_HELD_MAX} are allowed");
            }
        });
    }

    /// Repeats a failed joint read one by one. These reads do not count, because no caller can cause them at will.
    pub fn reading_again<T>(read: impl FnOnce() -> T) -> T {
        let before = READS_AGAIN.replace(true);
        let result = read();
        READS_AGAIN.set(before);
        result
    }

    /// Counts pages, leaves or regions read in memory for every lock that this thread holds and that all requests need.
    /// The allowed number depends on the largest request, which the engine does not know. So the daemon reports the
    /// maximum.
    pub fn count_looks(looks: u64) {
        HELD.with_borrow_mut(|held| {
            for taken in held.iter_mut().filter(|taken| is_needed_by_all(taken.place.rank)) {
                taken.looks += looks;
                MOST.set(MostHeld { looks: MOST.get().looks.max(taken.looks), ..MOST.get() });
                MOST_LOOKS_HELD.fetch_max(taken.looks, Relaxed);
            }
        });
    }

    /// The most work that a thread of this process has done under one lock.
    pub fn most_held() -> Option<MostHeld> {
        Some(MostHeld { reads: MOST_READS_HELD.load(Relaxed), looks: MOST_LOOKS_HELD.load(Relaxed) })
    }

    /// The most work that this thread has done under one lock since the last call.
    pub fn take_most() -> MostHeld {
        MOST.take()
    }

    /// Runs work as another thread would, which holds none of this thread's locks.
    pub fn as_another_thread<T>(work: impl FnOnce() -> T) -> T {
        let (own, claimed) = (HELD.take(), CLAIMED.take());
        let result = work();
        HELD.set(own);
        CLAIMED.set(claimed);
        result
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // The thread may be ending, without its list.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let at =
                    held.iter().rposition(|taken| taken.place == self.0).expect("a guard is dropped by its thread");
                held.swap_remove(at);
            });
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::LockRank;
        use crate::sync::Mutex;

        #[test]
        fn locks_are_taken_from_the_outermost_to_the_innermost() {
            let (map, state) = (Mutex::new(LockRank::Map, ()), Mutex::new(LockRank::State, ()));
            let _map = map.lock();
            drop(state.lock());
            let _state = state.lock();
        }

        #[test]
        #[should_panic(expected = "lock order: Place { rank: Map, number: 0 } is taken while Place { rank: State")]
        fn an_inversion_panics_and_names_both_locks() {
            let (map, state) = (Mutex::new(LockRank::Map, ()), Mutex::new(LockRank::State, ()));
            let _state = state.lock();
            let _map = map.lock();
        }

        #[test]
        #[should_panic(expected = "lock order")]
        fn locks_of_one_rank_are_taken_in_the_order_of_their_numbers() {
            let (low, high) = (Mutex::numbered(LockRank::Inode, 1, ()), Mutex::numbered(LockRank::Inode, 2, ()));
            let _high = high.lock();
            let _low = low.lock();
        }

        #[test]
        #[should_panic(expected = "held by a thread that waits for room")]
        fn room_is_not_waited_for_with_a_lock_that_a_commit_needs() {
            let (map, inode) = (Mutex::new(LockRank::Map, ()), Mutex::new(LockRank::Inode, ()));
            let _map = map.lock();
            super::assert_may_wait_for_room();
            let _inode = inode.lock();
            super::assert_may_wait_for_room();
        }

        #[test]
        #[should_panic(expected = "is held by a thread that reads from the disk")]
        fn the_disk_is_not_read_while_a_group_is_held_together() {
            let (map, gate) = (Mutex::new(LockRank::Map, ()), Mutex::new(LockRank::GroupGate, ()));
            let _map = map.lock();
            super::assert_may_read_disk(1);
            let _gate = gate.lock();
            super::assert_may_read_disk(1);
        }

        #[test]
        fn reads_are_counted_for_each_lock_that_other_requests_need_as_long_as_it_is_held() {
            let (map, inode, part) =
                (Mutex::new(LockRank::Map, ()), Mutex::new(LockRank::Inode, ()), Mutex::new(LockRank::Part, ()));
            super::count_reads(7);
            assert_eq!(super::take_most().reads, 0, "nothing is held");
            let held = map.lock();
            super::assert_may_read_disk(3);
            {
                let _inode = inode.lock();
                super::count_reads(2);
            }
            assert_eq!(super::take_most().reads, 5, "the outer lock is held for all of them");
            drop(held);
            let _inode = inode.lock();
            super::count_reads(1);
            assert_eq!(super::take_most().reads, 1, "it was given back and taken again");
            drop(_inode);
            let _part = part.lock();
            super::count_reads(9);
            assert_eq!(super::take_most().reads, 0, "its rank is not counted");
        }

        #[test]
        #[should_panic(expected = "Place { rank: Map, number: 0 } is held for 33 reads, 32 are allowed")]
        fn a_lock_that_others_need_is_not_held_for_more_reads_than_the_rule_allows() {
            let map = Mutex::new(LockRank::Map, ());
            for _ in 0..2 {
                let _map = map.lock();
                super::count_reads(32);
            }
            let _map = map.lock();
            super::count_reads(32);
            super::reading_again(|| super::count_reads(99));
            super::count_reads(1);
        }

        /// Other tests run beside this one, so it checks a lower bound.
        #[test]
        fn looks_are_counted_for_a_lock_that_all_need_as_long_as_it_is_held() {
            let (map, state) = (Mutex::new(LockRank::Map, ()), Mutex::new(LockRank::State, ()));
            let _map = map.lock();
            super::count_looks(u64::MAX);
            let _state = state.lock();
            super::count_looks(1 << 40);
            super::count_looks(1);
            let most = super::most_held().expect("they are counted");
            assert!(((1 << 40) + 1..u64::MAX).contains(&most.looks), "{most:?}");
        }

        #[test]
        #[should_panic(expected = "is taken while room in the log is claimed")]
        fn who_has_claimed_room_takes_no_lock_with_which_room_is_waited_for() {
            let (inode, map) = (Mutex::new(LockRank::Inode, ()), Mutex::new(LockRank::Map, ()));
            let _room = super::RoomHeld::new(10);
            drop(inode.lock());
            let _map = map.lock();
        }

        #[test]
        #[should_panic(expected = "6 bytes are published, 4 were claimed for them")]
        fn nobody_publishes_more_than_was_claimed() {
            super::assert_claimed(1 << 40);
            let _room = super::RoomHeld::new(10);
            super::assert_claimed(6);
            super::assert_claimed(6);
        }

        #[test]
        fn a_lock_that_is_not_waited_for_may_come_in_any_order() {
            let (map, state) = (Mutex::new(LockRank::Map, ()), Mutex::new(LockRank::State, ()));
            let _state = state.lock();
            assert!(map.try_lock().is_some());
        }
    }
}

#[cfg(feature = "checked")]
pub use check::{
    Held, RoomHeld, as_another_thread, assert_claimed, assert_may_read_disk, assert_may_wait_for_requests,
    assert_may_wait_for_room, count_looks, count_reads, most_held, reading_again, take_most,
};

#[cfg(not(feature = "checked"))]
mod unchecked {
    use super::{LockRank, MostHeld};

    /// Takes no space: ranks are checked under the feature `checked` only.
    #[derive(Clone, Copy)]
    pub struct Place;

    /// Takes no space.
    pub struct Held;

    /// Takes no space: claims are checked under the feature `checked` only.
    pub struct RoomHeld;

    impl RoomHeld {
        /// For a claim of this many bytes.
        #[inline]
        pub fn new(_: u64) -> Self {
            Self
        }
    }

    /// Checked under the feature `checked` only.
    #[inline]
    pub fn assert_claimed(_: u64) {}

    /// Checked under the feature `checked` only.
    #[inline]
    pub fn assert_may_wait_for_room() {}

    /// Checked under the feature `checked` only.
    #[inline]
    pub fn assert_may_wait_for_requests() {}

    /// Checked under the feature `checked` only.
    #[inline]
    pub fn assert_may_read_disk(_: u64) {}

    /// Counted under the feature `checked` only.
    #[inline]
    pub fn count_reads(_: u64) {}

    /// Counted under the feature `checked` only.
    #[inline]
    pub fn count_looks(_: u64) {}

    /// Counted under the feature `checked` only.
    #[inline]
    pub fn reading_again<T>(read: impl FnOnce() -> T) -> T {
        read()
    }

    /// Counted under the feature `checked` only.
    #[inline]
    pub fn take_most() -> MostHeld {
        MostHeld::default()
    }

    /// Counted under the feature `checked` only.
    #[inline]
    pub fn most_held() -> Option<MostHeld> {
        None
    }

    /// Runs work as another thread would.
    #[inline]
    pub fn as_another_thread<T>(work: impl FnOnce() -> T) -> T {
        work()
    }

    impl Place {
        #[inline]
        pub fn new(_: LockRank, _: u64) -> Self {
            Self
        }

        #[inline]
        pub fn take_in_order(self) -> Held {
            Held
        }

        #[inline]
        pub fn take(self) -> Held {
            Held
        }
    }
}

#[cfg(not(feature = "checked"))]
pub use unchecked::{
    Held, Place, RoomHeld, as_another_thread, assert_claimed, assert_may_read_disk, assert_may_wait_for_requests,
    assert_may_wait_for_room, count_looks, count_reads, most_held, reading_again, take_most,
};
