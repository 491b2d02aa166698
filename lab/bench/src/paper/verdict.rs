//! Judges a claim by the median of what was measured.

use super::figure::{Bound, Claim, Measure};
use super::readings::{Readings, Stored};
use crate::spread::Spread;

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Ours is as good as the paper's, or better.
    Holds,
    /// It is not.
    FallsShort,
    /// It cannot be judged, for this reason.
    NotComparable(&'static str),
    /// Nothing was measured yet.
    NotMeasured,
}

/// A claim with what was measured for it.
pub struct Judged<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// What was measured.
    pub ours: Option<Spread>,
    /// What came out.
    pub verdict: Verdict,
}

impl<'a> Judged<'a> {
    /// Judges a claim.
    pub fn of(claim: &'a Claim, readings: &Readings) -> Judged<'a> {
        let ours = claim.ours.as_ref().and_then(|measure| readings.spread(measure));
        let verdict = match (claim.bound, ours) {
            (Bound::NotComparable(why), _) => Verdict::NotComparable(why),
            (_, None) => Verdict::NotMeasured,
            _ if claim.needs_quiet && is_busy(claim, readings) => {
                Verdict::NotComparable("the machine did other work, and its processor time counts here too")
            }
            (bound, Some(spread)) if bound.allows(spread.median) => Verdict::Holds,
            _ => Verdict::FallsShort,
        };
        Judged { claim, ours, verdict }
    }

    /// Whether ours is not as good.
    pub fn falls_short(&self) -> bool {
        self.verdict == Verdict::FallsShort
    }

    /// Ours over the paper's.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ours?.median / self.claim.number?).filter(|ratio| ratio.is_finite())
    }

    /// The verdict in words.
    pub fn describe(&self) -> String {
        let is_within =
            self.ours.is_some_and(|ours| self.claim.bound.allows(ours.min) != self.claim.bound.allows(ours.max));
        let spread = if is_within { ", the bound is within the spread" } else { "" };
        match self.verdict {
            Verdict::Holds => format!("holds{spread}"),
            Verdict::FallsShort => format!("**falls short**{spread}"),
            Verdict::NotComparable(why) => format!("not comparable: {why}"),
            Verdict::NotMeasured => "not measured yet".to_owned(),
        }
    }
}

fn is_busy(claim: &Claim, readings: &Readings) -> bool {
    let picks = claim.ours.iter().flat_map(Measure::picks);
    picks.filter_map(|pick| readings.0.get(pick.experiment.name)).any(Stored::is_busy)
}

impl Bound {
    fn allows(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
            Bound::NotComparable(_) => false,
        }
    }

    /// As a cell of a table.
    pub fn describe(self) -> String {
        match self {
            Bound::AtLeast(least) => format!("at least {}", number(least)),
            Bound::AtMost(most) => format!("at most {}", number(most)),
            Bound::NotComparable(_) => "-".to_owned(),
        }
    }
}

/// A number with the digits that count beside a bound.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::experiment::Experiment;
    use crate::paper::figure::{Field, Pick};

    static EXPERIMENT: Experiment = Experiment { name: "e", words: &[], minutes: 0.0 };

    fn claims() -> [Claim; 5] {
        let measure = || Measure::Of(Pick::of(&EXPERIMENT, "", &[], Field::At("/v")));
        [
            Claim::at_least("speed", "4", 4.0, measure()),
            Claim::at_most("time", "1", 1.0, measure()),
            Claim::below("time", "the least", 2.5, measure()),
            Claim::told("energy", "8 %", measure(), "no meter"),
            Claim::at_most("processor", "3", 3.0, measure()).if_quiet(),
        ]
    }

    fn readings(values: &[f64]) -> Readings {
        let list = values.iter().map(|value| serde_json::json!({"v": value})).collect();
        let stored = Stored { repetitions: 1, readings: list, ..Stored::default() };
        Readings([("e", stored)].into())
    }

    #[test]
    fn the_median_decides_and_a_bound_within_the_spread_is_said() {
        let claims = claims();
        let judged = |claim: usize| Judged::of(&claims[claim], &readings(&[1.5, 2.0, 5.0]));
        let verdicts = [0, 1, 2].map(|claim| judged(claim).verdict);
        assert_eq!(verdicts, [Verdict::FallsShort, Verdict::FallsShort, Verdict::Holds]);
        assert_eq!(judged(0).describe(), "**falls short**, the bound is within the spread");
        assert_eq!(judged(1).describe(), "**falls short**");
        assert_eq!((judged(0).ratio(), judged(2).ratio()), (Some(0.5), None));
        assert_eq!(judged(3).describe(), "not comparable: no meter");
    }

    #[test]
    fn what_counts_the_work_of_others_is_judged_on_a_quiet_machine_only() {
        let (claims, mut readings) = (claims(), readings(&[2.0]));
        assert_eq!(Judged::of(&claims[4], &readings).verdict, Verdict::Holds);
        readings.0.get_mut("e").unwrap().load_before = "7.5".to_owned();
        assert!(matches!(Judged::of(&claims[4], &readings).verdict, Verdict::NotComparable(_)));
        assert_eq!(Judged::of(&claims[2], &readings).verdict, Verdict::Holds);
    }

    #[test]
    fn what_was_not_measured_is_no_verdict() {
        assert_eq!(Judged::of(&claims()[0], &Readings::default()).verdict, Verdict::NotMeasured);
    }
}
