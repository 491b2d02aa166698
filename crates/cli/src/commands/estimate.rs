//! `oncefs estimate`: the saving of a volume for files or a block device, before the volume exists.

mod found;
mod largest;
mod reading;
mod report;
mod rules;
mod seen;

use std::path::PathBuf;

use clap::Args;
use oncefs_engine::{BLOCK_BYTES, Hasher, PieceCost};
use oncefs_estimate::{Estimator, Options};

use crate::commands::help::UNITS;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::{self, shown};
use crate::process::memory::ram_bytes;
use crate::process::signals::EndSignals;
use crate::profiles;
use crate::progress::{Progress, Step};
use crate::size::Size;
use found::{Met, Way, go_through};
use largest::Largest;
use reading::Reader;
use report::{LeftOut, Report};
use seen::SEEN_SHARE;

/// With less memory the sample would be too small.
const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// Arguments of `estimate`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Reads everything once and changes nothing. Needs no volume, no mount and no root; what this user cannot read is named and
left out. Files with several names count once. Symbolic links below a PATH are not followed, other file systems are not
entered: name them, too. Holes are not read.

Exact as long as all contents fit into --memory, which is 1 GiB for some 50 GiB of different contents; beyond that a
sample, with its error. See /usr/share/doc/oncefs/docs/estimate.md.

Exit codes: 0 done; 1 something could not be read, and is not in the estimate; 2 wrong usage; 130 cancelled.

{UNITS}

Examples:
  oncefs estimate /home
  oncefs estimate /srv/images /srv/backups --memory 4G
  oncefs estimate /dev/sdb --json"))]
pub struct EstimateArgs {
    /// Files, directories with everything in them, or block devices
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Memory for the contents seen, at least 4M [default: 1/8 of RAM, 64M to 4G]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// What one more separate piece costs on the volume's device, in blocks of sequential reading: 1 for an SSD, 128 for
    /// a hard disk
    #[arg(long, value_name = "BLOCKS", default_value = "1")]
    pub piece_cost: f64,
    /// Print all figures as JSON
    #[arg(long)]
    pub json: bool,
    /// Accepted for du(1): other file systems are never entered
    #[arg(short = 'x', long, hide = true)]
    pub one_file_system: bool,
}

/// Reads everything and prints what a volume would save. Returns the exit code.
pub fn run(arguments: EstimateArgs) -> Outcome<u8> {
    let ended = EndSignals::block().end_process("the estimate was cancelled", exit::CANCELLED);
    ended.or_fail(exit::FAILED)?;
    let profile = oncefs_engine::Profile::default();
    check(&arguments)?;
    let memory = arguments.memory.map_or_else(|| profiles::default_memory(profile, ram_bytes()), |size| size.0);
    let secret = random_secret().or_fail_doing(exit::FAILED, "cannot draw a random number")?;
    let rules = rules::of_profiles(PieceCost::of_blocks(arguments.piece_cost));
    let mut progress = Progress::new();
    let seen_bytes_max = memory / SEEN_SHARE;
    let bytes_expected = bytes_in(&arguments.paths, seen_bytes_max, &mut progress);
    let mut estimator = Estimator::new(&Options {
        memory_bytes_max: memory - seen_bytes_max,
        blocks_expected: bytes_expected / BLOCK_BYTES as u64,
        rules: rules.iter().map(|rule| rule.rule).collect(),
    });
    let mut reader = Reader::new(Hasher::new(&secret));
    let (mut largest, mut refused, mut done) = (Largest::default(), 0_u64, 0);
    let repeated = go_through(&arguments.paths, seen_bytes_max, Way::Open, &mut |place, met| {
        let advance = &mut |bytes| {
            done += bytes;
            progress.show("estimating", Step::bytes(done, bytes_expected.max(done)));
        };
        let read = match met {
            Met::Data(file, length) => {
                let (duplicates, read) = reader.read(&file, length, &mut estimator, advance);
                largest.add(duplicates, place);
                read
            }
            Met::Found(_) => Ok(()),
            Met::Refused(error) => Err(error),
        };
        if let Err(error) = read {
            refused += 1;
            tell!("oncefs: cannot read {}: {error}", shown(&place()));
        }
    });
    progress.end("read", Step::bytes(done, done));
    if done == 0 && refused > 0 && !arguments.json {
        // A table of zeros would say that nothing can be saved.
        return Ok(exit::FAILED);
    }
    let report = Report::new(&estimator, &rules, largest, LeftOut { refused, repeated });
    if arguments.json {
        say!("{}", names::json(&report));
    } else {
        put!("{}", report.described());
    }
    Ok(if refused > 0 { exit::FAILED } else { exit::SUCCESS })
}

fn check(arguments: &EstimateArgs) -> Outcome {
    if arguments.memory.is_some_and(|memory| memory.0 < MEMORY_BYTES_MIN) {
        let least = Size(MEMORY_BYTES_MIN);
        return Err(Failure::new(exit::USAGE, format!("--memory must be at least {least}")));
    }
    let (least, most) = PieceCost::BLOCKS;
    if !(least..=most).contains(&arguments.piece_cost) {
        return Err(Failure::new(exit::USAGE, format!("--piece-cost must be from {least} to {most} blocks")));
    }
    Ok(())
}

/// The bytes to read, in whole blocks. Files may change before they are read.
fn bytes_in(paths: &[PathBuf], seen_bytes_max: u64, progress: &mut Progress) -> u64 {
    let mut sum = 0_u64;
    go_through(paths, seen_bytes_max, Way::Look, &mut |_, met| {
        if let Met::Found(length) = met {
            sum = sum.saturating_add(length.stored_bytes.next_multiple_of(BLOCK_BYTES as u64));
            progress.show("looking for files:", Step::bytes(sum, 0));
        }
    });
    sum
}

/// The key of the tags. It is random, so an attacker cannot prepare files that an estimate takes for equal.
fn random_secret() -> std::io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut secret)?;
    Ok(secret)
}
