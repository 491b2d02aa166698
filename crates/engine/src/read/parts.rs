//! The parts of a read: runs of the data area, and how requests combine them.

use std::cmp::Reverse;

use crate::device::Io;
use crate::policy::device_reads::GAP_BLOCKS_MAX;
use crate::space::data_area::joined_read;
use crate::{BLOCK_BYTES, Pbn, Result};

/// Most blocks that one request reads, including the gaps between its parts.
const SPAN_BLOCKS_MAX: u64 = 256;
const _: () = assert!(GAP_BLOCKS_MAX < SPAN_BLOCKS_MAX);

/// The way of the request for a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Straight from the device.
    PastHostCache,
    /// Through the host's page cache: most of its blocks are shared.
    ThroughHostCache,
}

/// A run of the data area and the destination of its content.
pub struct Part<'a> {
    /// Its first block.
    pub pbn: Pbn,
    /// Whole blocks.
    pub bytes: &'a mut [u8],
}

impl Part<'_> {
    /// Its number of blocks.
    pub fn blocks(&self) -> usize {
        self.bytes.len() / BLOCK_BYTES
    }

    /// The block after it.
    pub fn end(&self) -> Pbn {
        self.pbn.plus(self.blocks() as u64)
    }

    /// Whether it contains a block.
    pub fn has(&self, pbn: Pbn) -> bool {
        (self.pbn..self.end()).contains(&pbn)
    }

    /// All of its blocks.
    pub fn pbns(&self) -> impl Iterator<Item = Pbn> + use<> {
        (self.pbn.0..self.end().0).map(Pbn)
    }
}

/// The runs of these blocks, which come in ascending order. Their content is adjacent in `bytes`.
pub fn runs_into<'a, T>(blocks: &[(Pbn, T)], mut bytes: &'a mut [u8]) -> Vec<Part<'a>> {
    assert_eq!(bytes.len(), blocks.len() * BLOCK_BYTES, "bytes for {} blocks", blocks.len());
    let mut parts = Vec::new();
    for run in blocks.chunk_by(|a, b| a.0.plus(1) == b.0) {
        let (here, behind) = std::mem::take(&mut bytes).split_at_mut(run.len() * BLOCK_BYTES);
        parts.push(Part { pbn: run[0].0, bytes: here });
        bytes = behind;
    }
    parts
}

/// A part that lies within another part.
pub struct Repeated<'a> {
    part: Part<'a>,
    /// The index of the other part.
    of: usize,
}

/// Sorts parts by their pbns, and takes out those that lie within another one.
pub fn take_repeated<'a>(parts: &mut Vec<Part<'a>>) -> Vec<Repeated<'a>> {
    parts.sort_unstable_by_key(|part| (part.pbn, Reverse(part.bytes.len())));
    let is_repeated = |pair: &[Part<'_>]| pair[1].end() <= pair[0].end();
    if !parts.windows(2).any(is_repeated) {
        return Vec::new();
    }
    let mut repeated = Vec::new();
    for part in std::mem::take(parts) {
        match parts.last() {
            Some(last) if part.end() <= last.end() => repeated.push(Repeated { part, of: parts.len() - 1 }),
            _ => parts.push(part),
        }
    }
    repeated
}

/// Copies the content of repeated parts from the parts that contain them.
pub fn copy_repeated(parts: &[Part<'_>], repeated: Vec<Repeated<'_>>) {
    for Repeated { part, of } in repeated {
        let from = (part.pbn.0 - parts[of].pbn.0) as usize * BLOCK_BYTES;
        part.bytes.copy_from_slice(&parts[of].bytes[from..from + part.bytes.len()]);
    }
}

/// Groups parts, which come in the order of their pbns, into one request each: neighbours, and parts with small gaps
/// between them.
pub fn cut_spans<'p, 'a>(parts: &'p mut [Part<'a>]) -> Vec<&'p mut [Part<'a>]> {
    let mut spans = Vec::with_capacity(parts.len());
    let mut rest = parts;
    while let Some(first) = rest.first().map(|part| part.pbn) {
        let goes_on = |pair: &&[Part<'_>]| {
            let (end, next) = (pair[0].end(), &pair[1]);
            (end.0..=end.0 + GAP_BLOCKS_MAX).contains(&next.pbn.0) && next.end().0 - first.0 <= SPAN_BLOCKS_MAX
        };
        let joined = rest.windows(2).take_while(goes_on).count();
        let (span, behind) = rest.split_at_mut(1 + joined);
        spans.push(span);
        rest = behind;
    }
    spans
}

/// One request for all parts of a span.
pub fn joined<'a>(span: &'a mut [Part<'_>]) -> Result<Io<'a>> {
    joined_read(span.iter_mut().map(|part| (part.pbn, &mut *part.bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of (pbn, blocks), cut into spans.
    fn spans_of(runs: &[(u64, usize)]) -> Vec<Vec<u64>> {
        let mut bytes: Vec<Vec<u8>> = runs.iter().map(|(_, blocks)| vec![0; blocks * BLOCK_BYTES]).collect();
        let mut parts: Vec<Part<'_>> =
            runs.iter().zip(&mut bytes).map(|((pbn, _), bytes)| Part { pbn: Pbn(*pbn), bytes }).collect();
        cut_spans(&mut parts).iter().map(|span| span.iter().map(|part| part.pbn.0).collect()).collect()
    }

    #[test]
    fn neighbours_and_small_gaps_are_joined_and_large_gaps_are_not() {
        assert_eq!(spans_of(&[(10, 2), (12, 1), (21, 1), (31, 1)]), [vec![10, 12, 21], vec![31]]);
    }

    #[test]
    fn a_request_has_a_longest_length_and_one_part_may_exceed_it() {
        assert_eq!(spans_of(&[(10, 255), (265, 1), (266, 1)]), [vec![10, 265], vec![266]]);
        assert_eq!(spans_of(&[(10, 300), (310, 1)]), [vec![10], vec![310]]);
    }

    #[test]
    fn parts_that_overlap_are_not_joined() {
        assert_eq!(spans_of(&[(10, 4), (12, 4)]), [vec![10], vec![12]]);
    }

    #[test]
    fn a_part_within_another_gets_its_content_from_there() {
        let runs = [(12, 1), (20, 2), (10, 4), (20, 2), (12, 3)];
        let mut bytes: Vec<Vec<u8>> = runs.iter().map(|(_, blocks)| vec![0; blocks * BLOCK_BYTES]).collect();
        let mut parts: Vec<Part<'_>> =
            runs.iter().zip(&mut bytes).map(|((pbn, _), bytes)| Part { pbn: Pbn(*pbn), bytes }).collect();
        let repeated = take_repeated(&mut parts);
        assert_eq!(
            parts.iter().map(|part| (part.pbn.0, part.blocks())).collect::<Vec<_>>(),
            [(10, 4), (12, 3), (20, 2)]
        );
        for part in &mut parts {
            for (pbn, block) in part.pbns().zip(part.bytes.chunks_exact_mut(BLOCK_BYTES)) {
                block.fill(pbn.0 as u8);
            }
        }
        copy_repeated(&parts, repeated);
        for ((pbn, blocks), bytes) in runs.iter().zip(&bytes) {
            let expected: Vec<u8> = (*pbn..pbn + *blocks as u64).flat_map(|pbn| vec![pbn as u8; BLOCK_BYTES]).collect();
            assert!(*bytes == expected, "{blocks} blocks at {pbn}");
        }
    }
}
