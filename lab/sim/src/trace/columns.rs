//! What both forms of a trace share: columns of numbers and MD5s, and the request that a line describes.

use std::time::Duration;

use super::request::Place;

/// How a trace is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `[ts ns] [pid] [process] [lba] [sectors] [W|R] [major] [minor] [md5s]`: FIU's IODedup traces.
    Fiu,
    /// `[ts ns] [file] [lbn] [md5]`: one written block of 4096 bytes per line; one that is read has `-` for its MD5.
    Four,
}

/// In place of the MD5s: contents that the trace does not say, which only a read may have.
pub(super) const NO_CONTENTS: &str = "-";

/// The request that a line describes; its contents are in a separate buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) time: Duration,
    pub(super) place: Place,
    /// Blocks that are read; `None`: the contents are written.
    pub(super) read_blocks: Option<u64>,
}

/// Columns of a line, exactly `N`.
pub(super) fn columns<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let mut found = line.split_ascii_whitespace();
    let mut columns = [""; N];
    for (at, column) in columns.iter_mut().enumerate() {
        *column = found.next().ok_or_else(|| format!("{at} columns where {N} are expected: is --format right?"))?;
    }
    match found.count() {
        0 => Ok(columns),
        more => Err(format!("{} columns where {N} are expected: is --format right?", N + more)),
    }
}

pub(super) fn number(text: &str, what: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} is '{text}', not a whole number"))
}

/// 32 hexadecimal digits.
pub(super) fn md5(digits: &str) -> Result<u128, String> {
    // from_str_radix takes a sign, too.
    let all_hex = digits.len() == MD5_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let value = all_hex.then(|| u128::from_str_radix(digits, 16).ok()).flatten();
    value.ok_or_else(|| format!("'{digits}' is not an MD5 of {MD5_DIGITS} hexadecimal digits"))
}

pub(super) const MD5_DIGITS: usize = 32;
