//! The command line: `oncefs COMMAND`, and the names under which mount(8), umount(8), fsck(8) and mkfs(8) call it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    clone, convert, dedup, defrag, disk, estimate, explain, failover, fsck, grow, list, metrics, mkfs, mount, pages,
    policy, receive, report, revive, scrub, send, snapshot, stats, status, sync, top, tune, umount,
};
use crate::daemon::serve;
use crate::failure::{Failure, Outcome, exit};
use crate::mounting::cluster_name;
use crate::names::printable;
use crate::output;
use crate::size::Size;

#[derive(Debug, Parser)]
#[command(name = "oncefs", version, about = "A file system that stores every block once", after_help = ABOUT_AFTER)]
#[command(subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const ABOUT_AFTER: &str = "\
Without making a volume:
  oncefs estimate /home

Example, as root:
  oncefs mkfs /srv/volume --size 100G
  oncefs mount /srv/volume /mnt
  cp -a /home /mnt && cp -a /home /mnt/again
  oncefs stats /mnt
  oncefs umount /mnt

In /etc/fstab:
  /srv/volume  /mnt  oncefs  noatime,nofail  0  0

A volume in a cluster, rados://POOL/NAME, on a machine that has never seen it:
  oncefs fsck 'rados://data/home?id=oncefs' --key-file /media/home.key
Every command takes --key-file with such a name; without it the key is in /etc/oncefs/keys.

See 'oncefs COMMAND --help' for more. Sizes carry a unit, a power of 1024: 512M, 3.5G, 10GiB.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Estimate what a volume would save on files or a block device, without making one
    Estimate(estimate::EstimateArgs),
    /// Create a volume
    Mkfs(mkfs::MkfsArgs),
    /// Mount a volume
    Mount(mount::MountArgs),
    /// Unmount, and wait until everything is durable and the daemon has ended
    Umount(umount::UmountArgs),
    /// Move a volume in a cluster to another machine that waits for it (experimental)
    Failover(failover::FailoverArgs),
    /// Check a volume
    Fsck(fsck::FsckArgs),
    /// List the volumes that are mounted or named in fstab
    List(list::ListArgs),
    /// Show whether volumes are healthy or need attention: one line for each, and the exit code
    Status(status::StatusArgs),
    /// Watch a mounted volume in the terminal: throughput, savings, worker, caches, latency
    Top(top::TopArgs),
    /// Print the figures of mounts as metrics for Prometheus, or write them to a file
    Metrics(metrics::MetricsArgs),
    /// Show what a mounted volume stores, saves and does
    Stats(stats::StatsArgs),
    /// Write a page of HTML about a mounted volume: what it saves, where, and which files share
    Report(report::ReportArgs),
    /// Show or change the settings of a mounted volume
    Tune(tune::TuneArgs),
    /// Deduplicate now what was not deduplicated while writing; pause, resume, schedule or show that work
    Dedup(dedup::DedupArgs),
    /// Read and check everything in a mounted volume, repair what can be repaired, and name damaged files
    Scrub(scrub::ScrubArgs),
    /// Show a file's extents, the files it shares them with, and why
    Explain(explain::ExplainArgs),
    /// Defragment files of a mounted volume, so that reading them takes fewer seeks
    Defrag(defrag::DefragArgs),
    /// Compress files of a mounted volume now (experimental)
    Compress(convert::CompressArgs),
    /// Store compressed files of a mounted volume uncompressed again (experimental)
    Expand(convert::ExpandArgs),
    /// Set or show how files and directories are deduplicated
    Policy(policy::PolicyArgs),
    /// Enlarge a volume, mounted or not
    Grow(grow::GrowArgs),
    /// Copy a directory or a file without copying data
    Clone(clone::CloneArgs),
    /// Make, show, compare and remove read-only copies of a mount or a directory
    Snapshot(snapshot::SnapshotArgs),
    /// Make, attach, resize and remove disks in a volume, for other file systems (experimental)
    Disk(disk::DiskArgs),
    /// Write a directory to the standard output as a stream, in which each content occurs once (experimental)
    Send(send::SendArgs),
    /// Make a directory from a stream of oncefs send (experimental)
    Receive(receive::ReceiveArgs),
    /// Make everything written to a mounted volume durable
    Sync(sync::SyncArgs),
    /// Remount volumes whose daemon died, as listed in fstab
    Revive(revive::ReviveArgs),
    /// Show the program's version
    Version,
    /// Write the manual pages, and the completions of shells, below a directory
    #[command(hide = true)]
    Pages(pages::PagesArgs),
    /// Serve a mount in the background; `mount` starts it
    #[command(hide = true)]
    Serve(serve::ServeArgs),
}

/// Runs the command on the command line. Returns the exit code.
pub fn run(arguments: Vec<OsString>) -> Outcome<u8> {
    let command = parse(with_directories(arguments)?)?;
    let is_check = matches!(command, Some(Command::Fsck(_)));
    let code = command.map_or(Ok(exit::SUCCESS), call)?;
    let Err(failure) = output::finish() else { return Ok(code) };
    // The work is done, and its own exit code matters more than the failed output.
    tell!("oncefs: {}", failure.message);
    Ok(if is_check { code | exit::FSCK_OPERATIONAL } else { code.max(failure.code) })
}

fn call(command: Command) -> Outcome<u8> {
    match command {
        Command::Fsck(arguments) => return fsck::run(arguments),
        Command::Scrub(arguments) => return scrub::run(arguments),
        Command::Defrag(arguments) => return defrag::run(arguments),
        Command::Compress(arguments) => return convert::compress(arguments),
        Command::Expand(arguments) => return convert::expand(arguments),
        Command::Policy(arguments) => return policy::run(arguments),
        Command::Estimate(arguments) => return estimate::run(arguments),
        Command::Status(arguments) => return status::run(&arguments),
        Command::List(arguments) => list::run(&arguments)?,
        Command::Top(arguments) => top::run(&arguments)?,
        Command::Metrics(arguments) => metrics::run(&arguments)?,
        Command::Mkfs(arguments) => mkfs::run(arguments)?,
        Command::Mount(arguments) => mount::run(arguments)?,
        Command::Umount(arguments) => umount::run(arguments)?,
        Command::Failover(arguments) => failover::run(&arguments)?,
        Command::Stats(arguments) => stats::run(arguments)?,
        Command::Report(arguments) => report::run(&arguments)?,
        Command::Tune(arguments) => tune::run(arguments)?,
        Command::Dedup(arguments) => dedup::run(arguments)?,
        Command::Explain(arguments) => explain::run(arguments)?,
        Command::Grow(arguments) => grow::run(arguments)?,
        Command::Clone(arguments) => clone::run(&arguments)?,
        Command::Snapshot(arguments) => snapshot::run(&arguments)?,
        Command::Disk(arguments) => disk::run(arguments)?,
        Command::Send(arguments) => send::run(&arguments)?,
        Command::Receive(arguments) => receive::run(&arguments)?,
        Command::Sync(arguments) => sync::run(arguments)?,
        Command::Revive(arguments) => revive::run(arguments)?,
        Command::Pages(arguments) => pages::run(&arguments, &Cli::command())?,
        Command::Version => say!("oncefs {}", env!("CARGO_PKG_VERSION")),
        Command::Serve(arguments) => serve::in_background(arguments)?,
    }
    Ok(exit::SUCCESS)
}

/// The arguments with directories in the place of names of volumes. mkfs makes the directory, so it keeps the name.
fn with_directories(arguments: Vec<OsString>) -> Outcome<Vec<OsString>> {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name);
    let is_mkfs = called_as == Some(OsStr::new("mkfs.oncefs")) || arguments.get(1).is_some_and(|word| word == "mkfs");
    if is_mkfs { Ok(arguments) } else { cluster_name::resolve(arguments) }
}

/// Parses the command line. `None`: it asked for help or the version, which was printed.
fn parse(arguments: Vec<OsString>) -> Outcome<Option<Command>> {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("oncefs"));
    let parsed = match called_as.to_str() {
        Some("mount.oncefs" | "mount.fuse.oncefs") => {
            mount::MountHelper::try_parse_from(&arguments).map(|helper| Command::Mount(helper.into()))
        }
        Some("mkfs.oncefs") => parse_as("mkfs", &arguments),
        Some("umount.oncefs") => parse_as("umount", &arguments),
        // A user's mount may have either type.
        Some("umount.fuse" | "umount.fuse.oncefs") => parse_as("umount", &arguments).map(for_any_fuse),
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
        Command::Umount(arguments) => Command::Umount(umount::UmountArgs { for_any_fuse: true, ..arguments }),
        other => other,
    }
}

/// Prints help to stdout. Any other error becomes one line.
fn explain(error: &clap::Error, called_as: &str, arguments: &[OsString]) -> Outcome<Option<Command>> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    let command = command_name(called_as, arguments);
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        output::attempt(|| error.print());
        return Ok(None);
    }
    let help = match command {
        Some(_) if called_as.contains('.') => format!("{called_as} --help"),
        Some(name) => format!("oncefs {name} --help"),
        None => "oncefs --help".to_owned(),
    };
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        return Err(Failure::new(usage_code(called_as, command), format!("no command given: see {help}")));
    }
    let text = error.to_string();
    let mut parts = text.split("\n\n");
    let first = parts.next().map_or("", |first| first.strip_prefix("error: ").unwrap_or(first));
    let mut tips = parts.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
    let hint =
        tips.find(|tip| tip.contains("similar")).map_or_else(String::new, |tip| format!(" ({})", printable(tip)));
    let hint = split_size(arguments).unwrap_or(hint);
    Err(Failure::new(usage_code(called_as, command), format!("{}{hint}: see {help}", printable(first))))
}

/// A hint for a size in two words, as in `--size 100 GB`.
fn split_size(arguments: &[OsString]) -> Option<String> {
    let pairs = arguments.windows(2).filter_map(|pair| Some((pair[0].to_str()?, pair[1].to_str()?)));
    let is_split = |(number, unit): &(&str, &str)| {
        let is_number =
            |text: &str| text.starts_with(|first: char| first.is_ascii_digit()) && text.parse::<f64>().is_ok();
        is_number(number.trim_start_matches('+'))
            && unit.chars().all(|letter| letter.is_ascii_alphabetic())
            && format!("1{unit}").parse::<Size>().is_ok()
    };
    pairs.into_iter().find(is_split).map(|(number, unit)| format!(" (write the size as one word: {number}{unit})"))
}

fn command_name<'a>(called_as: &'a str, arguments: &'a [OsString]) -> Option<&'a str> {
    match called_as.split_once('.') {
        Some((command @ ("mkfs" | "mount" | "umount" | "fsck"), _)) => Some(command),
        _ => arguments.get(1)?.to_str().filter(|word| Cli::has(word)),
    }
}

impl Cli {
    fn has(command: &str) -> bool {
        Self::command().find_subcommand(command).is_some()
    }
}

/// The exit code for a wrong command line: 2, or the code that callers of a helper expect. fsck uses the codes of
/// fsck(8) under both names, because init scripts distinguish them.
fn usage_code(called_as: &str, command: Option<&str>) -> u8 {
    match (command, called_as.contains('.')) {
        (Some("fsck"), _) => exit::FSCK_USAGE,
        (Some("mount" | "umount"), true) => exit::MOUNT_USAGE,
        (Some("mkfs"), true) => exit::FAILED,
        _ => exit::USAGE,
    }
}

#[cfg(test)]
mod tests;
