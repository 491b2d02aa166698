//! A flat FUSE file system, as fast as the transport allows.
//!
//! It uses the same transport, flags and cache settings as oncefs and does nothing else: names and attributes are in
//! memory, data is in one backing file, nothing is hashed, looked up or logged. Its names survive an unmount but not a
//! crash, it does not reuse the space of deleted files, and it has neither links nor rename: it is only for measuring.

mod adapter;
mod data;
mod names;

use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::Args;
use oncefs_transport::{KnobLock, MountSpec, PAGE_LIMIT, Session, Settings, Transport, attach, open_device, unmount};

use crate::bdi::{self, Tuning};
use crate::failure::{During, Failure, Result, tell};

/// Memory for the buffers of rings: of 32 CPUs.
const RING_BYTES_MAX: u64 = 128 << 20;

/// The line that tells the parent process that files can be used.
pub const READY: &str = "ready";

/// How the flat file system is mounted.
#[derive(Args, Clone, Debug)]
pub struct FlatArgs {
    /// Directory with the backing file and, between mounts, the names
    backing: PathBuf,
    /// Mount point
    mountpoint: PathBuf,
    /// Threads that read /dev/fuse, at most
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// How requests come: auto, rings or classic
    #[arg(long, default_value = "auto")]
    transport: Transport,
    /// Read and write the backing file with O_DIRECT
    #[arg(long)]
    direct: bool,
    /// Start write-out of buffered writes at once (sync_file_range)
    #[arg(long, conflicts_with = "direct")]
    early_write_out: bool,
    /// Largest write request, such as 1M
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "1M")]
    max_write: u64,
    #[command(flatten)]
    tuning: Tuning,
}

/// Mounts and serves until unmounted.
pub fn serve(args: &FlatArgs) -> Result<()> {
    let data = data::Data::open(&args.backing, args.direct, args.early_write_out)?;
    let names_file = args.backing.join("names.json");
    let names = names::Names::load(&names_file)?;
    let file_system = adapter::Flat::new(names, names_file, data, args.max_write as u32);
    let settings = Settings { transport: args.transport, threads: args.threads, ring_bytes_max: RING_BYTES_MAX };
    let spec = MountSpec {
        source: "flat".into(),
        dir: args.mountpoint.clone(),
        kind: "fuse.flat",
        kernel_flags: libc::MS_NOSUID | libc::MS_NODEV,
    };
    let lock = KnobLock::open().during(|| "cannot turn the kernel's knobs")?;
    let (session, mounted) = {
        let mut knobs = lock.take().during(|| "cannot turn the kernel's knobs")?;
        knobs.raise_page_limit(args.max_write as u32).during(|| format!("cannot raise {PAGE_LIMIT}"))?;
        knobs.turn_on_rings(args.transport);
        let device = open_device().during(|| "cannot serve a mount")?;
        let mounted =
            attach(device.as_fd(), &spec).during(|| format!("cannot mount on {}", args.mountpoint.display()))?;
        let session = Session::start(device, file_system, &settings)
            .inspect_err(|_| drop(unmount(&args.mountpoint, libc::MNT_DETACH)))
            .during(|| format!("cannot serve {}", args.mountpoint.display()))?;
        (session, mounted)
    };
    tell(&format!("oncefs-bench: requests come {}", session.way()));
    let serving = std::thread::spawn(move || session.run());
    bdi::tune(mounted.id().device(), &args.tuning)?;
    drop(mounted);
    println!("{READY}");
    let ended = serving.join().map_err(|_| Failure::new("the flat file system's session panicked"))?;
    ended.during(|| "the flat file system's session failed")
}
