//! The engine's locks and atomics: those of parking_lot and of the standard library, and nothing around them. With the
//! feature `schedules` they are those of `shuttle`, which decides at each of them who runs next (`docs/schedules.md`).
//!
//! Counters of statistics (`Count`) are the standard library's in both: nothing that is stored depends on them, and a
//! scheduler that stopped at each of them would reach less of the rest.

#[cfg(not(feature = "schedules"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "schedules"))]
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

#[cfg(feature = "schedules")]
pub use condvar::Condvar;
#[cfg(feature = "schedules")]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(feature = "schedules")]
pub use shuttle_parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "schedules")]
mod condvar {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};
    use shuttle_parking_lot::MutexGuard;

    /// parking_lot's condition variable under `shuttle`, whose shim of parking_lot has none.
    ///
    /// No time passes: who waits is woken or waits for ever, so that a wake-up that only a timeout makes good is
    /// found as a deadlock.
    #[derive(Default)]
    pub struct Condvar {
        sleepers: Mutex<VecDeque<Arc<BatchSemaphore>>>,
    }

    impl Condvar {
        /// Lets the lock go until somebody notifies.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let woken = Arc::new(BatchSemaphore::new(0, Fairness::StrictlyFair));
            self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push_back(woken.clone());
            MutexGuard::unlocked(guard, || woken.acquire_blocking(1).expect("nobody closes it"));
        }

        /// As `wait`, except where nothing was to be waited for.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
            if !time.is_zero() {
                self.wait(guard);
            }
        }

        /// Wakes who waits longest.
        pub fn notify_one(&self) {
            let woken = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            woken.into_iter().for_each(|sleeper| sleeper.release(1));
        }

        /// Wakes all who wait.
        pub fn notify_all(&self) {
            let woken = std::mem::take(&mut *self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
            woken.into_iter().for_each(|sleeper| sleeper.release(1));
        }
    }
}
