//! Makes traces with stated properties.
//!
//! Three ways: [`Filer`] makes files that are written, patched and read; [`Mixed`] draws each run of writes anew from
//! shares and distances; [`Copied`] takes DEDISbench's tables, which say how many contents have how many copies. All
//! draw from a seed, and so repeat exactly.

mod address;
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
