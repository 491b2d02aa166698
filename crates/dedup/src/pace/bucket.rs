//! A rate in blocks per second, kept by a token bucket.

use std::time::Duration;

/// Smallest useful batch, as a fraction of a second's allowance: four batches a second.
const BATCHES_PER_SECOND: f64 = 4.0;
/// The shortest wait, so that rounding does not make the worker poll.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Saved allowance: at most that of one second, or one block at lower rates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    blocks: f64,
    filled: Duration,
}

impl Bucket {
    /// How many blocks may be processed now, at most `blocks_max`, or the time after which to ask again. Takes nothing:
    /// [`Bucket::spend`] does so afterwards.
    pub fn allowed(&mut self, per_second: f64, blocks_max: u64, now: Duration) -> Result<u64, Duration> {
        let batch = (per_second / BATCHES_PER_SECOND).clamp(1.0, blocks_max as f64);
        let gained = now.saturating_sub(self.filled).as_secs_f64() * per_second;
        self.blocks = (self.blocks + gained).min(per_second.max(batch));
        self.filled = now;
        if self.blocks < batch {
            let seconds = (batch - self.blocks) / per_second;
            return Err(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).max(WAIT_MIN));
        }
        Ok((self.blocks as u64).min(blocks_max))
    }

    /// Takes the processed blocks. An excess over the allowance has to be earned later.
    pub fn spend(&mut self, blocks: u64) {
        self.blocks -= blocks as f64;
    }
}
