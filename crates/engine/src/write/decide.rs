//! Look up and decide: which stored blocks may hold the blocks of a batch, and which of the batch's blocks become
//! references. `oncefs_dedup::detect` decides which runs are worth sharing. This file supplies its input and carries
//! out its decisions.
//!
//! A run that is open at the end of a request is continued by the file's next request. It is shared if that makes it
//! long enough, and left to the worker if the file does not go on.

use hashbrown::HashMap;
use oncefs_dedup::{Blocks, Candidates, Decision, Extension, FilePieces, HOLDERS_MAX, RunRule, ShareLimit, detect};

use crate::base::part;
use crate::format::extent_leaf::Target;
use crate::format::page::page_of;
use crate::policy::effective::FilePolicies;
use crate::policy::inline::{OPEN_BLOCKS_MAX, OpenBlock, Stream};
use crate::state::loading::Metadata;
use crate::write::backlog_notes::BacklogNotes;
use crate::write::batch::{Batch, Outcome};
use crate::write::extension::Extender;
use crate::{Lbn, MapId, Pbn, Result, Tag};

/// Stands for an earlier block of the same batch, which has no pbn yet. It is larger than any pbn, so that stored
/// blocks are preferred.
const IN_BATCH: u64 = 1 << 62;

/// Extension of one request stops once its misses in the block table exceed its hits by this many. Each query accesses
/// a page that nothing else needs: if duplicates are isolated, the queries cost more than the rest of the decision.
/// Long duplicates yield mostly hits, so the limit hardly ever cuts them short. Missed blocks are left to the worker.
const EXTENSION_MISSES_MAX: u32 = 32;

/// Runs that cross requests: the decisions about the previous request, and the blocks left open for the next.
#[derive(Default)]
pub struct OpenRuns {
    /// Open blocks of earlier requests whose run is long enough now, and the blocks that will hold them.
    pub shared: Vec<(OpenBlock, Pbn)>,
    /// Those that stay open.
    pub open: Vec<OpenBlock>,
    /// Possible holders of the batch's own open blocks.
    pub holders: Vec<Vec<Pbn>>,
}

/// The growth of a file by one write.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Its first block.
    pub first: Lbn,
    /// Blocks at places that had none.
    pub blocks: u64,
    /// Blocks at places that had others.
    pub replaced: u64,
    /// Whether none of its places held data.
    pub is_new: bool,
    /// Whether the map's lock is held.
    pub is_map_locked: bool,
    /// Whether it is known to end with the file.
    pub is_end: bool,
}

part! {
    /// Decides which blocks of a written request are shared, and remembers the blocks that it leaves open.
    pub struct Decider {
        pub(super) base: inline, hints, policy, staging;
        metadata: Metadata, file_policies: FilePolicies, backlog_notes: BacklogNotes, extender: Extender
    }
}

impl OpenRuns {
    /// The places of open blocks that the request decided about.
    pub fn lbns(&self) -> impl Iterator<Item = Lbn> {
        self.shared.iter().map(|(block, _)| block.lbn).chain(self.open.iter().map(|block| block.lbn))
    }
}

impl Decider {
    /// For each block, the pbns that may hold it according to the hint store, ascending.
    pub fn look_up(&self, batch: &Batch) -> Vec<Vec<Pbn>> {
        let stored = |index: usize| (batch.outcomes[index] != Outcome::Zero).then(|| batch.tags[index]);
        self.hints.look_up((0..batch.len()).map(stored))
    }

    /// Decides for every non-zero block, and for the blocks that the previous request left open.
    pub fn decide(
        &self,
        map: MapId,
        batch: &mut Batch,
        mut holders: Vec<Vec<Pbn>>,
        current: &[Target],
        mut stream: Stream,
    ) -> Result<OpenRuns> {
        assert_eq!(holders.len(), batch.len(), "one list of holders for each block");
        assert_eq!(current.len(), batch.len(), "one target for each block");
        self.extend_batch(batch, &mut holders, &mut stream);
        let unchanged = self.current_with_same_tag(batch, current);
        for (holders, current) in holders.iter_mut().zip(&unchanged) {
            // The map's own block is a candidate even if no hint names it (any more).
            if let Some(pbn) = current.filter(|pbn| !holders.contains(pbn)) {
                holders.insert(holders.partition_point(|holder| *holder < pbn), pbn);
            }
        }
        add_earlier_equals(batch, &mut holders);
        if holders.iter().all(Vec::is_empty) && stream.open.is_empty() {
            // No holder is known for any of the blocks: all are stored anew.
            return Ok(OpenRuns::default());
        }
        let limit = self.file_policies.limit_by(map, batch.policy);
        let run_blocks_min = if let ShareLimit::Runs(blocks) = limit { blocks } else { 1 };
        let rule = self.run_rule(map, batch, &stream, current, run_blocks_min)?;
        let before = shared_before(&stream, rule.run_blocks_min);
        // Zero blocks take no space in the data area, so a run continues past them.
        let stored = batch.indexes(|outcome| outcome != Outcome::Zero);
        let open = stream.open.iter().map(|block| Candidates { holders: &block.holders, current: None });
        let new = stored.iter().map(|index| Candidates { holders: &holders[*index], current: unchanged[*index] });
        let candidates: Vec<Candidates> = before
            .iter()
            .map(|pbn| Candidates { holders: std::slice::from_ref(pbn), current: Some(*pbn) })
            .chain(open)
            .chain(new)
            .collect();
        let decisions = match limit {
            ShareLimit::Runs(_) => detect(&candidates, rule),
            ShareLimit::Budget(slowdown) => {
                let growth = self.growth(map, batch, current)?;
                let (decisions, pieces) = self.detect_in_budget(map, slowdown, growth, &candidates, Pbn(IN_BATCH));
                // The account includes them from now on.
                batch.in_account = FilePieces { blocks: std::mem::take(&mut batch.added), pieces };
                decisions
            }
        };
        assert_eq!(decisions.len(), candidates.len(), "one decision for each candidate");
        let (of_open, of_new) = decisions[before.len()..].split_at(stream.open.len());
        let mut open_runs = settle_open(&stream, of_open);
        let is_final = matches!(limit, ShareLimit::Runs(_));
        for (index, decision) in stored.into_iter().zip(of_new) {
            take_in(batch, index, *decision, is_final);
        }
        open_runs.holders = batch.open.iter().map(|index| std::mem::take(&mut holders[*index])).collect();
        Ok(open_runs)
    }

    /// Adds holders that no hint names: neighbours of known ones, found in the block table.
    fn extend_batch(&self, batch: &Batch, holders: &mut [Vec<Pbn>], stream: &mut Stream) {
        let names_all = self.hints.memory_names_all();
        let seeds = self.places_behind(batch, stream, names_all);
        if seeds.is_empty() && stream.open.is_empty() && holders.iter().all(Vec::is_empty) {
            return;
        }
        let is_full = |holders: &Vec<Pbn>| holders.len() >= HOLDERS_MAX;
        if names_all && !holders.iter().chain(stream.open.iter().map(|block| &block.holders)).any(is_full) {
            return;
        }
        let stored = batch.indexes(|outcome| outcome != Outcome::Zero);
        let new = stored.iter().map(|index| (batch.tags[*index], std::mem::take(&mut holders[*index])));
        let open = stream.open.iter_mut().map(|block| (block.tag, std::mem::take(&mut block.holders)));
        let (tags, known): (Vec<Tag>, Vec<Vec<Pbn>>) = open.chain(new).unzip();
        let extension = Extension::new(&tags, known, &seeds);
        let extension = if names_all { extension.of_complete_hints() } else { extension };
        let mut extended = self.extender.extended(extension, EXTENSION_MISSES_MAX).into_iter();
        for block in &mut stream.open {
            block.holders = extended.next().expect("each block has a list of holders");
            // Its temporary place is no reason to keep it there.
            block.holders.retain(|pbn| *pbn != block.pbn);
        }
        for (index, extended) in stored.into_iter().zip(extended) {
            holders[index] = extended;
        }
    }

    /// Possible holders of a request's first block, judging by earlier writes: of the same file, or, if the file begins
    /// here and hints may not name the block, of other files.
    fn places_behind(&self, batch: &Batch, stream: &Stream, names_all: bool) -> Vec<Pbn> {
        match stream.shared_end {
            Some(end) => vec![end.plus(1)],
            None if names_all || batch.first > Lbn(0) => Vec::new(),
            None => self.inline.begin_file(),
        }
    }

    /// The shortest run worth sharing in this request, and whether a run at its end stays open. If a file is known from
    /// its beginning and equals one run as a whole, it is shared however short it is, provided that its policy shares
    /// ends: it stays one piece. A file's end is known if its last block is overwritten. A file that grows may go on.
    fn run_rule(
        &self,
        map: MapId,
        batch: &Batch,
        stream: &Stream,
        current: &[Target],
        run_blocks_min: u32,
    ) -> Result<RunRule> {
        let stored = batch.indexes(|outcome| outcome != Outcome::Zero);
        let is_data = |target: &Target| matches!(target, Target::Data(_));
        let end_blocks_min = match stored.last() {
            Some(&last) if batch.policy.shares_ends && is_data(&current[last]) => {
                self.file_policies.end_chunk_min(map, batch.first.plus(last as u64))?
            }
            _ => None,
        };
        let is_new = !current.iter().any(is_data);
        let stored = stored.len() + stream.open.len();
        let first = stream.open.first().map_or(batch.first, |block| block.lbn);
        let is_whole = first == Lbn(0) && is_new && batch.policy.shares_ends;
        let run_blocks_min = if is_whole { run_blocks_min.min(stored.max(1) as u32) } else { run_blocks_min };
        Ok(RunRule { run_blocks_min, end_blocks_min, may_go_on: true })
    }

    /// The growth of the file by this batch.
    fn growth(&self, map: MapId, batch: &Batch, current: &[Target]) -> Result<Growth> {
        let is_data = |target: &Target| matches!(target, Target::Data(_));
        let is_end = match batch.outcomes.iter().rposition(|outcome| *outcome != Outcome::Zero) {
            Some(last) if is_data(&current[last]) => self.metadata.is_end(map, batch.first.plus(last as u64))?,
            _ => false,
        };
        let replaced = batch.indexes(|outcome| outcome != Outcome::Zero);
        let replaced = replaced.into_iter().filter(|index| is_data(&current[*index])).count() as u64;
        let is_new = !current.iter().any(is_data);
        let (first, blocks, is_map_locked) = (batch.first, batch.added, batch.is_map_locked);
        Ok(Growth { first, blocks, replaced, is_new, is_map_locked, is_end })
    }

    /// Blocks whose present pbn may already hold them: the table has the same tag there.
    fn current_with_same_tag(&self, batch: &Batch, current: &[Target]) -> Vec<Option<Pbn>> {
        let mapped = |index: usize| match current[index] {
            Target::Data(pbn) if batch.outcomes[index] != Outcome::Zero => Some(pbn),
            _ => None,
        };
        if (0..batch.len()).all(|index| mapped(index).is_none()) {
            return vec![None; batch.len()];
        }
        let pages = || (0..batch.len()).filter_map(mapped).map(page_of).collect();
        self.metadata.with_readable_pages(pages, |pages| {
            let same_tag = |index: usize| {
                mapped(index).filter(|pbn| {
                    let entry = pages.entry(*pbn);
                    entry.is_some_and(|entry| entry.count > 0 && entry.tag == batch.tags[index])
                })
            };
            (0..batch.len()).map(same_tag).collect()
        })
    }

    /// Remembers the blocks that a published request left open.
    pub fn leave_open(&self, map: MapId, batch: &Batch, open_runs: OpenRuns) {
        let new = batch.open.iter().zip(open_runs.holders).filter_map(|(&index, holders)| {
            let (lbn, tag) = (batch.first.plus(index as u64), batch.tags[index]);
            Some(OpenBlock { lbn, pbn: batch.pbn(index)?, tag, holders: placed(batch, holders) })
        });
        let open = open_runs.open.into_iter().chain(new).collect();
        let shared_end = match batch.outcomes.iter().rfind(|outcome| **outcome != Outcome::Zero) {
            Some(Outcome::Share(pbn)) => Some(*pbn),
            _ => None,
        };
        self.inline.end_request(
            map,
            Blocks(batch.indexes(|outcome| outcome != Outcome::Zero).len() as u64),
            shared_end,
        );
        self.keep_stream(map, Stream { next: batch.first.plus(batch.len() as u64), open, shared_end });
    }
}

/// Adds to each block's holders the earlier blocks of the batch that equal it.
fn add_earlier_equals(batch: &Batch, holders: &mut [Vec<Pbn>]) {
    let mut first_with: HashMap<Tag, usize> = HashMap::new();
    let mut equals: HashMap<usize, Vec<Pbn>> = HashMap::new();
    for index in batch.indexes(|outcome| outcome != Outcome::Zero) {
        let first = *first_with.entry(batch.tags[index]).or_insert(index);
        if first == index || batch.block(first) != batch.block(index) {
            continue;
        }
        let equals = equals.entry(first).or_insert_with(|| vec![in_batch(first)]);
        let room = HOLDERS_MAX.saturating_sub(holders[index].len());
        holders[index].extend(equals.iter().take(room));
        equals.push(in_batch(index));
    }
}

fn in_batch(index: usize) -> Pbn {
    Pbn(IN_BATCH + index as u64)
}

/// Holders as the next request sees them: earlier blocks of this one have their pbns now.
fn placed(batch: &Batch, holders: Vec<Pbn>) -> Vec<Pbn> {
    let place = |pbn: Pbn| pbn.0.checked_sub(IN_BATCH).map_or(Some(pbn), |index| batch.pbn(index as usize));
    let mut placed: Vec<Pbn> = holders.into_iter().filter_map(place).collect();
    placed.sort_unstable();
    placed.dedup();
    placed
}

/// The end of the run that the previous request shared, as far as it matters: a run that continues there is longer by
/// as much.
fn shared_before(stream: &Stream, run_blocks_min: u32) -> Vec<Pbn> {
    let Some(end) = stream.shared_end.filter(|_| stream.open.is_empty()) else { return Vec::new() };
    let blocks = u64::from(run_blocks_min).min(end.0);
    (0..blocks).rev().map(|back| Pbn(end.0 - back)).collect()
}

/// The result for the blocks that were open.
fn settle_open(stream: &Stream, decisions: &[Decision]) -> OpenRuns {
    let mut open_runs = OpenRuns::default();
    for (block, decision) in stream.open.iter().zip(decisions) {
        match decision {
            Decision::Share(pbn) => open_runs.shared.push((block.clone(), *pbn)),
            Decision::Open => open_runs.open.push(block.clone()),
            Decision::Unknown | Decision::Refused => {}
        }
    }
    open_runs
}

/// The result for a block of the batch. Refused blocks are left to the worker unless the refusal is final: the worker
/// may find room in the budget once the whole file is known.
fn take_in(batch: &mut Batch, index: usize, decision: Decision, is_final: bool) {
    batch.outcomes[index] = match decision {
        Decision::Share(pbn) if pbn.0 >= IN_BATCH => {
            let earlier = (pbn.0 - IN_BATCH) as usize;
            assert!(earlier < index, "block {index} is the twin of block {earlier}, which does not come before it");
            match batch.outcomes[earlier] {
                Outcome::Twin(first) => Outcome::Twin(first),
                _ => Outcome::Twin(earlier),
            }
        }
        Decision::Share(pbn) => Outcome::Candidate(pbn),
        Decision::Unknown | Decision::Refused | Decision::Open => Outcome::Anew(None),
    };
    match decision {
        Decision::Refused if is_final => batch.refused.push(index),
        Decision::Open => batch.open.push(index),
        Decision::Share(_) | Decision::Unknown | Decision::Refused => {}
    }
}

impl Decider {
    /// The blocks that the file's last request left open, if this one continues there. Blocks that left memory, and
    /// those before them, are decided already. As the file does go on, the worker checks how far their run reaches.
    pub fn take_stream(&self, map: MapId, at: Lbn) -> Stream {
        let mut stream = self.inline.take_stream(map, at);
        let decided = stream.open.iter().rposition(|block| self.staging.get(block.pbn).is_none());
        if let Some(last) = decided {
            self.backlog_notes.leave_to_worker(map, stream.open.drain(..=last).map(|block| block.lbn));
        }
        stream
    }

    /// Remembers a stream. Blocks beyond its limit, and a stream that is forgotten for it, are left to the worker.
    pub fn keep_stream(&self, map: MapId, mut stream: Stream) {
        let too_many = stream.open.len().saturating_sub(OPEN_BLOCKS_MAX);
        if too_many > 0 {
            self.backlog_notes.leave_to_worker(map, stream.open.drain(..).map(|block| block.lbn));
        }
        let forgotten = self.inline.keep_stream(map, stream);
        if let Some((map, stream)) = forgotten.filter(|(_, stream)| !stream.open.is_empty()) {
            self.backlog_notes.leave_to_worker(map, stream.open.iter().map(|block| block.lbn));
        }
    }
}
