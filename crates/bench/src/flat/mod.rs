//! A flat FUSE file system, as fast as the transport allows.
//!
//! It uses the same library, flags and cache settings as oncefs and does nothing else: names and attributes are in
//! memory, data is in one backing file, nothing is hashed, looked up or logged. Its names survive an unmount but not a
//! crash, it does not reuse the space of deleted files, and it has neither links nor rename: it is only for measuring.

mod adapter;
mod data;
mod names;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use fuser::{Config, MountOption, Session, SessionACL};

use crate::bdi::{self, Tuning};
use crate::failure::{During, Failure, Result, tell};

const PAGE_BYTES: u64 = 4096;
const MAX_PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";

/// The line that tells the parent process that files can be used.
pub const READY: &str = "ready";

/// How the flat file system is mounted.
#[derive(Args, Clone, Debug)]
pub struct FlatArgs {
    /// Directory with the backing file and, between mounts, the names
    backing: PathBuf,
    /// Mount point
    mountpoint: PathBuf,
    /// Number of event-loop threads
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Give every thread its own descriptor (FUSE_DEV_IOC_CLONE)
    #[arg(long)]
    clone_fd: bool,
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
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("flat".into()), MountOption::Subtype("flat".into()), MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(args.threads);
    config.clone_fd = args.clone_fd;
    let session = {
        let _raised = RaisedPageLimit::to_fit(args.max_write)?;
        Session::new(file_system, &args.mountpoint, &config)
            .during(|| format!("cannot mount {}", args.mountpoint.display()))?
    };
    let serving = std::thread::spawn(move || session.run());
    bdi::tune(&args.mountpoint, &args.tuning)?;
    println!("{READY}");
    let ended = serving.join().map_err(|_| Failure::new("the flat file system's session panicked"))?;
    ended.during(|| "the flat file system's session failed")
}

/// The kernel's limit of pages per request, raised for one mount: it is sampled while mounting.
struct RaisedPageLimit(Option<String>);

impl RaisedPageLimit {
    fn to_fit(max_write: u64) -> Result<RaisedPageLimit> {
        let before = fs::read_to_string(MAX_PAGES_LIMIT).during(|| format!("cannot read {MAX_PAGES_LIMIT}"))?;
        let pages = max_write.div_ceil(PAGE_BYTES);
        if before.trim().parse::<u64>().is_ok_and(|limit| limit >= pages) {
            return Ok(RaisedPageLimit(None));
        }
        fs::write(MAX_PAGES_LIMIT, pages.to_string())
            .during(|| format!("cannot raise {MAX_PAGES_LIMIT} to {pages}"))?;
        Ok(RaisedPageLimit(Some(before)))
    }
}

impl Drop for RaisedPageLimit {
    fn drop(&mut self) {
        if let Some(before) = &self.0
            && let Err(error) = fs::write(MAX_PAGES_LIMIT, before.trim())
        {
            tell(&format!("oncefs-bench: cannot restore {MAX_PAGES_LIMIT}: {error}"));
        }
    }
}
