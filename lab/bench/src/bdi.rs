//! Sets a mount's share of dirty memory and its read-ahead in /sys/class/bdi.

use std::fs;

use clap::Args;

use crate::failure::{During, Result};

/// Bound of dirty data that oncefs sets on a machine with 16 GiB or more.
const DIRTY_BYTES_MAX: u64 = 512 << 20;

/// Settings to change; the defaults are those of oncefs.
#[derive(Args, Clone, Debug, Default)]
pub struct Tuning {
    /// Share of the global dirty limit in percent, instead of a limit in bytes
    #[arg(long, conflicts_with = "max_bytes")]
    max_ratio: Option<u32>,
    /// 1: never exceed the share, even while memory is plentiful; 0: only under pressure
    #[arg(long, default_value_t = 1)]
    strict_limit: u8,
    /// Limit of dirty data, such as 64M [default: 512M]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    max_bytes: Option<u64>,
    /// Read-ahead window in KiB
    #[arg(long, default_value_t = 1024)]
    read_ahead_kb: u32,
}

/// Applies the tuning to the file system with this number. The caller keeps it mounted meanwhile.
pub fn tune((major, minor): (u32, u32), tuning: &Tuning) -> Result<()> {
    let directory = format!("/sys/class/bdi/{major}:{minor}");
    let set = |name: &str, value: u64| {
        let path = format!("{directory}/{name}");
        fs::write(&path, value.to_string()).during(|| format!("cannot set {path} to {value}"))
    };
    set("read_ahead_kb", u64::from(tuning.read_ahead_kb))?;
    set("strict_limit", u64::from(tuning.strict_limit))?;
    match (tuning.max_ratio, tuning.max_bytes) {
        (Some(percent), _) => set("max_ratio", u64::from(percent)),
        (None, Some(bytes)) => set("max_bytes", bytes),
        // The kernel refuses more than its global limit; on a small machine that limit is the bound.
        (None, None) => set("max_bytes", DIRTY_BYTES_MAX).or_else(|_| set("max_ratio", 100)),
    }
}
