//! In-line deduplication between requests: its controllers, and runs that are still open.

use std::time::Duration;

use oncefs_dedup::{Admission, AdmissionRule, Fingerprinting, RangeError};

use crate::settings::values::{FingerprintMode, Inline, Settings};
use crate::sync::{LockRank, Mutex};
use crate::write::streams::{Stream, Streams};
use crate::{Lbn, MapId};

/// In-line deduplication of an open volume.
pub struct InlineDedup {
    /// Whether a request is looked up as it is written.
    admission: Mutex<Admission>,
    /// Whether to fingerprint now or later.
    fingerprinting: Mutex<Fingerprinting>,
    /// Runs that may continue with a file's next request.
    streams: Mutex<Streams>,
}

impl InlineDedup {
    /// Controllers as the settings say, and no open runs.
    pub fn new(settings: &Settings) -> Self {
        Self {
            admission: Mutex::new(LockRank::Part, Admission::new(settings.rule)),
            fingerprinting: Mutex::new(LockRank::Part, fingerprinting(settings.fingerprints)),
            streams: Mutex::new(LockRank::Part, Streams::default()),
        }
    }

    /// Whether a request written now is looked up and fingerprinted.
    pub fn admit(&self, mode: Inline, now: Duration) -> bool {
        match mode {
            Inline::Off => false,
            Inline::All => true,
            Inline::Adaptive => self.admission.lock().admit(now),
        }
    }

    /// Whether every block of the next admitted request is fingerprinted, and not only those with a candidate.
    pub fn fingerprints_all(&self) -> bool {
        self.fingerprinting.lock().eager()
    }

    /// Learns that of `blocks` blocks just written `shared` became references.
    pub fn note_request(&self, blocks: u64, shared: u64) {
        assert!(shared <= blocks, "{shared} of {blocks} blocks are shared");
        self.fingerprinting.lock().observe(blocks, shared);
        self.admission.lock().observe(blocks, shared);
    }

    /// Takes out the open run of a file's last request, if it ended where this one begins.
    pub fn take_stream(&self, map: MapId, at: Lbn) -> Stream {
        self.streams.lock().take(map, at)
    }

    /// Remembers the open run of a request. Gives the one that is forgotten for it.
    pub fn keep_stream(&self, map: MapId, stream: Stream) -> Option<(MapId, Stream)> {
        self.streams.lock().put(map, stream)
    }

    /// Sets how the share of admitted requests follows the duplicates found.
    pub fn set_rule(&self, rule: AdmissionRule) -> Result<(), RangeError> {
        self.admission.lock().set_rule(rule)
    }

    /// Sets the bound of that share, from 0 to 1.
    pub fn set_limit(&self, limit: f64) {
        assert!((0.0..=1.0).contains(&limit), "the bound of the share of admitted requests is {limit}");
        self.admission.lock().set_limit(limit);
    }

    /// Sets when blocks are fingerprinted, and forgets what was learned about that.
    pub fn set_fingerprints(&self, mode: FingerprintMode) {
        *self.fingerprinting.lock() = fingerprinting(mode);
    }

    /// The bound of the share of admitted requests, and that share, from 0 to 1.
    pub fn limit_and_share(&self, mode: Inline) -> (f64, f64) {
        let admission = self.admission.lock();
        let share = match mode {
            Inline::Off => 0.0,
            Inline::All => 1.0,
            Inline::Adaptive => admission.share(),
        };
        (admission.limit(), share)
    }

    /// Does something while every request that asks to be admitted waits.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn while_admission_waits<T>(&self, work: impl FnOnce() -> T) -> T {
        let _admission = self.admission.lock();
        work()
    }
}

/// The choice of fingerprints that a setting names.
fn fingerprinting(mode: FingerprintMode) -> Fingerprinting {
    match mode {
        FingerprintMode::Eager => Fingerprinting::Eager,
        FingerprintMode::Lazy => Fingerprinting::Lazy,
        FingerprintMode::Auto => Fingerprinting::Auto(oncefs_dedup::DuplicateShare::default()),
    }
}
