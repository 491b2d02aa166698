//! Writes the code map, for `scripts/code-map`: `code-map [--check]`.

use std::process::ExitCode;
use std::{fs, io};

use oncefs_words::checkout::root;
use oncefs_words::code_map::{PAGE, code_map};

fn main() -> io::Result<ExitCode> {
    let path = root().join(PAGE);
    let map = code_map();
    let is_fresh = fs::read_to_string(&path).is_ok_and(|old| old == map);
    match std::env::args().nth(1).as_deref() {
        Some("--check") if is_fresh => Ok(ExitCode::SUCCESS),
        Some("--check") => {
            eprintln!("{PAGE} is not what the sources say now: run scripts/code-map");
            Ok(ExitCode::FAILURE)
        }
        Some(_) => {
            eprintln!("usage: code-map [--check]");
            Ok(ExitCode::from(2))
        }
        None => fs::write(path, map).map(|()| ExitCode::SUCCESS),
    }
}
