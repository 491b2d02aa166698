//! Known damage of an open volume: how much there is, what was noticed, and the scrub's progress.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::known_damage::bad_blocks::BadBlocks;
use crate::known_damage::scrub_progress::Scrub;
use crate::known_damage::table_damage::TableDamage;
use crate::kv::FilesFound;
use crate::settings::values::Settings;
use crate::sync::{AtomicUsize, LockRank, Mutex};
use crate::{Error, Pbn, Result};

/// Notices of each kind kept until the worker handles them. Further ones are dropped, and come again with the next read
/// or scrub.
const NOTICES_MAX: usize = 4_096;

/// Most reasons kept for passing over parts of the volume.
const REASONS_MAX: usize = 16;

/// Damage that reads and writes noticed.
#[derive(Default)]
pub struct Noticed {
    /// Blocks that could not be read, or that contradict their tags.
    pub suspects: BTreeSet<Pbn>,
    /// A bad block, and a block that may hold its content.
    pub offers: BTreeSet<(Pbn, Pbn)>,
}

/// Damage of an open volume.
pub struct Damage {
    /// How many blocks are known to be bad. While there are none, reads check no further.
    bad_known: AtomicUsize,
    /// How many tags of lost content there are. While there are any, content is compared with them.
    lost_tags: AtomicUsize,
    noticed: Mutex<Noticed>,
    table: TableDamage,
    /// The reasons that keep the scrub and the worker from parts of the volume, as text.
    passed_over: Mutex<Vec<String>>,
    /// The result of the last check of the record files and their copies.
    record_files: Mutex<FilesFound>,
    scrub: Scrub,
}

impl Damage {
    /// No damage known.
    pub fn new(settings: &Settings) -> Self {
        Self {
            bad_known: AtomicUsize::new(0),
            lost_tags: AtomicUsize::new(0),
            noticed: Mutex::new(LockRank::Part, Noticed::default()),
            table: TableDamage::new(),
            passed_over: Mutex::new(LockRank::Part, Vec::new()),
            record_files: Mutex::new(LockRank::Part, FilesFound::default()),
            scrub: Scrub::new(settings),
        }
    }

    /// Updates the counts from the bad blocks. The caller holds the publish lock.
    pub fn follow(&self, bad: &BadBlocks) {
        assert!(bad.lost_tags() <= bad.len(), "{} lost tags of {} bad blocks", bad.lost_tags(), bad.len());
        self.bad_known.store(bad.len(), Ordering::Relaxed);
        self.lost_tags.store(bad.lost_tags(), Ordering::Relaxed);
    }

    /// Whether any block is known to be bad.
    pub fn is_any_bad(&self) -> bool {
        self.bad_known.load(Ordering::Acquire) > 0
    }

    /// Whether the content of any bad block is sought.
    pub fn is_content_lost(&self) -> bool {
        self.lost_tags.load(Ordering::Relaxed) > 0
    }

    /// Notes a block that seems damaged. False: it was noted already, or there is no room.
    pub fn suspect(&self, pbn: Pbn) -> bool {
        let mut noticed = self.noticed.lock();
        assert!(noticed.suspects.len() <= NOTICES_MAX, "{} suspects", noticed.suspects.len());
        noticed.suspects.len() < NOTICES_MAX && noticed.suspects.insert(pbn)
    }

    /// Notes pairs of a bad block and a block that may hold its content, as far as there is room.
    pub fn offer(&self, offers: Vec<(Pbn, Pbn)>) {
        let mut noticed = self.noticed.lock();
        let room = NOTICES_MAX.saturating_sub(noticed.offers.len());
        noticed.offers.extend(offers.into_iter().take(room));
        assert!(noticed.offers.len() <= NOTICES_MAX, "{} offers", noticed.offers.len());
    }

    /// Takes everything that was noticed.
    pub fn take_noticed(&self) -> Noticed {
        let noticed = std::mem::take(&mut *self.noticed.lock());
        let (suspects, offers) = (noticed.suspects.len(), noticed.offers.len());
        assert!(suspects.max(offers) <= NOTICES_MAX, "{suspects} suspects and {offers} offers");
        noticed
    }

    /// Notes that background work leaves out a part of the volume, because the next try would fail like this one. Logs
    /// the reason once.
    pub fn pass_over(&self, error: &Error) {
        let mut reasons = self.passed_over.lock();
        let why = error.to_string();
        if reasons.len() < REASONS_MAX && !reasons.contains(&why) {
            log::error!("the scrub or the worker passes over a part of the volume: {why}");
            reasons.push(why);
        }
        assert!(reasons.len() <= REASONS_MAX, "{} reasons", reasons.len());
    }

    /// Passes over a contradiction, which would fail again next time. None: the result was one.
    pub fn pass_over_contradiction<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error @ Error::Corrupt { .. }) => {
                self.pass_over(&error);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Why parts were passed over since the mount, the first reasons.
    pub fn passed_over(&self) -> Vec<String> {
        self.passed_over.lock().clone()
    }

    /// Notes that a pass of the scrub checked the record files and their copies.
    pub fn note_record_files(&self, found: FilesFound) {
        *self.record_files.lock() = found;
    }

    /// The last pass's findings about the record files and their copies since the mount.
    pub fn record_files(&self) -> FilesFound {
        self.record_files.lock().clone()
    }

    /// The known damage of the block table.
    pub fn table(&self) -> &TableDamage {
        &self.table
    }

    /// The scrub's progress.
    pub fn scrub(&self) -> &Scrub {
        &self.scrub
    }
}
