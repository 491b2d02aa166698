//! Plays a trace on a mount, request by request, and compares every written block afterwards.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use oncefs_sim::{Content, Event, Place, Source};

use super::trace::Trace;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::expand;
use crate::failure::{During, Failure, Result};
use crate::files::fill_at;
use crate::fragmentation::replay::Io;
use crate::measure::Latencies;
use crate::signal;

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The next one as soon as the one before is answered.
    Asap,
    /// When it was in the trace, at so many times its speed. A request that is late is issued at once, and its response
    /// time counts from when it was due: else a slow mount would be asked less.
    Open(f64),
}

impl Pace {
    /// How long after the beginning a request is due that is `since` after the first one of the trace.
    fn due(self, since: Duration) -> Option<Duration> {
        match self {
            Pace::Asap => None,
            Pace::Open(speed) => Some(since.div_f64(speed)),
        }
    }
}

/// Times of the writes and of the reads.
pub struct Played {
    pub writes: Latencies,
    pub reads: Latencies,
}

/// Plays all requests, then makes every file durable.
pub fn play(root: &Path, trace: &Trace, pace: Pace, io: Io) -> Result<Played> {
    let mut files = Files { root: root.to_owned(), io, open: HashMap::new() };
    let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
    let (mut writes, mut reads) = (Latencies::with_capacity(trace.requests), Latencies::with_capacity(0));
    let mut replay = trace.recording.replay();
    let (began, mut first) = (Instant::now(), None);
    while let Some(event) = replay.next().during(|| "a recording cannot be played")? {
        signal::check()?;
        let since = event.time().saturating_sub(*first.get_or_insert(event.time()));
        let late = pace.due(since).map_or(Duration::ZERO, |due| wait_until(began, due));
        match event {
            Event::Write(write) => {
                let bytes = fitted(&mut buffer, write.contents.len());
                // Contents are made before the clock runs.
                write.contents.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)).for_each(|(content, block)| {
                    fill(*content, block);
                });
                writes.one_late(late, || files.write(write.place, bytes))?;
            }
            Event::Read(read) => {
                let bytes = fitted(&mut buffer, read.blocks as usize);
                reads.one_late(late, || files.read(read.place, bytes))?;
            }
        }
    }
    files.sync()?;
    Ok(Played { writes, reads })
}

/// Waits for the moment. Gives how long it is past.
fn wait_until(began: Instant, due: Duration) -> Duration {
    let passed = began.elapsed();
    sleep(due.saturating_sub(passed));
    passed.saturating_sub(due)
}

/// The files of a trace, open once they are used.
struct Files {
    root: PathBuf,
    io: Io,
    open: HashMap<u64, File>,
}

impl Files {
    fn file(&mut self, number: u64) -> Result<&File> {
        if !self.open.contains_key(&number) {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).custom_flags(match self.io {
                Io::Buffered => 0,
                Io::Direct => libc::O_DIRECT,
                Io::Synced => libc::O_SYNC,
            });
            let path = path(&self.root, number);
            let file = options.open(&path).during(|| format!("cannot open {}", path.display()))?;
            self.open.insert(number, file);
        }
        Ok(&self.open[&number])
    }

    fn write(&mut self, place: Place, bytes: &[u8]) -> Result<()> {
        let written = self.file(place.file)?.write_all_at(bytes, offset(place));
        written.during(|| format!("cannot write {place:?}"))
    }

    /// Reads. What the trace has not written is a hole, or behind the end. Gives the bytes that were there.
    fn read(&mut self, place: Place, bytes: &mut [u8]) -> Result<usize> {
        fill_at(self.file(place.file)?, bytes, offset(place)).during(|| format!("cannot read {place:?}"))
    }

    fn sync(&self) -> Result<()> {
        self.open.values().try_for_each(|file| file.sync_all().during(|| "fsync failed"))
    }
}

fn offset(place: Place) -> u64 {
    place.lbn * BLOCK_BYTES as u64
}

/// So many blocks of the buffer, which grows to the largest request.
fn fitted(buffer: &mut AlignedBuffer, blocks: usize) -> &mut [u8] {
    let bytes = blocks * BLOCK_BYTES;
    if buffer.bytes().len() < bytes {
        *buffer = AlignedBuffer::new(bytes);
    }
    &mut buffer.bytes_mut()[..bytes]
}

fn path(root: &Path, number: u64) -> PathBuf {
    root.join(format!("file-{number}"))
}

/// The bytes that a fingerprint stands for: the same for equal ones, incompressible, zeros for that of zeros.
fn fill(content: Content, block: &mut [u8]) {
    match content {
        Content::ZERO => block.fill(0),
        Content(number) => expand((number >> 64) as u64, number as u64, block),
    }
}

/// Compares what each written place holds with what was written there last.
pub fn verify(root: &Path, trace: &Trace) -> Result<()> {
    let mut files = Files { root: root.to_owned(), io: Io::Buffered, open: HashMap::new() };
    let (mut found, mut expected) = (AlignedBuffer::new(BLOCK_BYTES), AlignedBuffer::new(BLOCK_BYTES));
    for (place, content) in &trace.last {
        signal::check()?;
        let read = files.read(*place, found.bytes_mut())?;
        fill(*content, expected.bytes_mut());
        if read != BLOCK_BYTES || found.bytes() != expected.bytes() {
            return Err(Failure::new(format!("WRONG CONTENT in block {} of file {}", place.lbn, place.file)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two files; block 3 of the second is written twice, the last time with what the first file has; zeros; reads.
    fn trace(directory: &Path) -> Trace {
        let [a, b] = ["00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"];
        let zero = format!("{:032x}", Content::ZERO.0);
        let text = format!("1000 1 0 {a}\n2000 2 3 {b}\n3000 2 3 {a}\n4000 2 9 {zero}\n5000 2 2 -\n2000000 1 7 -\n");
        std::fs::write(directory.join("trace"), text).unwrap();
        Trace::from_file(&directory.join("trace"), usize::MAX).unwrap()
    }

    #[test]
    fn what_was_played_is_verified_and_a_changed_byte_is_found() {
        let [directory, root] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let trace = trace(directory.path());
        for io in [Io::Buffered, Io::Synced] {
            let played = play(root.path(), &trace, Pace::Asap, io).unwrap();
            assert_eq!(played.writes.summary().unwrap().operations, 4);
            assert_eq!(played.reads.summary().unwrap().operations, 2);
            verify(root.path(), &trace).unwrap();
        }
        let [one, two] = [1, 2].map(|number| std::fs::read(path(root.path(), number)).unwrap());
        assert!(one[..BLOCK_BYTES] == two[3 * BLOCK_BYTES..4 * BLOCK_BYTES] && two.len() == 10 * BLOCK_BYTES);
        let file = OpenOptions::new().write(true).open(path(root.path(), 2)).unwrap();
        file.write_all_at(b"x", 9 * BLOCK_BYTES as u64 + 5).unwrap();
        assert!(verify(root.path(), &trace).unwrap_err().to_string().contains("block 9 of file 2"));
        file.set_len(9).unwrap();
        assert!(verify(root.path(), &trace).unwrap_err().to_string().contains("block 3 of file 2"));
    }

    #[test]
    fn an_open_loop_waits_for_each_request_and_counts_from_when_it_was_due() {
        let [directory, root] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let began = Instant::now();
        play(root.path(), &trace(directory.path()), Pace::Open(1.0), Io::Buffered).unwrap();
        assert!(began.elapsed() >= Duration::from_nanos(1_999_000));
        let past = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        assert!(wait_until(past, Duration::from_secs(1)) >= Duration::from_secs(2));
        assert_eq!(wait_until(Instant::now(), Duration::from_millis(5)), Duration::ZERO);
    }
}
