//! All tests of the whole of oncefs, in one program: it is linked once. A test's name begins with its module's.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

mod beyond;
mod cgroup;
mod commands;
mod compress;
mod costs;
mod defrag;
mod disks;
mod estimate;
mod expand;
mod explain;
mod faults;
mod flags;
mod fsck;
mod fsx;
mod full_disk;
mod held;
mod idmapped;
mod kill9;
mod limits;
mod lost_power;
mod lost_requests;
mod metrics;
mod model;
mod nameless;
mod oncefs_head;
mod pjdfstest;
mod policy;
mod posix;
mod programs;
mod ranks;
mod refused_writes;
mod scrub;
mod security;
mod send;
mod sharing;
mod shutdown;
mod sync_command;
mod sync_options;
mod top;
mod trees;
mod two_levels;
