//! Sizes as people write and read them. Units are powers of 1024.

use std::fmt;
use std::str::FromStr;

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// A number of bytes on the command line: `4096`, `512M`, `10GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let explain =
            || format!("'{text}' is not a size: write a whole number with K, M, G, T or P, such as 512M or 10GiB");
        let number: u64 = digits.parse().map_err(|_| explain())?;
        let shift = unit_shift(unit).ok_or_else(explain)?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is more than 2^64 bytes"))?;
        Ok(Self(bytes))
    }
}

fn unit_shift(unit: &str) -> Option<u32> {
    let mut letters = unit.chars();
    let Some(first) = letters.next() else {
        return Some(0);
    };
    if unit.eq_ignore_ascii_case("b") {
        return Some(0);
    }
    let rest = letters.as_str();
    let index = UNITS.iter().position(|&u| u == first.to_ascii_uppercase())?;
    (rest.is_empty() || rest.eq_ignore_ascii_case("ib")).then_some(10 * (index as u32 + 1))
}

/// Shown with three significant digits: `1.25 GiB`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = None;
        for candidate in UNITS {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = Some(candidate);
        }
        let Some(unit) = unit else {
            return write!(f, "{} B", self.0);
        };
        let decimals = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        write!(f, "{value:.decimals$} {unit}iB")
    }
}

/// A size to reach (`20G`) or to add (`+5G`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This size in all.
    To(u64),
    /// This much more than now.
    By(u64),
}

impl NewSize {
    /// The size to reach from `current` bytes.
    pub fn from(self, current: u64) -> u64 {
        match self {
            Self::To(bytes) => bytes,
            Self::By(bytes) => current.saturating_add(bytes),
        }
    }
}

impl FromStr for NewSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('+') {
            Some(more) => Ok(Self::By(more.parse::<Size>()?.0)),
            None => Ok(Self::To(text.parse::<Size>()?.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in
            [("4096", 4096), ("4096B", 4096), ("1K", 1 << 10), ("3m", 3 << 20), ("10GiB", 10 << 30), ("2tib", 2 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "G", "1.5G", "10GB", "10 G", "-1", "1Gi", "10X", "\u{661}G"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains("such as 512M"), "{text}: {error}");
        }
    }

    #[test]
    fn a_size_above_64_bits_is_refused() {
        assert!("16E".parse::<Size>().unwrap_err().contains("2^64"));
        assert_eq!("15E".parse(), Ok(Size(15 << 60)));
    }

    #[test]
    fn sizes_are_shown_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 << 20, "10.0 MiB"),
            (1000 << 20, "1000 MiB"),
            (5 << 40, "5.00 TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_plus_adds_to_the_present_size() {
        assert_eq!("+1G".parse::<NewSize>().unwrap().from(1 << 30), 2 << 30);
        assert_eq!("1G".parse::<NewSize>().unwrap().from(5 << 30), 1 << 30);
    }
}
