//! `oncefs-sim record`: a directory tree as a trace.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_sim::{Event, Source, Tree, write_lines};

use super::corpus;
use super::failure::Failure;
use super::input::FormatName;
use super::output::unless_closed;

const RECORD_AFTER: &str = "\
A file is written when it was modified last and, if it was accessed after that, read when it was accessed last; both
from its beginning to its end. In place of MD5s blocks have 128 bits of XXH3. Symbolic links, special files and other
file systems below a directory are passed over, a file with several names counts once, and access times stay as they
are. What cannot be read is left out, told, and makes the command fail when the rest is recorded.

Examples:
  oncefs-sim record /usr --output usr.txt
  oncefs-sim record ~/src ~/.cargo | oncefs-sim replay - --run-blocks-min 4
  oncefs-sim ranks usr.txt";

/// Arguments of `record`.
#[derive(Debug, Args)]
#[command(after_help = RECORD_AFTER)]
pub struct RecordArgs {
    /// Directories; all that is below them comes into one trace
    #[arg(required = true, value_name = "DIR")]
    pub roots: Vec<PathBuf>,
    /// How the trace is written
    #[arg(long, default_value = "fiu")]
    pub format: FormatName,
    /// Where to; - for stdout
    #[arg(long, short, default_value = "-", value_name = "FILE")]
    pub output: PathBuf,
}

/// What a trace has.
#[derive(Default)]
struct Recorded {
    written: u64,
    read: u64,
}

/// Writes the trace and says what is in it.
pub fn run(arguments: &RecordArgs) -> Result<(), Failure> {
    let mut tree = corpus::tree(&arguments.roots)?;
    let recorded = if arguments.output == Path::new("-") {
        record(&mut tree, arguments.format, &mut io::stdout().lock())
    } else {
        File::create(&arguments.output).and_then(|mut file| record(&mut tree, arguments.format, &mut file))
    };
    let Recorded { written, read } = recorded.map_err(|error| Failure::with(arguments.output.display(), error))?;
    eprintln!("{} files, {written} blocks written and {read} read", tree.files());
    corpus::tell_left_out(&tree);
    match tree.left_out().len() {
        0 => Ok(()),
        left_out => {
            Err(Failure::with(arguments.output.display(), format!("{left_out} files or directories are missing")))
        }
    }
}

/// A reader that has had enough ends the recording.
fn record(tree: &mut Tree, format: FormatName, output: &mut impl io::Write) -> io::Result<Recorded> {
    let mut output = BufWriter::with_capacity(1 << 20, output);
    let mut recorded = Recorded::default();
    let mut write_all = || {
        while let Some(event) = tree.next().map_err(|error| io::Error::other(error.to_string()))? {
            match event {
                Event::Write(write) => recorded.written += write.contents.len() as u64,
                Event::Read(read) => recorded.read += read.blocks,
            }
            write_lines(&event, format.into(), &mut output)?;
        }
        output.flush()
    };
    write_all().or_else(unless_closed)?;
    Ok(recorded)
}
