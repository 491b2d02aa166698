//! The worker's cost to the foreground: mean latencies with and without it.

use std::time::Duration;

/// Requests after which a mean has forgotten the earlier ones.
const MEAN_REQUESTS: u64 = 64;

/// Mean seconds per request, weighted towards recent requests. None: no request yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    with_worker: Option<f64>,
    without_worker: Option<f64>,
}

impl Latency {
    /// Learns that `requests` requests took `time` in all.
    pub fn learn(&mut self, requests: u64, time: Duration, worker_ran: bool) {
        if requests == 0 {
            return;
        }
        let mean = if worker_ran { &mut self.with_worker } else { &mut self.without_worker };
        let latest = time.as_secs_f64() / requests as f64;
        let weight = requests.min(MEAN_REQUESTS) as f64 / MEAN_REQUESTS as f64;
        let before = mean.unwrap_or(latest);
        *mean = Some(before + weight * (latest - before));
    }

    /// How much longer requests take with the worker, as a share. None until both means are known.
    pub fn slowdown(&self) -> Option<f64> {
        let without = self.without_worker.filter(|&seconds| seconds > 0.0)?;
        Some(self.with_worker? / without - 1.0)
    }
}
