//! Succession: where a new file's first block may lie, by the files that were written just before it.
//!
//! A tree is copied in the order in which its source was written, so the blocks that a file shares often lie right
//! after those that the previous file shares. If hints name few contents, most small files have no block that a hint
//! names, and this is the way to find them. The block table is queried there, as for any neighbour (`extend`).
//!
//! 1. The ends of the last [`ENDS_MAX`] files that ended with a shared block are remembered, one per file, newest
//!    first.
//! 2. Each is offered to at most [`OFFERS_MAX`] new files, so files without duplicates soon cause no queries.
//! 3. Blocks stored after the newest end probably stand for as many that changed. So the place that many blocks after
//!    it is offered too.

use crate::{Blocks, EXTENDED_MAX, Pbn};

/// Most ends that are remembered: programs that write at the same time have one each.
const ENDS_MAX: usize = 4;
/// Most new files that an end is offered to.
const OFFERS_MAX: u8 = 16;

/// Where a file that ended with a shared block would continue.
#[derive(Clone, Copy, Debug)]
struct End {
    file: u64,
    next: Pbn,
    offers_left: u8,
}

/// The ends of the files written last.
#[derive(Clone, Debug, Default)]
pub struct Succession {
    ends: Vec<End>,
    stored_behind: Blocks,
}

impl Succession {
    /// Pbns that may hold the first block of a new file: at most [`EXTENDED_MAX`], the most likely first.
    pub fn begin(&mut self) -> Vec<Pbn> {
        let mut places = Vec::new();
        self.begin_into(&mut places);
        places
    }

    /// As [`Succession::begin`], in place of what is in `places`.
    pub fn begin_into(&mut self, places: &mut Vec<Pbn>) {
        places.clear();
        let behind = self.ends.first().filter(|_| self.stored_behind > Blocks(0));
        places.extend(behind.map(|end| end.next.plus(self.stored_behind.0)));
        places.extend(self.ends.iter().map(|end| end.next));
        places.truncate(EXTENDED_MAX);
        for end in &mut self.ends {
            end.offers_left -= 1;
        }
        self.ends.retain(|end| end.offers_left > 0);
    }

    /// Learns that a request of `blocks` blocks of a file was written. If its last block is shared, `shared_end` holds
    /// it.
    pub fn end(&mut self, file: u64, blocks: Blocks, shared_end: Option<Pbn>) {
        let Some(pbn) = shared_end else {
            self.stored_behind += blocks;
            return;
        };
        self.ends.retain(|end| end.file != file);
        self.ends.truncate(ENDS_MAX - 1);
        self.ends.insert(0, End { file, next: pbn.plus(1), offers_left: OFFERS_MAX });
        self.stored_behind = Blocks(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_lie_behind_those_written_just_before() {
        let mut succession = Succession::default();
        assert_eq!(succession.begin(), []);
        succession.end(1, Blocks(2), Some(Pbn(11)));
        succession.end(2, Blocks(2), Some(Pbn(51)));
        assert_eq!(succession.begin(), [Pbn(52), Pbn(12)]);
        succession.end(1, Blocks(2), Some(Pbn(13)));
        assert_eq!(succession.begin(), [Pbn(14), Pbn(52)], "one end per file, the newest first");
        for file in 3..9 {
            succession.end(file, Blocks(1), Some(Pbn(100 * file)));
        }
        assert_eq!(succession.begin(), [Pbn(801), Pbn(701), Pbn(601), Pbn(501)]);
    }

    #[test]
    fn what_was_stored_since_stands_for_as_many_blocks_that_changed() {
        let mut succession = Succession::default();
        succession.end(1, Blocks(2), Some(Pbn(11)));
        succession.end(2, Blocks(3), None);
        assert_eq!(succession.begin(), [Pbn(15), Pbn(12)]);
        succession.end(3, Blocks(2), None);
        assert_eq!(succession.begin(), [Pbn(17), Pbn(12)]);
        succession.end(4, Blocks(1), Some(Pbn(17)));
        assert_eq!(succession.begin(), [Pbn(18), Pbn(12)]);
    }

    #[test]
    fn files_without_duplicates_soon_ask_for_nothing() {
        let mut succession = Succession::default();
        succession.end(1, Blocks(2), Some(Pbn(11)));
        for _ in 0..OFFERS_MAX {
            assert!(!succession.begin().is_empty());
            succession.end(2, Blocks(3), None);
        }
        assert_eq!(succession.begin(), []);
    }
}
