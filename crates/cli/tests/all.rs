//! The tests of the built command, in one program, so that it is linked once. A test's name begins with its module's.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

mod bad_input;
mod common;
mod dependencies;
mod estimate;
mod figures;
mod full_output;
mod mount_cycle;
mod mount_helpers;
mod pages;
mod pressure;
mod report;
