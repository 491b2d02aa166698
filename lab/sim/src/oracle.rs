//! What could be found: the exact answer, with all the memory it takes.

use hashbrown::HashMap;

use crate::trace::{Content, Event, Place, Recording, Source, Write};

/// Counts of a whole trace. All in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Written in all.
    pub written: u64,
    /// Of these, zeros: no content to share.
    pub zeros: u64,
    /// Content was written before, be it there still or not: what Table 1 of SmartDedup counts.
    pub repeated: u64,
    /// Content was held by some place at the moment of writing: what dedup can find at all.
    pub duplicates: u64,
    /// Of `duplicates`: the very place written to held it.
    pub same_place: u64,
    /// Places that hold something at the end.
    pub places: u64,
    /// Places written to at any time.
    pub places_ever: u64,
    /// Different contents written at any time.
    pub contents_ever: u64,
    /// Different contents held at the end: what an exact dedup stores.
    pub contents: u64,
    /// Most contents held at any time: the fingerprints a complete index has to hold.
    pub contents_max: u64,
}

/// Follows a trace and knows every content. About 60 bytes a place and a content.
#[derive(Default)]
pub struct Oracle {
    truth: Truth,
    held: HashMap<Place, Option<Content>>,
    holders: HashMap<Content, u64>,
}

impl Oracle {
    /// Takes a write into account.
    pub fn write(&mut self, write: &Write) {
        write.blocks().for_each(|(place, content)| self.write_block(place, content));
    }

    fn write_block(&mut self, place: Place, content: Content) {
        self.truth.written += 1;
        let is_zero = content == Content::ZERO;
        let before = self.held.insert(place, (!is_zero).then_some(content)).flatten();
        if is_zero {
            self.truth.zeros += 1;
        } else {
            self.count(content, before);
        }
        before.into_iter().for_each(|before| self.leave(before));
        self.truth.contents_max = self.truth.contents_max.max(self.truth.contents);
    }

    fn count(&mut self, content: Content, before: Option<Content>) {
        self.truth.places += u64::from(before.is_none());
        let known = self.holders.contains_key(&content);
        let holders = self.holders.entry(content).or_default();
        self.truth.repeated += u64::from(known);
        self.truth.duplicates += u64::from(*holders > 0);
        self.truth.same_place += u64::from(before == Some(content));
        self.truth.contents += u64::from(*holders == 0);
        *holders += 1;
    }

    fn leave(&mut self, content: Content) {
        let holders = self.holders.get_mut(&content).expect("what a place holds was counted");
        *holders -= 1;
        self.truth.contents -= u64::from(*holders == 0);
    }

    /// The counts so far.
    pub fn truth(&self) -> Truth {
        let (places_ever, contents_ever) = (self.held.len() as u64, self.holders.len() as u64);
        let places = self.held.values().flatten().count() as u64;
        Truth { places, places_ever, contents_ever, ..self.truth }
    }
}

impl Truth {
    /// The counts of a whole trace.
    pub fn of(recording: &Recording) -> Self {
        let mut oracle = Oracle::default();
        let mut source = recording.replay();
        while let Some(event) = source.next().expect("a recording has no bad line") {
            if let Event::Write(write) = event {
                oracle.write(&write);
            }
        }
        oracle.truth()
    }

    /// Of the blocks that an exact dedup saves in the end, the percentage that is saved with `stored` blocks in use.
    pub fn percent_saved(&self, stored: u64) -> f64 {
        let exact = self.places - self.contents;
        if exact == 0 { 100.0 } else { 100.0 * (self.places as f64 - stored as f64) / exact as f64 }
    }

    /// A count as percent of the blocks written.
    pub fn percent_of_written(&self, blocks: u64) -> f64 {
        if self.written == 0 { 0.0 } else { 100.0 * blocks as f64 / self.written as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncefs_toolbox::Random;
    use std::time::Duration;

    /// Keeps what each place holds, and looks at all of it for every write.
    fn brute_force(writes: &[(Place, Content)]) -> Truth {
        let mut held: Vec<(Place, Content)> = Vec::new();
        let mut seen: Vec<Content> = Vec::new();
        let mut truth = Truth::default();
        for &(place, content) in writes {
            truth.written += 1;
            let is_zero = content == Content::ZERO;
            truth.zeros += u64::from(is_zero);
            truth.repeated += u64::from(!is_zero && seen.contains(&content));
            truth.duplicates += u64::from(held.iter().any(|(_, held)| *held == content));
            truth.same_place += u64::from(held.contains(&(place, content)));
            held.retain(|(other, _)| *other != place);
            if !is_zero {
                held.push((place, content));
                seen.push(content);
            }
            truth.contents_max = truth.contents_max.max(distinct(held.iter().map(|(_, held)| *held)));
        }
        truth.places = held.len() as u64;
        truth.places_ever = distinct(writes.iter().map(|(place, _)| *place));
        truth.contents = distinct(held.into_iter().map(|(_, held)| held));
        truth.contents_ever = distinct(seen.into_iter());
        truth
    }

    fn distinct<T: Ord>(items: impl Iterator<Item = T>) -> u64 {
        items.collect::<std::collections::BTreeSet<T>>().len() as u64
    }

    #[test]
    fn the_oracle_agrees_with_brute_force() {
        for seed in 0..20 {
            let mut random = Random::mixed(seed);
            let content = |number| if number == 0 { Content::ZERO } else { Content::numbered(number) };
            let writes: Vec<(Place, Content)> = (0..400)
                .map(|_| (Place { file: random.scaled(3), lbn: random.scaled(20) }, content(random.scaled(40))))
                .collect();
            let mut oracle = Oracle::default();
            for (place, content) in &writes {
                oracle.write(&Write { time: Duration::ZERO, place: *place, contents: &[*content] });
            }
            assert_eq!(oracle.truth(), brute_force(&writes), "seed {seed}");
        }
    }

    #[test]
    fn what_was_overwritten_is_repeated_but_no_duplicate() {
        let [one, other] = [1, 2].map(Content::numbered);
        let mut recording = Recording::default();
        let mut oracle = Oracle::default();
        for (lbn, content) in [(0, one), (0, other), (0, one), (1, one), (1, one)] {
            let write = Write { time: Duration::ZERO, place: Place { file: 0, lbn }, contents: &[content] };
            recording.push(&Event::Write(write));
            oracle.write(&write);
        }
        let truth = oracle.truth();
        assert_eq!((truth.repeated, truth.duplicates, truth.same_place), (3, 2, 1));
        assert_eq!((truth.places, truth.contents, truth.contents_ever), (2, 1, 2));
        assert_eq!(recording.blocks(), truth.written);
        assert_eq!([1, 2].map(|stored| truth.percent_saved(stored)), [100.0, 0.0]);
    }
}
