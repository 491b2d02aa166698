//! Makes a trace run by run: each run is new or repeats an earlier one, goes to new addresses or to written ones.

use std::time::Duration;

use super::address::{blocks_to_end, place};
use super::distance::Distance;
use super::history::History;
use crate::trace::{Content, Event, Source, TraceError, Write};
use oncefs_toolbox::Random;

/// Writes around the drawn one among which a source is sought whose content some address still holds: real duplicates
/// copy what is there.
const LIVE_SEARCH_MAX: u64 = 4_096;
/// Blocks within which a share is brought back when chance has led away from it.
const CATCH_UP_BLOCKS: f64 = 1_000.0;
/// Blocks of a made trace at most: 16 TiB, and numbers of 32 bits.
const BLOCKS_MAX: u64 = u32::MAX as u64;

/// What a made trace shall be like.
#[derive(Clone, Debug, PartialEq)]
pub struct MixedSpec {
    /// Blocks written in all.
    pub blocks: u64,
    /// Share of blocks whose content was written before, 0 to 1.
    pub duplicates: f64,
    /// Share of blocks that go to an address written before, 0 to 1.
    pub overwrites: f64,
    /// How far back the repeated write lies.
    pub reuse: Distance,
    /// How long ago an overwritten address was written.
    pub age: Distance,
    /// Mean length of a run in blocks (geometrically distributed): it is new or repeated as a whole.
    pub run_blocks: f64,
    /// Blocks of one request at most.
    pub request_blocks_max: u64,
    /// Time from the first write to the last; writes are evenly spaced.
    pub duration: Duration,
    /// Repeats a trace exactly.
    pub seed: u64,
}

impl MixedSpec {
    /// Names what cannot be made.
    pub fn check(&self) -> Result<(), String> {
        if self.blocks == 0 || self.blocks > BLOCKS_MAX {
            return Err(format!("a trace of {} blocks: expected 1 to {BLOCKS_MAX}", self.blocks));
        }
        for (name, share) in [("duplicates", self.duplicates), ("overwrites", self.overwrites)] {
            if !(0.0..1.0).contains(&share) {
                return Err(format!("a share of {name} of {share}: expected 0 or more, and less than 1"));
            }
        }
        if !(self.run_blocks >= 1.0 && self.run_blocks.is_finite()) || self.request_blocks_max == 0 {
            return Err("runs and requests have at least one block".to_owned());
        }
        Ok(())
    }
}

/// A trace being made.
pub struct Mixed {
    spec: MixedSpec,
    random: Random,
    history: History,
    duplicates: u64,
    overwrites: u64,
    /// The run being handed out: its address, and its contents.
    address: u64,
    run: Vec<Content>,
    handed_out: usize,
}

impl Mixed {
    /// Begins a trace; an error names what is wrong with the specification.
    pub fn new(spec: MixedSpec) -> Result<Self, String> {
        spec.check()?;
        let random = Random::mixed(spec.seed);
        let (history, run) = (History::default(), Vec::new());
        Ok(Self { spec, random, history, duplicates: 0, overwrites: 0, address: 0, run, handed_out: 0 })
    }

    fn make_run(&mut self) {
        let written = self.history.blocks();
        let repeats = self.decides(self.spec.duplicates, self.duplicates);
        let overwrites = self.decides(self.spec.overwrites, self.overwrites);
        self.address = self.choose_address(overwrites);
        let source = repeats.then(|| self.choose_source());
        let mut length = self.random.geometric(self.spec.run_blocks).min(self.spec.blocks - written);
        length = length.min(blocks_to_end(self.address));
        if overwrites {
            length = length.min(self.history.addresses() - self.address);
        }
        if let Some(distance) = source {
            length = self.live_blocks(distance, length);
        }
        self.run.clear();
        self.handed_out = 0;
        for at in 0..length {
            let content = match source {
                // The source stands still while the history grows by one per block.
                Some(distance) => self.history.back(distance).0,
                None => self.history.make_content(),
            };
            self.history.write(content, self.address + at);
            self.run.push(Content::numbered(content ^ self.spec.seed << u32::BITS));
        }
        self.duplicates += if repeats { length } else { 0 };
        self.overwrites += if overwrites { length } else { 0 };
    }

    /// Chance with this probability, raised or lowered by how far the count so far is behind or ahead.
    fn decides(&mut self, share: f64, so_far: u64) -> bool {
        let written = self.history.blocks();
        let behind = share * written as f64 - so_far as f64;
        written > 0 && share > 0.0 && self.random.chance(share + behind / CATCH_UP_BLOCKS)
    }

    fn choose_address(&mut self, overwrites: bool) -> u64 {
        if overwrites {
            let distance = self.spec.age.draw(&mut self.random);
            self.history.back(distance.min(self.history.blocks())).1
        } else {
            self.history.addresses()
        }
    }

    /// Distance back to the run to repeat: the write nearest to the drawn one that is still there.
    fn choose_source(&mut self) -> u64 {
        let written = self.history.blocks();
        let drawn = self.spec.reuse.draw(&mut self.random).min(written);
        let nearby =
            (0..LIVE_SEARCH_MAX).flat_map(|off| [drawn.saturating_sub(off).max(1), (drawn + off).min(written)]);
        let is_live = |distance: &u64| self.history.is_live(self.history.back(*distance).0);
        nearby.into_iter().find(is_live).unwrap_or(drawn)
    }

    /// How long the run at this distance is still there, at least one block and at most `length`.
    fn live_blocks(&self, distance: u64, length: u64) -> u64 {
        let is_live = |at: &u64| *at < distance && self.history.is_live(self.history.back(distance - at).0);
        (1..length).take_while(is_live).count() as u64 + 1
    }

    fn time(&self, blocks: u64) -> Duration {
        self.spec.duration.mul_f64(blocks as f64 / self.spec.blocks as f64)
    }
}

impl Source for Mixed {
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        if self.handed_out == self.run.len() {
            if self.history.blocks() == self.spec.blocks {
                return Ok(None);
            }
            self.make_run();
        }
        let begin = self.handed_out;
        let length = (self.run.len() - begin).min(self.spec.request_blocks_max as usize);
        self.handed_out += length;
        let time = self.time(self.history.blocks() - (self.run.len() - begin) as u64);
        let place = place(self.address + begin as u64);
        Ok(Some(Event::Write(Write { time, place, contents: &self.run[begin..begin + length] })))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::trace::Place;

    fn spec() -> MixedSpec {
        MixedSpec {
            blocks: 100_000,
            duplicates: 0.3,
            overwrites: 0.4,
            reuse: Distance::LogNormal { median: 2_000.0, sigma: 2.0 },
            age: Distance::Uniform { max: 50_000.0 },
            run_blocks: 4.0,
            request_blocks_max: 8,
            duration: Duration::from_secs(86_400),
            seed: 5,
        }
    }

    fn blocks(spec: MixedSpec) -> Vec<(Place, Content)> {
        let mut mixed = Mixed::new(spec).unwrap();
        let mut found = Vec::new();
        let mut last = Duration::ZERO;
        while let Some(Event::Write(write)) = mixed.next().unwrap() {
            assert!(write.time >= last && !write.contents.is_empty());
            last = write.time;
            found.extend(write.blocks());
        }
        found
    }

    fn repeated_share<T: std::hash::Hash + Eq>(items: impl ExactSizeIterator<Item = T>) -> f64 {
        let all = items.len();
        1.0 - items.collect::<HashSet<T>>().len() as f64 / all as f64
    }

    #[test]
    fn the_stated_shares_are_met() {
        for (duplicates, overwrites) in [(0.0, 0.0), (0.219, 0.4), (0.475, 0.71), (0.9, 0.05)] {
            let blocks = blocks(MixedSpec { duplicates, overwrites, ..spec() });
            assert_eq!(blocks.len(), 100_000);
            let found = repeated_share(blocks.iter().map(|(_, content)| content));
            assert!((found - duplicates).abs() < 0.01, "{found} duplicates, asked for {duplicates}");
            let found = repeated_share(blocks.iter().map(|(place, _)| place));
            assert!((found - overwrites).abs() < 0.01, "{found} overwrites, asked for {overwrites}");
        }
    }

    #[test]
    fn repetitions_lie_as_far_back_as_stated() {
        let reuse = Distance::Uniform { max: 100.0 };
        let blocks = blocks(MixedSpec { reuse, overwrites: 0.0, run_blocks: 1.0, ..spec() });
        let mut last = std::collections::HashMap::new();
        for (at, (_, content)) in blocks.into_iter().enumerate() {
            if let Some(before) = last.insert(content, at) {
                assert!(at - before <= 100, "block {at} repeats {before}");
            }
        }
    }

    #[test]
    fn runs_have_the_stated_mean() {
        let blocks = blocks(MixedSpec { duplicates: 0.0, overwrites: 0.0, run_blocks: 1.0, ..spec() });
        assert!(blocks.windows(2).all(|pair| pair[0].0 < pair[1].0), "new addresses ascend");
        let mut mixed = Mixed::new(MixedSpec { request_blocks_max: 1 << 20, ..spec() }).unwrap();
        let mut requests = 0;
        while mixed.next().unwrap().is_some() {
            requests += 1;
        }
        let mean = 100_000.0 / f64::from(requests);
        assert!((mean - 4.0).abs() < 0.3, "runs of {mean} blocks on average");
    }

    #[test]
    fn a_seed_repeats_its_trace_and_another_does_not() {
        assert_eq!(blocks(spec()), blocks(spec()));
        let other: HashSet<_> = blocks(MixedSpec { seed: 6, ..spec() }).into_iter().map(|block| block.1).collect();
        assert!(blocks(spec()).iter().all(|block| !other.contains(&block.1)));
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        assert!(Mixed::new(MixedSpec { blocks: 0, ..spec() }).is_err());
        assert!(Mixed::new(MixedSpec { duplicates: 1.0, ..spec() }).is_err());
        assert!(Mixed::new(MixedSpec { overwrites: -0.1, ..spec() }).is_err());
        assert!(Mixed::new(MixedSpec { run_blocks: 0.5, ..spec() }).is_err());
    }
}
