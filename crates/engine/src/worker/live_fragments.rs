//! Reads the live fragments of packs as they lie there, compressed: the directory names them, the block table says
//! which are live, and each is expanded once, so that no damage is carried to another place.

use std::sync::atomic::Ordering::Relaxed;

use oncefs_compress::Expander;

use crate::base::part;
use crate::device::Io;
use crate::format::fragment::FragmentPlace;
use crate::format::pack_directory::{Listed, PackDirectory};
use crate::format::page::page_of;
use crate::read::damage_reports::DamageReports;
use crate::state::loading::Metadata;
use crate::state::table::damaged_entry;
use crate::worker::sparse_packs::SparsePack;
use crate::{BLOCK_BYTES, Pbn, Result};

/// Entries looked up together. Each may be in a page of its own.
const PORTION: usize = 32;

/// A live fragment.
pub struct LiveFragment {
    /// Its number, its length and its content's tag.
    pub listed: Listed,
    /// Where it lies.
    pub place: FragmentPlace,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The live fragments of one pack, in their order.
type Places = Vec<(Listed, FragmentPlace)>;

part! {
    /// Reads packs.
    pub struct PackReader {
        base: data, hasher, stats;
        metadata: Metadata, damage_reports: DamageReports
    }
}

impl PackReader {
    /// The live fragments of packs, in the order of packs. A pack that is not as the table says, or of which anything
    /// is damaged, is left out as a whole, because it could not become free. The caller has the packs pinned.
    pub fn read(&self, packs: &[SparsePack]) -> Vec<LiveFragment> {
        let ends: Vec<(Pbn, u64)> = packs.iter().map(|pack| (pack.end, 1)).collect();
        let directories = self.read_runs(&ends);
        let mut found: Vec<Places> = Vec::new();
        for (pack, block) in packs.iter().zip(directories) {
            let sum = |bytes: &[u8]| self.hasher.tag(bytes).0;
            let directory = block.ok().and_then(|block| PackDirectory::read(pack.end, &block, sum));
            let live = directory.and_then(|directory| self.live(pack, &directory));
            match live {
                Some(live) => found.push(live),
                None => self.pass_over_one(),
            }
        }
        let runs: Vec<(Pbn, u64)> = found.iter().map(|places| run_of(places)).collect();
        let mut expander = Expander::default();
        let mut live = Vec::new();
        for ((places, (first, _)), bytes) in found.iter().zip(&runs).zip(self.read_runs(&runs)) {
            match bytes {
                Ok(bytes) => match self.sound(places, *first, &bytes, &mut expander) {
                    Some(sound) => live.extend(sound),
                    None => self.pass_over_one(),
                },
                Err(_) => {
                    places.iter().for_each(|(listed, _)| self.damage_reports.suspect(listed.number));
                    self.pass_over_one();
                }
            }
        }
        live
    }

    /// Reads runs of blocks, all of them at once.
    fn read_runs(&self, runs: &[(Pbn, u64)]) -> Vec<Result<Vec<u8>>> {
        let mut buffers: Vec<_> =
            runs.iter().map(|(_, blocks)| self.data.take_buffer(*blocks as usize * BLOCK_BYTES)).collect();
        let requests = runs.iter().zip(&mut buffers);
        let at = |pbn: Pbn| pbn.0 * BLOCK_BYTES as u64;
        let mut reads: Vec<Io<'_>> = requests.map(|((pbn, _), buffer)| Io::read(at(*pbn), &mut buffer[..])).collect();
        let results = self.data.read_many(&mut reads);
        drop(reads);
        let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        self.stats.counters.data_bytes_read.fetch_add(bytes as u64, Relaxed);
        results.into_iter().zip(&buffers).map(|(result, buffer)| result.map(|()| buffer.to_vec())).collect()
    }

    fn pass_over_one(&self) {
        self.stats.counters.packs_passed_over.fetch_add(1, Relaxed);
    }

    /// The fragments that still lie in a pack. None: they are not all that the table counts there, one is known to be
    /// bad, or nothing is known of a block that counts one of them, so that none of them can leave it.
    fn live(&self, pack: &SparsePack, directory: &PackDirectory) -> Option<Places> {
        let places: Places = directory.places(pack.end).collect();
        let mut live = Places::new();
        let mut are_sound = true;
        for portion in places.chunks(PORTION) {
            let pages = || {
                let mut pages: Vec<u64> = portion.iter().map(|(listed, _)| page_of(listed.number)).collect();
                pages.sort_unstable();
                pages.dedup();
                pages
            };
            self.metadata.with_readable_pages(pages, |pages| {
                for (listed, place) in portion {
                    let Some(entry) = pages.entry(listed.number) else { continue };
                    if entry.count > 0 && pages.fragment_place(listed.number) == Some(*place) {
                        are_sound &= entry.serves(listed.tag);
                        live.push((*listed, *place));
                    }
                }
            });
        }
        are_sound &= self.are_holders_known(&live);
        let bytes: u64 = live.iter().map(|(listed, _)| u64::from(listed.bytes)).sum();
        (are_sound && bytes == pack.bytes && !live.is_empty()).then_some(live)
    }

    /// Whether the blocks that count these fragments of one pack have readable entries.
    fn are_holders_known(&self, live: &[(Listed, FragmentPlace)]) -> bool {
        let mut holders: Vec<Pbn> = live.iter().flat_map(|(_, place)| place.holders()).collect();
        holders.sort_unstable();
        holders.dedup();
        let pages = || {
            let mut pages: Vec<u64> = holders.iter().map(|pbn| page_of(*pbn)).collect();
            pages.dedup();
            pages
        };
        let unknown = self.metadata.with_readable_pages(pages, |pages| {
            holders.iter().copied().find(|pbn| pages.is_damaged(*pbn) || pages.entry(*pbn).is_none())
        });
        if let Some(pbn) = unknown {
            self.damage_reports.pass_over(&damaged_entry(pbn));
        }
        unknown.is_none()
    }

    /// The fragments with their bytes, if each has the content that the table says. `first` is the first block read.
    fn sound(
        &self,
        places: &[(Listed, FragmentPlace)],
        first: Pbn,
        bytes: &[u8],
        expander: &mut Expander,
    ) -> Option<Vec<LiveFragment>> {
        let mut block = vec![0; BLOCK_BYTES];
        let mut found = Vec::with_capacity(places.len());
        let mut are_sound = true;
        for (listed, place) in places {
            let from = (place.at - first.0 * BLOCK_BYTES as u64) as usize;
            let fragment = &bytes[from..from + usize::from(place.bytes)];
            let is_expanded = expander.expand(place.coding, fragment, &mut block).is_ok();
            if !is_expanded || self.hasher.tag(&block) != listed.tag {
                self.damage_reports.suspect(listed.number);
                are_sound = false;
            }
            found.push(LiveFragment { listed: *listed, place: *place, bytes: fragment.to_vec() });
        }
        are_sound.then_some(found)
    }
}

/// The blocks from the first byte of fragments of a pack to the last one: the first, and how many.
fn run_of(places: &[(Listed, FragmentPlace)]) -> (Pbn, u64) {
    let (first, last) = (places[0].1, places[places.len() - 1].1);
    let block = BLOCK_BYTES as u64;
    let first = first.at / block;
    (Pbn(first), last.end().div_ceil(block) - first)
}
