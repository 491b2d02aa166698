//! Changes of the flags of blocks, as a publication makes them.

use crate::Pbn;

/// A change of a block's flags. The flags that it does not name stay as they are when it is published, whatever they
/// were when it was decided.
#[derive(Clone, Copy, Debug)]
pub struct FlagChange {
    /// The block.
    pub pbn: Pbn,
    /// Flags that it gets.
    pub set: u8,
    /// Flags that it loses.
    pub clear: u8,
}

impl FlagChange {
    /// A block gets a flag.
    pub fn set(pbn: Pbn, set: u8) -> Self {
        Self { pbn, set, clear: 0 }
    }

    /// A block loses flags.
    pub fn clear(pbn: Pbn, clear: u8) -> Self {
        Self { pbn, set: 0, clear }
    }
}
