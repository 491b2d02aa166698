//! `oncefs mount`: checks volume and mount point, starts the daemon and waits for the mount.

mod with_disk;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{ArgAction, Args, Parser};
use log::LevelFilter;
use oncefs_engine::Store;

use self::with_disk::DiskMount;
use crate::commands::help::UNITS;
use crate::control::client::Connection;
use crate::control::in_use;
use crate::control::protocol::Request;
use crate::daemon::task::Task;
use crate::daemon::{serve, start};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::options::{self, MountOptions, Setting};
use crate::mounting::{key_file, mount_table};
use crate::names::shown;
use crate::process::{holders, setup};
use crate::random;

const MOUNT_EXAMPLES: &str = "\
Examples:
  oncefs mount /srv/volume /mnt
  oncefs mount /srv/volume /mnt -o ro,memory=512M
  oncefs mount /srv/volume /mnt -o profile=edge,inline=off
  oncefs mount rados://data/home /home
  mount -t oncefs /srv/volume /mnt";

fn mount_after() -> String {
    format!("{}\n{MOUNT_EXAMPLES}\n\n{UNITS}", options::help())
}

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(after_help = mount_after())]
pub struct MountArgs {
    /// The volume: a directory created by mkfs
    pub volume: PathBuf,
    /// Where to mount it
    pub dir: PathBuf,
    /// Mount options; see below
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground and log to stderr
    #[arg(long, short)]
    pub foreground: bool,
    /// Mount read-only, as -o ro
    #[arg(long, short)]
    pub read_only: bool,
    /// Wait while another process has the volume in objects, then take over, as -o standby (experimental)
    #[arg(long)]
    pub standby: bool,
    /// Run this program once the volume is mounted, with volume and mount point as arguments: to move an address here
    #[arg(long, value_name = "PROGRAM", conflicts_with = "foreground")]
    pub takeover_hook: Option<PathBuf>,
    /// The key of the secret of rados://POOL/NAME, for a machine that has never seen the volume, as -o key_file
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Memory for caches and hints, as -o memory
    #[arg(long, value_name = "SIZE", value_parser = options::memory)]
    pub memory: Option<u64>,
    /// Requests served at the same time, as -o threads
    #[arg(long, value_name = "N", value_parser = options::threads)]
    pub threads: Option<usize>,
    /// When to compute the strong hash of a block, as -o fingerprints
    #[arg(long, value_name = "WHEN", value_parser = options::fingerprints)]
    pub fingerprints: Option<Setting>,
    /// Answer Prometheus there, as -o metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = options::address)]
    pub metrics: Option<SocketAddr>,
    /// Least severity to log, as -o loglevel
    #[arg(long, value_name = "LEVEL", value_parser = options::log_level)]
    pub log_level: Option<LevelFilter>,
    /// Log to this file instead of syslog
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Check everything, mount nothing
    #[arg(skip)]
    pub fake: bool,
    /// The exit code for wrong options
    #[arg(skip = exit::USAGE)]
    pub usage_code: u8,
}

/// How mount(8) calls `mount.oncefs`: `-f` means fake here.
#[derive(Debug, Parser)]
#[command(name = "mount.oncefs", version, about = "Mount an oncefs volume for mount(8)", after_help = mount_after())]
pub struct MountHelper {
    volume: PathBuf,
    dir: PathBuf,
    /// Mount options; see below
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
            standby: false,
            takeover_hook: None,
            key_file: None,
            memory: None,
            threads: None,
            fingerprints: None,
            metrics: None,
            log_level: None,
            log_file: None,
            fake: helper.fake,
            usage_code: exit::MOUNT_USAGE,
        }
    }
}

/// Mounts a volume, or a disk of it.
pub fn run(arguments: MountArgs) -> Outcome {
    if let Some(request) = DiskMount::of(&arguments.options).or_fail(arguments.usage_code)? {
        return mount_disk(&arguments, request);
    }
    let options = options(&arguments).or_fail(arguments.usage_code)?;
    if !setup::is_root() {
        let why = match options.by_users {
            true => ": mount(8) gives a helper no more rights than its user has, so fstab's option user does not help",
            false => "",
        };
        return Err(Failure::new(exit::MOUNT_USAGE, format!("mounting needs root: use sudo{why}")));
    }
    if options.remount {
        return remount(&arguments.dir, &options);
    }
    if options.nofail && matches!(arguments.volume.try_exists(), Ok(false)) {
        // As for a missing device: an administrator who starts the machine without it intends that. A volume that
        // cannot be read may exist, so that is an error.
        return Ok(());
    }
    let task = Task { volume: volume(&arguments.volume)?, dir: mount_point(&arguments)?, options };
    check_places(&task)?;
    if arguments.fake {
        return Ok(());
    }
    publish_superblock(&task);
    let done = if arguments.foreground { serve::in_foreground(&task) } else { start::in_background(&task) };
    done.map_err(|failure| {
        let parts = Store::parts_outside(&task.volume, task.options.data_device.as_deref()).unwrap_or_default();
        holders::name_holder(in_use::name_place(failure, &task.volume), &parts)
    })?;
    arguments.takeover_hook.as_deref().map_or(Ok(()), |hook| run_hook(hook, &task))
}

/// Puts the superblock of a volume of an early version into its cluster, where its records are. It is not needed for
/// this mount, so what fails is told and tried again with the next one.
fn publish_superblock(task: &Task) {
    if task.options.read_only() || !Store::wants_superblock_in_cluster(&task.volume).unwrap_or_default() {
        return;
    }
    let published = || -> Result<String, String> {
        let file = match (&task.options.key_file, Store::access_of(&task.volume).map_err(|e| e.to_string())?) {
            (Some(file), _) => file.clone(),
            (None, Some(access)) => key_file::of_volume(&access),
            (None, None) => return Err("it has no objects".to_owned()),
        };
        let key = key_file::read_or_make(&file).map_err(|failure| failure.message)?;
        let nonce = random::bytes().map_err(|e| e.to_string())?;
        Store::publish_superblock(&task.volume, &key, nonce).map_err(|e| e.to_string())?;
        Ok(key.file().to_owned())
    };
    let volume = shown(&task.volume);
    match published() {
        Ok(key) => tell!("oncefs: {volume} can be mounted by other machines from now on, with a copy of the key {key}"),
        Err(why) => tell!("oncefs: the superblock of {volume} is not in its cluster yet, only on this machine: {why}"),
    }
}

/// Runs the program of `--takeover-hook`. The mount stays whatever becomes of it.
fn run_hook(hook: &Path, task: &Task) -> Outcome {
    let doing = || format!("{} is mounted, but the program {} failed", shown(&task.dir), shown(hook));
    let status = Command::new(hook).arg(&task.volume).arg(&task.dir).status();
    let status = status.or_fail_doing(exit::FAILED, doing())?;
    if status.success() { Ok(()) } else { Err(Failure::new(exit::FAILED, format!("{}: {status}", doing()))) }
}

fn mount_disk(arguments: &MountArgs, mut request: DiskMount) -> Outcome {
    if !setup::is_root() {
        return Err(Failure::new(exit::MOUNT_USAGE, "mounting needs root: use sudo"));
    }
    if request.nofail && matches!(arguments.volume.try_exists(), Ok(false)) {
        return Ok(());
    }
    if arguments.read_only {
        request.read_only();
    }
    let (volume, dir) = (volume(&arguments.volume)?, &arguments.dir);
    let dir = dir.canonicalize().or_fail_doing(exit::MOUNT_FAILED, format!("cannot mount on {}", shown(dir)))?;
    if arguments.fake { Ok(()) } else { with_disk::run(&volume, &dir, &request) }
}

/// Options of `-o` first; separate options override them.
fn options(arguments: &MountArgs) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    arguments.options.iter().try_for_each(|list| options.apply(list))?;
    if arguments.read_only {
        options.kernel_flags |= libc::MS_RDONLY;
    }
    options.standby |= arguments.standby;
    options.memory = arguments.memory.or(options.memory);
    options.key_file = arguments.key_file.clone().or(options.key_file);
    options.threads = arguments.threads.or(options.threads);
    options.metrics = arguments.metrics.or(options.metrics);
    options.settings.extend(arguments.fingerprints.clone());
    options.log_level = arguments.log_level.unwrap_or(options.log_level);
    if let Some(file) = &arguments.log_file {
        options.log_file = Some(std::path::absolute(file).map_err(|e| format!("log file {}: {e}", shown(file)))?);
    }
    Ok(options)
}

fn volume(path: &Path) -> Outcome<PathBuf> {
    path.canonicalize().map_err(|e| {
        let shown = shown(path);
        let text = match e.kind() {
            ErrorKind::NotFound => {
                format!("there is no volume {shown} (create one with: oncefs mkfs {shown})")
            }
            _ => format!("cannot open the volume {shown}: {e}"),
        };
        Failure::new(exit::MOUNT_FAILED, text)
    })
}

/// The mount point without links. Removes a mount of the same volume that a dead daemon left there.
fn mount_point(arguments: &MountArgs) -> Outcome<PathBuf> {
    let shown = shown(&arguments.dir);
    let dir = mount_table::resolve(&arguments.dir).map_err(|e| {
        let text = match e.kind() {
            ErrorKind::NotFound => {
                format!("there is no directory {shown} to mount on (mkdir -p {shown})")
            }
            _ => format!("cannot mount on {shown}: {e}"),
        };
        Failure::new(exit::MOUNT_FAILED, text)
    })?;
    if let Some(dead) = mount_table::at(&dir).or_fail(exit::MOUNT_SYSTEM)?.filter(mount_table::Mount::is_dead) {
        remove_dead(&dead, &arguments.volume)?;
    }
    if !dir.is_dir() {
        return Err(Failure::new(
            exit::MOUNT_FAILED,
            format!("{shown} is not a directory: give a directory to mount on"),
        ));
    }
    Ok(dir)
}

fn remove_dead(dead: &mount_table::Mount, volume: &Path) -> Outcome {
    let dir = shown(&dead.dir);
    if volume.canonicalize().ok().as_ref() != Some(&dead.source) {
        let text = format!(
            "the daemon of {}, mounted on {dir}, has died: unmount {dir} first (oncefs umount {dir})",
            shown(&dead.source)
        );
        return Err(Failure::new(exit::MOUNT_FAILED, text));
    }
    tell!("oncefs: the daemon of the mount on {dir} had died: mounting it again");
    oncefs_fuse::unmount(&dead.dir, libc::MNT_DETACH).or_fail_doing(exit::MOUNT_FAILED, format!("cannot unmount {dir}"))
}

/// Refuses a mount that hides its own volume or lies inside it: the daemon would wait for itself.
fn check_places(task: &Task) -> Outcome {
    if mount_table::overlap(&task.volume, &task.dir) {
        let text = format!(
            "neither of the volume {} and the mount point {} may contain the other",
            shown(&task.volume),
            shown(&task.dir)
        );
        return Err(Failure::new(exit::MOUNT_FAILED, text));
    }
    Ok(())
}

/// Changes the flags and settings of a mount, and names the options that a remount cannot change. These are not an
/// error, because mount(8) passes the options of fstab too.
fn remount(dir: &Path, options: &MountOptions) -> Outcome {
    let shown = shown(dir);
    let mount = mount_table::at(dir).or_fail_doing(exit::MOUNT_FAILED, &shown)?.filter(mount_table::Mount::is_oncefs);
    let mount = mount.ok_or_else(|| {
        Failure::new(exit::MOUNT_FAILED, format!("{shown} is not an oncefs mount: mount it without the option remount"))
    })?;
    let daemon =
        || Connection::open(&mount.source).ok().flatten().ok_or("cannot reach its daemon (oncefs status says why)");
    let daemon = || daemon().or_fail_doing(exit::MOUNT_FAILED, format!("cannot remount {shown}"));
    let about = daemon()?.about().or_fail(exit::MOUNT_FAILED)?;
    if about.read_only && !options.read_only() {
        let text =
            format!("the volume was opened read-only: unmount it (oncefs umount {shown}), and mount it without ro");
        return Err(Failure::new(exit::MOUNT_FAILED, text));
    }
    let log_file = about.log_file.map(|name| Path::new(&name).to_owned());
    let mut mounted = MountOptions { log_file, ..MountOptions::default() };
    mounted.apply(&about.options).or_fail(exit::MOUNT_FAILED)?;
    let fixed = options.fixed_otherwise(&mounted);
    if !fixed.is_empty() {
        let fixed = fixed.join(", ");
        tell!("oncefs: {shown} stays mounted and keeps its {fixed}: unmount it, and mount it with the new option");
    }
    if !options.settings.is_empty() {
        let changes = options.settings.clone();
        let tuned = daemon()?.ask(Request::Tune { changes }).map(drop);
        tuned.or_fail_doing(exit::MOUNT_FAILED, format!("cannot remount {shown}"))?;
    }
    oncefs_fuse::remount(&mount.dir, options.kernel_flags)
        .or_fail_doing(exit::MOUNT_FAILED, format!("cannot remount {shown}"))?;
    daemon()?.ask(Request::MountFlags { kernel_flags: options.kernel_flags }).map(drop).or_fail(exit::MOUNT_FAILED)
}
