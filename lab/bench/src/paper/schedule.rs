//! What is left to measure, in order, and how long that takes, roughly.

use super::experiment::{Conditions, Experiment};
use super::readings::Readings;

/// A repetition of an experiment that is not there yet.
#[derive(Clone, Copy)]
pub struct Due {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Which repetition, from 0 on.
    pub repetition: usize,
}

/// The repetitions that are left, experiment by experiment.
pub fn left(experiments: &[&'static Experiment], readings: &Readings, conditions: &Conditions) -> Vec<Due> {
    let of = |experiment: &&'static Experiment| {
        let done = readings.of(experiment, conditions).map_or(0, |stored| stored.repetitions);
        let experiment = *experiment;
        (done..conditions.repetitions).map(move |repetition| Due { experiment, repetition })
    };
    experiments.iter().flat_map(of).collect()
}

/// Minutes that these take. An experiment of which a repetition is there takes as long as that; the others what is
/// expected of them, times what the measured ones took over what was expected of them.
pub fn minutes(due: &[Due], experiments: &[&'static Experiment], readings: &Readings, conditions: &Conditions) -> f64 {
    let measured = |experiment: &Experiment| {
        let stored = readings.of(experiment, conditions)?;
        Some(stored.minutes / stored.repetitions as f64)
    };
    let pairs = experiments.iter().filter_map(|one| Some((measured(one)?, one.expected_minutes(conditions))));
    let (took, expected) = pairs.fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
    let factor = if expected > 0.0 { took / expected } else { 1.0 };
    let of = |due: &Due| measured(due.experiment).unwrap_or(due.experiment.expected_minutes(conditions) * factor);
    due.iter().map(of).sum()
}

/// Minutes as people say them.
pub fn describe(minutes: f64) -> String {
    let minutes = minutes.ceil().max(1.0) as u64;
    if minutes < 60 { format!("{minutes} min") } else { format!("{} h {:02} min", minutes / 60, minutes % 60) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::readings::Stored;
    use super::*;

    static SHORT: Experiment = Experiment { name: "short", words: &["--size={100M:1M}"], minutes: 0.7 };
    static LONG: Experiment = Experiment { name: "long", words: &[], minutes: 9.7 };

    fn conditions() -> Conditions<'static> {
        Conditions { directory: Path::new("x"), oncefs: Path::new("x"), scale: 1.0, repetitions: 3, seed: 1 }
    }

    fn stored(experiment: &Experiment, repetitions: usize, minutes: f64) -> Stored {
        Stored { words: experiment.words(&conditions()), repetitions, minutes, ..Stored::default() }
    }

    fn plan(readings: &Readings) -> (Vec<(&'static str, usize)>, f64) {
        let due = left(&[&SHORT, &LONG], readings, &conditions());
        let minutes = minutes(&due, &[&SHORT, &LONG], readings, &conditions());
        (due.iter().map(|due| (due.experiment.name, due.repetition)).collect(), minutes)
    }

    #[test]
    fn repetitions_that_are_there_are_not_left_and_tell_how_long_the_others_take() {
        let (due, minutes) = plan(&Readings::default());
        assert_eq!((due.len(), due[0], due[3], minutes.round()), (6, ("short", 0), ("long", 0), 33.0));
        // Two took four minutes and not two: so all takes twice as long.
        let some = Readings([("short", stored(&SHORT, 2, 4.0))].into());
        let (due, minutes) = plan(&some);
        assert_eq!((due.len(), due[0], due[1], minutes.round()), (4, ("short", 2), ("long", 0), 62.0));
        let mut of_another_size = stored(&SHORT, 3, 4.0);
        of_another_size.words[0] = "--size=1M".to_owned();
        assert_eq!(plan(&Readings([("short", of_another_size)].into())).0.len(), 6);
    }

    #[test]
    fn minutes_are_told_in_hours_from_one_on() {
        assert_eq!([0.2, 59.0, 61.0, 150.0].map(describe), ["1 min", "59 min", "1 h 01 min", "2 h 30 min"]);
    }
}
