//! Confirms remaps: a block and its target must have the same content. Fingerprints decide; if one is missing, the
//! bytes are compared.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::read::damage_reports::DamageReports;
use crate::read::parts::Part;
use crate::read::stored::BlockReader;
use crate::write::visit::Remap;
use crate::{BLOCK_BYTES, Result};

/// Most blocks compared with one read of each side.
const COMPARED_BLOCKS_MAX: usize = 128;

part! {
    /// Compares blocks with the targets of their remaps.
    pub struct RemapConfirmer {
        base: data, hasher, stats;
        block_reader: BlockReader, damage_reports: DamageReports
    }
}

impl RemapConfirmer {
    /// Keeps the pairs with the same content. Fingerprints decide; if one is missing, the bytes are compared.
    pub fn confirm_remaps(&self, chosen: Vec<Remap>) -> Vec<Remap> {
        let mut confirmed = Vec::with_capacity(chosen.len());
        let decides = |remap: &Remap| remap.is_known() && !self.block_reader.is_read_before_share(&remap.target.1);
        let are_neighbours = |a: &Remap, b: &Remap| {
            a.visit.pbn.plus(1) == b.visit.pbn && a.target.0.plus(1) == b.target.0 && decides(a) == decides(b)
        };
        for run in chosen.chunk_by(are_neighbours) {
            for part in run.chunks(COMPARED_BLOCKS_MAX) {
                match decides(&part[0]) {
                    true => confirmed.extend(part.iter().filter(|remap| remap.has_equal_fingerprints())),
                    false => self.compare_or_leave(part, &mut confirmed),
                }
            }
        }
        self.stats.counters.hints_refused.fetch_add((chosen.len() - confirmed.len()) as u64, Relaxed);
        confirmed
    }

    /// Compares a run. Unreadable blocks stay where they are, and the others around them are remapped.
    fn compare_or_leave(&self, run: &[Remap], confirmed: &mut Vec<Remap>) {
        match self.compare(run, confirmed) {
            Err(_) if run.len() > 1 => run.chunks(1).for_each(|one| self.compare_or_leave(one, confirmed)),
            Err(error) => log::warn!("cannot compare a copy of block {}, not sharing it: {error}", run[0].target.0),
            Ok(()) => {}
        }
    }

    /// Reads adjacent blocks and their adjacent targets, and keeps the pairs that are equal. A block without the
    /// content of its tag equals nothing. A target without a fingerprint gets one, so that it is compared only once.
    fn compare(&self, run: &[Remap], confirmed: &mut Vec<Remap>) -> Result<()> {
        assert!(run.len() <= COMPARED_BLOCKS_MAX, "{} blocks compared, at most {COMPARED_BLOCKS_MAX}", run.len());
        let bytes = run.len() * BLOCK_BYTES;
        let (mut copies, mut targets) = (self.data.take_buffer(bytes), self.data.take_buffer(bytes));
        self.block_reader.read_run(run[0].visit.pbn, &mut copies)?;
        self.block_reader.read_targets(vec![Part { pbn: run[0].target.0, bytes: &mut targets }])?;
        self.stats.counters.blocks_compared.fetch_add(run.len() as u64, Relaxed);
        let pairs = copies.chunks_exact(BLOCK_BYTES).zip(targets.chunks_exact(BLOCK_BYTES));
        for (remap, (copy, target)) in run.iter().zip(pairs) {
            let is_sound = self.hasher.tag(target) == remap.visit.entry.tag;
            if !is_sound {
                self.damage_reports.suspect(remap.target.0);
            }
            if !is_sound || copy != target {
                continue;
            }
            let mut remap = *remap;
            if remap.target.1.fingerprint.is_none() {
                let mut fingerprints = Vec::with_capacity(1);
                self.hasher.fingerprints(&[target], &mut fingerprints);
                remap.target.1.fingerprint = fingerprints.pop();
            }
            confirmed.push(remap);
        }
        Ok(())
    }
}
