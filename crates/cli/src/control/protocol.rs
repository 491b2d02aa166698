//! The protocol between commands and the daemon of a mounted volume, over a Unix socket in the volume's directory.
//!
//! A request is one JSON line, and so is its answer. `wait-exit` gets three lines: `waiting` at once, `closing` when
//! the kernel has released the mount, and the outcome when everything is closed. The daemon's process ends after that.
//! Only root can use the socket (mode 0600), and commands accept only a socket of root. During a long request `working`
//! comes every few seconds: a daemon that is silent for longer than `SILENCE_MAX` hangs.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncefs_engine::{Conversion, DedupCommand, LayoutCursor, MapCursor, ScrubCommand};
use serde::{Deserialize, Serialize};

use crate::control::answers::DiffCursor;
use crate::names::Name;

/// Version of the protocol. A daemon refuses requests of another version. It rises when a request changes its meaning.
/// A new request needs no new version, because older daemons refuse it anyway.
pub const VERSION: u32 = 1;

/// Longest line that either side reads.
pub const LINE_BYTES_MAX: u64 = 4 << 20;

/// How often a daemon reports that it still works on a request.
pub const WORKING_EVERY: Duration = Duration::from_secs(5);

/// A daemon that is silent for this long hangs.
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
    /// Once the volume is closed, reserve it for a process that waits for it, for the length of a lease. Refused while
    /// another request is under way.
    ReserveFor {
        /// Its machine and directory. None: for nobody.
        heir: Option<String>,
    },
    /// Enlarge the data area.
    Grow {
        /// New size.
        bytes: u64,
    },
    /// Apply the flags of mount(2) that are left to the daemon: times of access, sync and dirsync (remount).
    MountFlags {
        /// `MS_...`
        kernel_flags: libc::c_ulong,
    },
    /// All settings: names and values.
    Settings,
    /// All settings of the profile.
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
    /// The state of out-of-line deduplication: the engine's `DedupStatus`.
    DedupStatus,
    /// Start, pause, resume or cancel the scrub.
    Scrub {
        /// Which of them.
        command: ScrubCommand,
    },
    /// The progress of the scrub: the engine's `ScrubStatus`.
    ScrubStatus,
    /// The files that bad blocks belong to: `Damage`.
    Damage {
        /// Most places to look for.
        places_max: usize,
    },
    /// A portion of a file's runs, and the reasons for their places: the engine's `Explained`.
    Explain {
        /// The file.
        inode: u64,
        /// The first block of the portion.
        lbn: u64,
    },
    /// The first portions of some files, as `Explain` gives them: of as many from the first on as an answer may have,
    /// and of one at least. None for a file that cannot be read.
    ExplainFiles {
        /// The files.
        inodes: Vec<u64>,
    },
    /// The blocks of a portion of a file, compared with an older file: the engine's `Compared`.
    Compare {
        /// The file.
        inode: u64,
        /// The older file.
        older: Option<u64>,
        /// The first block of the portion.
        lbn: u64,
    },
    /// The places in files that refer to blocks, from a portion of all maps: the engine's `Referrers`.
    Referrers {
        /// First pbns and lengths, ascending and disjoint.
        blocks: Vec<(u64, u64)>,
        /// Where to begin.
        from: MapCursor,
    },
    /// A portion of the names of files by map: `NamesFound`. Omits maps without a file.
    FileNames {
        /// The maps.
        maps: Vec<u64>,
    },
    /// A portion of the files that are open for writing: `OpenForWriting`.
    OpenForWriting {
        /// The first inode number.
        from: u64,
    },
    /// Let writes of a file wait for room on a full volume, until the mount ends. Answers how many can wait.
    WaitForRoom {
        /// Its inode number.
        inode: u64,
        /// How long. 0: they fail at once.
        seconds: u64,
    },
    /// Files with writes that wait for room: `RoomWaits`.
    RoomWaits,
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
        /// Runs of at least this many blocks stay. None: the file's own rule applies.
        run_blocks_min: Option<u32>,
        /// Blocks that may be allocated.
        space_blocks: u64,
        /// Change nothing, report what would happen.
        dry_run: bool,
    },
    /// Compress or expand a portion of a file, or of all files: the engine's `Converted`.
    Convert {
        /// Which of them.
        what: Conversion,
        /// The file's inode number. None: all files.
        inode: Option<u64>,
        /// Where to begin. For a file only the leaf counts.
        from: MapCursor,
    },
    /// Do what may take long before `clone-file`.
    PrepareClone {
        /// The file's inode number.
        inode: u64,
    },
    /// Make a new file with the content that another has at one moment.
    CloneFile {
        /// The other file's inode number.
        inode: u64,
        /// The inode number of the new file's directory.
        directory: u64,
        /// The new file's name.
        name: String,
    },
    /// The same while a file system stands still. Answers false, and makes nothing, if other clones have to be completed
    /// first.
    CloneFileAtOnce {
        /// The other file's inode number.
        inode: u64,
        /// The inode number of the new file's directory.
        directory: u64,
        /// The new file's name.
        name: String,
    },
    /// The policy of a file, or of new files in a directory: `EffectiveView`.
    Policy {
        /// Its inode number.
        inode: u64,
    },
    /// Copy a directory with everything in it, or a file: `TreeDone`. Ends with its client, and leaves nothing then.
    CopyTree {
        /// The inode number of the source.
        source: u64,
        /// That of the directory which gets the copy.
        parent: u64,
        /// The name of the copy.
        name: Name,
        /// Make a snapshot, which never changes: what it is of, as a path below the mount.
        snapshot_of: Option<Name>,
        /// A number by which the client asks for the progress.
        ticket: u64,
    },
    /// Remove a snapshot: `TreeDone`. Goes on without its client.
    RemoveSnapshot {
        /// The inode number of its directory.
        parent: u64,
        /// Its name.
        name: Name,
        /// A number by which the client asks for the progress.
        ticket: u64,
    },
    /// A portion of the differences between two directories: `DiffPortion`.
    DiffDirectories {
        /// The inode number of the older one. None: all names were added.
        older: Option<u64>,
        /// The inode number of the newer one. None: all names were removed.
        newer: Option<u64>,
        /// Where to begin.
        from: DiffCursor,
    },
    /// The room that only a portion of a directory's names takes: `OwnPortion`.
    OwnBlocks {
        /// The inode number of the directory.
        directory: u64,
        /// After which name to begin; 0: with the first.
        from: u64,
    },
    /// The secret of the volume's tags, in hexadecimal.
    TagSecret,
    /// A block for each tag, in hexadecimal, or none. Tags in the order of a file find most.
    BlocksByTag {
        /// At most 256.
        tags: Vec<u64>,
    },
    /// How far the work on a tree is: `TreeDone`.
    TreeProgress {
        /// The number in its request.
        ticket: u64,
    },
    /// Report when the mount has ended and everything is closed: null, or why the volume was not given up in the
    /// cluster.
    WaitExit,
}

/// A request with the version of the protocol.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of the protocol.
    pub version: u32,
    /// The request.
    #[serde(flatten)]
    pub request: Request,
}

/// A reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The answer.
    Ok(serde_json::Value),
    /// The error.
    Error(String),
    /// The first reply to `wait-exit`: the outcome follows.
    Waiting,
    /// The mount has ended, the volume is being closed.
    Closing,
    /// The answer takes longer.
    Working,
}

/// A path to the socket that fits into 108 bytes for any path of the volume. Valid while the directory is held open.
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
