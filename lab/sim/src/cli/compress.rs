//! `oncefs-sim compress`: what compression saves beside deduplication.

use std::path::PathBuf;

use clap::Args;
use oncefs_compress::Method;
use oncefs_sim::{CompressedCorpus, compression_table};

use super::corpus;
use super::failure::Failure;
use super::output::print;

const COMPRESS_AFTER: &str = "\
Each content is taken once, as a volume stores it, block by block. A block that shrinks by less than an eighth stays as
it is. Fragments lie one behind the other without gaps; what gaps cost on a volume comes on top. Blocks of zeros take no
place and do not count.

Examples:
  oncefs-sim compress /usr/share ~/.cargo
  oncefs-sim compress ~/src --method zstd:9";

/// Arguments of `compress`.
#[derive(Debug, Args)]
#[command(after_help = COMPRESS_AFTER)]
pub struct CompressArgs {
    /// Directories; a corpus each
    #[arg(required = true, value_name = "DIR")]
    pub corpora: Vec<PathBuf>,
    /// How blocks are compressed; repeat it for several
    #[arg(long = "method", value_name = "lz4|zstd:N", default_values = ["lz4", "zstd:1", "zstd:3"])]
    pub methods: Vec<Method>,
}

/// Compresses every corpus and prints the table.
pub fn run(arguments: &CompressArgs) -> Result<(), Failure> {
    let mut corpora = Vec::new();
    for path in &arguments.corpora {
        let mut tree = corpus::tree(std::slice::from_ref(path))?;
        corpora.push(CompressedCorpus::of(corpus::name(path), &mut tree, &arguments.methods));
        corpus::tell_left_out(&tree);
    }
    print(&format!("blocks of 4 KiB, each content once, compressed one by one\n{}", compression_table(&corpora)))
}
