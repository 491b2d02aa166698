//! Measures programs beside the worker, which is paused, idle, or told to work at once (figures 16 and 17).

use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

use super::args::OverheadArgs;
use super::comparison::{OFF, OFF_AGAIN, Reading, measured, table, verdicts};
use super::webserver::WebServer;
use crate::aligned::BLOCK_BYTES;
use crate::content::{Content, Random};
use crate::failure::{Result, tell};
use crate::mount::{Mount, rotated, write};
use crate::pieces::{Plan, Sources};
use crate::side::{Bench, Side};
use crate::signal;

/// The most that this may cost, in percent.
const AIM_PERCENT: f64 = 5.0;
/// Bytes that the CPU-bound load hashes between two looks at the clock.
const HASHED_BYTES: usize = 1 << 16;

/// What the worker does meanwhile.
const STATES: [(&str, &[&str]); 4] = [
    (OFF, &["--pause"]),
    // Resumed, it waits until the volume is idle.
    ("idle", &["--resume"]),
    ("now", &["--now", "--background"]),
    (OFF_AGAIN, &["--pause"]),
];

/// What runs beside the worker.
#[derive(Clone, Copy)]
enum Load {
    WebServer,
    Processor,
}

/// Measures both loads in every state and prints the table.
pub fn run(args: &OverheadArgs, bench: &Bench) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for (repetition, seed) in args.rounds().iter() {
        let backlog = Backlog::new(args.backlog(), seed);
        for (_, state) in rotated(&STATES, repetition) {
            for load in [Load::WebServer, Load::Processor] {
                tell(&format!("beside, repetition {}: {}, {}", repetition + 1, load.name(), state.0));
                readings.push(measure(args, bench, (repetition, seed), &backlog, *state, load)?);
            }
        }
    }
    println!("\nBeside the worker (figures 16 and 17)\n{}", table(&readings, "operations"));
    println!("{}", verdicts(&readings, AIM_PERCENT));
    Ok(readings)
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Load::WebServer => "webserver",
            Load::Processor => "CPU-bound",
        }
    }
}

fn measure(
    args: &OverheadArgs,
    bench: &Bench,
    (repetition, seed): (usize, u64),
    backlog: &Backlog,
    (state, words): (&str, &[&str]),
    load: Load,
) -> Result<Reading> {
    let mut side = backlog.mount(&args.profile).begin(bench)?;
    side.ask("dedup", &["--pause"])?;
    backlog.write(&side)?;
    let server = WebServer::create(side.root(), seed)?;
    side.ask("sync", &[])?;
    if state == "now" {
        side.ask("dedup", &["--resume"])?;
    }
    side.ask("dedup", words)?;
    let duration = Duration::from_secs(args.seconds());
    let reading = measured(&side, (load.name(), state, repetition), || match load {
        Load::WebServer => server.serve(args.threads, duration),
        Load::Processor => hash_for(duration),
    })?;
    side.unmount()?;
    Ok(reading)
}

/// Keeps one processor busy for this long. Returns how often the buffer was hashed.
fn hash_for(duration: Duration) -> Result<u64> {
    let (began, bytes) = (Instant::now(), vec![7; HASHED_BYTES]);
    let (mut hasher, mut rounds) = (DefaultHasher::new(), 0);
    while began.elapsed() < duration {
        signal::check()?;
        hasher.write(std::hint::black_box(&bytes));
        rounds += 1;
    }
    std::hint::black_box(hasher.finish());
    Ok(rounds)
}

/// Work for the worker: data that was not looked up while it was written, half of it duplicates.
pub struct Backlog {
    plan: Plan,
    content: Content,
}

/// Files that duplicates are taken from.
const SOURCES: usize = 10;

impl Backlog {
    /// Ten files of unique blocks, and one as large as they together that repeats pieces of them.
    pub fn new(bytes: u64, seed: u64) -> Backlog {
        let blocks = bytes as usize / 2 / BLOCK_BYTES / SOURCES;
        let (mut plan, mut random) = (Plan::default(), Random::new(seed));
        for source in 0..SOURCES {
            let numbers = plan.unique(blocks);
            plan.add(format!("source{source}"), numbers);
        }
        let sources = Sources { files: SOURCES, blocks, piece_blocks: 1..=64.min(blocks) };
        plan.add("copies", sources.shuffled(&mut random));
        let content = Content::from_numbers(seed, plan.numbers.clone());
        Backlog { plan, content }
    }

    /// A mount on which it stays work for the worker.
    pub fn mount(&self, profile: &str) -> Mount {
        let options = format!("profile={profile},inline=off,worker=idle,run_blocks_min=1");
        Mount { name: "backlog".to_owned(), options }
    }

    /// Writes its files.
    pub fn write(&self, side: &Side) -> Result<()> {
        self.plan.parts.iter().try_for_each(|part| write(side, &self.content, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_backlog_are_duplicates() {
        let backlog = Backlog::new(40 << 20, 3);
        assert_eq!((backlog.content.bytes(), backlog.content.unique_bytes()), (40 << 20, 20 << 20));
    }

    #[test]
    fn the_processor_is_kept_busy_for_as_long_as_asked() {
        let began = Instant::now();
        assert!(hash_for(Duration::from_millis(20)).unwrap() > 0);
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
