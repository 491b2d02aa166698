//! Bytes taken of a pool for new data, and those of them that the cluster's figures may not have yet.

use std::sync::atomic::Ordering::Relaxed;

use crate::sync::{AtomicU64, LockRank, Mutex};

/// Figures have what was taken before this many questions: it was written within seconds, OSDs report every five
/// seconds, and the manager and the monitors each pass it on as often.
const QUESTIONS: usize = 4;

/// Bytes taken of a pool.
pub struct Taken {
    bytes: AtomicU64,
    /// The bytes at the last questions, oldest first.
    asked: Mutex<[u64; QUESTIONS]>,
}

impl Default for Taken {
    fn default() -> Self {
        Self { bytes: AtomicU64::new(0), asked: Mutex::new(LockRank::Leaf, [0; QUESTIONS]) }
    }
}

impl Taken {
    /// Takes bytes.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// The cluster is asked for its figures now.
    pub fn note_question(&self) {
        let now = self.bytes.load(Relaxed);
        let mut asked = self.asked.lock();
        asked.rotate_left(1);
        asked[QUESTIONS - 1] = now;
    }

    /// Bytes taken since the last question. The answer has none of them.
    pub fn since_question(&self) -> u64 {
        let last = self.asked.lock()[QUESTIONS - 1];
        self.bytes.load(Relaxed) - last
    }

    /// Bytes that the figures may not have.
    pub fn since_figures(&self) -> u64 {
        // The lock first: the oldest question counted no more than there are now.
        let oldest = self.asked.lock()[0];
        self.bytes.load(Relaxed) - oldest
    }
}
