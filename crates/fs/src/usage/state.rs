//! The state of the monitor on one mount, in bounded memory.

use crate::usage::noted::{self, Noted};
use crate::usage::positions::{self, Positions};
use crate::usage::publisher::Publisher;

/// Bound on all memory of the monitor.
const BYTES_MAX: usize = 4 << 20;

const _: () = assert!(noted::BYTES_MAX + positions::BYTES_MAX <= BYTES_MAX, "the parts exceed the whole");

/// What the monitor keeps in memory for a mount.
pub(crate) struct Monitor {
    pub(super) noted: Noted,
    pub(super) positions: Positions,
    pub(super) publisher: Publisher,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self { noted: Noted::new(), positions: Positions::default(), publisher: Publisher::default() }
    }
}
