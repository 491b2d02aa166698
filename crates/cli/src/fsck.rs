//! `oncefs fsck`: checks a volume that is not mounted, and on request replays its log for good.
//!
//! The engine checks blocks, the file system checks names; this module counts what they find, shows how far they
//! are and turns the result into fsck(8)'s exit bits.

use std::path::Path;
use std::sync::Arc;

use oncefs_engine::{Blocks, Error, Store};
use oncefs_fs::{AtimePolicy, FileSystem, Options, SystemClock};

use crate::commands::FsckArgs;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounts::shown;
use crate::process::{self, EndSignals};
use crate::profiles;
use crate::progress::Progress;
use crate::size::Size;

/// Caches during a check: windows of counters come on top.
const CHECK_MEMORY: u64 = 256 << 20;

/// Problems shown one by one; more are only counted.
const PROBLEMS_SHOWN_MAX: usize = 100;

/// Checks a volume. The exit code.
pub fn run(arguments: FsckArgs) -> Outcome<u8> {
    let shown = shown(&arguments.volume);
    let volume =
        arguments.volume.canonicalize().or_fail_doing(exit::FSCK_OPERATIONAL, format!("cannot look at {shown}"))?;
    exit_when_cancelled().or_fail(exit::FSCK_OPERATIONAL)?;
    if arguments.repair() {
        recover(&volume).map_err(|e| cannot_check(&e))?;
    }
    let findings = check(&volume, arguments.data).map_err(|e| cannot_check(&e))?;
    findings.print();
    println!("{shown}: {}", findings.summary());
    Ok(findings.exit_code())
}

/// Damage that keeps a volume from being opened is an error left; everything else a check that could not run.
fn cannot_check(error: &oncefs_fs::Error) -> Failure {
    let code = match error {
        oncefs_fs::Error::Engine(Error::Corrupt { .. }) => exit::FSCK_ERRORS_LEFT,
        _ => exit::FSCK_OPERATIONAL,
    };
    Failure::new(code, error)
}

/// Ctrl-C ends a check with the exit code for it. Nothing is lost: a replay starts over.
fn exit_when_cancelled() -> std::io::Result<()> {
    let signals = EndSignals::block();
    let wait = move || {
        if signals.wait(None).is_some() {
            eprintln!("oncefs: the check was cancelled");
            std::process::exit(exit::FSCK_CANCELLED.into());
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

/// What a check saw and what is wrong.
#[derive(Debug, Default)]
struct Findings {
    problems: Vec<String>,
    found: u64,
    stored: Blocks,
    mapped: Blocks,
}

impl Findings {
    fn add(&mut self, problem: String) {
        self.found += 1;
        if self.problems.len() < PROBLEMS_SHOWN_MAX {
            self.problems.push(problem);
        }
    }

    fn print(&self) {
        for problem in &self.problems {
            println!("{problem}");
        }
        let more = self.found - self.problems.len() as u64;
        if more > 0 {
            println!("... and {more} more");
        }
    }

    fn summary(&self) -> String {
        if self.found > 0 {
            return format!("{} errors: copy what can be read to a new volume", self.found);
        }
        format!("clean, {} stored for {} in files", Size(self.stored.bytes()), Size(self.mapped.bytes()))
    }

    fn exit_code(&self) -> u8 {
        if self.found > 0 { exit::FSCK_ERRORS_LEFT } else { 0 }
    }
}

/// Replays the log into the volume and frees what crashed mounts left without a name.
fn recover(volume: &Path) -> oncefs_fs::Result<()> {
    open(volume, false)?.close()
}

/// Both checks. The volume is not changed: the log is replayed in memory.
fn check(volume: &Path, read_data: bool) -> oncefs_fs::Result<Findings> {
    let file_system = open(volume, true)?;
    let checked = check_open(&file_system, read_data);
    file_system.close()?;
    checked
}

fn check_open(file_system: &FileSystem, read_data: bool) -> oncefs_fs::Result<Findings> {
    let mut progress = Progress::new();
    let blocks =
        file_system.store().check(read_data, &mut |done, total| progress.show("checking blocks", done, total))?;
    drop(progress);
    let mut findings = Findings {
        found: blocks.problems_count,
        problems: blocks.problems,
        stored: blocks.live,
        mapped: blocks.mapped,
    };
    file_system.check(&mut |problem| findings.add(problem))?;
    Ok(findings)
}

fn open(volume: &Path, read_only: bool) -> oncefs_fs::Result<Arc<FileSystem>> {
    let memory = CHECK_MEMORY.min(process::ram_bytes() / 4);
    let store = profiles::without_worker(memory / 4 * 3, read_only);
    let names = Options { memory_bytes_max: memory / 4, atime: AtimePolicy::Never, read_only };
    FileSystem::open(Store::open(volume, &store)?, Arc::new(SystemClock), &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(found: u64) -> Findings {
        let mut findings = Findings::default();
        (0..found).for_each(|n| findings.add(format!("problem {n}")));
        findings
    }

    #[test]
    fn the_exit_code_has_fsck_8s_bits() {
        assert_eq!(findings(0).exit_code(), 0);
        assert_eq!(findings(3).exit_code(), exit::FSCK_ERRORS_LEFT);
    }

    #[test]
    fn of_many_problems_the_first_hundred_are_kept_and_all_are_counted() {
        let findings = findings(250);
        assert_eq!((findings.problems.len(), findings.found), (PROBLEMS_SHOWN_MAX, 250));
    }

    #[test]
    fn the_summary_says_what_is_stored_or_how_to_go_on() {
        let clean = Findings { stored: Blocks(256), mapped: Blocks(512), ..Findings::default() };
        assert_eq!(clean.summary(), "clean, 1.00 MiB stored for 2.00 MiB in files");
        assert!(findings(2).summary().starts_with("2 errors: copy"));
    }
}
