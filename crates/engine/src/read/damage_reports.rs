//! Reports of damage: a block that seems damaged, and blocks that may hold lost content. Reads and writes only report
//! what they noticed. The worker handles it.

use crate::base::part;
use crate::format::page::Entry;
use crate::{Error, Pbn, Tag};

part! {
    /// Takes the reports of reads and writes that noticed damage, and wakes the worker to handle them.
    pub struct DamageReports {
        base: damage, signals, state, hasher
    }
}

impl DamageReports {
    /// Notes a block that seems to be damaged.
    pub fn suspect(&self, pbn: Pbn) {
        if self.damage.suspect(pbn) {
            self.signals.wake_worker();
        }
    }

    /// Notes that background work leaves out a part of the volume because of this damage.
    pub fn pass_over(&self, error: &Error) {
        self.damage.pass_over(error);
    }

    /// Whether these bytes are the content of a block with this entry. If not, the block is noted.
    pub fn is_sound(&self, pbn: Pbn, entry: &Entry, bytes: &[u8]) -> bool {
        let is_sound = self.hasher.is_sound(entry, bytes);
        if !is_sound {
            self.suspect(pbn);
        }
        is_sound
    }

    /// Notes blocks whose content may be that of lost ones. For use while content is sought.
    pub fn offer(&self, blocks: impl Iterator<Item = (Pbn, Tag)>) {
        let offers: Vec<(Pbn, Pbn)> = {
            let state = self.state.lock();
            let lost = |(pbn, tag)| state.bad.lost_with(tag).iter().map(move |lost| (*lost, pbn));
            blocks.flat_map(lost).filter(|(lost, pbn)| lost != pbn).collect()
        };
        if !offers.is_empty() {
            self.damage.offer(offers);
            self.signals.wake_worker();
        }
    }
}
