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

pub use reference::{Node, Reference};

/// What the volume has to hold.
pub struct Model {
    /// Names and contents.
    pub reference: Reference,
    /// Size of the data area.
    pub data_blocks: u64,
}

impl Clone for Model {
    fn clone(&self) -> Self {
        let reference = Reference { nodes: self.reference.nodes.clone(), now: self.reference.now };
        Self { reference, data_blocks: self.data_blocks }
    }
}
