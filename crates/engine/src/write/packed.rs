//! The fragments of one write, and how they lie on the data area: one behind the other, in packs of up to 64 KiB that
//! end with directories.

use std::ops::Range;

use oncefs_compress::Coding;

use crate::format::fragment::{FragmentPlace, PACK_BLOCKS_MAX};
use crate::format::pack_directory::{FRAGMENTS_MAX, Listed, PackDirectory, directory_bytes};
use crate::space::allocator::Run;
use crate::{BLOCK_BYTES, Pbn, Tag};

/// The fragments of some blocks of a batch, in their order.
pub struct Packed {
    /// How they are compressed.
    coding: Coding,
    /// The blocks in the batch.
    indexes: Vec<usize>,
    /// The length of each fragment.
    lengths: Vec<u16>,
    /// The fragments, without gaps.
    bytes: Vec<u8>,
}

/// A pack in its place.
struct PlacedPack {
    run: Run,
    /// Its fragments, by their order in the write.
    fragments: Range<usize>,
}

/// Fragments with their places.
pub struct Placed {
    packs: Vec<PlacedPack>,
    /// The blocks in the batch, each with the place of its fragment.
    pub places: Vec<(usize, FragmentPlace)>,
    /// The blocks of packs. Each holds a fragment.
    pub used: Vec<Run>,
    /// The other blocks of the runs.
    pub unused: Vec<Run>,
}

impl Packed {
    /// No fragments yet.
    pub fn new(coding: Coding) -> Self {
        Self { coding, indexes: Vec::new(), lengths: Vec::new(), bytes: Vec::new() }
    }

    /// Appends the fragment of a block.
    pub fn add(&mut self, index: usize, fragment: &[u8]) {
        debug_assert!(self.indexes.last().is_none_or(|last| *last < index), "block {index} is out of order");
        self.indexes.push(index);
        self.lengths.push(fragment.len() as u16);
        self.bytes.extend_from_slice(fragment);
    }

    /// How many fragments there are.
    pub fn len(&self) -> u64 {
        self.indexes.len() as u64
    }

    /// The blocks in the batch.
    pub fn indexes(&self) -> &[usize] {
        &self.indexes
    }

    /// How many adjacent blocks they need.
    pub fn blocks(&self) -> u64 {
        let room = Run { pbn: Pbn(0), blocks: self.len() };
        let packs = packs_in(&self.lengths, &[room]).expect("a block has room for a fragment with a directory");
        packs.iter().map(|pack| pack.run.blocks).sum()
    }

    /// Places all fragments in these runs, from the first run on. Err: how many blocks are missing at least.
    pub fn lay_out(&self, runs: &[Run]) -> Result<Placed, u64> {
        let packs = packs_in(&self.lengths, runs)?;
        let places = packs.iter().flat_map(|pack| self.places_in(pack)).collect();
        let (used, unused) = cut_after(runs, packs.last().map(|pack| Pbn(pack.run.end().0 - 1)));
        Ok(Placed { packs, places, used, unused })
    }

    fn places_in(&self, pack: &PlacedPack) -> Vec<(usize, FragmentPlace)> {
        let mut at = pack.run.pbn.0 * BLOCK_BYTES as u64;
        let place = |n: usize| {
            let (bytes, blocks_after) = (self.lengths[n], (pack.run.end().0 - 1 - at / BLOCK_BYTES as u64) as u8);
            let place = FragmentPlace { at, bytes, coding: self.coding, blocks_after };
            at += u64::from(bytes);
            (self.indexes[n], place)
        };
        pack.fragments.clone().map(place).collect()
    }

    /// The content of the used runs, in their order: each pack with its directory. `numbers` has the number of each
    /// fragment, `tags` the tag of each block of the batch, `order` gives the order of the next directory, and `sum` is
    /// the volume's keyed checksum.
    pub fn sealed(
        &self,
        placed: &Placed,
        numbers: &[Pbn],
        tags: &[Tag],
        mut order: impl FnMut() -> u64,
        sum: impl Fn(&[u8]) -> u64,
    ) -> Vec<u8> {
        assert_eq!(numbers.len(), self.indexes.len(), "a number for each fragment");
        let blocks: u64 = placed.packs.iter().map(|pack| pack.run.blocks).sum();
        let mut content = Vec::with_capacity(blocks as usize * BLOCK_BYTES);
        let mut from = 0;
        for PlacedPack { run, fragments } in &placed.packs {
            let bytes: usize = self.lengths[fragments.clone()].iter().map(|bytes| usize::from(*bytes)).sum();
            let end = content.len() + run.blocks as usize * BLOCK_BYTES;
            content.extend_from_slice(&self.bytes[from..from + bytes]);
            content.resize(end, 0);
            from += bytes;
            let listed = |n: usize| Listed {
                number: numbers[n],
                bytes: self.lengths[n],
                coding: self.coding,
                tag: tags[self.indexes[n]],
            };
            let listed = fragments.clone().map(listed).collect();
            let directory = PackDirectory { order: order(), blocks: run.blocks as u8, fragments: listed };
            directory.write(Pbn(run.end().0 - 1), &mut content[end - BLOCK_BYTES..], &sum);
        }
        content
    }
}

/// The packs of fragments of these lengths that fill the runs one after the other. Err: how many blocks the rest needs
/// at least.
fn packs_in(lengths: &[u16], runs: &[Run]) -> Result<Vec<PlacedPack>, u64> {
    let mut packs = Vec::new();
    let mut next = 0;
    for run in runs {
        let mut free = *run;
        while free.blocks > 0 && next < lengths.len() {
            let (fragments, blocks) = filled(&lengths[next..], free.blocks.min(PACK_BLOCKS_MAX));
            packs.push(PlacedPack { run: Run { pbn: free.pbn, blocks }, fragments: next..next + fragments });
            next += fragments;
            free = Run { pbn: free.pbn.plus(blocks), blocks: free.blocks - blocks };
        }
    }
    match lengths.get(next..) {
        None | Some([]) => Ok(packs),
        Some(left) => {
            let bytes: usize = left.iter().map(|bytes| usize::from(*bytes)).sum();
            Err(((bytes + directory_bytes(left.len().min(FRAGMENTS_MAX))).div_ceil(BLOCK_BYTES)) as u64)
        }
    }
}

/// How many of the first fragments fit into a pack of at most this many blocks, and how many blocks it then has.
fn filled(lengths: &[u16], blocks_max: u64) -> (usize, u64) {
    let (mut bytes, mut fragments) = (0, 0);
    for length in lengths.iter().take(FRAGMENTS_MAX) {
        let more = bytes + usize::from(*length);
        if (more + directory_bytes(fragments + 1)) as u64 > blocks_max * BLOCK_BYTES as u64 {
            break;
        }
        (bytes, fragments) = (more, fragments + 1);
    }
    assert!(fragments > 0, "a block has room for a fragment with a directory");
    (fragments, (bytes + directory_bytes(fragments)).div_ceil(BLOCK_BYTES) as u64)
}

/// Cuts runs after a block of one of them.
fn cut_after(runs: &[Run], last: Option<Pbn>) -> (Vec<Run>, Vec<Run>) {
    let Some((index, last)) =
        last.and_then(|last| Some((runs.iter().position(|run| (run.pbn..run.end()).contains(&last))?, last)))
    else {
        return (Vec::new(), runs.to_vec());
    };
    let blocks = last.0 + 1 - runs[index].pbn.0;
    let rest = Run { pbn: last.plus(1), blocks: runs[index].blocks - blocks };
    let used = runs[..index].iter().copied().chain([Run { pbn: runs[index].pbn, blocks }]).collect();
    let unused = Some(rest).filter(|rest| rest.blocks > 0).into_iter().chain(runs[index + 1..].iter().copied());
    (used, unused.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oncefs_compress::FRAGMENT_BYTES_MAX;

    use super::*;
    use crate::format::fragment::FIRST_NUMBER;
    use crate::space::allocator::blocks_in;
    use crate::tests::fixture::Random;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn run(pbn: u64, blocks: u64) -> Run {
        Run { pbn: Pbn(pbn), blocks }
    }

    fn packed(lengths: &[usize]) -> Packed {
        let mut packed = Packed::new(Coding::Lz4);
        for (n, bytes) in lengths.iter().enumerate() {
            packed.add(2 * n, &vec![(n + 1) as u8; *bytes]);
        }
        packed
    }

    fn sum(bytes: &[u8]) -> u64 {
        bytes.iter().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(*byte))
    }

    #[test]
    fn fragments_lie_one_behind_the_other_and_packs_have_at_most_16_blocks_and_254_fragments() {
        assert_eq!((packed(&[100, 3_000, 900]).blocks(), packed(&[100, 3_000, 1_000]).blocks()), (1, 2));
        let large = packed(&[FRAGMENT_BYTES_MAX; 20]);
        let placed = large.lay_out(&[run(100, 18)]).unwrap_or_else(|more| panic!("{more} blocks are missing"));
        assert_eq!(placed.places[17].1.at, 100 * BLOCK + 17 * FRAGMENT_BYTES_MAX as u64);
        assert_eq!((placed.places[18].1.at, large.blocks()), (116 * BLOCK, 18));
        assert_eq!((placed.used, placed.unused), (vec![run(100, 18)], vec![]));
        // A pack that is full of small fragments is short, and the next one follows at once.
        let small = packed(&[20; 300]);
        let placed = small.lay_out(&[run(7, 9)]).unwrap_or_else(|more| panic!("{more}"));
        assert_eq!((placed.places[253].1.pack_end(), placed.places[254].1.at), (Pbn(9), 10 * BLOCK));
        assert_eq!((placed.used, placed.unused), (vec![run(7, 4)], vec![run(11, 5)]));
    }

    #[test]
    fn what_is_not_needed_is_told_and_so_is_what_is_missing() {
        let packed = packed(&[3_000, 3_000, 3_000]);
        let placed = packed.lay_out(&[run(7, 1), run(20, 4), run(30, 2)]).unwrap_or_else(|more| panic!("{more}"));
        assert_eq!((placed.used, placed.unused), (vec![run(7, 1), run(20, 2)], vec![run(22, 2), run(30, 2)]));
        assert_eq!(packed.lay_out(&[run(7, 1), run(20, 1)]).err(), Some(1));
        assert_eq!(packed.lay_out(&[]).err(), Some(3));
    }

    #[test]
    fn every_fragment_and_every_directory_is_where_its_place_says() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let lengths: Vec<usize> =
                (0..1 + random.below(60)).map(|_| 1 + random.below(FRAGMENT_BYTES_MAX as u64) as usize).collect();
            let packed = packed(&lengths);
            let (mut runs, mut next) = (Vec::new(), 1);
            let placed = loop {
                match packed.lay_out(&runs) {
                    Ok(placed) => break placed,
                    Err(more) => assert!(more > 0),
                }
                let blocks = 1 + random.below(20);
                runs.push(run(next, blocks));
                next += blocks + random.below(3);
            };
            assert_eq!(blocks_in(&placed.used) + blocks_in(&placed.unused), blocks_in(&runs));
            let numbers: Vec<Pbn> = (0..packed.len()).map(|n| Pbn(FIRST_NUMBER + n)).collect();
            let tags: Vec<Tag> = (0..2 * packed.len()).map(Tag).collect();
            let mut order = 0;
            let next_order = || {
                order += 1;
                order
            };
            let content = packed.sealed(&placed, &numbers, &tags, next_order, sum);
            let blocks: Vec<Pbn> = placed.used.iter().flat_map(|run| run.pbns()).collect();
            assert_eq!(content.len(), blocks.len() * BLOCK_BYTES);
            let at = |byte: u64| {
                let block = blocks.iter().position(|pbn| pbn.0 == byte / BLOCK).expect("it lies in a used run");
                block * BLOCK_BYTES + (byte % BLOCK) as usize
            };
            for (n, (index, place)) in placed.places.iter().enumerate() {
                assert_eq!((*index, usize::from(place.bytes)), (2 * n, lengths[n]));
                assert!(content[at(place.at)..][..lengths[n]].iter().all(|byte| *byte == n as u8 + 1), "fragment {n}");
                let end = at(place.pack_end().0 * BLOCK);
                let directory = PackDirectory::read(place.pack_end(), &content[end..end + BLOCK_BYTES], sum);
                let directory = directory.expect("each pack ends with a directory");
                let listed = Listed { number: numbers[n], bytes: place.bytes, coding: Coding::Lz4, tag: tags[2 * n] };
                assert!(directory.places(place.pack_end()).any(|found| found == (listed, *place)), "fragment {n}");
            }
            // What is claimed for a write is what it uses.
            let holders: BTreeSet<Pbn> = placed.places.iter().flat_map(|(_, place)| place.holders()).collect();
            assert_eq!(holders.into_iter().collect::<Vec<_>>(), {
                let mut blocks = blocks;
                blocks.sort_unstable();
                blocks
            });
        }
    }
}
