//! Runs other programs (mkfs, mount, losetup, oncefs), and reports a failure in one line.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{During, Failure, Result};

/// Runs the command to its end and returns what it printed.
pub fn run(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let output = command.stdin(Stdio::null()).output().during(|| format!("cannot start `{name}`"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(Failure::new(format!("`{name}` failed ({}): {}", output.status, reason.trim())))
}

/// The real path of the oncefs program that was named, or of the one beside this program.
pub fn find_oncefs(named: Option<PathBuf>) -> Result<PathBuf> {
    let beside = || std::env::current_exe().ok().map(|program| program.with_file_name("oncefs"));
    let program = named.or_else(beside).unwrap_or_else(|| "oncefs".into());
    program.canonicalize().map_err(|_| {
        Failure::new(format!(
            "cannot find the program {}: build it with `scripts/lab`, name it with --oncefs, or choose \
             other sides with --side",
            program.display()
        ))
    })
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}
