//! The readings of experiments, kept in a directory so that a run goes on where the last one ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::experiment::{Conditions, Experiment};
use super::figure::{Field, Measure, Pick};
use crate::failure::{During, Result};
use crate::report::write_json;
use crate::spread::Spread;

/// The readings of one experiment, with the conditions under which they came to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The command line of all repetitions.
    pub words: Vec<String>,
    /// How many of the repetitions are there.
    pub repetitions: usize,
    /// The commit of the checkout; several if repetitions differ in it.
    pub commit: String,
    /// Whether the oncefs that was measured is a debug build, whose times say nothing.
    pub is_debug: bool,
    /// When it ended, in UTC.
    pub date: String,
    /// Kernel, processors and memory.
    pub machine: String,
    /// Load average of the last minute before it began: of the repetition that began with the greatest.
    pub load_before: String,
    /// The same at its end.
    pub load_after: String,
    /// How long it took.
    pub minutes: f64,
    /// What it wrote.
    pub readings: Value,
}

/// From this load average on, other work is said to have run on the machine.
const BUSY: f64 = 0.5;

impl Stored {
    /// Whether other work ran on the machine when it began.
    pub fn is_busy(&self) -> bool {
        self.load_before.parse::<f64>().is_ok_and(|load| load >= BUSY)
    }

    /// Writes it to the directory. Killed at any moment, it leaves the old readings or the new ones.
    pub fn save(&self, directory: &Path, name: &str) -> Result<()> {
        let (path, new) = (directory.join(format!("{name}.json")), directory.join(format!("{name}.json.new")));
        write_json(&new, self)?;
        fs::rename(&new, &path).during(|| format!("cannot replace {}", path.display()))
    }

    /// Adds further repetitions.
    pub fn extend(&mut self, more: Stored) {
        self.repetitions += more.repetitions;
        self.minutes += more.minutes;
        self.is_debug |= more.is_debug;
        if !self.commit.split(", ").any(|commit| commit == more.commit) {
            self.commit = format!("{}, {}", self.commit, more.commit);
        }
        let load = |stored: &Stored| stored.load_before.parse::<f64>().unwrap_or(0.0);
        if load(&more) > load(self) {
            self.load_before = more.load_before;
        }
        (self.date, self.machine, self.load_after) = (more.date, more.machine, more.load_after);
        join(&mut self.readings, more.readings);
    }

    /// Reads it, if it is there.
    fn load(directory: &Path, name: &str) -> Result<Option<Stored>> {
        let path = directory.join(format!("{name}.json"));
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read(&path).during(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).map(Some).during(|| format!("cannot parse {}", path.display()))
    }
}

/// Appends the lists of the second to those of the first, wherever they are in objects.
fn join(readings: &mut Value, more: Value) {
    match (readings, more) {
        (Value::Array(readings), Value::Array(more)) => readings.extend(more),
        (Value::Object(readings), Value::Object(more)) => {
            for (name, more) in more {
                join(readings.entry(name).or_insert(Value::Null), more);
            }
        }
        (readings @ Value::Null, more) => *readings = more,
        _ => {}
    }
}

/// All readings of a directory, by the names of their experiments.
#[derive(Default)]
pub struct Readings(pub BTreeMap<&'static str, Stored>);

impl Readings {
    /// Those of these experiments that are there.
    pub fn load(directory: &Path, experiments: &[&'static Experiment]) -> Result<Readings> {
        let mut found = BTreeMap::new();
        for experiment in experiments {
            if let Some(stored) = Stored::load(directory, experiment.name)? {
                found.insert(experiment.name, stored);
            }
        }
        Ok(Readings(found))
    }

    /// What was measured of an experiment with the same words.
    pub fn of(&self, experiment: &Experiment, conditions: &Conditions) -> Option<&Stored> {
        self.0.get(experiment.name).filter(|stored| stored.words == experiment.words(conditions))
    }

    /// Adds a repetition of an experiment to those with the same words, or puts it in the place of others.
    pub fn add(&mut self, experiment: &'static Experiment, one: Stored) -> &Stored {
        match self.0.get_mut(experiment.name) {
            Some(stored) if stored.words == one.words => stored.extend(one),
            _ => drop(self.0.insert(experiment.name, one)),
        }
        &self.0[experiment.name]
    }

    /// Median, least and greatest of a measure over the repetitions.
    pub fn spread(&self, measure: &Measure) -> Option<Spread> {
        let values = match measure {
            Measure::Of(pick) => self.values(pick, None).into_iter().map(|(_, value)| value).collect(),
            Measure::Ratio(one, other) => {
                self.joined(std::slice::from_ref(one), std::slice::from_ref(other), |one, other| one / other)
            }
            Measure::RatioOfSums(ones, others) => self.joined(ones, others, |one, other| one / other),
            Measure::Difference(one, other) => {
                self.joined(std::slice::from_ref(one), std::slice::from_ref(other), |one, other| one - other)
            }
            Measure::Saved(one, other) => {
                self.joined(std::slice::from_ref(one), std::slice::from_ref(other), |one, other| {
                    (1.0 - one / other) * 100.0
                })
            }
        };
        // A step without work has no ratio.
        Spread::of(values.into_iter().filter(|value| value.is_finite()))
    }

    /// For every repetition that has all of them, the sum of some values joined with that of others.
    fn joined(&self, ones: &[Pick], others: &[Pick], join: fn(f64, f64) -> f64) -> Vec<f64> {
        let (ones, others) = (self.sums(ones), self.sums(others));
        ones.into_iter().filter_map(|(repetition, one)| Some(join(one, *others.get(&repetition)?))).collect()
    }

    /// The sum of these values in each repetition that has all of them.
    fn sums(&self, picks: &[Pick]) -> BTreeMap<u64, f64> {
        let each: Vec<BTreeMap<u64, f64>> =
            picks.iter().map(|pick| self.values(pick, None).into_iter().collect()).collect();
        let repetitions = each.first().into_iter().flat_map(|first| first.keys().copied());
        let sum = |repetition| {
            let values: Option<Vec<f64>> = each.iter().map(|values| values.get(&repetition).copied()).collect();
            Some((repetition, values?.iter().sum()))
        };
        repetitions.filter_map(sum).collect()
    }

    /// The median of one member of a list.
    pub fn median_at(&self, pick: &Pick, index: usize) -> Option<f64> {
        Spread::of(self.values(pick, Some(index)).into_iter().map(|(_, value)| value)).map(|spread| spread.median)
    }

    /// Repetition and value of each reading that is meant.
    fn values(&self, pick: &Pick, index: Option<usize>) -> Vec<(u64, f64)> {
        let stored = self.0.get(pick.experiment.name);
        let list = stored.and_then(|stored| stored.readings.pointer(pick.list)).and_then(Value::as_array);
        let meant = list
            .into_iter()
            .flatten()
            .filter(|reading| pick.keys.iter().all(|(name, wanted)| has(reading, name, wanted)));
        let value = |reading: &Value| {
            let repetition = reading.get("repetition").and_then(Value::as_u64).unwrap_or(0);
            Some((repetition, pick.field.of(reading, index)?))
        };
        meant.filter_map(value).collect()
    }
}

fn has(reading: &Value, name: &str, wanted: &str) -> bool {
    let found = match reading.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => return false,
    };
    wanted.strip_suffix('*').map_or(found == wanted, |beginning| found.starts_with(beginning))
}

impl Field {
    fn of(self, reading: &Value, index: Option<usize>) -> Option<f64> {
        let number = |path: &str| reading.pointer(path).and_then(Value::as_f64);
        let list =
            |path: &str| -> Option<Vec<f64>> { reading.pointer(path)?.as_array()?.iter().map(Value::as_f64).collect() };
        match (self, index) {
            (Field::At(path), None) => number(path),
            (Field::At(path), Some(index)) => list(path)?.get(index).copied(),
            (Field::Megabytes(path), _) => Some(number(path)? / 1e6),
            (Field::Less(one, other), _) => Some(number(one)? - number(other)?),
            (Field::Per(one, other), _) => Some(number(one)? / number(other)?),
            (Field::Mean(path), _) => {
                let values = list(path)?;
                Some(values.iter().sum::<f64>() / values.len() as f64)
            }
            (Field::PercentUpTo(path, last), index) => {
                let values = list(path)?;
                let upto = values.iter().take(index.unwrap_or(last) + 1).sum::<f64>();
                Some(upto * 100.0 / values.iter().sum::<f64>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    static EXPERIMENT: Experiment = Experiment { name: "e", words: &["--file-size={100M:24M}"], minutes: 1.0 };

    fn pick(side: &[(&'static str, &str)], field: Field) -> Pick {
        Pick::of(&EXPERIMENT, "/rows", side, field)
    }

    fn readings() -> Readings {
        let rows = json!({"rows": [
            {"side": "a=x", "repetition": 0, "s": 2.0, "bytes": 8, "l": [1, 1, 2]},
            {"side": "b", "repetition": 1, "s": 5.0},
            {"side": "a=x", "repetition": 1, "s": 10.0, "bytes": 8, "l": [1, 1, 2]},
            {"side": "b", "repetition": 0, "s": 4.0},
        ]});
        let stored = Stored {
            words: vec!["--file-size=50M".into(), "--repetitions=2".into(), "--seed=1".into()],
            repetitions: 2,
            readings: rows,
            ..Stored::default()
        };
        Readings([("e", stored)].into())
    }

    #[test]
    fn values_are_joined_within_a_repetition() {
        let (a, b) = (pick(&[("side", "a*")], Field::At("/s")), pick(&[("side", "b")], Field::At("/s")));
        let spread = |measure| readings().spread(&measure).map(|spread| (spread.min, spread.max));
        assert_eq!(spread(Measure::Ratio(a.clone(), b.clone())), Some((0.5, 2.0)));
        assert_eq!(spread(Measure::Difference(a.clone(), b.clone())), Some((-2.0, 5.0)));
        assert_eq!(spread(Measure::Saved(a.clone(), b.clone())), Some((-100.0, 50.0)));
        assert_eq!(spread(Measure::RatioOfSums(vec![a, b.clone()], vec![b])), Some((1.5, 3.0)));
        assert_eq!(spread(Measure::Of(pick(&[("side", "c")], Field::At("/s")))), None);
    }

    #[test]
    fn fields_are_numbers_quotients_means_and_shares_of_lists() {
        let of = |field| readings().spread(&Measure::Of(pick(&[("side", "a*")], field))).map(|spread| spread.min);
        assert_eq!(of(Field::Per("/bytes", "/s")), Some(0.8));
        assert_eq!(of(Field::Less("/bytes", "/s")), Some(-2.0));
        assert_eq!(of(Field::Mean("/l")), Some(4.0 / 3.0));
        assert_eq!(of(Field::PercentUpTo("/l", 1)), Some(50.0));
        assert_eq!(readings().median_at(&pick(&[("side", "a*")], Field::At("/l")), 2), Some(2.0));
    }

    #[test]
    fn what_was_measured_with_other_words_is_measured_anew_and_what_is_saved_is_found() {
        let path = Path::new("x");
        let at = |scale| Conditions { directory: path, oncefs: path, scale, repetitions: 2, seed: 1 };
        let has = |readings: &Readings, scale| readings.of(&EXPERIMENT, &at(scale)).is_some();
        assert!(has(&readings(), 0.5) && !has(&readings(), 1.0));
        let directory = tempfile::tempdir().unwrap();
        assert!(Readings::load(directory.path(), &[&EXPERIMENT]).unwrap().0.is_empty());
        readings().0["e"].save(directory.path(), "e").unwrap();
        assert!(has(&Readings::load(directory.path(), &[&EXPERIMENT]).unwrap(), 0.5));
    }

    #[test]
    fn a_further_repetition_adds_its_readings_and_its_conditions() {
        let mut stored = readings().0.remove("e").unwrap();
        (stored.commit, stored.load_before, stored.minutes) = ("one".into(), "0.20".into(), 2.0);
        let rows = json!({"rows": [{"side": "b", "repetition": 2, "s": 9.0}], "other": [1]});
        let more = |commit: &str| Stored {
            repetitions: 1,
            commit: commit.into(),
            load_before: "3.00".into(),
            load_after: "4.00".into(),
            minutes: 1.0,
            readings: rows.clone(),
            ..stored.clone()
        };
        let (third, fourth) = (more("two"), more("two"));
        stored.extend(third);
        assert_eq!((stored.repetitions, stored.commit.as_str(), stored.minutes), (3, "one, two", 3.0));
        assert_eq!((stored.load_before.as_str(), stored.load_after.as_str()), ("3.00", "4.00"));
        assert_eq!(stored.readings["rows"].as_array().unwrap().len(), 5);
        assert_eq!(stored.readings["other"], json!([1]));
        stored.extend(fourth);
        assert_eq!(stored.commit, "one, two");
    }
}
