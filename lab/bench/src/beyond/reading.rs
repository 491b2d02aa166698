//! What was measured, as numbers with names.

use serde::Serialize;

use crate::spread::Spread;

/// One number.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// What it is, such as `fsync`.
    pub what: String,
    /// Of which side, such as `oncefs`.
    pub side: &'static str,
    /// In which repetition.
    pub repetition: usize,
    /// The number, in the unit that the step says.
    pub value: f64,
}

/// All numbers.
#[derive(Default, Serialize)]
pub struct Readings(Vec<Reading>);

impl Readings {
    /// Notes one.
    pub fn add(&mut self, what: impl Into<String>, side: &'static str, repetition: usize, value: f64) {
        self.0.push(Reading { what: what.into(), side, repetition, value });
    }

    /// Those of one kind and side.
    pub fn spread(&self, what: &str, side: &str) -> Option<Spread> {
        Spread::of(self.of(what, side).map(|reading| reading.value))
    }

    /// The ratios of two sides, each within a repetition.
    pub fn ratio(&self, what: &str, side: &str, to: &str, to_what: &str) -> Option<Spread> {
        let ratio = |reading: &Reading| {
            let other = self.of(to_what, to).find(|other| other.repetition == reading.repetition)?;
            Some(reading.value / other.value)
        };
        Spread::of(self.of(what, side).filter_map(ratio))
    }

    fn of<'a>(&'a self, what: &'a str, side: &'a str) -> impl Iterator<Item = &'a Reading> {
        self.0.iter().filter(move |reading| reading.what == what && reading.side == side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let mut readings = Readings::default();
        for (side, repetition, value) in [("a", 0, 2.0), ("a", 1, 9.0), ("b", 0, 1.0), ("b", 1, 3.0), ("a", 2, 7.0)] {
            readings.add("x", side, repetition, value);
        }
        assert_eq!(readings.ratio("x", "a", "b", "x"), Spread::of([2.0, 3.0]));
        assert_eq!(readings.spread("x", "b"), Spread::of([1.0, 3.0]));
        assert_eq!(readings.ratio("x", "a", "c", "x"), None);
    }
}
