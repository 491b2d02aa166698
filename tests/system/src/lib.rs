//! What the whole-system tests share. They drive the built `oncefs` binary on real mounts, as a person would,
//! and know nothing of its insides but the figures of `oncefs stats --json`.
//!
//! The tests need root and `/dev/fuse`; without them they fail. `ONCEFS_BIN` names another binary,
//! `ONCEFS_TEST_DIR` another place for the volumes than `/var/tmp` (it must be on a real disk).

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

mod cgroup;
mod data;
mod device;
mod mount;
mod run;
pub mod sys;
mod witness;

pub use cgroup::MemoryCgroup;
pub use data::{bytes, fill};
pub use device::{BLOCK, HostDisk, test_dir};
pub use mount::{Mount, copy_program, leave_free, oncefs};
pub use oncefs_toolbox::Random;
pub use oncefs_toolbox::counts::{gate_or_drill, seed};
pub use oncefs_toolbox::waiting::{PATIENCE, eventually, refused_by_the_dead};
pub use run::{elapsed, run, run_json, tool};
pub use witness::{InPlace, Lost, Names, Replaced, Witness};
