//! Finds the sharers of a file: the first few places in all files that refer to each of its blocks, and their names.
//!
//! Reads all maps, portion by portion, until every block has enough places. A file that changes meanwhile may be
//! missing, but is never named for a block that it does not have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use oncefs_engine::{BLOCK_BYTES, Equal, ExplainedRun, MapCursor, Referrer, Referrers, Report, What};
use serde::Serialize;

use super::lines::Line;
use crate::control::answers::FileNames;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::Outcome;
use crate::names::Name;
use crate::progress::{Progress, Step};

/// Places shown for one run.
const SHOWN_MAX: usize = 4;
/// Places to find for one piece: one of them may be the run itself.
const WANTED: usize = SHOWN_MAX + 1;
/// Names shown for one file.
const PATHS_SHOWN: usize = 3;

/// Another place that has blocks of a run, or blocks equal to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// The file's names below the root of the mount.
    pub paths: Vec<Name>,
    /// How many more names it has.
    pub more_paths: u64,
    /// Whether it is the file itself.
    pub is_itself: bool,
    /// The first block's number in it.
    pub lbn: u64,
    /// The first block of the run that it has there, counted from the run's start.
    pub first: u64,
    /// The number of blocks from there on.
    pub blocks: u64,
}

/// Other places of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// The first few places, those with most blocks first.
    pub shown: Vec<Other>,
    /// About how many more there are.
    pub more: u64,
}

/// Adjacent blocks in the data area that the same runs ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    pbn: u64,
    blocks: u64,
    places: Vec<Referrer>,
}

/// A file whose sharers are asked for.
pub struct Asking<'a> {
    /// Its map.
    pub map: u64,
    /// Runs of it.
    pub runs: &'a [ExplainedRun],
    /// The same runs grouped into lines.
    pub lines: &'a [Line],
}

/// Finds places and names, and remembers the names for later lines.
pub struct Sharers<'a> {
    daemon: &'a Daemon,
    names: BTreeMap<u64, FileNames>,
}

impl<'a> Sharers<'a> {
    /// Without any known names.
    pub fn new(daemon: &'a Daemon) -> Self {
        Self { daemon, names: BTreeMap::new() }
    }

    /// The other places of each line of the file with this map. Searches by run, so that places with many of a line's
    /// blocks are not missed in favour of places with one.
    pub fn of(&mut self, map: u64, runs: &[ExplainedRun], lines: &[Line]) -> Outcome<Vec<Others>> {
        let mut found = self.of_files(&[Asking { map, runs, lines }])?;
        Ok(found.pop().expect("there is an answer for each file"))
    }

    /// As [`Sharers::of`], for several files in one search.
    pub fn of_files(&mut self, files: &[Asking]) -> Outcome<Vec<Vec<Others>>> {
        let mut pieces = pieces_of(files.iter().flat_map(|file| file.runs));
        self.find_places(&mut pieces)?;
        let places = |file: &Asking| file.lines.iter().map(|line| others_of(file.map, line, &pieces)).collect();
        let others: Vec<Vec<(Vec<Referrer>, u64)>> = files.iter().map(places).collect();
        self.find_names(&others.concat())?;
        let named = |(file, others): (&Asking, Vec<(Vec<Referrer>, u64)>)| {
            let lines = others.into_iter().zip(file.lines);
            lines.map(|((places, more), line)| self.named(file.map, &line.run, places, more)).collect()
        };
        Ok(files.iter().zip(others).map(named).collect())
    }

    fn find_places(&self, pieces: &mut [Piece]) -> Outcome {
        if pieces.is_empty() {
            return Ok(());
        }
        let report: Report = self.daemon.ask(Request::Stats)?;
        let total = report.space.get("mapped_bytes").map_or(0, |bytes| bytes / BLOCK_BYTES as u64);
        let mut progress = Progress::new();
        let (mut next, mut seen) = (Some(MapCursor { map: 0, leaf: 0 }), 0);
        while let Some(from) = next {
            let blocks: Vec<(u64, u64)> = pieces
                .iter()
                .filter(|piece| piece.places.len() < WANTED)
                .map(|piece| (piece.pbn, piece.blocks))
                .collect();
            if blocks.is_empty() {
                return Ok(());
            }
            progress.show("searching all files", Step::blocks(seen, total));
            let found: Referrers = self.daemon.ask(Request::Referrers { blocks, from })?;
            found.places.iter().for_each(|place| add(pieces, place));
            seen += found.blocks_seen;
            next = found.next;
        }
        Ok(())
    }

    fn find_names(&mut self, others: &[(Vec<Referrer>, u64)]) -> Outcome {
        let maps: BTreeSet<u64> = others.iter().flat_map(|(places, _)| places).map(|place| place.map).collect();
        self.names.retain(|map, _| maps.contains(map));
        let left = maps.into_iter().filter(|map| !self.names.contains_key(map)).collect();
        self.names.extend(self.daemon.names(left)?);
        Ok(())
    }

    fn named(&self, map: u64, run: &ExplainedRun, places: Vec<Referrer>, more: u64) -> Others {
        let first_pbn = asked(run).map_or(0, |(pbn, _)| pbn);
        let none = FileNames::default();
        let names_of = |place: &Referrer| self.names.get(&place.map).unwrap_or(&none);
        let other = |place: Referrer| Other {
            paths: names_of(&place).paths.iter().take(PATHS_SHOWN).cloned().collect(),
            more_paths: names_of(&place).paths.len().saturating_sub(PATHS_SHOWN) as u64 + names_of(&place).more,
            is_itself: place.map == map,
            lbn: place.lbn,
            first: place.pbn - first_pbn,
            blocks: place.blocks,
        };
        Others { shown: places.into_iter().map(other).collect(), more }
    }
}

/// The blocks whose other places are shown for a run: its own if it shares them, else the equal ones.
fn asked(run: &ExplainedRun) -> Option<(u64, u64)> {
    let pbn = match run.what {
        What::Shared { pbn, .. } => pbn,
        What::Own { equal: Equal::TooShort { equal_pbn, .. } | Equal::LongEnough { equal_pbn }, .. } => equal_pbn,
        What::Own { equal: Equal::None, .. }
        | What::Bad { .. }
        | What::Unknown { .. }
        | What::Hole
        | What::Reserved
        | What::Changed => {
            return None;
        }
    };
    Some((pbn, run.blocks))
}

/// The ranges that runs ask for, ascending and disjoint, split wherever a run begins or ends.
fn pieces_of<'a>(runs: impl IntoIterator<Item = &'a ExplainedRun>) -> Vec<Piece> {
    let mut steps: BTreeMap<u64, i64> = BTreeMap::new();
    for (pbn, blocks) in runs.into_iter().filter_map(asked) {
        *steps.entry(pbn).or_default() += 1;
        *steps.entry(pbn + blocks).or_default() -= 1;
    }
    let mut asking = 0;
    let ends = steps.keys().copied().skip(1).collect::<Vec<_>>();
    let piece = |((pbn, step), end): ((&u64, &i64), u64)| {
        asking += step;
        (asking > 0).then(|| Piece { pbn: *pbn, blocks: end - pbn, places: Vec::new() })
    };
    steps.iter().zip(ends).filter_map(piece).collect()
}

/// Adds a place to the pieces that it refers to.
fn add(pieces: &mut [Piece], place: &Referrer) {
    let end = place.pbn + place.blocks;
    let from = pieces.partition_point(|piece| piece.pbn + piece.blocks <= place.pbn);
    for piece in pieces[from..].iter_mut().take_while(|piece| piece.pbn < end) {
        let (first, stop) = (piece.pbn.max(place.pbn), (piece.pbn + piece.blocks).min(end));
        if piece.places.len() < WANTED {
            let lbn = place.lbn + (first - place.pbn);
            piece.places.push(Referrer { map: place.map, lbn, pbn: first, blocks: stop - first });
        }
    }
}

/// The other places of a line, those with most blocks first, and about how many more there are.
fn others_of(map: u64, line: &Line, pieces: &[Piece]) -> (Vec<Referrer>, u64) {
    let run = &line.run;
    let Some((pbn, blocks)) = asked(run) else { return (Vec::new(), 0) };
    let from = pieces.partition_point(|piece| piece.pbn + piece.blocks <= pbn);
    let of_run = pieces[from..].iter().take_while(|piece| piece.pbn < pbn + blocks);
    let is_run = |place: &Referrer| place.map == map && place.lbn.wrapping_sub(run.lbn) == place.pbn.wrapping_sub(pbn);
    let mut places: Vec<Referrer> =
        of_run.flat_map(|piece| &piece.places).filter(|place| !is_run(place)).copied().collect();
    places.sort_unstable_by_key(|place| (place.map, place.lbn.wrapping_sub(place.pbn), place.pbn));
    let mut joined: Vec<Referrer> = Vec::new();
    for place in places {
        match joined.last_mut() {
            Some(last)
                if last.map == place.map
                    && last.lbn + last.blocks == place.lbn
                    && last.pbn + last.blocks == place.pbn =>
            {
                last.blocks += place.blocks;
            }
            _ => joined.push(place),
        }
    }
    joined.sort_by_key(|place| (Reverse(place.blocks), place.map, place.lbn));
    let hidden = joined.len().saturating_sub(SHOWN_MAX) as u64;
    joined.truncate(SHOWN_MAX);
    let shown: u64 = joined.iter().map(|place| place.blocks).sum();
    // Only the first places of a piece are known, but the number of references to each block is.
    let more = hidden.max(line.other_references.saturating_sub(shown).div_ceil(blocks));
    (joined, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_MAP: u64 = 9;

    fn shared(lbn: u64, pbn: u64, blocks: u64, references: u32) -> ExplainedRun {
        ExplainedRun::plain(lbn, blocks, What::Shared { pbn, references })
    }

    fn place(map: u64, lbn: u64, pbn: u64, blocks: u64) -> Referrer {
        Referrer { map, lbn, pbn, blocks }
    }

    fn found(runs: &[ExplainedRun], places: &[Referrer]) -> Vec<(Vec<Referrer>, u64)> {
        let mut pieces = pieces_of(runs);
        places.iter().for_each(|place| add(&mut pieces, place));
        crate::commands::explain::lines::lines_of(runs).iter().map(|line| others_of(OWN_MAP, line, &pieces)).collect()
    }

    #[test]
    fn what_runs_ask_for_is_cut_where_one_begins_or_ends() {
        let hole = ExplainedRun::plain(0, 9, What::Hole);
        let own = What::Own { pbn: 500, equal: Equal::TooShort { equal_pbn: 30, longest_run_blocks: 2 }, waits: false };
        let own = ExplainedRun::plain(100, 2, own);
        let runs = [shared(0, 10, 10, 2), hole, shared(20, 14, 10, 2), own, shared(40, 24, 1, 2)];
        let pieces: Vec<(u64, u64)> = pieces_of(&runs).iter().map(|piece| (piece.pbn, piece.blocks)).collect();
        assert_eq!(pieces, [(10, 4), (14, 6), (20, 4), (24, 1), (30, 2)]);
        assert_eq!(pieces_of(&[]), []);
    }

    #[test]
    fn the_run_itself_is_no_other_place_and_pieces_of_a_place_are_one() {
        let runs = [shared(0, 10, 10, 2), shared(50, 14, 3, 2)];
        let places = [place(1, 100, 8, 20), place(OWN_MAP, 0, 10, 10), place(OWN_MAP, 50, 14, 3)];
        let found = found(&runs, &places);
        assert_eq!(found[0], (vec![place(1, 100 + 2, 10, 10), place(OWN_MAP, 50, 14, 3)], 0));
        assert_eq!(found[1], (vec![place(1, 106, 14, 3), place(OWN_MAP, 4, 14, 3)], 0));
    }

    #[test]
    fn who_has_most_of_a_line_is_told_first_although_others_come_before() {
        let runs = [shared(0, 8, 10, 8), shared(10, 18, 1_000, 2)];
        let mut places: Vec<Referrer> = (0..6).map(|map| place(map, 0, 8, 10)).collect();
        places.extend([place(OWN_MAP, 0, 8, 1_010), place(20, 50, 8, 1_010)]);
        let found = found(&runs, &places);
        assert_eq!((found.len(), found[0].0[0]), (1, place(20, 60, 18, 1_000)), "its first blocks are not known");
        assert_eq!((found[0].0.len(), found[0].1), (SHOWN_MAX, 2));
    }

    #[test]
    fn the_first_places_are_kept_and_the_rest_is_counted() {
        let places: Vec<Referrer> = (0..30).map(|map| place(map, 0, 10, 2)).collect();
        let found = found(&[shared(0, 10, 2, 31)], &places);
        assert_eq!((found[0].0.len(), found[0].1), (SHOWN_MAX, 26));
        let equal = What::Own { pbn: 5, equal: Equal::LongEnough { equal_pbn: 10 }, waits: true };
        let mut pieces = pieces_of(&[ExplainedRun::plain(0, 2, equal.clone())]);
        places.iter().for_each(|place| add(&mut pieces, place));
        assert_eq!(pieces[0].places.len(), WANTED, "no more than is told");
    }
}
