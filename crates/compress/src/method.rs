//! The compression methods, as a setting names them, and the coding of a fragment.

use std::fmt;
use std::str::FromStr;

/// A compression method. Written `lz4`, `zstd` or `zstd:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// LZ4's block format: fast in both directions.
    Lz4,
    /// Zstandard at a level from 1 (fast) to 19 (small).
    Zstd(i32),
}

/// The default level of Zstandard.
const ZSTD_LEVEL: i32 = 1;
const ZSTD_LEVEL_MAX: i32 = 19;
/// The highest level while a program waits. Higher ones take up to a hundred times as long and save 2 % more.
const ZSTD_LEVEL_IN_LINE_MAX: i32 = 3;

impl Method {
    /// The coding of its fragments.
    pub fn coding(self) -> Coding {
        match self {
            Method::Lz4 => Coding::Lz4,
            Method::Zstd(_) => Coding::Zstd,
        }
    }

    /// The method to use in its place while a program waits.
    pub fn in_line(self) -> Self {
        match self {
            Method::Lz4 => Method::Lz4,
            Method::Zstd(level) => Method::Zstd(level.min(ZSTD_LEVEL_IN_LINE_MAX)),
        }
    }
}

/// A word that names no method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodError;

impl fmt::Display for MethodError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "write lz4, zstd, or zstd: and a level from 1 to {ZSTD_LEVEL_MAX}")
    }
}

impl std::error::Error for MethodError {}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let level = match text {
            "lz4" => return Ok(Method::Lz4),
            "zstd" => return Ok(Method::Zstd(ZSTD_LEVEL)),
            _ => text.strip_prefix("zstd:").and_then(|level| level.parse().ok()),
        };
        level.filter(|level| (1..=ZSTD_LEVEL_MAX).contains(level)).map(Method::Zstd).ok_or(MethodError)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Lz4 => write!(out, "lz4"),
            Method::Zstd(level) => write!(out, "zstd:{level}"),
        }
    }
}

/// The coding of a fragment, as far as expanding needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// One LZ4 block, without its length.
    Lz4,
    /// One Zstandard frame without its magic number, content size and checksum.
    Zstd,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_for_low_levels_only() {
        for (text, in_line) in [("lz4", "lz4"), ("zstd:1", "zstd:1"), ("zstd:3", "zstd:3"), ("zstd:19", "zstd:3")] {
            assert_eq!(text.parse::<Method>().unwrap().in_line().to_string(), in_line);
        }
    }

    #[test]
    fn a_method_is_read_as_it_is_printed_and_nothing_else_is_one() {
        for (text, method) in [("lz4", Method::Lz4), ("zstd:1", Method::Zstd(1)), ("zstd:19", Method::Zstd(19))] {
            assert_eq!((text.parse(), method.to_string().as_str()), (Ok(method), text));
        }
        assert_eq!("zstd".parse(), Ok(Method::Zstd(1)));
        for text in ["", "lz5", "LZ4", "zstd:", "zstd:0", "zstd:-3", "zstd:20", "zstd:x", "zstd 3", "lz4:1"] {
            assert_eq!(text.parse::<Method>(), Err(MethodError), "{text}");
        }
    }
}
