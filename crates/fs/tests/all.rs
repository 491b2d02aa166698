//! The tests of the crate's interface, in one program, so that it is linked once. A test's name begins with its
//! module's.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

mod attack;
mod clones;
mod common;
mod crowding;
mod faults;
mod flags;
mod flips;
mod format_doc;
mod held;
mod labels;
mod model;
mod nameless;
mod names;
mod policy;
mod races;
mod ranks;
mod rot;
mod semantics;
mod smallest_log;
mod standstill;
mod trees;
#[path = "../../engine/src/tests/unreadable_sectors.rs"]
mod unreadable_sectors;
mod usage;
mod wrong_bytes;
