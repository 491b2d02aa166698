//! The error for a setting out of its range.
//!
//! It gives the setting's name and the values allowed. The settings and their bounds are in the modules that they
//! govern.

use std::fmt;

/// A setting was refused: its name and the values allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeError {
    /// The name of the setting's field.
    pub name: &'static str,
    /// The lowest value allowed.
    pub min: f64,
    /// The highest value allowed.
    pub max: f64,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {} to {}", self.name, self.min, self.max)
    }
}

impl std::error::Error for RangeError {}

/// Refuses a value outside `min` to `max`, and NaN.
pub(crate) fn within(name: &'static str, value: f64, min: f64, max: f64) -> Result<(), RangeError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(RangeError { name, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_allowed_and_what_is_beyond_them_or_no_number_is_refused() {
        for allowed in [0.25, 0.5, 1.0] {
            assert_eq!(within("floor", allowed, 0.25, 1.0), Ok(()));
        }
        for refused in [0.249, 1.001, -0.5, f64::NAN, f64::INFINITY] {
            assert_eq!(within("floor", refused, 0.25, 1.0).unwrap_err().to_string(), "floor must be 0.25 to 1");
        }
    }
}
