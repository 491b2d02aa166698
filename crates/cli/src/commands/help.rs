//! Lines that the help texts of several commands share.

/// How sizes are written.
pub const UNITS: &str = oncefs_toolbox::sizes::HELP;
