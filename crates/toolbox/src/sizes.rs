//! Sizes as text: one way to parse and one way to print them for all commands.
//!
//! A size is a number, whole or with a fraction, and a unit: `4096`, `512M`, `3.5 GiB`. Units are powers of 1024, in
//! upper or lower case. K, KB and KiB mean the same. A space may precede the unit. A fraction of a byte is dropped:
//! 0.3K is 307 bytes.
//!
//! No crate parses them this way: `bytesize` takes KB for 1000, `parse-size` takes `1e3` and rounds up, and the errors
//! of neither describe the form of a size.

use std::fmt;
use std::str::FromStr;

/// From 2^10 on.
const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// Digits of a fraction that count. With more, a product with 2^60 would not fit into 128 bits.
const FRACTION_DIGITS_MAX: usize = 19;

/// The text about sizes in the help of commands.
pub const HELP: &str = "\
A size is a number of bytes, or a number with a unit, a power of 1024: K, M, G, T or P. Fractions are accepted, and
KB and KiB mean the same as K: 512M, 3.5G, 10 GiB.";

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Reads a size.
///
/// # Errors
///
/// The text is not a size, or it is one of 2^64 bytes or more. The message quotes it.
pub fn parse(text: &str) -> Result<u64, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = whole.len() + fraction.len() > 0 && !fraction.contains('.');
    let shift = unit_shift(unit).filter(|_| is_number).ok_or_else(|| {
        format!("'{text}' is not a size: write a number with K, M, G, T or P, such as 512M, 3.5G or 10 GiB")
    })?;
    bytes(whole, fraction, shift).ok_or_else(|| format!("'{text}' is too large: a size is less than 2^64 bytes"))
}

/// The exponent of a unit, as a power of two. None: it is not a unit.
fn unit_shift(unit: &str) -> Option<u32> {
    let unit = unit.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(unit);
    let mut letters = unit.chars();
    let Some(first) = letters.next() else { return Some(0) };
    let rest = letters.as_str();
    if rest.is_empty() && first.eq_ignore_ascii_case(&'B') {
        return Some(0);
    }
    let index = UNITS.iter().position(|known| first.eq_ignore_ascii_case(known))?;
    ["", "B", "iB"].iter().any(|known| rest.eq_ignore_ascii_case(known)).then_some(10 * (index as u32 + 1))
}

/// `whole`.`fraction` times 2^`shift`. Both are digits. None: the result is 2^64 or more.
fn bytes(whole: &str, fraction: &str, shift: u32) -> Option<u64> {
    let whole: u128 = if whole.is_empty() { 0 } else { u128::from(whole.parse::<u64>().ok()?) << shift };
    let digits = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let part: u128 = if digits.is_empty() { 0 } else { digits.parse().expect("19 digits fit into 128 bits") };
    u64::try_from(whole + (part << shift) / 10_u128.pow(digits.len() as u32)).ok()
}

/// A size without rounding, in the shortest form that `parse` accepts: `4K`, `1536M`, `7`. G is its largest unit.
pub fn exact(bytes: u64) -> String {
    let of_unit = |shift: u32| bytes > 0 && bytes.trailing_zeros() >= shift;
    match [(30, 'G'), (20, 'M'), (10, 'K')].into_iter().find(|(shift, _)| of_unit(*shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(Self)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn sizes_are_read_with_and_without_units_and_fractions() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1K", 1 << 10),
            ("64k", 64 << 10),
            ("3m", 3 << 20),
            ("10GiB", 10 << 30),
            ("10GB", 10 << 30),
            ("10 G", 10 << 30),
            ("2tib", 2 << 40),
            ("7 PB", 7 << 50),
            ("15E", 15 << 60),
            ("3.5M", 3_670_016),
            ("0.5G", 512 << 20),
            (".5K", 512),
            ("2.K", 2 << 10),
            ("0.3K", 307),
            ("1.9", 1),
            ("0.99999999999999999999E", (1 << 60) - 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_an_example() {
        for text in [
            "",
            " ",
            ".",
            "G",
            "-1",
            "+1",
            "1Gi",
            "1GiBs",
            "10X",
            "1e3",
            "1.2.3M",
            "10  G",
            " 1G",
            "1G ",
            "1 ",
            "1,5G",
            "0x10",
            "1_000",
            "\u{661}G",
            "1\u{b5}",
            "1\u{212a}",
            "auto",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("such as 512M") && error.contains(&format!("'{text}'")), "{text}: {error}");
        }
    }

    #[test]
    fn a_size_of_more_than_64_bits_is_refused() {
        for text in ["16E", "16.0E", "18446744073709551616", "99999999T", "99999999999999999999999999999999999999999"] {
            assert!(parse(text).unwrap_err().contains("2^64"), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_a_size_is_read_alike() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let (unit, shift) = random.pick(&[("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)]);
            let (whole, eighths) = (random.below(8_000), random.below(8));
            let number = format!("{whole}.{:03}", eighths * 125);
            let expected = (whole << shift) + (eighths << (shift - 3));
            for suffix in ["", "B", "iB"] {
                for spelling in
                    [format!("{unit}{suffix}"), format!(" {unit}{suffix}"), format!("{unit}{suffix}").to_lowercase()]
                {
                    assert_eq!(parse(&format!("{number}{spelling}")), Ok(expected), "{number}{spelling}");
                }
            }
        }
    }

    #[test]
    fn what_is_shown_exactly_is_read_as_the_same_size() {
        let mut random = Random::new(2);
        for _ in 0..10_000 {
            let bytes = random.word() >> random.below(64) << random.below(40);
            assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }
        assert_eq!([3 << 20, 1 << 40, 7, 0, 1536 << 10].map(exact), ["3M", "1024G", "7", "0", "1536K"]);
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
    fn no_text_of_any_kind_panics() {
        let mut random = Random::new(3);
        let letters: Vec<char> = "0123456789..KMGTPEBikmgt +-e\u{b5}\u{661}".chars().collect();
        for _ in 0..100_000 {
            let text: String = (0..random.below(24)).map(|_| random.pick(&letters)).collect();
            let _ = parse(&text);
        }
    }
}
