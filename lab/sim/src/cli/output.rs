//! Where results go: stdout, or files in a directory.

use std::io::{self, Write as _};
use std::path::Path;

use super::failure::Failure;

/// Writes to stdout. A reader that stops early, such as `head`, is not a failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.or_else(unless_closed).map_err(|e| Failure::with("stdout", e))
}

/// Writes files by name, with their text, into a directory, which is made if need be.
pub fn write_plots(plots: Vec<(String, String)>, dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::with(dir.display(), e))?;
    for (name, svg) in plots {
        let path = dir.join(name);
        std::fs::write(&path, svg).map_err(|e| Failure::with(path.display(), e))?;
    }
    Ok(())
}

/// A closed pipe is the reader's choice; other errors stay.
pub fn unless_closed(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}
