//! The errors of a stream.

use std::io;

use crate::base::VERSION;

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Why a stream cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input failed.
    #[error("cannot read the stream: {0}")]
    Io(#[from] io::Error),
    /// The first bytes are those of something else.
    #[error("this is not a stream of oncefs send")]
    NotAStream,
    /// Another version of the format.
    #[error(
        "the stream has version {0}, and this program reads versions up to {VERSION}: use the same oncefs on both sides"
    )]
    Version(u32),
    /// The input ended before the trailer.
    #[error("the stream ends early, after {records} records")]
    EndsEarly {
        /// Whole records before the end.
        records: u64,
    },
    /// A checksum or a value is wrong.
    #[error("record {number} of the stream is damaged: {why}")]
    Damaged {
        /// The record, counted from 0, the header.
        number: u64,
        /// What is wrong.
        why: Malformed,
    },
    /// The record is intact, but makes no sense at its place.
    #[error("record {number} of the stream makes no sense there: {why}")]
    Misplaced {
        /// The record, counted from 0, the header.
        number: u64,
        /// What is wrong.
        why: Malformed,
    },
    /// Bytes follow the trailer.
    #[error("bytes follow the end of the stream")]
    GoesOn,
}

/// Result of reading a stream.
pub type Result<T> = std::result::Result<T, Error>;
