//! How far back a repetition lies.

use std::str::FromStr;

use oncefs_toolbox::Random;

/// Distances in blocks written, at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// Every distance from 1 to this one alike.
    Uniform {
        /// The greatest.
        max: f64,
    },
    /// Logarithm normally distributed: most are near the median, some very far.
    LogNormal {
        /// Half of all distances are below.
        median: f64,
        /// Deviation of the natural logarithm: 2.3 is a factor of ten.
        sigma: f64,
    },
    /// Pareto's law: `P(distance > d) = (min / d) ^ alpha`.
    Pareto {
        /// The least.
        min: f64,
        /// The smaller, the farther.
        alpha: f64,
    },
}

impl Distance {
    /// Draws one.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let blocks = match *self {
            Self::Uniform { max } => max * random.fraction(),
            Self::LogNormal { median, sigma } => median * (sigma * random.normal()).exp(),
            Self::Pareto { min, alpha } => min * random.fraction().powf(-1.0 / alpha),
        };
        // Saturates: a distance beyond the trace is its beginning anyway.
        (blocks as u64).max(1)
    }

    /// The same shape at another scale.
    pub fn scaled(self, factor: f64) -> Self {
        match self {
            Self::Uniform { max } => Self::Uniform { max: max * factor },
            Self::LogNormal { median, sigma } => Self::LogNormal { median: median * factor, sigma },
            Self::Pareto { min, alpha } => Self::Pareto { min: min * factor, alpha },
        }
    }
}

/// `uniform:MAX`, `lognormal:MEDIAN:SIGMA` or `pareto:MIN:ALPHA`.
impl FromStr for Distance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let positive = |part: &str| part.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
        let numbers: Option<Vec<f64>> = parts[1..].iter().map(|part| positive(part)).collect();
        match (parts[0], numbers.as_deref()) {
            ("uniform", Some([max])) => Ok(Self::Uniform { max: *max }),
            ("lognormal", Some([median, sigma])) => Ok(Self::LogNormal { median: *median, sigma: *sigma }),
            ("pareto", Some([min, alpha])) => Ok(Self::Pareto { min: *min, alpha: *alpha }),
            _ => Err(format!(
                "'{text}' is not a distribution: write uniform:MAX, lognormal:MEDIAN:SIGMA or pareto:MIN:ALPHA, \
                 lengths in blocks"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of draws that are at most `limit`.
    fn share_within(distance: &str, limit: u64) -> f64 {
        let distance: Distance = distance.parse().unwrap();
        let mut random = Random::mixed(3);
        (0..100_000).filter(|_| distance.draw(&mut random) <= limit).count() as f64 / 1e5
    }

    #[test]
    fn draws_follow_their_law() {
        assert!((share_within("uniform:1000", 250) - 0.25).abs() < 0.01);
        assert!((share_within("lognormal:5000:2", 5000) - 0.5).abs() < 0.01);
        assert!((share_within("lognormal:5000:2", 36_945) - 0.841).abs() < 0.01);
        assert!((share_within("pareto:100:0.5", 400) - 0.5).abs() < 0.01);
    }

    #[test]
    fn nonsense_is_refused_with_the_forms_that_exist() {
        for text in ["", "uniform", "uniform:0", "uniform:1:2", "lognormal:5", "pareto:-1:2", "zipf:1", "uniform:x"] {
            assert!(text.parse::<Distance>().unwrap_err().contains("write uniform:MAX"), "{text}");
        }
    }
}
