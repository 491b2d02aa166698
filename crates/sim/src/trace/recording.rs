//! A trace kept in memory, to replay it through several designs.

use std::time::Duration;

use super::{Content, Place, Source, TraceError, Write};

/// All writes of a trace: 16 bytes a block and 40 a request.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    requests: Vec<Request>,
    contents: Vec<Content>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    time: Duration,
    place: Place,
    /// End of its contents in the list of all; they begin where those of the request before end.
    end: usize,
}

impl Recording {
    /// Everything that comes from `source`.
    pub fn of(source: &mut impl Source) -> Result<Self, TraceError> {
        let mut recording = Self::default();
        while let Some(write) = source.next()? {
            recording.push(&write);
        }
        Ok(recording)
    }

    /// Adds a write at the end.
    pub fn push(&mut self, write: &Write) {
        self.contents.extend(write.contents);
        self.requests.push(Request { time: write.time, place: write.place, end: self.contents.len() });
    }

    /// Plays it from the beginning.
    pub fn replay(&self) -> Replay<'_> {
        Replay { recording: self, at: 0, begin: 0 }
    }

    /// Blocks written in all.
    pub fn blocks(&self) -> u64 {
        self.contents.len() as u64
    }
}

/// A recording being played.
pub struct Replay<'a> {
    recording: &'a Recording,
    at: usize,
    begin: usize,
}

impl Source for Replay<'_> {
    fn next(&mut self) -> Result<Option<Write<'_>>, TraceError> {
        let Some(request) = self.recording.requests.get(self.at) else { return Ok(None) };
        let contents = &self.recording.contents[self.begin..request.end];
        self.at += 1;
        self.begin = request.end;
        Ok(Some(Write { time: request.time, place: request.place, contents }))
    }
}
