//! Replicas of blocks that very many files refer to: one bad sector must not damage a thousand files.
//!
//! The scrub makes and drops them. A record names the replica of a block and holds the replica's one reference. The
//! block's entry is flagged. A replica serves no map: it has no hint, and no write shares it.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::format::damage_records;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys;
use crate::format::page::{COPIED, Entry, REPLICA};
use crate::place::free_blocks::FreeBlocks;
use crate::read::replicas::ReplicaReader;
use crate::space::allocator::{Run, blocks_in};
use crate::state::flag_change::FlagChange;
use crate::state::loading::Metadata;
use crate::state::published::{Incref, Plan, StoredBlock};
use crate::write::publish::Publisher;
use crate::{BLOCK_BYTES, Error, Fingerprint, Pbn, Result};

/// Records read at a time.
const PORTION: usize = 256;

/// A block that was just found to be sound.
pub struct SoundBlock<'a> {
    /// The block.
    pub pbn: Pbn,
    /// Its entry in the table.
    pub entry: Entry,
    /// The fingerprint of its content.
    pub fingerprint: Fingerprint,
    /// Its content.
    pub bytes: &'a [u8],
}

part! {
    /// Makes and drops replicas.
    pub struct Replicas {
        base: data, tuning, stats, damage;
        metadata: Metadata, replica_reader: ReplicaReader, free_blocks: FreeBlocks, publisher: Publisher
    }
}

impl Replicas {
    /// For a block that is becoming bad: its replica becomes its replacement, and the replica's record is removed. A
    /// replica that is damaged too is removed with it.
    pub fn take_over_replica(&self, pbn: Pbn, entry: &Entry, plan: &mut Plan) -> Result<Option<Pbn>> {
        if !entry.is_copied() {
            return Ok(None);
        }
        let Some(copy) = self.replica_reader.replica_of(pbn)?.filter(|copy| self.metadata.known_entry(*copy).is_some())
        else {
            return Ok(None);
        };
        plan.change.delete(keys::copy(pbn));
        let is_sound = self.replica_reader.read_replica(pbn, &mut self.data.take_buffer(BLOCK_BYTES));
        match is_sound {
            true => plan.flags.push(FlagChange::clear(copy, u8::MAX)),
            false => plan.record_decrefs.push(copy),
        }
        Ok(is_sound.then_some(copy))
    }

    /// Makes replicas of blocks with enough references. On a full volume it makes none.
    pub fn make_replicas(&self, blocks: &[SoundBlock<'_>]) -> Result<()> {
        let above = self.tuning.with(|settings| settings.replicate_refs_above);
        let is_wanted = |entry: &Entry| {
            above > 0 && u64::from(entry.count) > above && entry.serves(entry.tag) && !entry.is_copied()
        };
        for block in blocks.iter().filter(|block| is_wanted(&block.entry)) {
            match self.make_replica(block) {
                Err(Error::NoSpace) => return Ok(()),
                other => other?,
            }
        }
        Ok(())
    }

    fn make_replica(&self, block: &SoundBlock<'_>) -> Result<()> {
        let SoundBlock { pbn, entry, bytes, .. } = block;
        assert!(entry.count > 0 && !entry.is_copied(), "block {pbn} with {} references gets a replica", entry.count);
        assert_eq!(bytes.len(), BLOCK_BYTES, "the bytes of block {pbn}");
        self.publisher.room().wait_for_background_room();
        let run = self.free_blocks.allocate_far(block.pbn)?;
        assert_eq!(run.blocks, 1, "a replica of block {pbn} lies at {run:?}");
        self.free_blocks
            .write_run(run, &mut std::iter::once(block.bytes))
            .inspect_err(|_| self.free_blocks.give_back(&[run]))?;
        let (tag, fingerprint) = (block.entry.tag, Some(block.fingerprint));
        let mut plan = Plan {
            expected: vec![Incref { pbn: block.pbn, tag }],
            record_stores: vec![StoredBlock { pbn: run.pbn, tag, fingerprint }],
            flags: vec![FlagChange::set(run.pbn, REPLICA), FlagChange::set(block.pbn, COPIED)],
            ..Plan::default()
        };
        // A replica that outlived an earlier content of this block.
        plan.record_decrefs.extend(
            self.replica_reader.replica_of(block.pbn)?.filter(|copy| self.metadata.known_entry(*copy).is_some()),
        );
        plan.change.put(keys::copy(block.pbn), damage_records::encode_replica(run.pbn));
        let is_made = self.publish_repair(plan, &[run])?;
        self.stats.counters.replicas_made.fetch_add(u64::from(is_made), Relaxed);
        Ok(())
    }

    /// Drops replicas whose blocks are gone, or have fewer than half of the references that call for one, from a key
    /// on. Returns where to continue.
    pub fn drop_stale_replicas(&self, from: &[u8]) -> Result<Option<Vec<u8>>> {
        let above = self.tuning.with(|settings| settings.replicate_refs_above);
        let (_, to) = keys::all_replicas();
        let records = self.metadata.scan(from, &to, PORTION)?;
        for (key, value) in &records {
            let (Some(pbn), Some(copy)) = (keys::parse_replica(key), damage_records::decode_replica(value)) else {
                log::error!("{}", Error::corrupt("the record of a replica", "its checksum does not match"));
                continue;
            };
            // It is unknown whether the replica is needed, so it stays until fsck has rebuilt the entries.
            let (Some(entry), Some(of_copy)) = (self.metadata.known_entry(pbn), self.metadata.known_entry(copy)) else {
                continue;
            };
            let is_bad = of_copy.is_bad() || of_copy.tag != entry.tag;
            if is_bad || !entry.is_copied() || above == 0 || u64::from(entry.count) < above / 2 {
                self.damage.pass_over_contradiction(self.drop_replica(pbn, &entry, copy))?;
            }
        }
        let last = records.last().filter(|_| records.len() == PORTION);
        Ok(last.map(|(key, _)| [key.as_slice(), &[0]].concat()))
    }

    /// Drops the replica of a block that lost its last reference.
    pub fn drop_orphaned_replica(&self, pbn: Pbn) -> Result<()> {
        let Some(entry) = self.metadata.known_entry(pbn) else { return Ok(()) };
        match self.replica_reader.replica_of(pbn)? {
            Some(copy) if !entry.is_copied() && self.metadata.known_entry(copy).is_some() => {
                self.drop_replica(pbn, &entry, copy)
            }
            _ => Ok(()),
        }
    }

    fn drop_replica(&self, pbn: Pbn, entry: &Entry, copy: Pbn) -> Result<()> {
        self.publisher.room().wait_for_background_room();
        let mut plan = Plan { record_decrefs: vec![copy], ..Plan::default() };
        if entry.is_copied() {
            plan.flags.push(FlagChange::clear(pbn, COPIED));
        }
        plan.change.delete(keys::copy(pbn));
        self.publisher.claim_and_apply(GroupBytes::SMALL, plan)?;
        self.stats.counters.replicas_dropped.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Publishes a plan, with blocks placed for it. False: the table contradicts it by now.
    pub fn publish_repair(&self, plan: Plan, runs: &[Run]) -> Result<bool> {
        let plan = Plan { claimed: blocks_in(runs), ..plan };
        let published = self.publisher.claim_and_publish(GroupBytes::SMALL, plan).map(|refusal| refusal.is_none());
        if !matches!(published, Ok(true)) {
            self.free_blocks.give_back(runs);
        }
        published
    }
}
