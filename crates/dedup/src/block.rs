//! The vocabulary of blocks: numbers, tags and fingerprints, one type for each kind of number.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Size of a block: the unit of sharing, of placement and of reference counting.
pub const BLOCK_BYTES: usize = 4096;

/// A number of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(pub u64);

impl Blocks {
    /// The same length in bytes.
    pub fn bytes(self) -> u64 {
        self.0 * BLOCK_BYTES as u64
    }
}

impl Add for Blocks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Blocks {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Blocks {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

macro_rules! block_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The number of the block `n` places further on.
            pub fn plus(self, n: u64) -> Self {
                Self(self.0 + n)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

block_number! {
    /// Logical block number: the place of a block within its map (file).
    Lbn
}
block_number! {
    /// Physical block number: the place of a block within the data area.
    /// Block 0 holds the volume's label and is never handed out.
    /// Reused only after its release is durable and no reader has it pinned.
    Pbn
}

/// 64 bits of keyed XXH3: the key of the hint store and the checksum of every stored block.
/// Two blocks with the same tag are probably, not certainly, equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// 128 bits of keyed BLAKE3. Two blocks with the same fingerprint are equal.
/// Hashing never produces the all-zero value, because on disk it means "not computed yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);
