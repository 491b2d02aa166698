//! Plays a mixed replay on a mount, request by request, and samples the daemon's processor time meanwhile.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;

use super::plan::{FILE_BLOCKS, Replay, Request};
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::failure::{During, Failure, Result};
use crate::machine;
use crate::measure::Latencies;
use crate::mount::{verify, write};
use crate::side::Side;
use crate::signal;

/// How often the daemon's processor time is read.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// How requests reach the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Io {
    /// Through the kernel's cache, as programs do: a write returns before oncefs sees it.
    Buffered,
    /// Around it (O_DIRECT): every request is one of the daemon's.
    Direct,
    /// Through it, and a write returns when it is durable (O_SYNC).
    Synced,
}

/// The measurements of a replay.
pub struct Played {
    /// Times of the writes, and of the reads.
    pub writes: Latencies,
    /// Times of the reads.
    pub reads: Latencies,
    /// Processor seconds of the daemon, including the final write-out.
    pub cpu_seconds: f64,
    /// Share of all processors that the daemon was busy, in percent, interval by interval.
    pub cpu_percents: Vec<f64>,
}

/// Writes the files that exist before the replay, and drops the kernel's caches.
pub fn prepare(side: &Side, replay: &Replay) -> Result<()> {
    replay.plan.parts[..replay.files_before].iter().try_for_each(|part| write(side, &replay.content, part))?;
    machine::drop_caches()
}

/// Performs all requests, one after the other, then fsync of the files written.
pub fn play(side: &Side, replay: &Replay, io: Io) -> Result<Played> {
    let daemon = side.daemon().ok_or_else(|| Failure::new("the mounted oncefs has no daemon"))?;
    let (mut writes, mut reads) = (Latencies::with_capacity(0), Latencies::with_capacity(0));
    let cpu_before = machine::cpu_seconds_process(daemon)?;
    let (played, cpu_percents) = sampled(daemon, || {
        let mut files = Files::new(side.root(), replay, io);
        for request in &replay.requests {
            signal::check()?;
            match request.is_write {
                true => files.write(request, &mut writes)?,
                false => files.read(request, &mut reads)?,
            }
        }
        files.sync()
    })?;
    played?;
    let cpu_seconds = machine::cpu_seconds_process(daemon)? - cpu_before;
    Ok(Played { writes, reads, cpu_seconds, cpu_percents })
}

/// Performs the reads only, joining those that continue the one before, as a perfect read-ahead would. This is the same
/// on every mount. It bypasses the kernel's cache, whose own read-ahead varies.
pub fn read_again(side: &Side, replay: &Replay) -> Result<()> {
    let reads = joined(replay.requests.iter().filter(|request| !request.is_write));
    let mut files = Files::new(side.root(), replay, Io::Direct);
    let mut times = Latencies::with_capacity(0);
    reads.iter().try_for_each(|request| {
        signal::check()?;
        files.read(request, &mut times)
    })
}

/// The requests, neighbours that continue each other as one.
fn joined<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<Request> {
    let mut joined: Vec<Request> = Vec::new();
    for request in requests {
        match joined.last_mut().filter(|last| last.file == request.file && last.blocks.end == request.blocks.start) {
            Some(last) => last.blocks.end = request.blocks.end,
            None => joined.push(request.clone()),
        }
    }
    joined
}

/// Compares every byte of every file.
pub fn verify_all(side: &Side, replay: &Replay) -> Result<()> {
    replay.files().filter(|part| !part.indexes.is_empty()).try_for_each(|part| verify(side, &replay.content, &part))
}

/// The files of a replay, opened as they are needed.
struct Files<'a> {
    root: &'a Path,
    replay: &'a Replay,
    io: Io,
    open: Vec<Option<File>>,
    buffer: AlignedBuffer,
    scratch: AlignedBuffer,
}

impl<'a> Files<'a> {
    fn new(root: &'a Path, replay: &'a Replay, io: Io) -> Files<'a> {
        let open = replay.plan.parts.iter().map(|_| None).collect();
        let (buffer, scratch) = (AlignedBuffer::new(FILE_BLOCKS * BLOCK_BYTES), AlignedBuffer::new(BLOCK_BYTES));
        Files { root, replay, io, open, buffer, scratch }
    }

    /// Opens the request's file if it is not open, and prepares room for its bytes.
    fn open(&mut self, request: &Request) -> Result<()> {
        if self.open[request.file].is_some() {
            return Ok(());
        }
        let path = self.root.join(&self.replay.plan.parts[request.file].name);
        let flags = match self.io {
            Io::Buffered => 0,
            Io::Direct => libc::O_DIRECT,
            Io::Synced => libc::O_SYNC,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(request.is_write).truncate(false).custom_flags(flags);
        self.open[request.file] = Some(options.open(&path).during(|| format!("cannot open {}", path.display()))?);
        Ok(())
    }

    fn write(&mut self, request: &Request, times: &mut Latencies) -> Result<()> {
        self.open(request)?;
        let start = self.replay.plan.parts[request.file].indexes.start;
        let bytes = &mut self.buffer.bytes_mut()[..request.blocks.len() * BLOCK_BYTES];
        for (index, block) in request.blocks.clone().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            block.copy_from_slice(self.replay.content.block(start + index, &mut self.scratch));
        }
        let Some(file) = &self.open[request.file] else { return Ok(()) };
        let at = (request.blocks.start * BLOCK_BYTES) as u64;
        times.one(|| file.write_all_at(bytes, at).during(|| format!("cannot write {request:?}")))
    }

    fn read(&mut self, request: &Request, times: &mut Latencies) -> Result<()> {
        self.open(request)?;
        let bytes = &mut self.buffer.bytes_mut()[..request.blocks.len() * BLOCK_BYTES];
        let Some(file) = &self.open[request.file] else { return Ok(()) };
        let at = (request.blocks.start * BLOCK_BYTES) as u64;
        times.one(|| file.read_exact_at(bytes, at).during(|| format!("cannot read {request:?}")))
    }

    fn sync(&self) -> Result<()> {
        let mut written = self.open[self.replay.files_before..].iter().flatten();
        written.try_for_each(|file| file.sync_all().during(|| "fsync failed"))
    }
}

/// Runs `body` while the process's processor time is sampled.
fn sampled<T>(process: u32, body: impl FnOnce() -> T) -> Result<(T, Vec<f64>)> {
    let is_over = AtomicBool::new(false);
    let processors = thread::available_parallelism().map_or(1, usize::from) as f64;
    let watch = || -> Result<Vec<f64>> {
        let mut percents = Vec::new();
        let (mut cpu, mut at) = (machine::cpu_seconds_process(process)?, Instant::now());
        loop {
            thread::sleep(SAMPLE_EVERY);
            let (cpu_now, now) = (machine::cpu_seconds_process(process)?, Instant::now());
            percents.push((cpu_now - cpu) * 100.0 / now.duration_since(at).as_secs_f64() / processors);
            (cpu, at) = (cpu_now, now);
            if is_over.load(Relaxed) {
                return Ok(percents);
            }
        }
    };
    thread::scope(|scope| {
        let watcher = scope.spawn(watch);
        let result = body();
        is_over.store(true, Relaxed);
        let percents = watcher.join().map_err(|_| Failure::new("the thread that samples processor time panicked"))?;
        Ok((result, percents?))
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::Mix;
    use super::*;

    #[test]
    fn what_the_requests_wrote_is_read_by_them_and_can_be_compared() {
        let directory = tempfile::tempdir().unwrap();
        let replay = Replay::new(Mix::Corporate, 4 * 512, 300, 7);
        for part in &replay.plan.parts[..replay.files_before] {
            File::create(directory.path().join(&part.name)).unwrap().set_len(512 * 4096).unwrap();
        }
        let mut files = Files::new(directory.path(), &replay, Io::Buffered);
        let mut times = [Latencies::with_capacity(0), Latencies::with_capacity(0)];
        for request in &replay.requests {
            match request.is_write {
                true => files.write(request, &mut times[0]).unwrap(),
                false => files.read(request, &mut times[1]).unwrap(),
            }
        }
        files.sync().unwrap();
        let part = replay.files().nth(replay.files_before).unwrap();
        let start = part.indexes.start;
        let path = directory.path().join(&part.name);
        crate::files::verify(&path, part.indexes.len(), |place| (&replay.content, start + place)).unwrap();
        let operations = times.map(|times| times.summary().unwrap().operations);
        assert_eq!(operations[0] + operations[1], 300);
    }

    #[test]
    fn reads_that_go_on_are_joined() {
        let read = |file, blocks| Request { file, blocks, is_write: false };
        let reads = [read(0, 0..3), read(0, 3..4), read(1, 4..6), read(1, 7..8)];
        assert_eq!(joined(reads.iter()), [read(0, 0..4), read(1, 4..6), read(1, 7..8)]);
    }

    #[test]
    fn processor_time_is_sampled_at_least_once() {
        let (value, percents) = sampled(std::process::id(), || 7).unwrap();
        assert!(value == 7 && !percents.is_empty() && percents.iter().all(|percent| *percent >= 0.0));
    }
}
