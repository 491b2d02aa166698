//! One trace on one mount: played, settled, mounted cold, compared.

use std::time::Instant;

use serde::Serialize;

use super::play::{Pace, play, verify};
use super::trace::Trace;
use crate::failure::{During, Result};
use crate::fragmentation::replay::Io;
use crate::machine;
use crate::measure::LatencySummary;
use crate::side::{Bench, Side, SideSpec};

/// One trace on one mount in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// The trace.
    pub trace: String,
    /// The mount.
    pub mount: String,
    /// From 0 on.
    pub repetition: usize,
    /// Until all was durable.
    pub seconds: f64,
    /// Response times.
    pub writes: Option<LatencySummary>,
    /// Response times.
    pub reads: Option<LatencySummary>,
    /// In use beyond what the empty file system has.
    pub used_bytes: u64,
    /// Written to the device until it was unmounted.
    pub device_bytes: u64,
    /// The most memory of the daemon.
    pub memory_bytes: Option<u64>,
    /// Processor time of the daemon.
    pub cpu_s: Option<f64>,
}

/// Measures one mount.
pub fn measure(bench: &Bench, trace: &Trace, mount: &SideSpec, how: (Pace, Io), repetition: usize) -> Result<Reading> {
    let mut side = Side::create(bench, mount, &mount.name, 0)?;
    side.format()?;
    side.mount()?;
    let empty_bytes = side.used_bytes()?;
    machine::drop_caches()?;
    let daemon = side.daemon();
    daemon.map(machine::reset_peak_memory).transpose()?;
    let cpu_before = daemon.map(machine::cpu_seconds_process).transpose()?;
    let device_before = side.device_bytes()?;
    let began = Instant::now();
    let played = play(side.root(), trace, how.0, how.1)?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu_after = daemon.map(machine::cpu_seconds_process).transpose()?;
    let memory_bytes = daemon.map(machine::peak_memory_bytes).transpose()?;
    side.unmount()?;
    let device_bytes = side.device_bytes()?.since(device_before).written;
    side.remount_cold()?;
    let used_bytes = side.used_bytes()?.saturating_sub(empty_bytes);
    verify(side.root(), trace).during(|| format!("{} on {}", trace.name, mount.name))?;
    side.unmount()?;
    Ok(Reading {
        trace: trace.name.clone(),
        mount: mount.name.clone(),
        repetition,
        seconds,
        writes: played.writes.summary(),
        reads: played.reads.summary(),
        used_bytes,
        device_bytes,
        memory_bytes,
        cpu_s: cpu_after.zip(cpu_before).map(|(after, before)| after - before),
    })
}
