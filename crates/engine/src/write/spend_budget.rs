//! A file's budget in the write path: what a request may share, and what it adds to the file's account.

use oncefs_dedup::{Allowance, Candidates, Decision, FilePieces, ShareLimit, Slowdown, detect_within};

use crate::policy::accounts::Spender;
use crate::write::batch::Batch;
use crate::write::decide::{Decider, Growth};
use crate::{Lbn, MapId, Pbn};

impl Decider {
    /// Decides about the blocks of a write within its file's budget. Block numbers from `in_batch` on stand for blocks
    /// of the write itself.
    pub fn detect_in_budget(
        &self,
        map: MapId,
        slowdown: Slowdown,
        growth: Growth,
        candidates: &[Candidates],
        in_batch: Pbn,
    ) -> Vec<Decision> {
        let cost = self.policy.device_reads().piece_cost();
        let accounts = self.policy.accounts();
        let take = || accounts.take(map, growth.blocks, slowdown, cost, Spender::Writer);
        let left = take().or_else(|| {
            accounts.set(map, self.account_at(map, growth));
            take()
        });
        // An account that other accounts evicted at once counts as full.
        let left = left.unwrap_or(0);
        let own = accounts.own(map);
        let within = |is_free: &dyn Fn(usize, Pbn) -> bool| {
            let gap_blocks_max = cost.gap_blocks_max();
            detect_within(candidates, &Allowance { pieces_max: left, gap_blocks_max, is_end: growth.is_end, is_free })
        };
        let is_own = |pbn: Pbn| pbn >= in_batch || own.contain(pbn);
        let mut found = within(&|_, pbn| is_own(pbn));
        if found.refused > 0 {
            let in_memory = self.file_policies.in_every_memory(candidates);
            if !in_memory.is_empty() {
                found = within(&|_, pbn| is_own(pbn) || in_memory.contains(&pbn));
            }
        }
        assert!(found.pieces <= left, "{} pieces are taken of {left}", found.pieces);
        accounts.give_back(map, left - found.pieces);
        found.decisions
    }

    /// Learns that a write was published: its file grows by it, if the file has a budget. The account of a new file
    /// begins here.
    pub fn note_growth(&self, map: MapId, batch: &Batch) {
        if !matches!(batch.policy.limit, ShareLimit::Budget(_)) {
            return;
        }
        let (accounts, own) = (self.policy.accounts(), batch.own_runs());
        if accounts.note_written(map, batch.added, &own) || batch.first > Lbn(0) || !batch.is_all_added() {
            return;
        }
        accounts.set(map, FilePieces::default());
        accounts.note_written(map, batch.added, &own);
    }

    fn account_at(&self, map: MapId, growth: Growth) -> FilePieces {
        let is_begun = growth.first > Lbn(0) || !growth.is_new;
        if is_begun { self.file_policies.account_before(map, growth.first) } else { FilePieces::default() }
    }
}
