//! Runs a repetition of an experiment as a process of this program, and notes the conditions.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::experiment::{Conditions, Experiment};
use super::readings::Stored;
use crate::failure::{During, Failure, Result, tell};
use crate::{command, machine};

/// Runs one repetition as a process of its own. Its tables go to a file beside its readings.
pub fn run(experiment: &Experiment, conditions: &Conditions, repetition: usize, readings: &Path) -> Result<Stored> {
    let words = experiment.words_of(conditions, repetition);
    tell(&format!("oncefs-bench {}", words.join(" ")));
    let json = readings.join(format!("{}.part", experiment.name));
    let tables = readings.join(format!("{}.txt", experiment.name));
    let program = std::env::current_exe().during(|| "cannot find this program")?;
    let mut child = Command::new(program);
    child.args(&words).arg("--dir").arg(conditions.directory).arg("--oncefs").arg(conditions.oncefs);
    if repetition == 0 {
        File::create(&tables).during(|| format!("cannot create {}", tables.display()))?;
    }
    let output = File::options().create(true).append(true).open(&tables);
    let output = output.during(|| format!("cannot open {}", tables.display()))?;
    child.arg("--json").arg(&json).stdin(Stdio::null()).stdout(output);
    ends_with_this_process(&mut child);
    let (load_before, began) = (machine::load_average(), Instant::now());
    let status = child.status().during(|| "cannot start this program again")?;
    if !status.success() {
        return Err(Failure::new(format!("the experiment {} failed ({status})", experiment.name)));
    }
    let text = fs::read(&json).during(|| format!("cannot read {}", json.display()))?;
    let stored = Stored {
        words: experiment.words(conditions),
        repetitions: 1,
        commit: commit(),
        is_debug: conditions.oncefs.components().any(|part| part.as_os_str() == "debug"),
        date: command::run(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]))?,
        machine: machine::describe(),
        load_before,
        load_after: machine::load_average(),
        minutes: began.elapsed().as_secs_f64() / 60.0,
        readings: serde_json::from_slice(&text).during(|| format!("cannot parse {}", json.display()))?,
    };
    fs::remove_file(&json).during(|| format!("cannot remove {}", json.display()))?;
    Ok(stored)
}

/// Sends the child SIGTERM when this process ends, also by SIGKILL: then it removes its mounts and loop devices, and
/// does not measure beside the run that takes over.
fn ends_with_this_process(child: &mut Command) {
    let this = std::process::id();
    let request = move || {
        // SAFETY: prctl with these arguments touches no memory of ours.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // It may have ended before the request.
        if parent_id() == this { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ECANCELED)) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { child.pre_exec(request) };
}

/// The commit of the checkout that the program is run in.
fn commit() -> String {
    let git = |words: &[&str]| command::run(Command::new("git").args(words));
    let Ok(commit) = git(&["rev-parse", "--short=7", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed = git(&["diff", "--quiet", "HEAD", "--", "crates", "lab", "Cargo.lock"]).is_err();
    if is_changed { format!("{commit} and changes") } else { commit }
}
