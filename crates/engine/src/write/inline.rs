//! What in-line deduplication keeps between requests: its controllers, and runs that are still open.

use oncefs_dedup::{Admission, Fingerprinting};

use crate::settings::values::{FingerprintMode, Settings};
use crate::sync::Mutex;
use crate::write::streams::Streams;

/// In-line deduplication of an open volume.
pub struct InlineDedup {
    /// Which requests are looked up as they are written.
    pub admission: Mutex<Admission>,
    /// Whether to fingerprint now or later.
    pub fingerprinting: Mutex<Fingerprinting>,
    /// Runs that may go on with a file's next request.
    pub streams: Mutex<Streams>,
}

impl InlineDedup {
    /// Controllers as the settings say, and no open runs.
    pub fn new(settings: &Settings) -> Self {
        Self {
            admission: Mutex::new(Admission::new(settings.rule)),
            fingerprinting: Mutex::new(fingerprinting(settings.fingerprints)),
            streams: Mutex::default(),
        }
    }
}

/// The choice of fingerprints that a setting names.
pub fn fingerprinting(mode: FingerprintMode) -> Fingerprinting {
    match mode {
        FingerprintMode::Eager => Fingerprinting::Eager,
        FingerprintMode::Lazy => Fingerprinting::Lazy,
        FingerprintMode::Auto => Fingerprinting::Auto(oncefs_dedup::DuplicateShare::default()),
    }
}
