//! A file's budget in the write path: what a request may share, and what it adds to the file's account.

use oncefs_dedup::{Allowance, Candidates, Decision, FilePieces, ShareLimit, Slowdown, detect_within};

use crate::policy::accounts::{Counted, Spender};
use crate::write::batch::Batch;
use crate::write::decide::{Decider, Growth};
use crate::{Lbn, MapId, Pbn};

/// The pieces that a write may add.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// How many.
    pieces: u64,
    /// How many are taken from the account until they are settled.
    taken: u64,
}

impl Decider {
    /// Decides about the blocks of a write within its file's budget, and says how many pieces it took from the account.
    /// Block numbers from `in_batch` on stand for blocks of the write itself.
    pub fn detect_in_budget(
        &self,
        map: MapId,
        slowdown: Slowdown,
        growth: Growth,
        candidates: &[Candidates],
        in_batch: Pbn,
    ) -> (Vec<Decision>, u64) {
        let cost = self.policy.device_reads().piece_cost();
        let accounts = self.policy.accounts();
        let grant = self.grant(map, slowdown, growth);
        let left = grant.pieces;
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
        let from_account = found.pieces.min(grant.taken);
        accounts.settle(map, grant.taken, from_account);
        (found.decisions, from_account)
    }

    /// What a write may add. If the account counts only a part of the file, the blocks that the write replaces pay for
    /// their own pieces: so a large file that is written over shares as a new one does. If they are too few to pay for
    /// any, the account does. The account pays all the same as far as it can: the blocks may be among those it counts,
    /// and what they add is not left to others.
    fn grant(&self, map: MapId, slowdown: Slowdown, growth: Growth) -> Grant {
        let cost = self.policy.device_reads().piece_cost();
        let accounts = self.policy.accounts();
        let left = self.take_pieces(map, slowdown, growth);
        let paid = match accounts.counted(map) {
            Some(Counted::Whole) => 0,
            Some(Counted::Most | Counted::Window | Counted::Few) | None => {
                FilePieces::paid_by(growth.replaced, slowdown, cost)
            }
        };
        Grant { pieces: if paid == 0 { left } else { paid }, taken: left }
    }

    /// Takes all pieces that the account has left, if need be after counting it anew. While the map is locked, an account
    /// that is there stays, and one that is not begins with few leaves: other requests of the file wait.
    fn take_pieces(&self, map: MapId, slowdown: Slowdown, growth: Growth) -> u64 {
        let cost = self.policy.device_reads().piece_cost();
        let accounts = self.policy.accounts();
        let take = || accounts.take(map, growth.blocks, slowdown, cost, Spender::Writer);
        if let Some(left) = take() {
            let is_outdated = growth.replaced > 0 && accounts.note_replaced(map, growth.replaced);
            let is_short = accounts.counted(map) == Some(Counted::Few);
            let serves = !is_short && (left >= growth.replaced || !is_outdated);
            if serves || growth.is_map_locked {
                return left;
            }
            accounts.settle(map, left, 0);
        }
        self.count_at(map, growth);
        // An account that other accounts evicted at once counts as full.
        take().unwrap_or(0)
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
        accounts.set(map, FilePieces::default(), Counted::Whole);
        accounts.note_written(map, batch.added, &own);
    }

    /// Learns that a request is not published, or is decided again: the account no longer includes what it would have
    /// added.
    pub fn give_back(&self, map: MapId, batch: &Batch) {
        self.policy.accounts().give_back(map, batch.in_account);
    }

    fn count_at(&self, map: MapId, growth: Growth) {
        let is_begun = growth.first > Lbn(0) || !growth.is_new;
        if is_begun {
            self.file_policies.count_before(map, growth.first, growth.is_map_locked);
        } else {
            self.policy.accounts().set(map, FilePieces::default(), Counted::Whole);
        }
    }
}
