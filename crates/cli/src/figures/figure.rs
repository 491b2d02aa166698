//! The definition of a figure: its name, unit, kind, meaning and source.

use oncefs_engine::{Histogram, Sizes};

use super::of_mount::Snapshot;

/// The behavior of a figure over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows from 0 at the mount.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts events by their size; each class grows from 0 at the mount.
    Histogram,
    /// States a fact.
    Fact,
}

impl Kind {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Counter => "counter, from 0 at the mount",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram, from 0 at the mount",
            Self::Fact => "fact",
        }
    }
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Blocks of 4096 bytes, or 1 for each event with a block.
    Blocks,
    /// Whole things: files, requests, pages.
    Things,
    /// Seconds.
    Seconds,
    /// 0 to 100.
    Percent,
    /// Events by duration: JSON has nanoseconds and classes of microseconds, metrics have seconds.
    Times,
    /// Requests by their number of blocks.
    Lengths,
    /// True or false.
    Truth,
    /// Words.
    Words,
    /// A number, a word, true or false, depending on the setting.
    Any,
}

impl Unit {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Blocks => "blocks of 4096 bytes",
            Self::Things => "a number",
            Self::Seconds => "seconds",
            Self::Percent => "percent",
            Self::Times => "nanoseconds in all, and how many took less than 1, 2, 4, ... microseconds",
            Self::Lengths => "requests by their blocks: how many have at most 1, 2, 4, ...",
            Self::Truth => "true or false",
            Self::Words => "words",
            Self::Any => "a number, a word, true or false",
        }
    }
}

/// The value of a figure.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number without decimals.
    Whole(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A number with decimals.
    Real(f64),
    /// True or false.
    Truth(bool),
    /// Words.
    Words(String),
    /// Events by duration.
    Times(Histogram),
    /// Requests by their number of blocks.
    Lengths(Sizes),
}

impl Value {
    /// Parses a value.
    pub fn of_text(text: &str) -> Self {
        let whole = || text.parse().map(Self::Whole);
        let signed = || text.parse().map(Self::Signed);
        let truth = || text.parse().map(Self::Truth);
        whole().or_else(|_| signed()).ok().or_else(|| truth().ok()).unwrap_or_else(|| Self::Words(text.to_owned()))
    }
}

/// The source of a figure's value.
#[derive(Clone, Copy)]
pub enum Source {
    /// One value. `None`: there is none now.
    One(fn(&Snapshot) -> Option<Value>),
    /// One for each label, such as each cache.
    Each {
        /// The name of the label.
        label: &'static str,
        /// All values by label.
        values: fn(&Snapshot) -> Vec<(String, Value)>,
    },
    /// The counter of this name.
    Counter,
    /// The setting of this name.
    Setting,
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Figure {
    /// The group that it belongs to: the outer name in JSON.
    pub group: &'static str,
    /// Its name. The name of a number ends in the unit or names the counted things.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Its meaning, in whole sentences.
    pub meaning: &'static str,
    /// Its source.
    pub source: Source,
}

impl Figure {
    /// Its name in JSON, with a star for each label.
    pub fn path(&self) -> String {
        let label = if self.label().is_some() { "*." } else { "" };
        format!("{}.{label}{}", self.group, self.name)
    }

    /// The name of its label, if it has one value for each.
    pub fn label(&self) -> Option<&'static str> {
        match self.source {
            Source::Each { label, .. } => Some(label),
            _ => None,
        }
    }

    /// All values, by label. The label of a single value is empty.
    pub fn values(&self, snapshot: &Snapshot) -> Vec<(String, Value)> {
        let single = |value: Option<Value>| value.into_iter().map(|value| (String::new(), value)).collect();
        match self.source {
            Source::One(value) => single(value(snapshot)),
            Source::Each { values, .. } => values(snapshot),
            Source::Counter => single(snapshot.report.counters.get(self.name).copied().map(Value::Whole)),
            Source::Setting => single(snapshot.report.settings.get(self.name).map(|text| Value::of_text(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_the_number_or_truth_that_it_stands_for() {
        let kind = |text| match Value::of_text(text) {
            Value::Whole(_) => "whole",
            Value::Signed(_) => "signed",
            Value::Truth(_) => "truth",
            _ => "words",
        };
        assert_eq!(
            ["7", "-7", "true", "auto", "22:00-06:00"].map(kind),
            ["whole", "signed", "truth", "words", "words"]
        );
    }
}
