//! Lines that the help texts of several commands share.

/// How sizes are written.
pub const UNITS: &str =
    "Sizes are whole numbers of bytes or carry a unit, a power of 1024: K, M, G, T, P (also KiB, MiB ...).";
