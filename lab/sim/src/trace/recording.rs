//! A trace kept in memory, to replay it through several designs.

use std::time::Duration;

use super::request::{Content, Event, Place, Read, Source, TraceError, Write};

/// All requests of a trace: 16 bytes a written block and 48 a request.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    requests: Vec<Request>,
    contents: Vec<Content>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    time: Duration,
    place: Place,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// With the end of its contents in the list of all; they begin where those of the write before end.
    Write {
        end: usize,
    },
    Read {
        blocks: u64,
    },
}

impl Recording {
    /// Everything that comes from `source`.
    pub fn of(source: &mut impl Source) -> Result<Self, TraceError> {
        let mut recording = Self::default();
        while let Some(event) = source.next()? {
            recording.push(&event);
        }
        Ok(recording)
    }

    /// Adds a request at the end.
    pub fn push(&mut self, event: &Event) {
        let (place, kind) = match event {
            Event::Write(write) => {
                self.contents.extend(write.contents);
                (write.place, Kind::Write { end: self.contents.len() })
            }
            Event::Read(read) => (read.place, Kind::Read { blocks: read.blocks }),
        };
        self.requests.push(Request { time: event.time(), place, kind });
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
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        let Some(&Request { time, place, kind }) = self.recording.requests.get(self.at) else { return Ok(None) };
        self.at += 1;
        Ok(Some(match kind {
            Kind::Read { blocks } => Event::Read(Read { time, place, blocks }),
            Kind::Write { end } => {
                let begin = std::mem::replace(&mut self.begin, end);
                Event::Write(Write { time, place, contents: &self.recording.contents[begin..end] })
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_plays_writes_and_reads_in_order() {
        let contents = [1, 2, 3].map(Content::numbered);
        let time = Duration::from_secs(5);
        let place = |lbn| Place { file: 1, lbn };
        let events = [
            Event::Write(Write { time, place: place(7), contents: &contents[..2] }),
            Event::Read(Read { time, place: place(8), blocks: 9 }),
            Event::Write(Write { time, place: place(1), contents: &contents[2..] }),
        ];
        let mut recording = Recording::default();
        events.iter().for_each(|event| recording.push(event));
        let mut replay = recording.replay();
        for event in events {
            assert_eq!(replay.next(), Ok(Some(event)));
        }
        assert_eq!((replay.next(), recording.blocks()), (Ok(None), 3));
    }
}
