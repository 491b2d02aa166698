//! Medians and ranges of repeated measurements.

use std::fmt;

/// Median, least and greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of the values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Spread { median, min, max })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_two_in_the_middle() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_spread_is_shown_as_median_and_range() {
        assert_eq!(format!("{:.2}", Spread::of([1.0, 2.0, 4.0]).unwrap()), "2.00 (1.00-4.00)");
    }
}
