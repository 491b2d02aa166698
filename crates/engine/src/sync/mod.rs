//! Locks and atomics of the engine and of `fs`: those of parking_lot and of the standard library, each lock with its
//! rank. [`LockRank`] is the one table of the lock order.
//!
//! With the feature `checked`, a thread that takes a lock out of order panics and names both locks. Without it, ranks
//! cost nothing. With the feature `schedules`, the locks and atomics are those of `shuttle`, which decides at each of
//! them which thread runs next (`docs/schedules.md`). Counters of statistics (`Count`) are the standard library's in
//! both cases: nothing that is stored depends on them, and a scheduler that stopped at each of them would explore less
//! of the rest.

mod lock_order;
#[cfg(feature = "schedules")]
mod scheduled;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[cfg(not(feature = "schedules"))]
use parking_lot as imp;
#[cfg(feature = "schedules")]
use scheduled as imp;

use lock_order::{Held, Place};
pub use lock_order::{
    LockRank, MostHeld, RoomHeld, as_another_thread, assert_claimed, assert_may_read_disk,
    assert_may_wait_for_requests, assert_may_wait_for_room, count_looks, count_reads, most_held, reading_again,
    take_most,
};

#[cfg(feature = "schedules")]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(not(feature = "schedules"))]
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// A lock with a place in the order.
pub struct Mutex<T> {
    place: Place,
    inner: imp::Mutex<T>,
}

/// The guard of a locked [`Mutex`].
pub struct MutexGuard<'a, T> {
    inner: imp::MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Mutex<T> {
    /// A lock of this rank. A thread holds at most one of them.
    pub fn new(rank: LockRank, value: T) -> Self {
        Self::numbered(rank, 0, value)
    }

    /// One of several locks of a rank. A thread takes them in the order of their numbers.
    pub fn numbered(rank: LockRank, number: u64, value: T) -> Self {
        Self { place: Place::new(rank, number), inner: imp::Mutex::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.place.take_in_order();
        MutexGuard { inner: self.inner.lock(), _held: held }
    }

    /// Takes the lock if it is free. An attempt without waiting may come in any order.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _held: self.place.take() })
    }

    /// Takes the lock if it is free within `time`.
    #[cfg(not(feature = "schedules"))]
    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        let held = self.place.take_in_order();
        let inner = self.inner.try_lock_for(time)?;
        Some(MutexGuard { inner, _held: held })
    }

    /// Whether some thread holds it right now.
    pub fn is_locked(&self) -> bool {
        self.inner.try_lock().is_none()
    }

    /// The value of a lock that is not shared.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

/// The innermost rank: while a thread holds it, it takes no other lock.
impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(LockRank::Leaf, T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A lock for many readers or one writer, with a place in the order.
pub struct RwLock<T> {
    place: Place,
    inner: imp::RwLock<T>,
}

/// The guard of a [`RwLock`] that is held shared.
pub struct RwLockReadGuard<'a, T> {
    inner: imp::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// The guard of a [`RwLock`] that is held exclusively.
pub struct RwLockWriteGuard<'a, T> {
    inner: imp::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock of this rank. A thread holds at most one of them.
    pub fn new(rank: LockRank, value: T) -> Self {
        Self::numbered(rank, 0, value)
    }

    /// One of several locks of a rank. A thread takes them in the order of their numbers.
    pub fn numbered(rank: LockRank, number: u64, value: T) -> Self {
        Self { place: Place::new(rank, number), inner: imp::RwLock::new(value) }
    }

    /// Waits until no thread holds it exclusively, and takes it shared.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.place.take_in_order();
        RwLockReadGuard { inner: self.inner.read(), _held: held }
    }

    /// Waits until no thread holds it, and takes it exclusively.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.place.take_in_order();
        RwLockWriteGuard { inner: self.inner.write(), _held: held }
    }

    /// Takes it shared unless a thread holds it exclusively. An attempt without waiting may come in any order.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard { inner, _held: self.place.take() })
    }

    /// Takes it exclusively if no thread holds it. An attempt without waiting may come in any order.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(RwLockWriteGuard { inner, _held: self.place.take() })
    }
}

/// The innermost rank: while a thread holds it, it takes no other lock.
impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(LockRank::Leaf, T::default())
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Lets threads that hold a [`Mutex`] wait for each other.
#[derive(Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// Releases the lock until a notification comes.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Like `wait`, for at most `time`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        self.0.wait_for(&mut guard.inner, time);
    }

    /// Wakes the thread that has waited longest.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
