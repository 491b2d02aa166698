//! Sizes on the command line. Units are powers of 1024, and 3.5M is 3.5 times one.

use std::str::FromStr;

const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];

/// A number of bytes: `4096`, `3.5M`, `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let explain = || format!("'{text}' is not a size: write a number with K, M, G or T, such as 3.5M");
        let unit_at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (digits, unit) = text.split_at(unit_at);
        let number: f64 = digits.parse().map_err(|_| explain())?;
        let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
            "" => 0,
            letters => {
                let index = UNITS
                    .iter()
                    .position(|known| letters == known.to_string() || letters == known.to_lowercase().to_string());
                10 * (index.ok_or_else(explain)? as u32 + 1)
            }
        };
        let bytes = number * (1u64 << shift) as f64;
        if bytes < (1u64 << 50) as f64 { Ok(Self(bytes as u64)) } else { Err(explain()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_units_and_fractions() {
        let cases = [("4096", 4096), ("3.5M", 3_670_016), ("64k", 65_536), ("1GiB", 1 << 30), ("0", 0)];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "M", "-1", "1X", "1.2.3M", "9999999T", "1e9"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
