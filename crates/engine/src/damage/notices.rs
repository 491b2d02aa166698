//! What is known of damage while a volume is open: how much there is, what was noticed, how far the scrub is.

use std::collections::BTreeSet;

use crate::Pbn;
use crate::damage::scrub_progress::Scrub;
use crate::settings::values::Settings;
use crate::sync::{AtomicUsize, Mutex};

/// What reads and writes noticed.
#[derive(Default)]
pub struct RepairQueue {
    /// Blocks that could not be read, or were not what their tags say.
    pub suspects: BTreeSet<Pbn>,
    /// A bad block, and a block that may hold its content.
    pub offers: BTreeSet<(Pbn, Pbn)>,
}

/// Damage of an open volume.
pub struct Damage {
    /// How many blocks are known to be bad: reads look no further while there is none.
    pub bad_known: AtomicUsize,
    /// How many tags of lost content there are: content is compared with them while there is one.
    pub lost_tags: AtomicUsize,
    /// What reads and writes found out about bad blocks.
    pub repair_queue: Mutex<RepairQueue>,
    /// How far the scrub is.
    pub scrub: Mutex<Scrub>,
}

impl Damage {
    /// No damage known.
    pub fn new(settings: &Settings) -> Self {
        Self {
            bad_known: AtomicUsize::new(0),
            lost_tags: AtomicUsize::new(0),
            repair_queue: Mutex::default(),
            scrub: Mutex::new(Scrub::new(settings)),
        }
    }
}
