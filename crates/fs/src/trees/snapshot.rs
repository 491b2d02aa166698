//! The facts that a snapshot keeps about itself: an attribute of its top directory, which root can read.

use crate::trees::work::TreeProgress;
use crate::{Error, Result, Timestamp};
use std::sync::atomic::Ordering::Relaxed;

/// The name of the attribute.
pub const SNAPSHOT_ATTRIBUTE: &[u8] = b"trusted.oncefs.snapshot";

/// A longer description is cut.
const OF_BYTES_MAX: usize = 4096;

/// The content of the attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// When it was complete, in seconds since 1970.
    pub created_seconds: i64,
    /// Names in it, with the top.
    pub names: u64,
    /// The sizes of all its regular files together.
    pub bytes: u64,
    /// Its source, as text.
    pub of: Vec<u8>,
}

impl SnapshotFacts {
    pub(super) fn of(progress: &TreeProgress, now: Timestamp, of: &[u8]) -> Self {
        let (names, bytes) = (progress.names.load(Relaxed), progress.bytes.load(Relaxed));
        Self { created_seconds: now.seconds, names, bytes, of: of[..of.len().min(OF_BYTES_MAX)].to_vec() }
    }

    /// The value of the attribute: three numbers and a string, separated by spaces.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = format!("{} {} {} ", self.created_seconds, self.names, self.bytes).into_bytes();
        value.extend_from_slice(&self.of);
        value
    }

    /// Reads a value of the attribute.
    ///
    /// # Errors
    ///
    /// `Invalid`: it has another form.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let wrong = || Error::Invalid("the attribute trusted.oncefs.snapshot has another form");
        let mut parts = value.splitn(4, |byte| *byte == b' ');
        let mut number = || parts.next().and_then(|part| std::str::from_utf8(part).ok()).ok_or_else(wrong);
        let created_seconds = number()?.parse().map_err(|_| wrong())?;
        let names = number()?.parse().map_err(|_| wrong())?;
        let bytes = number()?.parse().map_err(|_| wrong())?;
        Ok(Self { created_seconds, names, bytes, of: parts.next().ok_or_else(wrong)?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_attribute_never_change() {
        let facts =
            SnapshotFacts { created_seconds: 1_700_000_000, names: 9, bytes: 1 << 40, of: b"/mnt/a b".to_vec() };
        assert_eq!(facts.encode(), b"1700000000 9 1099511627776 /mnt/a b");
        assert_eq!(SnapshotFacts::decode(&facts.encode()).unwrap(), facts);
        let of = SnapshotFacts { of: Vec::new(), created_seconds: -1, ..facts };
        assert_eq!(SnapshotFacts::decode(&of.encode()).unwrap(), of);
    }

    #[test]
    fn any_other_value_is_refused() {
        for value in [&b""[..], b"1", b"1 2 3", b"a 2 3 /", b"1 -2 3 /", b"1 2  /", b"\xff 2 3 /"] {
            assert!(SnapshotFacts::decode(value).is_err(), "{}", value.escape_ascii());
        }
    }
}
