//! Other programs, and how long things take.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Runs a command to its end and returns what it said; panics with all of it if it failed.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("{command:?} did not start: {error}; scripts/setup test installs what the tests need")
    });
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}\n{said}{complained}", output.status);
    said + &complained
}

/// Runs a command to its end and reads the JSON that it says; warnings on the standard error are no part of it.
pub fn run_json(command: &mut Command) -> Value {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}\n{complained}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = String::from_utf8_lossy(&output.stdout);
        panic!("{command:?} said no JSON: {error}\n{said}\n{complained}")
    })
}

/// A test tool that `scripts/setup test` installed: `ONCEFS_TOOLS`, else beside cargo's target directory.
pub fn tool(name: &str) -> PathBuf {
    let tools = std::env::var_os("ONCEFS_TOOLS").map(PathBuf::from).unwrap_or_else(|| {
        let target = target_dir();
        target.parent().unwrap().join("tools")
    });
    let path = tools.join("bin").join(name);
    assert!(path.exists(), "{} is missing: run scripts/setup test", path.display());
    path
}

/// Cargo's target directory, seen from the running test (`TARGET/release/deps/TEST`).
pub(crate) fn target_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

/// Does something, and says how long it took.
pub fn elapsed<T>(what: &str, work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    println!("{what}: {:.3} s", time.as_secs_f64());
    (result, time)
}
