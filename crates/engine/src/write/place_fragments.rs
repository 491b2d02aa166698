//! Place: fragments of a write get numbers and room, and their packs are written. Nothing is visible yet.

use std::sync::atomic::Ordering::Relaxed;

use crate::place::free_blocks::Claim;
use crate::place::write_out::Look;
use crate::space::allocator::{Run, blocks_in};
use crate::write::batch::{Batch, Outcome};
use crate::write::packed::{Packed, Placed};
use crate::write::place::Placer;
use crate::{BLOCK_BYTES, Error, Pbn, Result};

/// Claimed room with fragments in it.
struct Room {
    placed: Placed,
    /// How many of its blocks replace reserved ones.
    from_reserved: u64,
}

impl Placer {
    /// Places fragments, of which `from_reserved` replace reserved blocks, and returns what they take: numbers and
    /// blocks. If there are no numbers, or if free space is so scattered that nothing would be saved, it takes nothing,
    /// and the blocks stay uncompressed.
    pub fn place_fragments(&self, batch: &mut Batch, packed: Packed, from_reserved: u64) -> Result<Vec<Run>> {
        let numbers = match self.free_blocks.take_numbers(packed.len()) {
            Err(Error::NoSpace) => return Ok(Vec::new()),
            numbers => numbers?,
        };
        let room = self.room_for(&packed, from_reserved);
        let Ok(Some(Room { placed, from_reserved })) = room else {
            self.free_blocks.give_back_numbers(&numbers);
            return room.map(|_| Vec::new());
        };
        let each: Vec<Pbn> = numbers.iter().flat_map(|run| run.pbns()).collect();
        // Directories get their orders after the numbers are taken.
        let order = || self.free_blocks.pack_order();
        let content = packed.sealed(&placed, &each, &batch.tags, order, |bytes| self.hasher.tag(bytes).0);
        let indexes = packed.indexes().to_vec();
        drop(packed);
        let claimed = blocks_in(&placed.used) - from_reserved;
        for (index, number) in indexes.iter().zip(&each) {
            batch.outcomes[*index] = Outcome::Anew(Some(*number));
        }
        self.announce(batch, &indexes, numbers.clone());
        if let Err(error) = self.write_packs(batch, &indexes, &placed.used, &content) {
            self.free_blocks.unclaim(claimed);
            self.give_back([numbers, placed.used].concat().as_slice());
            return Err(error);
        }
        batch.from_reserved += from_reserved;
        batch.claimed += claimed;
        batch.fragments.extend(placed.places.iter().copied());
        let counters = &self.stats.counters;
        counters.blocks_placed.fetch_add(indexes.len() as u64, Relaxed);
        counters.blocks_compressed_inline.fetch_add(indexes.len() as u64, Relaxed);
        Ok([numbers, placed.used].concat())
    }

    /// Claims and allocates room for fragments: as many adjacent blocks as they need, and more if these lie scattered.
    /// None: they would need as much as uncompressed.
    fn room_for(&self, packed: &Packed, from_reserved: u64) -> Result<Option<Room>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut more = packed.blocks();
        let reserved = |blocks: u64| from_reserved.min(blocks);
        loop {
            let before = blocks_in(&runs);
            let claimed = before - reserved(before);
            if before + more >= packed.len() {
                self.free_blocks.unclaim(claimed);
                self.give_back(&runs);
                return Ok(None);
            }
            let claim = Claim::Ordinary { from_reserved: reserved(before + more) - reserved(before) };
            match self.free_blocks.allocate(more, claim) {
                Ok(found) => runs.extend(found),
                Err(error) => {
                    self.free_blocks.unclaim(claimed);
                    self.give_back(&runs);
                    return Err(error);
                }
            }
            match packed.lay_out(&runs) {
                Err(missing) => more = missing,
                Ok(placed) => {
                    let (all, used) = (blocks_in(&runs), blocks_in(&placed.used));
                    self.free_blocks.unclaim((all - reserved(all)) - (used - reserved(used)));
                    self.give_back(&placed.unused);
                    return Ok(Some(Room { placed, from_reserved: reserved(used) }));
                }
            }
        }
    }

    /// Writes packs to their runs. Fingerprints of their blocks are computed while the device writes.
    fn write_packs(&self, batch: &mut Batch, indexes: &[usize], runs: &[Run], content: &[u8]) -> Result<()> {
        let hashes = batch.fingerprints_all;
        let mut hash = |_: &[u8]| self.fingerprint(batch, indexes);
        let mut blocks = content.chunks_exact(BLOCK_BYTES);
        for run in runs {
            let look: Option<Look<'_>> = if hashes { Some(&mut hash) } else { None };
            self.block_writer.write_run_while(*run, &mut blocks, look)?;
        }
        Ok(())
    }

    fn give_back(&self, runs: &[Run]) {
        self.free_blocks.give_back_unclaimed(runs);
    }
}
