//! Runs an experiment as a process of this program, and notes the conditions.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::experiment::{Conditions, Experiment};
use super::readings::Stored;
use crate::failure::{During, Failure, Result, tell};
use crate::{command, machine};

/// Runs it as a process of its own. Its tables go to a file beside its readings.
pub fn run(experiment: &Experiment, conditions: &Conditions, readings: &Path) -> Result<Stored> {
    let words = experiment.words(conditions);
    tell(&format!("oncefs-bench {}", words.join(" ")));
    let json = readings.join(format!("{}.part", experiment.name));
    let tables = readings.join(format!("{}.txt", experiment.name));
    let program = std::env::current_exe().during(|| "cannot find this program")?;
    let mut child = Command::new(program);
    child.args(&words).arg("--dir").arg(conditions.directory).arg("--oncefs").arg(conditions.oncefs);
    let output = File::create(&tables).during(|| format!("cannot create {}", tables.display()))?;
    child.arg("--json").arg(&json).stdin(Stdio::null()).stdout(output);
    let (load_before, began) = (machine::load_average(), Instant::now());
    let status = child.status().during(|| "cannot start this program again")?;
    if !status.success() {
        return Err(Failure::new(format!("the experiment {} failed ({status})", experiment.name)));
    }
    let text = fs::read(&json).during(|| format!("cannot read {}", json.display()))?;
    let stored = Stored {
        words,
        commit: commit(),
        is_debug: conditions.oncefs.components().any(|part| part.as_os_str() == "debug"),
        date: command::run(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]))?,
        machine: machine::describe(),
        load_before,
        load_after: machine::load_average(),
        minutes: began.elapsed().as_secs_f64() / 60.0,
        readings: serde_json::from_slice(&text).during(|| format!("cannot parse {}", json.display()))?,
    };
    stored.save(readings, experiment.name)?;
    fs::remove_file(&json).during(|| format!("cannot remove {}", json.display()))?;
    Ok(stored)
}

/// The commit of the checkout that the program is run in.
fn commit() -> String {
    let git = |words: &[&str]| command::run(Command::new("git").args(words));
    let Ok(commit) = git(&["rev-parse", "--short=7", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed = git(&["diff", "--quiet", "HEAD", "--", "crates", "lab", "Cargo.lock"]).is_err();
    if is_changed { format!("{commit} and changes") } else { commit }
}
