//! Admission: whether a written request is looked up and fingerprinted, and its tags.

use crate::WriteMode;
use crate::base::part;
use crate::settings::values::Inline;
use crate::write::batch::{Batch, Outcome};

/// How many blocks are looked up of a request that was not admitted.
const PROBED_BLOCKS: usize = 4;

part! {
    /// Decides which written requests are looked up and fingerprinted.
    pub struct Admission {
        base: foreground, inline, tuning, hints, hasher
    }
}

impl Admission {
    /// Whether the next written request is looked up and fingerprinted.
    pub fn admit(&self) -> bool {
        // The settings are not locked while this waits for the controller.
        let mode = self.tuning.with(|settings| settings.inline);
        self.inline.admit(mode, self.foreground.now())
    }

    /// Whether any written request is looked up.
    fn looks_up(&self) -> bool {
        self.tuning.with(|settings| settings.inline != Inline::Off)
    }

    /// Whether a few blocks of a request that was not admitted show that it has duplicates. If so, it and the requests
    /// after it are admitted.
    pub fn is_probe_hit(&self, batch: &Batch) -> bool {
        let mode = self.tuning.with(|settings| settings.inline);
        if !self.inline.is_probed(mode) {
            return false;
        }
        let step = batch.len().div_ceil(PROBED_BLOCKS);
        let tag = |index: usize| (batch.outcomes[index] != Outcome::Zero).then(|| batch.tags[index]);
        let holders = self.hints.look_up((0..batch.len()).step_by(step).map(tag));
        let is_hit = holders.iter().any(|holders| !holders.is_empty());
        if is_hit {
            self.inline.note_hit();
        }
        is_hit
    }

    /// A request that is not admitted gets tags, which are checksums too. If a program waits for it and any request is
    /// looked up, or if the device hides their cost, it gets fingerprints as well, so that later duplicates of it are
    /// confirmed without reading it. They are computed as the blocks are placed.
    pub fn tag(&self, batch: &mut Batch, is_admitted: bool) {
        let stored = batch.indexes(|outcome| outcome != Outcome::Zero);
        for &index in &stored {
            batch.tags[index] = self.hasher.tag(batch.block(index));
        }
        let is_awaited = batch.write_mode == WriteMode::Awaited && batch.policy.is_inline && self.looks_up();
        let mode = self.tuning.with(|settings| settings.inline);
        batch.fingerprints_all = is_awaited
            || match is_admitted {
                true => self.inline.fingerprints_all(),
                false => batch.policy.is_inline && self.inline.fingerprints_unadmitted(mode),
            };
    }
}
