//! The model: the file system of `crates/fs/tests/model`, against which the real one is also compared operation by
//! operation, and the size of the volume.

#[allow(
    missing_docs,
    clippy::new_without_default,
    clippy::unwrap_used,
    reason = "shared with the tests of oncefs-fs, which fail by panicking"
)]
#[path = "../../fs/tests/model/reference.rs"]
mod reference;

use std::collections::BTreeMap;

use oncefs_fs::Ino;

pub use reference::{Node, Reference};

/// The expected content of the volume.
pub struct Model {
    /// Names and contents.
    pub reference: Reference,
    /// The published reads of files: the number of blocks, and the time of the last read in seconds.
    pub reads: BTreeMap<Ino, (u64, u32)>,
    /// Size of the data area.
    pub data_blocks: u64,
}

impl Clone for Model {
    fn clone(&self) -> Self {
        let reference = Reference { nodes: self.reference.nodes.clone(), now: self.reference.now };
        Self { reference, reads: self.reads.clone(), data_blocks: self.data_blocks }
    }
}
