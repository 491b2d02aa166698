//! Reads files as programs do, sequentially or at random, and times each file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::corpus::{Corpus, place};
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::Random;
use crate::failure::{During, Result};
use crate::files;
use crate::signal;

/// Response times for which the share of files is reported, in milliseconds.
pub const TIMES_MS: [f64; 13] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3];
/// Bytes of a sequential read.
const READ_BYTES: usize = 1 << 20;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Pattern {
    /// From its beginning to its end, 1 MiB at a time.
    Sequential,
    /// Single blocks in random order.
    Random,
}

/// Which files are read, in this order.
#[derive(Clone, Debug)]
pub struct Reads {
    /// Files with their patterns.
    pub files: Vec<(usize, Pattern)>,
    /// Blocks read of a file that is read at random, at most.
    pub random_blocks_max: usize,
    /// Seed of the orders of blocks.
    pub seed: u64,
}

impl Reads {
    /// All files in random order, so many percent of them, chosen at random, sequentially.
    pub fn mixed(files: usize, sequential_percent: usize, random_blocks_max: usize, seed: u64) -> Reads {
        let mut random = Random::new(seed);
        let sequential = files * sequential_percent / 100;
        let mut patterns = vec![Pattern::Random; files];
        random.permutation(files).into_iter().take(sequential).for_each(|file| patterns[file] = Pattern::Sequential);
        let files = random.permutation(files).into_iter().map(|file| (file, patterns[file])).collect();
        Reads { files, random_blocks_max, seed }
    }

    /// The same without the files that are read in another way.
    pub fn only(&self, pattern: Pattern) -> Reads {
        let files = self.files.iter().copied().filter(|(_, other)| *other == pattern).collect();
        Reads { files, ..self.clone() }
    }

    /// Reads all of them below `root`.
    pub fn read(&self, root: &Path, corpus: &dyn Corpus) -> Result<Responses> {
        let mut buffer = AlignedBuffer::new(READ_BYTES);
        let mut responses = Responses::default();
        for (file, pattern) in self.files.iter().copied() {
            let path = place(root, file);
            let order = self.order(file, corpus);
            let began = Instant::now();
            let bytes = match pattern {
                Pattern::Sequential => files::read_through(&path, &mut buffer)?,
                Pattern::Random => read_here_and_there(&path, &order, &mut buffer)?,
            };
            responses.0.push(Response { file, bytes, seconds: began.elapsed().as_secs_f64() });
        }
        Ok(responses)
    }

    /// The blocks read of a file that is read at random.
    fn order(&self, file: usize, corpus: &dyn Corpus) -> Vec<usize> {
        let blocks = corpus.bytes(file).div_ceil(BLOCK_BYTES as u64) as usize;
        let mut order = Random::new(self.seed ^ ((file as u64) << 20)).permutation(blocks);
        order.truncate(self.random_blocks_max);
        order
    }
}

/// Gives the bytes read.
fn read_here_and_there(path: &Path, order: &[usize], buffer: &mut AlignedBuffer) -> Result<u64> {
    let during = || format!("cannot read {}", path.display());
    let file = File::open(path).during(during)?;
    let mut bytes = 0;
    for block in order {
        signal::check()?;
        let at = (block * BLOCK_BYTES) as u64;
        bytes += file.read_at(&mut buffer.bytes_mut()[..BLOCK_BYTES], at).during(during)? as u64;
    }
    Ok(bytes)
}

/// How long one file took.
#[derive(Clone, Copy, Debug)]
struct Response {
    file: usize,
    bytes: u64,
    seconds: f64,
}

/// How long each file took.
#[derive(Clone, Debug, Default)]
pub struct Responses(Vec<Response>);

impl Responses {
    /// In figures, of the files that are asked for.
    pub fn figures(&self, is_asked_for: impl Fn(usize) -> bool) -> Distribution {
        let of = || self.0.iter().filter(|response| is_asked_for(response.file));
        let files = of().count();
        let within = |ms: f64| of().filter(|response| response.seconds * 1e3 <= ms).count();
        Distribution {
            files,
            bytes: of().map(|response| response.bytes).sum(),
            seconds: of().map(|response| response.seconds).sum(),
            percent_within: TIMES_MS.map(|ms| within(ms) as f64 * 100.0 / files.max(1) as f64),
        }
    }
}

/// Response times of files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Distribution {
    /// How many files.
    pub files: usize,
    /// Bytes read of them.
    pub bytes: u64,
    /// Seconds in all.
    pub seconds: f64,
    /// Files that took at most so many milliseconds (`TIMES_MS`), in percent.
    pub percent_within: [f64; TIMES_MS.len()],
}

impl Distribution {
    /// MB/s over all of the files.
    pub fn speed(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::super::corpus::make_directories;
    use super::super::workload::{Duplicates, Workload};
    use super::*;

    fn sequential(reads: &Reads) -> usize {
        reads.files.iter().filter(|(_, pattern)| *pattern == Pattern::Sequential).count()
    }

    #[test]
    fn the_asked_share_of_the_files_is_read_sequentially_and_each_once() {
        for percent in [0, 10, 90, 100] {
            let reads = Reads::mixed(200, percent, 256, 7);
            assert_eq!(sequential(&reads), percent * 2);
            let mut files: Vec<usize> = reads.files.iter().map(|(file, _)| *file).collect();
            files.sort_unstable();
            assert!(files.into_iter().eq(0..200));
        }
    }

    #[test]
    fn files_that_are_read_at_random_are_read_up_to_the_bound() {
        let directory = tempfile::tempdir().unwrap();
        let workload = Workload::new(Duplicates::Low, 8 << 20, 5);
        make_directories(directory.path(), &workload).unwrap();
        (0..workload.files()).for_each(|file| workload.write(file, &place(directory.path(), file)).unwrap());
        let reads = Reads::mixed(workload.files(), 50, 3, 7);
        let responses = reads.read(directory.path(), &workload).unwrap();
        for (response, (file, pattern)) in responses.0.iter().zip(&reads.files) {
            let all = workload.bytes(*file);
            let expected = if *pattern == Pattern::Random { all.min(3 * 4096) } else { all };
            assert_eq!((response.file, response.bytes), (*file, expected));
        }
        let responses = reads.only(Pattern::Sequential).read(directory.path(), &workload).unwrap();
        let figures = responses.figures(|_| true);
        assert_eq!(figures.files, sequential(&reads));
        assert!(figures.speed() > 0.0 && figures.percent_within.is_sorted());
    }
}
