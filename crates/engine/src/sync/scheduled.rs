//! The locks of the feature `schedules`: `shuttle`'s, and a condition variable, which its shim of parking_lot lacks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex as Waiting, PoisonError};
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

pub use shuttle_parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// parking_lot's condition variable under `shuttle`.
///
/// No time passes: a waiting thread is woken or waits forever. So a lost wake-up that only a timeout would cover shows
/// up as a deadlock.
#[derive(Default)]
pub struct Condvar {
    sleepers: Waiting<VecDeque<Arc<BatchSemaphore>>>,
}

impl Condvar {
    /// Releases the lock until a notification comes.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let woken = Arc::new(BatchSemaphore::new(0, Fairness::StrictlyFair));
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push_back(woken.clone());
        MutexGuard::unlocked(guard, || woken.acquire_blocking(1).expect("nobody closes it"));
    }

    /// Like `wait`, except if there is nothing to wait for.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        if !time.is_zero() {
            self.wait(guard);
        }
    }

    /// Wakes the thread that has waited longest.
    pub fn notify_one(&self) {
        let woken = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        woken.into_iter().for_each(|sleeper| sleeper.release(1));
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        let woken = std::mem::take(&mut *self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
        woken.into_iter().for_each(|sleeper| sleeper.release(1));
    }
}
