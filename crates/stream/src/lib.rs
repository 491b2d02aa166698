//! The stream of `oncefs send`: a tree of files as bytes in which each content occurs once. Encodes, decodes and checks;
//! opens no file and starts no thread.
//!
//! docs/format-stream.md has the layout. A reader treats its input as hostile: it takes bounded memory, and returns only
//! records that are whole, intact and in a sensible order.

mod attributes;
mod base;
mod contents;
mod digest;
mod error;
mod fields;
mod grammar;
mod header;
mod names;
mod position;
mod reader;
mod record;
#[cfg(feature = "testing")]
pub mod testing;
mod writer;

pub use attributes::{Attributes, Flags, Moment};
pub use base::{BLOCK_BYTES, VERSION};
pub use contents::{Contents, Place};
pub use digest::{Digest, Key, StrongDigest, identity};
pub use error::{Error, Malformed, Result};
pub use header::Header;
pub use names::{DEPTH_MAX, Name, TreePath};
pub use position::{Partial, Position, Token};
pub use reader::Reader;
pub use record::{ASKED_MAX, Asked, DATA_BYTES_MAX, FILE_BYTES_MAX, Record, Source, Totals};
pub use writer::Writer;
