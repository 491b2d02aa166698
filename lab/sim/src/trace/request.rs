//! The nouns of a trace: contents, places, and the requests that name them, one after the other.

use std::fmt;
use std::time::Duration;

use oncefs_dedup::Tag;
use oncefs_toolbox::random::mix;

/// Identity of a block's content: equal when the bytes are equal. In traces an MD5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(pub u128);

impl Content {
    /// 4096 zero bytes: the MD5 that traces give for them. oncefs makes holes of such blocks.
    pub const ZERO: Self = Self(0x620f_0b67_a91f_7f74_151b_c5be_745b_7110);

    /// The generator's content of this number.
    pub fn numbered(number: u64) -> Self {
        let high = mix(number ^ 0x0c0_7e47);
        Self(u128::from(high) << 64 | u128::from(mix(high ^ number)))
    }

    /// What stands for the block's keyed hash: 64 bits that depend on all of the identity.
    pub fn tag(self) -> Tag {
        Tag(mix((self.0 >> 64) as u64 ^ mix(self.0 as u64)))
    }
}

/// Where a block goes: a file (or device) and the number of the block in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// File, or device in traces of devices.
    pub file: u64,
    /// Block of 4096 bytes within it.
    pub lbn: u64,
}

impl Place {
    /// The place `blocks` further on in the same file.
    pub fn plus(self, blocks: usize) -> Self {
        Self { lbn: self.lbn + blocks as u64, ..self }
    }
}

/// One write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// When, since some moment before the trace.
    pub time: Duration,
    /// Place of the first block.
    pub place: Place,
    /// One content per block, in order.
    pub contents: &'a [Content],
}

impl<'a> Write<'a> {
    /// The blocks with their places.
    pub fn blocks(&self) -> impl Iterator<Item = (Place, Content)> + use<'a> {
        let first = self.place;
        self.contents.iter().enumerate().map(move |(at, &content)| (first.plus(at), content))
    }
}

/// One read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When, since some moment before the trace.
    pub time: Duration,
    /// Place of the first block.
    pub place: Place,
    /// How many blocks, at least one.
    pub blocks: u64,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Contents go to places.
    Write(Write<'a>),
    /// Someone wants what is there.
    Read(Read),
}

impl Event<'_> {
    /// When, since some moment before the trace.
    pub fn time(&self) -> Duration {
        match self {
            Self::Write(write) => write.time,
            Self::Read(read) => read.time,
        }
    }
}

/// Where requests come from, one at a time.
pub trait Source {
    /// The next request; `None` at the end.
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        (**self).next()
    }
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}
