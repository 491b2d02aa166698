//! The command line: `oncefs COMMAND`, and the names under which mount(8), umount(8), fsck(8) and mkfs(8) call it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand};
use log::LevelFilter;
use oncefs_engine::{Profile, Remedy};

use crate::commands::*;
use crate::daemon::serve;
use crate::failure::{Failure, Outcome, exit, one_line};
use crate::mounting::options::{self, Setting};
use crate::profiles;
use crate::size::{NewSize, Size};

pub const UNITS: &str =
    "Sizes are whole numbers of bytes or carry a unit, a power of 1024: K, M, G, T, P (also KiB, MiB ...).";

#[derive(Debug, Parser)]
#[command(name = "oncefs", version, about = "A file system that stores every block once", after_help = ABOUT_AFTER)]
#[command(disable_help_subcommand = true, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const ABOUT_AFTER: &str = "\
Example, as root:
  oncefs mkfs /srv/volume --size 100G
  oncefs mount /srv/volume /mnt
  cp -a /home /mnt && cp -a /home /mnt/again
  oncefs stats /mnt
  oncefs umount /mnt

In /etc/fstab:
  /srv/volume  /mnt  oncefs  defaults  0  0

'oncefs COMMAND --help' says more. Sizes are whole numbers of bytes or carry a unit, a power of 1024: K, M, G, T, P.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume
    Mkfs(MkfsArgs),
    /// Mount a volume
    Mount(MountArgs),
    /// Unmount; returns when everything is durable and the daemon is gone
    Umount(UmountArgs),
    /// Check a volume
    Fsck(FsckArgs),
    /// Show what a mounted volume holds, saves and does
    Stats(StatsArgs),
    /// Show or change the settings of a mounted volume
    Tune(TuneArgs),
    /// Deduplicate now what was skipped as it was written, hold that up, or show how far it is
    Dedup(DedupArgs),
    /// Read everything a mounted volume holds, and name and heal what is damaged
    Scrub(ScrubArgs),
    /// Say how a file lies in the data area, whom it shares with, and why
    Explain(ExplainArgs),
    /// Lay files of a mounted volume out again, so that reading them goes to fewer places
    Defrag(crate::commands::defrag::DefragArgs),
    /// Say how files and directories are to be deduplicated, or show how they are
    Policy(crate::commands::policy::PolicyArgs),
    /// Enlarge a volume, mounted or not
    Grow(GrowArgs),
    /// Make everything written to a mounted volume durable
    Sync(SyncArgs),
    /// Show the program's version
    Version,
    /// Serve a mount in the background; started by `mount`
    #[command(hide = true)]
    Serve(ServeArgs),
}

/// Arguments of `mkfs`.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n{UNITS}\n\nExamples:
  oncefs mkfs /srv/volume                                 a volume as large as the free space there
  oncefs mkfs /srv/volume --size 2T                       sparse: takes space as it fills
  oncefs mkfs /srv/volume --data /dev/nvme1n1             blocks on a raw device, the rest in /srv/volume", profiles::help()))]
pub struct MkfsArgs {
    /// Directory to make: must be missing or empty
    pub volume: PathBuf,
    /// Size of the data area [default: 15/16 of the free space below VOLUME; all of DEVICE]
    #[arg(long, short)]
    pub size: Option<Size>,
    /// Keep the blocks on this raw block device instead of in a sparse file. Its contents are lost
    #[arg(long, short, value_name = "DEVICE")]
    pub data: Option<PathBuf>,
    /// How the volume finds and shares blocks, see below
    #[arg(long, value_name = "NAME", default_value = Profile::default().name(), value_parser = options::profile)]
    pub profile: Profile,
    /// Size of the log [default: a sixteenth of the data area, 8M to 64M]
    #[arg(long, value_name = "SIZE")]
    pub log_size: Option<Size>,
    /// Say nothing on success
    #[arg(long, short)]
    pub quiet: bool,
}

const MOUNT_EXAMPLES: &str = "\
Examples:
  oncefs mount /srv/volume /mnt
  oncefs mount /srv/volume /mnt -o ro,memory=512M
  oncefs mount /srv/volume /mnt -o profile=edge,inline=off
  mount -t oncefs /srv/volume /mnt";

fn mount_after() -> String {
    format!("{}\n{MOUNT_EXAMPLES}\n\n{UNITS}", options::help())
}

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(after_help = mount_after())]
pub struct MountArgs {
    /// The volume: a directory made by mkfs
    pub volume: PathBuf,
    /// Where to mount it
    pub dir: PathBuf,
    /// Mount options, see below
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground and log to stderr
    #[arg(long, short)]
    pub foreground: bool,
    /// Mount read-only, as -o ro
    #[arg(long, short)]
    pub read_only: bool,
    /// Bound on caches and hints, as -o memory
    #[arg(long, value_name = "SIZE", value_parser = options::memory)]
    pub memory: Option<u64>,
    /// Requests served at a time, as -o threads
    #[arg(long, value_name = "N", value_parser = options::threads)]
    pub threads: Option<usize>,
    /// When the strong hash of a block is computed, as -o fingerprints
    #[arg(long, value_name = "WHEN", value_parser = options::fingerprints)]
    pub fingerprints: Option<Setting>,
    /// What is worth a line in the log, as -o loglevel
    #[arg(long, value_name = "LEVEL", value_parser = options::log_level)]
    pub log_level: Option<LevelFilter>,
    /// Log to this file instead of syslog
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Check everything, mount nothing
    #[arg(skip)]
    pub fake: bool,
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Returns when everything is durable, the daemon is gone and the volume may be mounted elsewhere.
Exits with 32 if that failed. Plain umount(8) does the same where the helpers umount.fuse and umount.fuse.oncefs
are installed.

Examples:
  oncefs umount /mnt
  oncefs umount -l /mnt     hide it now, end when the last file is closed")]
pub struct UmountArgs {
    /// The mount point, or the volume
    pub target: PathBuf,
    /// Lazily: detach now, end when nobody uses it; does not wait
    #[arg(long, short)]
    pub lazy: bool,
    /// Cut off the daemon first: for a mount that hangs. What the kernel still holds is lost
    #[arg(long, short)]
    pub force: bool,
    /// If it is in use, make it read-only instead
    #[arg(long = "read-only", short)]
    pub read_only: bool,
    /// Say what is done
    #[arg(long, short)]
    pub verbose: bool,
    /// Accepted for umount(8)
    #[arg(short = 'n', hide = true)]
    pub no_mtab: bool,
    /// Accepted for umount(8)
    #[arg(short = 't', hide = true)]
    pub kind: Option<String>,
    /// Accepted for umount(8), which has entered the namespace already
    #[arg(short = 'N', hide = true)]
    pub namespace: Option<OsString>,
    /// Called for any FUSE mount, so that others than oncefs's are to be handed back to umount(8)
    #[arg(skip)]
    pub for_any_fuse: bool,
}

/// Arguments of `fsck`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exits as fsck(8), the sum of: 0 clean, 1 errors were mended, 4 errors are left, 8 the check could not
run, 16 wrong usage, 32 cancelled.
The volume must not be mounted. Without -y, -p or -a nothing is changed: the log is replayed in memory.
With one of them it is replayed for good, and errors are mended that have one right answer. What lost
its name gets one in lost+found. Damaged content is never dropped or guessed: its files are named.

Examples:
  oncefs fsck /srv/volume
  oncefs fsck -d /srv/volume
  oncefs fsck -y /srv/volume")]
pub struct FsckArgs {
    /// The volume
    pub volume: PathBuf,
    /// Change nothing (the default)
    #[arg(short = 'n', conflicts_with_all = ["yes", "preen", "auto"])]
    pub no_change: bool,
    /// Mend everything that can be mended
    #[arg(short = 'y')]
    pub yes: bool,
    /// Mend what is safe without a question (at boot): counts, sums and the like
    #[arg(short = 'p')]
    pub preen: bool,
    /// As -p
    #[arg(short = 'a')]
    pub auto: bool,
    /// Also read every block and compare it with its checksum
    #[arg(short = 'd', long)]
    pub data: bool,
    /// Accepted for fsck(8): every check is a full one
    #[arg(short = 'f', hide = true)]
    pub force: bool,
    /// Accepted for fsck(8)
    #[arg(short = 'v', hide = true)]
    pub verbose: bool,
    /// Accepted for fsck(8): descriptor for progress
    #[arg(short = 'C', hide = true, value_name = "FD", allow_hyphen_values = true)]
    pub progress: Option<i32>,
    /// Accepted for fsck(8)
    #[arg(short = 't', hide = true)]
    pub kind: Option<String>,
}

impl FsckArgs {
    /// What may be mended; None: the volume may not be changed.
    pub fn limit(&self) -> Option<Remedy> {
        match (self.yes, self.preen || self.auto) {
            (true, _) => Some(Remedy::Asked),
            (false, true) => Some(Remedy::Safe),
            (false, false) => None,
        }
    }
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oncefs stats /mnt
  oncefs stats /mnt --layout                        how broken the files are: goes through all of them
  oncefs stats /mnt --layout --plot layout.svg")]
pub struct StatsArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// All figures as JSON
    #[arg(long)]
    pub json: bool,
    /// Instead: in how many runs files lie, how long these are and how much of them is shared
    #[arg(long)]
    pub layout: bool,
    /// Draw the lengths of runs into this file
    #[arg(long, value_name = "FILE.svg", requires = "layout")]
    pub plot: Option<PathBuf>,
}

/// Arguments of `tune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Changes hold until the volume is unmounted; mount -o takes the same for longer. Either all of them are made or none.

Examples:
  oncefs tune /mnt                                  all settings: value, range, meaning
  oncefs tune /mnt worker=always                    deduplicate out of line at any time
  oncefs tune /mnt inline=off hint_memory=64M")]
pub struct TuneArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// What to change
    #[arg(value_name = "NAME=VALUE", value_parser = options::setting)]
    pub changes: Vec<Setting>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `dedup`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["now", "pause", "resume", "schedule", "status"])),
after_help = "\
Out of line, duplicates are found that nobody looked for as they were written. By default that happens when the
volume is idle. Ctrl-C ends the display of --now, not the work; --pause does.

WHEN is 'always', or windows of the local clock joined by commas: 22:00-06:00 for every night, and days before the
hours, as in 'Sat-Sun 00:00-24:00'. It holds until the volume is unmounted; -o schedule=WHEN sets it at each mount,
with + for a comma. --now minds no hours.

Examples:
  oncefs dedup /mnt --now                   find all duplicates in what was skipped; shows how far it is
  oncefs dedup /mnt --now --full            look at every block of the volume once more
  oncefs dedup /mnt --now --background      return at once
  oncefs dedup /mnt --schedule '22:00-06:00,Sat-Sun 00:00-24:00'
  oncefs dedup /mnt --status")]
pub struct DedupArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Work at once, idle or not and as fast as it goes, until nothing is left
    #[arg(long)]
    pub now: bool,
    /// Look at every block of the volume, not only at what was skipped
    #[arg(long, conflicts_with_all = ["pause", "resume", "schedule", "status"])]
    pub full: bool,
    /// Do not wait for the end
    #[arg(long, conflicts_with_all = ["pause", "resume", "schedule", "status"])]
    pub background: bool,
    /// OnPublish the work up until --resume or the next mount
    #[arg(long)]
    pub pause: bool,
    /// Go on after --pause
    #[arg(long)]
    pub resume: bool,
    /// Work only at these hours of the week
    #[arg(long, value_name = "WHEN", value_parser = options::schedule)]
    pub schedule: Option<Setting>,
    /// Show what is being done, what is left and what has been found
    #[arg(long)]
    pub status: bool,
    /// The status as JSON
    #[arg(long, conflicts_with_all = ["now", "pause", "resume", "schedule"])]
    pub json: bool,
}

/// Arguments of `scrub`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").args(["start", "pause", "resume", "stop", "status"])), after_help = format!("\
Every block is compared with its checksum. One that is damaged is marked and never shared; reading it is an error until
the same content is written or read anywhere. A scrub goes on after an unmount and a crash. Ctrl-C ends the display, not
the scrub; --stop does.

Exit codes: 0 no damage, 1 the command failed, 3 damage was found and is healed, 4 files are damaged.

{UNITS}

Examples:
  oncefs scrub /mnt                         shows how far it is, then what is damaged
  oncefs scrub /mnt --start --rate 20M      in the background, at most 20 MiB a second
  oncefs scrub /mnt --copies-above 100      also keep blocks with more than 100 references twice
  oncefs scrub /mnt --status"))]
pub struct ScrubArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Do not wait for the end
    #[arg(long)]
    pub start: bool,
    /// OnPublish it up, across mounts, until --resume
    #[arg(long)]
    pub pause: bool,
    /// Go on after --pause
    #[arg(long)]
    pub resume: bool,
    /// Give it up
    #[arg(long)]
    pub stop: bool,
    /// Show how far it is and which files are damaged
    #[arg(long)]
    pub status: bool,
    /// Bytes a second at most; 0: as the load allows [default: as the last time]
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["pause", "resume", "stop", "status"])]
    pub rate: Option<Size>,
    /// Keep blocks with more references twice, as the setting replicate_refs_above; 0: none
    #[arg(long, value_name = "N", conflicts_with_all = ["pause", "resume", "stop", "status"])]
    pub replicate_refs_above: Option<u64>,
    /// The result, or the status, as JSON
    #[arg(long, conflicts_with_all = ["start", "pause", "resume", "stop"])]
    pub json: bool,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
A line for each run: its first block and length in the file, where it lies in the data area, and why: shared and with
whom, stored anew, too short to be shared, not looked at yet, a hole, reserved, bad. Only root may ask. Writes nothing.

Examples:
  oncefs explain /mnt/disk.img
  oncefs explain /mnt/disk.img --blocks             a line for each block
  oncefs explain /mnt/disk.img --no-names           without going through all files for their names
  oncefs explain /mnt/disk.img --json")]
pub struct ExplainArgs {
    /// A file inside a mount
    pub file: PathBuf,
    /// A line for each block
    #[arg(long, conflicts_with = "json")]
    pub blocks: bool,
    /// Do not look for the names of the files that share
    #[arg(long)]
    pub no_names: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `grow`.
#[derive(Debug, Args)]
#[command(after_help = format!("{UNITS}\n\nExamples:
  oncefs grow /mnt 2T            to 2 TiB
  oncefs grow /mnt +500G         by 500 GiB
  oncefs grow /srv/volume 2T     a volume that is not mounted"))]
pub struct GrowArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// New size of the data area, or +SIZE to add
    pub size: NewSize,
}

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// Any path inside a mount
    pub target: PathBuf,
}

/// Arguments of `serve`. Paths are absolute.
#[derive(Debug, Args)]
pub struct ServeArgs {
    pub volume: PathBuf,
    pub dir: PathBuf,
    #[arg(short = 'o')]
    pub options: String,
    #[arg(long)]
    pub log_file: Option<PathBuf>,
}

/// How mount(8) calls `mount.oncefs`: `-f` means fake here.
#[derive(Debug, Parser)]
#[command(name = "mount.oncefs", version, about = "Mount an oncefs volume for mount(8)", after_help = mount_after())]
struct MountHelper {
    volume: PathBuf,
    dir: PathBuf,
    /// Mount options, see below
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Fake: check everything, mount nothing
    #[arg(short)]
    fake: bool,
    /// Accepted for mount(8)
    #[arg(short)]
    sloppy: bool,
    /// Accepted for mount(8)
    #[arg(short)]
    no_mtab: bool,
    /// Accepted for mount(8)
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,
    /// Accepted for mount(8)
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// Accepted for mount(8), which has entered the namespace already
    #[arg(short = 'N', hide = true)]
    namespace: Option<OsString>,
}

impl From<MountHelper> for MountArgs {
    fn from(helper: MountHelper) -> Self {
        Self {
            volume: helper.volume,
            dir: helper.dir,
            options: helper.options,
            foreground: false,
            read_only: false,
            memory: None,
            threads: None,
            fingerprints: None,
            log_level: None,
            log_file: None,
            fake: helper.fake,
        }
    }
}

/// Reads the command line and does what it says. Gives the exit code.
pub fn run(arguments: Vec<OsString>) -> Outcome<ExitCode> {
    parse(arguments).and_then(|command| command.map_or(Ok(ExitCode::SUCCESS), call))
}

fn call(command: Command) -> Outcome<ExitCode> {
    match command {
        Command::Fsck(arguments) => return fsck::run(arguments).map(ExitCode::from),
        Command::Scrub(arguments) => return scrub::run(arguments).map(ExitCode::from),
        Command::Defrag(arguments) => return defrag::run(arguments).map(ExitCode::from),
        Command::Policy(arguments) => return policy::run(arguments).map(ExitCode::from),
        Command::Mkfs(arguments) => mkfs::run(arguments)?,
        Command::Mount(arguments) => mount::run(arguments)?,
        Command::Umount(arguments) => umount::run(arguments)?,
        Command::Stats(arguments) => stats::run(arguments)?,
        Command::Tune(arguments) => tune::run(arguments)?,
        Command::Dedup(arguments) => dedup::run(arguments)?,
        Command::Explain(arguments) => explain::run(arguments)?,
        Command::Grow(arguments) => grow::run(arguments)?,
        Command::Sync(arguments) => grow::sync(arguments)?,
        Command::Version => println!("oncefs {}", env!("CARGO_PKG_VERSION")),
        Command::Serve(arguments) => serve::in_background(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the command line. `None`: help or the version was asked for, and printed.
fn parse(arguments: Vec<OsString>) -> Outcome<Option<Command>> {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("oncefs"));
    let parsed = match called_as.to_str() {
        Some("mount.oncefs" | "mount.fuse.oncefs") => {
            MountHelper::try_parse_from(&arguments).map(|helper| Command::Mount(helper.into()))
        }
        Some("mkfs.oncefs") => parse_as("mkfs", &arguments),
        Some("umount.oncefs" | "umount.fuse.oncefs") => parse_as("umount", &arguments),
        Some("umount.fuse") => parse_as("umount", &arguments).map(for_any_fuse),
        Some("fsck.oncefs") => parse_as("fsck", &arguments),
        _ => Cli::try_parse_from(&arguments).map(|cli| cli.command),
    };
    parsed.map(Some).or_else(|e| explain(&e, &called_as.to_string_lossy(), &arguments))
}

fn parse_as(command: &str, arguments: &[OsString]) -> Result<Command, clap::Error> {
    let words = [OsString::from("oncefs"), command.into()];
    Cli::try_parse_from(words.into_iter().chain(arguments.iter().skip(1).cloned())).map(|cli| cli.command)
}

/// umount(8) of util-linux looks no further than the file system's magic number, and so calls `umount.fuse`
/// for every FUSE mount that has no entry in /run/mount/utab.
fn for_any_fuse(command: Command) -> Command {
    match command {
        Command::Umount(arguments) => Command::Umount(UmountArgs { for_any_fuse: true, ..arguments }),
        other => other,
    }
}

/// Help goes to stdout; anything else becomes one line.
fn explain(error: &clap::Error, called_as: &str, arguments: &[OsString]) -> Outcome<Option<Command>> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    let command = command_name(called_as, arguments);
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        // A closed stdout is the reader's choice.
        let _ = error.print();
        return Ok(None);
    }
    let help = match command {
        Some(_) if called_as.contains('.') => format!("{called_as} --help"),
        Some(name) => format!("oncefs {name} --help"),
        None => "oncefs --help".to_owned(),
    };
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        return Err(Failure::new(usage_code(command), format!("no command given: see {help}")));
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let first = first.strip_prefix("error: ").unwrap_or(first);
    Err(Failure::new(usage_code(command), format!("{}: see {help}", one_line(first))))
}

fn command_name<'a>(called_as: &'a str, arguments: &'a [OsString]) -> Option<&'a str> {
    match called_as.split_once('.') {
        Some((command @ ("mkfs" | "mount" | "umount" | "fsck"), _)) => Some(command),
        _ => arguments.get(1)?.to_str().filter(|word| Cli::has(word)),
    }
}

impl Cli {
    fn has(command: &str) -> bool {
        use clap::CommandFactory;
        Self::command().find_subcommand(command).is_some()
    }
}

/// The exit code for a wrong command line, as the command's callers expect it.
fn usage_code(command: Option<&str>) -> u8 {
    match command {
        Some("mount" | "umount") => exit::MOUNT_USAGE,
        Some("fsck") => exit::FSCK_USAGE,
        Some("mkfs") => exit::FAILED,
        _ => exit::USAGE,
    }
}

#[cfg(test)]
mod tests;
