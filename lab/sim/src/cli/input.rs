//! Where traces come from: a file or stdin, in one of two forms.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use clap::ValueEnum;
use oncefs_sim::Format;

use super::failure::{Failure, exit};

/// Read at once from the trace.
const BUFFER_BYTES: usize = 1 << 20;

/// Formats by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FormatName {
    /// [ts ns] [pid] [process] [lba] [sectors] [W|R] [major] [minor] [md5 per 4096 or 512 bytes]
    Fiu,
    /// [ts ns] [file] [lbn] [md5], one written block of 4096 bytes per line; - for the md5: one that is read
    Four,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Fiu => Self::Fiu,
            FormatName::Four => Self::Four,
        }
    }
}

/// Opens a trace; - is stdin.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = File::open(path).map_err(|e| Failure::new(exit::FAILED, format!("{}: {e}", path.display())))?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)))
}
