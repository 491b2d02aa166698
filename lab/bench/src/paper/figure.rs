//! What a figure of a paper is here: the paper's numbers, what is measured for them, and what counts as holding.
//!
//! Everything is a table in code, so that bounds are there before the readings are. What several figures, sides or
//! sizes have in common is said once, by a function over a list of them.

use super::experiment::Experiment;

/// A paper's evaluation.
pub struct Paper {
    /// Its name on the command line and in the names of files.
    pub name: &'static str,
    /// Heading of its page.
    pub title: &'static str,
    /// What its numbers are set against here.
    pub about: &'static str,
    /// Its figures and tables, in its order.
    pub figures: Vec<Figure>,
}

/// A figure, a table or a section with numbers.
pub struct Figure {
    /// As the paper counts it.
    pub number: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// How it is measured here, and how that differs from the paper.
    pub note: &'static str,
    /// What the paper says about it.
    pub claims: Vec<Claim>,
    /// The chart.
    pub plot: Plot,
}

/// One number or statement of the paper, and its counterpart.
#[derive(Clone)]
pub struct Claim {
    /// What is compared.
    pub what: String,
    /// The paper's words.
    pub paper: &'static str,
    /// Its number, in the unit of ours, if it gives one.
    pub number: Option<f64>,
    /// What is measured; nothing if it cannot be had.
    pub ours: Option<Measure>,
    /// What counts as holding.
    pub bound: Bound,
    /// Why ours falls short where it does.
    pub cause: &'static str,
    /// Whether the work of others counts too, so that it can be judged only on a machine that was left alone.
    pub needs_quiet: bool,
}

/// What counts as holding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No less than this.
    AtLeast(f64),
    /// No more than this.
    AtMost(f64),
    /// It cannot be judged, for this reason.
    NotComparable(&'static str),
}

/// A value for each repetition.
#[derive(Clone)]
pub enum Measure {
    /// As it was read.
    Of(Pick),
    /// The first over the second, in the same repetition.
    Ratio(Pick, Pick),
    /// The first less the second, in the same repetition.
    Difference(Pick, Pick),
    /// The sum of some over the sum of others, in the same repetition.
    RatioOfSums(Vec<Pick>, Vec<Pick>),
    /// By how many percent the first is less than the second, in the same repetition.
    Saved(Pick, Pick),
}

/// Where a value is among an experiment's readings.
#[derive(Clone)]
pub struct Pick {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// JSON pointer to a list of readings.
    pub list: &'static str,
    /// Fields that name the reading. A value that ends in `*` stands for all that begin so.
    pub keys: Vec<(&'static str, String)>,
    /// What is taken of it.
    pub field: Field,
}

/// What is taken of a reading, by JSON pointers.
#[derive(Clone, Copy)]
pub enum Field {
    /// A number, or a list for [`Plot::Curves`].
    At(&'static str),
    /// A number of bytes, in megabytes.
    Megabytes(&'static str),
    /// The first number less the second.
    Less(&'static str, &'static str),
    /// The first number over the second.
    Per(&'static str, &'static str),
    /// The mean of a list.
    Mean(&'static str),
    /// The share of a list's sum that its members up to this one have, in percent.
    PercentUpTo(&'static str, usize),
}

/// Bars for sizes in KiB: each with its label and with its name in the readings.
pub const POWERS_IN_KIB: [(&str, &str); 9] = [
    ("4", "4"),
    ("8", "8"),
    ("16", "16"),
    ("32", "32"),
    ("64", "64"),
    ("128", "128"),
    ("256", "256"),
    ("512", "512"),
    ("1024", "1024"),
];

/// A chart in the paper's form.
pub enum Plot {
    /// None.
    None,
    /// Groups of bars: medians.
    Bars {
        /// Label of the y axis.
        y_label: &'static str,
        /// The bars of a group.
        names: Vec<&'static str>,
        /// Each group with a value for each bar.
        groups: Vec<(String, Vec<Measure>)>,
    },
    /// Lines over a list of values that each reading has: medians.
    Curves {
        /// Label of the x axis.
        x_label: &'static str,
        /// Label of the y axis.
        y_label: &'static str,
        /// Place of each member of the list.
        xs: Vec<f64>,
        /// The lines.
        lines: Vec<(&'static str, Pick)>,
    },
}

impl Claim {
    fn new(what: impl Into<String>, paper: &'static str, ours: Option<Measure>, bound: Bound) -> Claim {
        Claim { what: what.into(), paper, number: None, ours, bound, cause: "", needs_quiet: false }
    }

    /// Holds if ours is no less than the paper's number.
    pub fn at_least(what: impl Into<String>, paper: &'static str, number: f64, ours: Measure) -> Claim {
        Claim { number: Some(number), ..Claim::new(what, paper, Some(ours), Bound::AtLeast(number)) }
    }

    /// Holds if ours is no more than the paper's number.
    pub fn at_most(what: impl Into<String>, paper: &'static str, number: f64, ours: Measure) -> Claim {
        Claim { number: Some(number), ..Claim::new(what, paper, Some(ours), Bound::AtMost(number)) }
    }

    /// The paper gives no number, but says that it is no more than something, which is this for ours.
    pub fn below(what: impl Into<String>, paper: &'static str, limit: f64, ours: Measure) -> Claim {
        Claim::new(what, paper, Some(ours), Bound::AtMost(limit))
    }

    /// The paper gives no number, but says that it is no less than something, which is this for ours.
    pub fn above(what: impl Into<String>, paper: &'static str, limit: f64, ours: Measure) -> Claim {
        Claim::new(what, paper, Some(ours), Bound::AtLeast(limit))
    }

    /// Shown, but not judged.
    pub fn told(what: impl Into<String>, paper: &'static str, ours: Measure, why: &'static str) -> Claim {
        Claim::new(what, paper, Some(ours), Bound::NotComparable(why))
    }

    /// Cannot be measured here.
    pub fn absent(what: impl Into<String>, paper: &'static str, why: &'static str) -> Claim {
        Claim::new(what, paper, None, Bound::NotComparable(why))
    }

    /// The same, judged only where nothing else ran on the machine.
    pub fn if_quiet(self) -> Claim {
        Claim { needs_quiet: true, ..self }
    }

    /// The same with the reason for which ours falls short, where it does.
    pub fn because(self, cause: &'static str) -> Claim {
        Claim { cause, ..self }
    }
}

impl Pick {
    /// A reading in a list, by the fields that name it.
    pub fn of(
        experiment: &'static Experiment,
        list: &'static str,
        keys: &[(&'static str, &str)],
        field: Field,
    ) -> Pick {
        let keys = keys.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Pick { experiment, list, keys, field }
    }

    /// A step of the comparison of file systems, on a side.
    pub fn step(experiment: &'static Experiment, workload: &str, side: &str, field: Field) -> Pick {
        Pick::of(experiment, "/rows", &[("workload", workload), ("side", side)], field)
    }
}

impl Measure {
    /// The places that it takes values from.
    pub fn picks(&self) -> Vec<Pick> {
        match self {
            Measure::Of(pick) => vec![pick.clone()],
            Measure::Ratio(one, other) | Measure::Difference(one, other) | Measure::Saved(one, other) => {
                vec![one.clone(), other.clone()]
            }
            Measure::RatioOfSums(ones, others) => [ones.clone(), others.clone()].concat(),
        }
    }
}

impl Plot {
    /// Bars in groups, each of which `measures` makes from its key. Groups are a heading and a key each.
    pub fn bars<K: Copy>(
        y_label: &'static str,
        names: &[&'static str],
        groups: &[(&'static str, K)],
        measures: impl Fn(K) -> Vec<Measure>,
    ) -> Plot {
        let groups = groups.iter().map(|(heading, key)| ((*heading).to_owned(), measures(*key))).collect();
        Plot::Bars { y_label, names: names.to_vec(), groups }
    }

    /// Lines with a label for each axis, each of which `pick` makes from its key.
    pub fn curves<K: Copy>(
        (x_label, y_label): (&'static str, &'static str),
        xs: &[f64],
        lines: &[(&'static str, K)],
        pick: impl Fn(K) -> Pick,
    ) -> Plot {
        let lines = lines.iter().map(|(name, key)| (*name, pick(*key))).collect();
        Plot::Curves { x_label, y_label, xs: xs.to_vec(), lines }
    }
}

impl Figure {
    /// All places that its claims and its chart take values from.
    pub fn picks(&self) -> Vec<Pick> {
        let mut picks: Vec<Pick> =
            self.claims.iter().filter_map(|claim| claim.ours.as_ref()).flat_map(Measure::picks).collect();
        match &self.plot {
            Plot::None => {}
            Plot::Bars { groups, .. } => {
                picks.extend(groups.iter().flat_map(|(_, bars)| bars.iter()).flat_map(Measure::picks));
            }
            Plot::Curves { lines, .. } => picks.extend(lines.iter().map(|(_, pick)| pick.clone())),
        }
        picks
    }
}

impl Paper {
    /// The experiments of all its figures, each once.
    pub fn experiments(&self) -> Vec<&'static Experiment> {
        experiments(&self.figures)
    }
}

/// The experiments that these figures need, each once.
pub fn experiments<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Vec<&'static Experiment> {
    let mut found: Vec<&Experiment> = Vec::new();
    for pick in figures.into_iter().flat_map(Figure::picks) {
        if !found.iter().any(|experiment| experiment.name == pick.experiment.name) {
            found.push(pick.experiment);
        }
    }
    found
}
