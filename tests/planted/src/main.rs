//! `plant FILE --in DIRECTORY` plants a bug in a copy of the sources, and prints the files that it changed. If an anchor
//! is not found exactly once, it says so and changes nothing.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use oncefs_planted::Plant;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, option, directory] = arguments.as_slice() else { return usage() };
    if option != "--in" {
        return usage();
    }
    match plant(Path::new(file), Path::new(directory)) {
        Ok(changed) => {
            changed.iter().for_each(|path| println!("{path}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {file}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: plant FILE --in DIRECTORY");
    ExitCode::FAILURE
}

/// The files that changed.
fn plant(file: &Path, sources: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(file).map_err(|e| e.to_string())?;
    let planted = Plant::parse(&text)?.planted(sources)?;
    for (path, text) in &planted {
        fs::write(sources.join(path), text).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(planted.into_keys().collect())
}
