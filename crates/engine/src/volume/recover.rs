//! Recovery: the checkpoint plus the groups that follow it in the log give the last commit.
//!
//! The last group may be in the log without having been flushed. It is made durable before anything else happens,
//! because programs may read it, and a checkpoint or a reused block may build on it. A crash before that leaves this
//! group or the one before; after it, this group.
//!
//! Only the log is read. Changes to pages and leaves are kept as redo and applied when the object is first read, so
//! that a large volume opens as fast as a small one.

use std::ops::Range;

use crate::commit::log::Recovered;
use crate::format::extent_leaf::{Extent, LEAF_BLOCKS, Target};
use crate::format::fragment::is_number;
use crate::format::keys;
use crate::format::keys::LeafKey;
use crate::format::ops::{Op, OpReader};
use crate::format::page::{PAGE_ENTRIES, page_of};
use crate::state::published::State;
use crate::state::staging::Staging;
use crate::state::table::Redo;
use crate::{Blocks, Error, Pbn, Result, Tag};

/// Results of recovery beside the state itself.
#[derive(Default)]
pub struct Found {
    /// New blocks of the log's groups, for the hint store.
    pub stored: Vec<(Tag, Pbn)>,
}

/// Applies the groups of the log to the state that the checkpoint left.
pub fn replay(state: &mut State, staging: &Staging, records: &[Recovered]) -> Result<Found> {
    let mut found = Found::default();
    for record in records {
        let sequence = record.header.sequence;
        let before = state.durable_sequence;
        assert_eq!(sequence, before + 1, "group {sequence} is replayed after {before}");
        let mut ops = OpReader::new(&record.ops);
        for op in ops.by_ref() {
            if names_nothing(&op, record.header.totals.data) {
                return Err(Error::corrupt(
                    format!("group {sequence} in the log"),
                    format!("{op:?} lies outside the data area"),
                ));
            }
            replay_op(state, staging, sequence, &op, &mut found);
        }
        if ops.is_damaged() {
            return Err(Error::corrupt(
                format!("group {sequence} in the log"),
                "its checksum matches but its operations do not",
            ));
        }
        state.totals = record.header.totals;
        state.durable_sequence = sequence;
    }
    state.records.end_group();
    Ok(found)
}

/// Whether an operation refers to the label, block 0, or to something that is neither in the data area nor a fragment.
fn names_nothing(op: &Op<'_>, data: Blocks) -> bool {
    let is_nothing = |blocks: Range<u64>| {
        let is_of_fragments = blocks.clone().all(|number| is_number(Pbn(number)));
        !blocks.is_empty() && (blocks.start == 0 || blocks.end > data.0) && !is_of_fragments
    };
    let lies_outside = matches!(op, Op::Fragment { pbn, place, .. } | Op::Place { pbn, place }
        if !is_number(*pbn) || place.pack_end().0 >= data.0);
    lies_outside || is_nothing(blocks_of(op))
}

/// The blocks, or the fragments, that an operation refers to.
fn blocks_of(op: &Op<'_>) -> Range<u64> {
    match *op {
        Op::Store { pbn, .. } | Op::Fingerprint { pbn, .. } | Op::Flags { pbn, .. } | Op::Data { pbn, .. } => {
            pbn.0..pbn.plus(1).0
        }
        Op::Count { pbn, blocks, .. } | Op::Pack { pbn, blocks } => pbn.0..pbn.plus(blocks).0,
        Op::Fragment { pbn, .. } | Op::Place { pbn, .. } | Op::PackBytes { pbn, .. } => pbn.0..pbn.plus(1).0,
        Op::Map { blocks, target: Target::Data(pbn), .. } => pbn.0..pbn.plus(u64::from(blocks)).0,
        Op::Map { .. } | Op::Put { .. } | Op::Delete { .. } | Op::DropLeaf { .. } => 0..0,
    }
}

fn replay_op(state: &mut State, staging: &Staging, sequence: u64, op: &Op<'_>, found: &mut Found) {
    match *op {
        Op::Put { key, value } => put(state, key, Some(value.to_vec())),
        Op::Delete { key } => put(state, key, None),
        Op::Store { pbn, tag, fingerprint } => {
            // New content replaces the data of an earlier group. Only records older than the log get here.
            if state.logged.remove(&pbn) {
                staging.remove([pbn]);
            }
            found.stored.push((tag, pbn));
            state.table.add_redo(sequence, Redo::Store(pbn, tag, fingerprint));
        }
        Op::Count { pbn, blocks, count } => {
            // No reader has a block that was freed before the crash, and no checkpoint places it. It waits for the
            // trim.
            if count == 0 && !staging.has_none(pbn, blocks) {
                staging.remove((pbn.0..pbn.0 + blocks).map(Pbn));
            }
            let mut at = pbn;
            while at.0 < pbn.0 + blocks {
                let page_end = (page_of(at) + 1) * PAGE_ENTRIES;
                let part = page_end.min(pbn.0 + blocks) - at.0;
                debug_assert!((1..=PAGE_ENTRIES).contains(&part), "{part} entries of a page");
                state.table.add_redo(sequence, Redo::Count(at, part, count));
                at = at.plus(part);
            }
        }
        Op::Fragment { pbn, place, tag, fingerprint } => {
            found.stored.push((tag, pbn));
            state.table.add_redo(sequence, Redo::Fragment(pbn, place, tag, fingerprint));
        }
        Op::Place { pbn, place } => state.table.add_redo(sequence, Redo::Place(pbn, place)),
        Op::PackBytes { pbn, bytes } => state.table.add_redo(sequence, Redo::PackBytes(pbn, bytes)),
        Op::Pack { pbn, blocks } => {
            for pbn in (pbn.0..pbn.0 + blocks).map(Pbn) {
                // As where a block is stored: data of an earlier group is replaced.
                if state.logged.remove(&pbn) {
                    staging.remove([pbn]);
                }
                state.table.add_redo(sequence, Redo::Pack(pbn));
            }
        }
        Op::Fingerprint { pbn, fingerprint } => state.table.add_redo(sequence, Redo::Fingerprint(pbn, fingerprint)),
        Op::Flags { pbn, flags } => state.table.add_redo(sequence, Redo::Flags(pbn, flags)),
        Op::Map { map, lbn, blocks, target } => {
            let key = LeafKey { map, leaf: lbn.0 / LEAF_BLOCKS };
            state.leaves.add_redo(key, Extent { first: (lbn.0 % LEAF_BLOCKS) as u16, blocks, target });
        }
        Op::DropLeaf { key } => state.leaves.add_redo_drop(key),
        Op::Data { pbn, bytes } => {
            staging.put(pbn, bytes);
            state.logged.insert(pbn);
        }
    }
}

fn put(state: &mut State, key: &[u8], value: Option<Vec<u8>>) {
    if let Some(map) = keys::parse_detached(key)
        && value.is_some()
    {
        state.remember_detached(map);
    }
    state.records.put(key.to_vec(), value);
}
