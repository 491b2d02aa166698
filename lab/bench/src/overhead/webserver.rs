//! Measures a load like Filebench's web server: threads that open, read and close ten files each, then append to a log.
//!
//! Its defaults: 1,000 files of 16 KiB in the mean (gamma distribution, shape 1.5), about 20 to a directory, 100
//! threads, appends of up to 16 KiB. Most reads are served by the kernel's cache, as on a web server.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::args::OverheadArgs;
use super::comparison::{Reading, measured, rank_mounts, table, verdicts};
use super::utilities::AIM_PERCENT;
use crate::content::{Random, expand};
use crate::failure::{During, Result, tell};
use crate::mount::rotated;
use crate::side::Bench;
use crate::signal;
use crate::threaded::at_once;

const FILES: usize = 1_000;
const FILES_PER_DIRECTORY: usize = 20;
const FILE_BYTES_MEAN: f64 = 16_384.0;
const GAMMA_SHAPE: f64 = 1.5;
const APPEND_BYTES_MAX: usize = 16 << 10;
/// Files that a thread reads between two appends, each in three operations.
const READS_PER_APPEND: usize = 10;
const OPERATIONS_PER_READ: u64 = 3;

/// Measures every mount and prints the table.
pub fn run(args: &OverheadArgs, bench: &Bench) -> Result<Vec<Reading>> {
    let mounts = rank_mounts(&args.profile);
    let mut readings = Vec::new();
    for (repetition, seed) in args.rounds().iter() {
        for (_, mount) in rotated(&mounts, repetition) {
            tell(&format!("webserver, repetition {}: {}", repetition + 1, mount.name));
            let mut side = mount.begin(bench)?;
            let server = WebServer::create(side.root(), seed)?;
            side.remount_cold()?;
            let duration = Duration::from_secs(args.seconds());
            let place = ("webserver", mount.name.as_str(), repetition);
            readings.push(measured(&side, place, || server.serve(args.threads, duration))?);
            side.unmount()?;
        }
    }
    println!(
        "\nFilebench's web server, {} threads, with ranks and without (figure 15)\n{}",
        args.threads,
        table(&readings, "operations")
    );
    println!("{}", verdicts(&readings, AIM_PERCENT));
    Ok(readings)
}

/// The files of a server.
pub struct WebServer {
    root: PathBuf,
    seed: u64,
}

impl WebServer {
    /// Writes its files below `root`.
    pub fn create(root: &Path, seed: u64) -> Result<WebServer> {
        let server = WebServer { root: root.join("webserver"), seed };
        let mut random = Random::new(seed);
        for file in 0..FILES {
            let path = server.path(file);
            let directory = path.parent().unwrap_or(root);
            fs::create_dir_all(directory).during(|| format!("cannot create {}", directory.display()))?;
            let mut content = vec![0; file_bytes(&mut random)];
            expand(seed, file as u64, &mut content);
            fs::write(&path, content).during(|| format!("cannot write {}", path.display()))?;
        }
        Ok(server)
    }

    fn path(&self, file: usize) -> PathBuf {
        self.root.join(format!("{:02}", file / FILES_PER_DIRECTORY)).join(format!("{file:05}"))
    }

    /// Serves for this long. Returns the number of operations.
    pub fn serve(&self, threads: usize, duration: Duration) -> Result<u64> {
        let end = Instant::now() + duration;
        Ok(at_once(threads, |thread| self.serve_until(end, thread))?.into_iter().sum())
    }

    fn serve_until(&self, end: Instant, thread: usize) -> Result<u64> {
        let mut random = Random::new(self.seed ^ ((thread as u64 + 1) << 32));
        let (mut buffer, line) = (Vec::new(), vec![b'-'; APPEND_BYTES_MAX]);
        let log = self.root.join("log");
        let mut operations = 0;
        while Instant::now() < end {
            signal::check()?;
            for _ in 0..READS_PER_APPEND {
                let path = self.path(random.index(FILES));
                buffer.clear();
                let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut buffer));
                read.during(|| format!("cannot read {}", path.display()))?;
                operations += OPERATIONS_PER_READ;
            }
            let bytes = 1 + random.index(APPEND_BYTES_MAX);
            let opened = OpenOptions::new().append(true).create(true).open(&log);
            let appended = opened.and_then(|mut log| log.write_all(&line[..bytes]));
            appended.during(|| format!("cannot append to {}", log.display()))?;
            operations += 1;
        }
        Ok(operations)
    }
}

/// Gamma distributed with the shape 1.5: an exponential number and half the square of a normal one, in whole words.
fn file_bytes(random: &mut Random) -> usize {
    let mut uniform = || (random.index(1 << 30) as f64 + 0.5) / f64::from(1 << 30);
    let exponential = -uniform().ln();
    let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    let scale = FILE_BYTES_MEAN / GAMMA_SHAPE;
    ((exponential + normal * normal / 2.0) * scale).ceil() as usize / 8 * 8 + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_filebench_s_mean_and_its_spread() {
        let mut random = Random::new(3);
        let sizes: Vec<f64> = (0..20_000).map(|_| file_bytes(&mut random) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
        assert!((mean / FILE_BYTES_MEAN - 1.0).abs() < 0.03, "mean {mean}");
        // The variance of a gamma distribution is the mean's square over the shape.
        assert!((variance * GAMMA_SHAPE / (mean * mean) - 1.0).abs() < 0.1, "variance {variance}");
    }

    #[test]
    fn the_server_reads_its_files_and_appends_to_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let server = WebServer::create(directory.path(), 5).unwrap();
        let operations = server.serve(4, Duration::from_millis(50)).unwrap();
        assert_eq!(operations % (READS_PER_APPEND as u64 * OPERATIONS_PER_READ + 1), 0);
        assert!(operations > 0 && fs::metadata(server.root.join("log")).unwrap().len() > 0);
    }
}
