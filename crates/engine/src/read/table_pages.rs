//! The pages of the block table that a read is verified with: pages missing from memory are read in parallel with the
//! data.
//!
//! They are read in groups: a larger request costs a device no more, and the host's page cache keeps the pages that do
//! not fit into memory, so that the next read of a block nearby needs no request for its page.

use super::parts::Part;
use crate::device::Io;
use crate::format::fragment::is_fragment;
use crate::format::page::{PAGE_BYTES, page_of};
use crate::read::stored::BlockReader;
use crate::state::checkpoint_store::{page_in, reads_of};
use crate::state::loading::{MissingPages, groups_of};
use crate::{Pbn, Result};

/// Pages missing from memory, and the buffer for their bytes.
#[derive(Default)]
pub struct LackingPages {
    numbers: Vec<u64>,
    /// All pages of their groups.
    read: Vec<u64>,
    /// The table's generation when the pages were missing.
    generation: u64,
    bytes: Vec<u8>,
}

impl LackingPages {
    /// Requests for them.
    pub fn reads(&mut self) -> Result<Vec<Io<'_>>> {
        reads_of(&self.read, &mut self.bytes)
    }
}

impl BlockReader {
    /// The pages with the tags of these parts that are missing from memory. Empty if reads are not verified.
    pub fn pages_lacking(&self, spans: &[&mut [Part<'_>]]) -> LackingPages {
        if !self.tuning.verifies_reads() {
            return LackingPages::default();
        }
        let pages = |part: &Part<'_>| page_of(part.pbn)..=page_of(Pbn(part.end().0 - 1));
        // A read of fragments looks at their pages anyway.
        let of_blocks = |part: &&Part<'_>| !is_fragment(part.pbn);
        let wanted = spans.iter().flat_map(|span| &**span).filter(of_blocks).flat_map(pages);
        let MissingPages { numbers, generation, end } = self.metadata.missing_pages(wanted);
        let read = groups_of(&numbers, end);
        let bytes = vec![0; read.len() * PAGE_BYTES];
        LackingPages { numbers, read, generation, bytes }
    }

    /// Takes in pages that were read in parallel with data, if all of them arrived. The verification itself reads any
    /// that memory still lacks, and handles those that cannot be read.
    pub fn admit_lacking(&self, lacking: LackingPages, are_read: bool) {
        let LackingPages { numbers, read, generation, bytes } = lacking;
        if !numbers.is_empty() && are_read {
            let came = read.into_iter().zip(bytes.chunks_exact(PAGE_BYTES));
            let wanted = came.filter(|(number, _)| numbers.binary_search(number).is_ok());
            self.metadata.admit_sound_pages(wanted.map(page_in).collect(), generation);
        }
    }
}
