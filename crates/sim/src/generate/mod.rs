//! Makes traces with stated properties.
//!
//! Three ways: [`Filer`] makes files that are written, patched and read; [`Mixed`] draws each run of writes anew from shares and distances; [`Copied`] takes DEDISbench's tables,
//! which say how many contents have how many copies. All draw from a seed, and so repeat exactly.

mod copied;
mod copies;
mod distance;
mod filer;
mod filer_twins;
mod history;
mod mixed;
mod twins;

pub use copied::{Copied, CopiedSpec};
pub use copies::{CopyClass, CopyTable};
pub use distance::Distance;
pub use filer::{Filer, FilerSpec};
pub use filer_twins::{CORPORATE, ENGINEERING, FilerTwin, PHONE};
pub use mixed::{Mixed, MixedSpec};
pub use twins::{TWINS, Twin};

use crate::trace::Place;

/// Blocks per file of a made trace, 1 MiB: addresses are cut into files of this size.
const FILE_BLOCKS: u64 = 256;

/// Files of a made trace are numbered from here.
const FILE_FIRST: u64 = 1;

fn place(address: u64) -> Place {
    Place { file: FILE_FIRST + address / FILE_BLOCKS, lbn: address % FILE_BLOCKS }
}

/// Blocks from an address to the end of its file.
fn blocks_to_end(address: u64) -> u64 {
    FILE_BLOCKS - address % FILE_BLOCKS
}
