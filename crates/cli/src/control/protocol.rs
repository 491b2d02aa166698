//! How commands talk to the daemon of a mounted volume: a Unix socket in the volume's directory.
//!
//! One JSON line asks, one JSON line answers. `wait-exit` is answered by three: `waiting` at once, `closing` when the
//! kernel has let go of the mount, and the outcome when everything is closed; the daemon's process ends after it.
//! Only root gets at the socket (mode 0600), and commands listen to root's alone. While a request takes long, `working`
//! comes every few seconds: whoever is silent for longer than `SILENCE_MAX` hangs.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncefs_engine::{DedupCommand, LayoutCursor, MapCursor, ScrubCommand};
use serde::{Deserialize, Serialize};

/// Version of the protocol; a daemon refuses requests of another one. It rises when a request changes its meaning:
/// one that is new is refused by older daemons on its own.
pub const VERSION: u32 = 1;

/// Longest line that either side reads.
pub const LINE_BYTES_MAX: u64 = 4 << 20;

/// How often a daemon that works on a request says so.
pub const WORKING_EVERY: Duration = Duration::from_secs(5);

/// A daemon that says nothing for so long hangs.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The socket's name in the volume.
const SOCKET_NAME: &str = "control";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// The daemon's description of itself: `About`.
    Version,
    /// Counters and histograms: the engine's `Report`.
    Stats,
    /// Make everything durable.
    Commit,
    /// Enlarge the data area.
    Grow {
        /// New size.
        bytes: u64,
    },
    /// Do what these flags of mount(2) leave to the daemon: times of access, sync and dirsync (remount).
    MountFlags {
        /// `MS_...`
        kernel_flags: libc::c_ulong,
    },
    /// All settings: names and values.
    Settings,
    /// All settings as the profile has them.
    ProfileSettings,
    /// Change settings, all of them or none: `Tuned`.
    Tune {
        /// Names and values, applied in this order.
        changes: Vec<(String, String)>,
    },
    /// Start, pause or resume out-of-line deduplication.
    Dedup {
        /// Which of them.
        command: DedupCommand,
    },
    /// What out-of-line deduplication does: the engine's `DedupStatus`.
    DedupStatus,
    /// Start, pause, resume or cancel the scrub.
    Scrub {
        /// Which of them.
        command: ScrubCommand,
    },
    /// The progress of the scrub: the engine's `ScrubStatus`.
    ScrubStatus,
    /// Which files bad blocks belong to: `Damage`.
    Damage {
        /// Places looked for at most.
        places_max: usize,
    },
    /// A portion of a file's runs, and why they are where they are: the engine's `Explained`.
    Explain {
        /// The file.
        inode: u64,
        /// Its first block of interest.
        lbn: u64,
    },
    /// Which places in files refer to blocks, a portion of all maps: the engine's `Referrers`.
    Referrers {
        /// First pbns and lengths, ascending and apart.
        blocks: Vec<(u64, u64)>,
        /// Where to begin.
        from: MapCursor,
    },
    /// The names of files by map, a portion of them: `NamesFound`. A map without a file is missing.
    FileNames {
        /// The maps.
        maps: Vec<u64>,
    },
    /// A portion of the fragmentation of all files: the engine's `LayoutPortion`.
    Layout {
        /// Where to begin.
        from: LayoutCursor,
    },
    /// Defragment a part of a file: the engine's `DefragOutcome`.
    Defrag {
        /// The file's inode number.
        inode: u64,
        /// The part's first block.
        from: u64,
        /// Runs of at least so many blocks stay; None: as the file's own rule says.
        run_blocks_min: Option<u32>,
        /// Blocks that may be newly taken.
        space_blocks: u64,
        /// Change nothing, say what would be.
        dry_run: bool,
    },
    /// How a file, or what is made in a directory, is deduplicated: `EffectiveView`.
    Policy {
        /// Its inode number.
        inode: u64,
    },
    /// Report when the mount has ended and everything is closed.
    WaitExit,
}

/// A request with the version of the protocol.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of the protocol.
    pub version: u32,
    /// What is asked.
    #[serde(flatten)]
    pub request: Request,
}

/// A reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The answer.
    Ok(serde_json::Value),
    /// What went wrong.
    Error(String),
    /// To `wait-exit`: the outcome follows.
    Waiting,
    /// The mount has ended, the volume is being closed.
    Closing,
    /// The answer takes longer.
    Working,
}

/// A path to the socket that fits into 108 bytes however deep the volume lies.
/// Valid while the directory is held open.
pub struct SocketPath {
    _volume: File,
    /// The path.
    pub path: PathBuf,
}

impl SocketPath {
    /// The path to the socket of this volume.
    pub fn in_volume(volume: &Path) -> io::Result<Self> {
        let volume = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(volume)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_NAME}", volume.as_raw_fd()));
        Ok(Self { _volume: volume, path })
    }
}
