//! Times requests to a device, of which several may be under way.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::stats::counters::Count;

/// The time of a request, from its creation on.
pub struct RequestTimer<'a> {
    under_way: &'a Count,
    under_way_before: u64,
    began: Duration,
}

impl<'a> RequestTimer<'a> {
    /// A request begins now. `under_way` counts the requests that have begun and not ended.
    pub fn begin(under_way: &'a Count, now: Duration) -> Self {
        let under_way_before = under_way.fetch_add(1, Relaxed) + 1;
        Self { under_way, under_way_before, began: now }
    }

    /// The request ends now. Returns its time, and how many were under way meanwhile, this one included: the mean of the
    /// numbers at its beginning and at its end.
    pub fn end(self, now: Duration) -> (Duration, u32) {
        let (time, before) = (now.saturating_sub(self.began), self.under_way_before);
        let after = self.under_way.fetch_sub(1, Relaxed);
        debug_assert!(after > 0, "{before} requests were under way when this one began, and {after} when it ended");
        (time, before.midpoint(after).clamp(1, u64::from(u32::MAX)) as u32)
    }
}
