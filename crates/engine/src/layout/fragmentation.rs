//! Layout: how long the runs of all files are, and how much of them is shared. All maps are visited in portions of
//! bounded size. A run that reaches the end of a portion is handed to the next one. Fragments that follow each other in
//! the file are one run while they follow each other in the data area, whatever their numbers are.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::format::fragment::{FragmentPlace, is_fragment};
use crate::format::keys::LeafKey;
use crate::layout::referrers::{MapCursor, Referrer, ReferrerSearch};
use crate::read::fragments::GAP_BYTES_MAX;
use crate::{MapId, Pbn, Result};

/// Leaves per portion: at most 65,536 blocks.
const PORTION_LEAVES: usize = 256;

/// A run that may continue in the next portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRun {
    /// The run so far.
    pub run: Referrer,
    /// Its blocks with several references.
    pub shared_blocks: u64,
    /// Where it ends in the data area, in bytes, if it is one of fragments.
    #[serde(default)]
    pub end: Option<u64>,
}

impl OpenRun {
    /// Whether this part continues it. `place` is where the part begins, in bytes, if it is one of fragments.
    fn goes_on_with(&self, part: &Referrer, place: Option<u64>) -> bool {
        let run = &self.run;
        let follows = match (self.end, place) {
            (Some(end), Some(at)) => (end..=end.saturating_add(GAP_BYTES_MAX)).contains(&at),
            (None, None) => run.pbn + run.blocks == part.pbn,
            _ => false,
        };
        run.map == part.map && run.lbn + run.blocks == part.lbn && follows
    }
}

/// A part of a file that lies in one piece.
struct Piece {
    part: Referrer,
    /// Its first byte in the data area and the one after it, if it is one of fragments.
    place: Option<(u64, u64)>,
}

/// Where a walk over all maps continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutCursor {
    /// The next leaf; None: the beginning.
    pub at: Option<MapCursor>,
    /// The unfinished run.
    pub open: Option<OpenRun>,
}

/// Runs of one class of lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClass {
    /// How many.
    pub runs: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Blocks among these with several references.
    pub shared_blocks: u64,
}

/// The part of one file in a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout {
    /// Its map.
    pub map: u64,
    /// Runs that began in this portion.
    pub runs: u64,
    /// Blocks of data in it.
    pub blocks: u64,
}

/// A portion of all maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutPortion {
    /// By file, in the order of maps. A file that reaches into the next portion is also listed there.
    pub files: Vec<FileLayout>,
    /// `classes[i]`: runs of at least 2^i and less than 2^(i+1) blocks that ended in this portion.
    pub classes: Vec<RunClass>,
    /// Where to continue. None: this was the last portion.
    pub next: Option<LayoutCursor>,
}

impl LayoutPortion {
    /// Counts a part of a file. Returns the run that it belongs to, which may continue.
    fn add(&mut self, open: Option<OpenRun>, Piece { part, place }: Piece, shared_blocks: u64) -> OpenRun {
        let (blocks, end) = (part.blocks, place.map(|(_, end)| end));
        assert!(0 < blocks && shared_blocks <= blocks, "{shared_blocks} of {blocks} blocks are shared");
        let goes_on = open.filter(|open| open.goes_on_with(&part, place.map(|(at, _)| at)));
        match self.files.last_mut() {
            Some(file) if file.map == part.map => {
                file.runs += u64::from(goes_on.is_none());
                file.blocks += part.blocks;
            }
            _ => self.files.push(FileLayout { map: part.map, runs: u64::from(goes_on.is_none()), blocks: part.blocks }),
        }
        match goes_on {
            Some(OpenRun { run, shared_blocks: before, .. }) => OpenRun {
                run: Referrer { blocks: run.blocks + part.blocks, ..run },
                shared_blocks: before + shared_blocks,
                end,
            },
            None => {
                open.into_iter().for_each(|open| self.close(&open));
                OpenRun { run: part, shared_blocks, end }
            }
        }
    }

    /// Counts a complete run.
    fn close(&mut self, open: &OpenRun) {
        assert!(open.run.blocks > 0, "a run without blocks ends at lbn {}", open.run.lbn);
        let class = open.run.blocks.ilog2() as usize;
        if self.classes.len() <= class {
            self.classes.resize(class + 1, RunClass::default());
        }
        let class = &mut self.classes[class];
        class.runs += 1;
        class.blocks += open.run.blocks;
        class.shared_blocks += open.shared_blocks;
    }
}

impl ReferrerSearch {
    /// See [`crate::Store::layout`].
    pub fn layout(&self, from: LayoutCursor) -> Result<LayoutPortion> {
        // So a block's table entry is about the content that a map had there.
        let _pin = self.metadata.pin();
        let mut parts = Vec::new();
        let at = from.at.unwrap_or(MapCursor { map: 0, leaf: 0 });
        let at = LeafKey { map: MapId(at.map), leaf: at.leaf };
        let next = self.each_data_extent(at, PORTION_LEAVES, &mut |part| parts.push(part))?;
        let pbns = |part: &Referrer| (part.pbn..part.pbn + part.blocks).map(Pbn);
        let references = self.references(parts.iter().flat_map(pbns));
        let mut portion = LayoutPortion::default();
        let mut open = from.open.filter(|open| open.run.is_within_bounds());
        let numbers = parts.iter().flat_map(pbns).filter(|pbn| is_fragment(*pbn));
        let places = self.metadata.known_places(numbers);
        for piece in parts.into_iter().flat_map(|part| pieces_of(part, &places)) {
            let shared_blocks = pbns(&piece.part).filter(|pbn| references.of_files(*pbn) > 1).count() as u64;
            open = Some(portion.add(open, piece, shared_blocks));
        }
        match next {
            Some(key) => {
                let at = Some(MapCursor { map: key.map.0, leaf: key.leaf });
                portion.next = Some(LayoutCursor { at, open });
            }
            None => open.into_iter().for_each(|open| portion.close(&open)),
        }
        Ok(portion)
    }
}

/// The pieces of a part of a file. Fragments are one each: those that follow each other become one run.
fn pieces_of(part: Referrer, places: &HashMap<Pbn, FragmentPlace>) -> Vec<Piece> {
    if !is_fragment(Pbn(part.pbn)) {
        return vec![Piece { part, place: None }];
    }
    let piece = |n: u64| {
        let pbn = part.pbn + n;
        let place = places.get(&Pbn(pbn)).map(|place| (place.at, place.end()));
        Piece { part: Referrer { lbn: part.lbn + n, pbn, blocks: 1, ..part }, place }
    };
    (0..part.blocks).map(piece).collect()
}

impl Referrer {
    /// A cursor comes from outside: its run must have blocks, and its ends must not overflow with a portion added.
    fn is_within_bounds(&self) -> bool {
        const BOUND: u64 = 1 << 62;
        self.blocks > 0 && [self.lbn, self.pbn, self.blocks].iter().all(|number| *number < BOUND)
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;
    use crate::Blocks;
    use crate::tests::fixture::{Devices, one_level};

    #[test]
    fn a_cursor_that_no_portion_gave_is_no_reason_to_fail() {
        let volume = Devices::new(Blocks(20_000), one_level()).open();
        for (lbn, blocks) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
            let open = OpenRun { run: part(1, lbn, 5, blocks), shared_blocks: 0, end: Some(u64::MAX) };
            let portion = volume.referrer_search.layout(LayoutCursor { at: None, open: Some(open) }).unwrap();
            assert_eq!((portion.classes, portion.next), (Vec::new(), None));
        }
    }

    fn part(map: u64, lbn: u64, pbn: u64, blocks: u64) -> Referrer {
        Referrer { map, lbn, pbn, blocks }
    }

    #[test]
    fn parts_that_continue_each_other_are_one_run_of_one_file() {
        let mut portion = LayoutPortion::default();
        let mut open = None;
        for (part, shared) in [
            (part(1, 0, 100, 256), 6),
            (part(1, 256, 356, 44), 0),
            (part(1, 300, 500, 1), 1),
            (part(2, 301, 501, 3), 0),
            (part(2, 305, 504, 3), 0),
        ] {
            open = Some(portion.add(open, Piece { part, place: None }, shared));
        }
        portion.close(&open.unwrap());
        let file = |map, runs, blocks| FileLayout { map, runs, blocks };
        assert_eq!(portion.files, [file(1, 2, 301), file(2, 2, 6)]);
        let class = |runs, blocks, shared_blocks| RunClass { runs, blocks, shared_blocks };
        let none = RunClass::default();
        let expected = [class(1, 1, 1), class(2, 6, 0), none, none, none, none, none, none, class(1, 300, 6)];
        assert_eq!(portion.classes, expected);
    }
}
