//! The out-of-line worker: looks up what was skipped in both levels, remaps duplicates and releases the copy; sweeps the
//! disk level for stale hints.

use std::collections::BTreeSet;

use oncefs_dedup::{Candidates, Decision, Hint, Lbn, Pbn, RunRule, Tag, Work, detect};

use super::{Oncefs, sure};
use crate::trace::{Content, Place};

/// Blocks that the worker looks up together, in tag order, so that it reads a page once for all of them.
const WORKER_BLOCKS: u64 = 1_024;
/// One part in so many of the disk level is swept for stale hints in each idle phase: all of it in six weeks of hours.
const SWEEP_SHARE: u32 = 1_000;

/// A block the worker looks at.
#[derive(Clone, Copy)]
struct Visited {
    tag: Tag,
    place: Place,
    pbn: Pbn,
    content: Content,
}

impl Oncefs {
    /// Visits everything that was skipped.
    pub(super) fn work_off(&mut self) {
        // A file with a budget is looked at as a whole, and once.
        let mut whole = BTreeSet::new();
        while let Some(work) = self.skipped.take(WORKER_BLOCKS) {
            match work {
                Work::Blocks { owner, .. } | Work::Owner(owner) if self.rules.budget(owner).is_some() => {
                    whole.insert(owner);
                }
                work => self.visit(work),
            }
        }
        whole.into_iter().for_each(|file| self.visit_whole(file));
    }

    /// Shares what the budget of a file allows, all its blocks considered.
    fn visit_whole(&mut self, file: u64) {
        let lbns = self.volume.lbns(file);
        let blocks: Vec<Visited> = lbns.iter().filter_map(|lbn| self.visited(file, *lbn)).collect();
        let mut holders = Vec::with_capacity(blocks.len());
        for part in blocks.chunks(WORKER_BLOCKS as usize) {
            let mut by_tag = part.to_vec();
            by_tag.sort_by_key(|block| (block.tag, block.place));
            let on_disk = self.look_up_on_disk(&by_tag);
            let of_part = part.iter().map(|block| self.holders_in_order(block, &on_disk)).collect();
            let contents: Vec<Content> = part.iter().map(|block| block.content).collect();
            holders.extend(self.extended(&contents, of_part, None));
        }
        for (holders, block) in holders.iter_mut().zip(&blocks).filter(|(_, block)| self.volume.count(block.pbn) == 1) {
            holders.retain(|pbn| *pbn != block.pbn);
        }
        let candidates: Vec<Candidates> = (holders.iter().zip(&blocks))
            .map(|(holders, block)| Candidates { holders, current: Some(block.pbn) })
            .collect();
        let decisions = self.rules.decide_whole(file, &candidates, &self.volume);
        self.remap_decided(&blocks, decisions);
        self.demote();
    }

    fn visit(&mut self, work: Work) {
        match work {
            Work::Blocks { owner, runs } => {
                let lbns = runs.into_iter().flat_map(|(first, blocks)| (0..blocks).map(move |at| first.plus(at)));
                self.visit_blocks(owner, &lbns.collect::<Vec<Lbn>>());
            }
            Work::Owner(owner) => self.visit_blocks(owner, &self.volume.lbns(owner)),
            Work::Everything => {
                for file in self.volume.files() {
                    match self.rules.budget(file) {
                        Some(_) => self.visit_whole(file),
                        None => self.visit_blocks(file, &self.volume.lbns(file)),
                    }
                }
            }
        }
    }

    fn visit_blocks(&mut self, file: u64, lbns: &[Lbn]) {
        for lbns in lbns.chunks(WORKER_BLOCKS as usize) {
            let in_order: Vec<Visited> = lbns.iter().filter_map(|lbn| self.visited(file, *lbn)).collect();
            let mut by_tag = in_order.clone();
            by_tag.sort_by_key(|block| (block.tag, block.place));
            let on_disk = self.look_up_on_disk(&by_tag);
            if self.rules.run_blocks_min() == 1 {
                by_tag.into_iter().for_each(|block| self.revisit(block, &on_disk));
            } else {
                let adjacent = |a: &Visited, b: &Visited| a.place.plus(1) == b.place;
                in_order.chunk_by(adjacent).for_each(|blocks| self.revisit_run(blocks, &on_disk));
            }
            self.demote();
        }
    }

    fn visited(&self, file: u64, lbn: Lbn) -> Option<Visited> {
        let place = Place { file, lbn: lbn.0 };
        let pbn = self.volume.at(place)?;
        let content = self.volume.content(pbn).expect("a map refers to live blocks");
        Some(Visited { tag: content.tag(), place, pbn, content })
    }

    fn look_up_on_disk(&mut self, visited: &[Visited]) -> Vec<Hint> {
        let mut found = Vec::new();
        if let Some(disk) = &mut self.disk {
            let mut tags: Vec<Tag> = visited.iter().map(|block| block.tag).collect();
            tags.dedup();
            sure(disk.level.lookup(&mut disk.pages, &tags, &mut found));
        }
        found
    }

    /// Remaps a block if another one holds the same. Of two blocks the one with more references stays: as no block
    /// knows its places, only the last reference's remapping frees anything.
    fn revisit(&mut self, block: Visited, on_disk: &[Hint]) {
        if self.volume.at(block.place) != Some(block.pbn) {
            return;
        }
        let pbns = self.holders(block.tag, on_disk);
        let count = self.volume.count(block.pbn);
        for pbn in pbns.into_iter().filter(|pbn| *pbn != block.pbn) {
            if !self.confirm(pbn, block.content) || (count > 1 && self.volume.count(pbn) < count) {
                continue;
            }
            self.outcome.found_out_of_line += u64::from(count == 1);
            self.remap(&block, pbn);
            return;
        }
    }

    fn remap(&mut self, block: &Visited, pbn: Pbn) {
        let released = self.volume.share(block.place, pbn);
        self.release(released);
        self.promote(block.tag, pbn);
        self.remapped.push((block.pbn, pbn));
    }

    /// What both levels know of a tag.
    fn holders(&mut self, tag: Tag, on_disk: &[Hint]) -> Vec<Pbn> {
        let mut pbns = Vec::new();
        self.hints.peek(tag, &mut pbns);
        let key = Hint::new(tag, Pbn(0)).tag;
        let start = on_disk.partition_point(|hint| hint.tag < key);
        pbns.extend(on_disk[start..].iter().take_while(|hint| hint.tag == key).map(|hint| hint.pbn));
        pbns
    }

    /// Remaps runs that are worth sharing, of blocks that follow one another in a file. A block that is shared already
    /// stays; one that is not does not hold its own content.
    fn revisit_run(&mut self, blocks: &[Visited], on_disk: &[Hint]) {
        let contents: Vec<Content> = blocks.iter().map(|block| block.content).collect();
        let holders = blocks.iter().map(|block| self.holders_in_order(block, on_disk)).collect();
        let mut holders = self.extended(&contents, holders, None);
        for (holders, block) in holders.iter_mut().zip(blocks).filter(|(_, block)| self.volume.count(block.pbn) == 1) {
            holders.retain(|pbn| *pbn != block.pbn);
        }
        let candidates: Vec<Candidates> = (holders.iter().zip(blocks))
            .map(|(holders, block)| Candidates { holders, current: Some(block.pbn) })
            .collect();
        let run_blocks_min = self.rules.run_blocks_min();
        let decisions = detect(&candidates, RunRule::of(run_blocks_min));
        self.remap_decided(blocks, decisions);
    }

    fn remap_decided(&mut self, blocks: &[Visited], decisions: Vec<Decision>) {
        for (block, decision) in blocks.iter().zip(decisions) {
            let Decision::Share(pbn) = decision else { continue };
            if pbn == block.pbn || self.volume.at(block.place) != Some(block.pbn) || !self.confirm(pbn, block.content) {
                continue;
            }
            self.outcome.found_out_of_line += 1;
            self.remap(block, pbn);
        }
    }

    fn holders_in_order(&mut self, block: &Visited, on_disk: &[Hint]) -> Vec<Pbn> {
        if self.volume.count(block.pbn) > 1 {
            return vec![block.pbn];
        }
        let mut pbns = self.holders(block.tag, on_disk);
        pbns.sort_unstable();
        pbns.dedup();
        pbns
    }

    /// A hint that matched is in memory from now on, and counts as used there.
    fn promote(&mut self, tag: Tag, pbn: Pbn) {
        self.hints.insert(tag, pbn);
        self.hints.lookup(tag, &mut Vec::new());
    }

    /// Removes stale hints from a part of the disk level.
    pub(super) fn sweep(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        for _ in 0..disk.level.pages().div_ceil(SWEEP_SHARE) {
            let volume = &self.volume;
            let is_live = |hints: &[Hint]| {
                let live =
                    |hint: &Hint| volume.content(hint.pbn).is_some_and(|held| Hint::new(held.tag(), hint.pbn) == *hint);
                hints.iter().map(live).collect()
            };
            let swept = sure(disk.level.sweep(&mut disk.pages, disk.swept, is_live));
            disk.swept = swept.next.unwrap_or(Tag(0));
        }
    }
}
