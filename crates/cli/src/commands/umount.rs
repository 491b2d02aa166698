//! `oncefs umount`: returns only when everything is durable and the daemon is gone.
//!
//! The kernel's umount(2) does not wait for a FUSE daemon. So the command first asks the daemon to report its exit, then
//! unmounts, and waits for the process to end.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::control::client::{Connection, Exit, ExpectedExit};
use crate::control::in_use;
use crate::control::protocol::Request;
use crate::disks;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table::{self, Mount};
use crate::mounting::namespaces;
use crate::names::{printable, shown};
use crate::process::{descriptors, programs, setup};

/// By then a process has released the mount if it is ending or only looked at it for a moment, as this daemon's helper
/// does.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// A daemon notices the end of its mount at once, unless the mount lives on elsewhere.
const NOTICE_PATIENCE: Duration = Duration::from_secs(20);

/// Arguments of `umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
Returns when everything is durable, the daemon has ended, and the volume can be mounted again.
Exits with 32 on failure. Plain umount(8) does the same if the helpers umount.fuse and umount.fuse.oncefs
are installed.

Examples:
  oncefs umount /mnt
  oncefs umount -l /mnt     detach now, end when the last file is closed")]
pub struct UmountArgs {
    /// The mount point, or the volume
    pub target: PathBuf,
    /// Lazy: detach now and do not wait; the daemon ends when the last file is closed
    #[arg(long, short)]
    pub lazy: bool,
    /// For a mount that hangs: disconnect the daemon first, also if the mount then turns out to be in use. Loses what the
    /// kernel has not written yet
    #[arg(long, short)]
    pub force: bool,
    /// If the mount is in use, make it read-only instead
    #[arg(long = "read-only", short)]
    pub read_only: bool,
    /// Report what is done
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

/// Unmounts.
pub fn run(arguments: UmountArgs) -> Outcome {
    let mount = match find(&arguments.target)? {
        Found::Ours(mount) => mount,
        Found::Foreign(mount) if arguments.for_any_fuse => return unmount_foreign(&mount, &arguments),
        // Its device ends with it, and then a mount of the volume out of sight. umount(8) needs no help for that.
        Found::Foreign(mount) if disks::shows(&mount.source) => return hand_back(&arguments),
        Found::Foreign(mount) => {
            let (dir, kind) = (shown(&mount.dir), shown(&mount.kind));
            let of = mount.owner.map_or_else(String::new, |user| format!(" of user {user}"));
            return Err(Failure::new(
                exit::MOUNT_FAILED,
                format!(
                    "{dir} is a {kind} mount{of}, not an oncefs mount: use umount {dir} (if it answers nothing, umount -l {dir})"
                ),
            ));
        }
    };
    let expected = match expect_exit(&mount) {
        Err(Unreachable::Silent(message)) if !arguments.force && !arguments.lazy => {
            return Err(silent(&mount, &message));
        }
        Err(Unreachable::Nobody) if mount.is_dead() => return unmount_dead(&mount, &arguments),
        Ok(_) | Err(Unreachable::Nobody) if arguments.lazy => return unmount_lazily(&mount),
        Err(unreachable) => {
            unreachable.complain(&mount);
            None
        }
        Ok(expected) => Some(expected),
    };
    // All mounts but the first are bind mounts. A user who unmounts one of those expects the volume to stay in use.
    let first = mount_table::first_of(&mount.device).or_fail(exit::MOUNT_FAILED)?;
    let is_bind = first.is_some_and(|first| first.dir != mount.dir);
    match unmount(&mount, flags(&arguments)) {
        Ok(()) if is_bind => {
            if arguments.verbose {
                say!("{} unmounted: it was a bind mount", shown(&mount.dir));
            }
            commit(&mount)
        }
        Ok(()) => finish(&mount, expected, arguments.verbose),
        Err(e) if arguments.read_only && e.raw_os_error() == Some(libc::EBUSY) => make_read_only(&mount),
        Err(e) if arguments.force && e.raw_os_error() == Some(libc::EBUSY) => Err(cut_off(&mount, expected)),
        Err(e) => Err(refused(&mount, &e)),
    }
}

/// Why a volume that was to be given up was not, or not well.
#[derive(Debug)]
pub enum NotGivenUp {
    /// It is mounted as before.
    Stays(Failure),
    /// It is unmounted here, and its daemon serves another mount namespace.
    Elsewhere(Failure),
    /// It is unmounted, and the daemon did not end well.
    Badly(Failure),
}

/// Unmounts a volume that is mounted in one place and that no program uses, and waits for the daemon's end. Everything is
/// durable then, and it is given up in the cluster.
pub fn give_up(mount: &Mount) -> Result<(), NotGivenUp> {
    use NotGivenUp::{Badly, Elsewhere, Stays};
    let dir = shown(&mount.dir);
    let stays = |text: String| Stays(Failure::new(exit::MOUNT_FAILED, text));
    let badly = |text: String| Badly(Failure::new(exit::MOUNT_FAILED, text));
    let all = mount_table::all().or_fail(exit::MOUNT_FAILED).map_err(Stays)?;
    if let Some(other) = second_place(&all, mount) {
        return Err(stays(format!("it is also mounted on {0}: unmount that first (umount {0})", shown(&other.dir))));
    }
    if let Some(process) = namespaces::keeping(mount) {
        return Err(stays(format!("it is also mounted in the mount namespace of process {process}: end that first")));
    }
    let expected = match expect_exit(mount) {
        Ok(expected) => expected,
        Err(Unreachable::Nobody) => return Err(stays(format!("the daemon of {dir} has died"))),
        Err(Unreachable::Refused(why) | Unreachable::Silent(why)) => return Err(stays(why)),
    };
    unmount(mount, 0).map_err(|e| Stays(refused(mount, &e)))?;
    match await_exit(mount, expected) {
        Exit::Clean => Ok(()),
        Exit::NotLetGo(why) => Err(badly(format!("{dir} is unmounted with everything written, but {why}"))),
        Exit::Failed(why) => Err(badly(format!("{dir} is unmounted, but {why}"))),
        Exit::StillMounted => Err(Elsewhere(Failure::new(
            exit::MOUNT_FAILED,
            format!(
                "{dir} is unmounted here, but another mount namespace (a container?) still uses the volume, so it stays on \
                 this machine"
            ),
        ))),
    }
}

/// Where else a volume is mounted. That may be the same directory again.
fn second_place<'a>(all: &'a [Mount], mount: &Mount) -> Option<&'a Mount> {
    let places: Vec<&Mount> = all.iter().filter(|other| is_same(other, mount)).collect();
    let other = places.iter().find(|other| other.dir != mount.dir).or(places.last());
    other.filter(|_| places.len() > 1).copied()
}

/// Unmounts, and retries for a while if the mount is in use.
fn unmount(mount: &Mount, flags: libc::c_int) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match oncefs_fuse::unmount(&mount.dir, flags) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && began.elapsed() < BUSY_PATIENCE => {
                thread::sleep(BUSY_INTERVAL);
            }
            done => return done,
        }
    }
}

enum Found {
    Ours(Mount),
    Foreign(Mount),
}

/// The mount at a directory, or that of a volume.
fn find(target: &Path) -> Outcome<Found> {
    let shown = shown(target);
    let at_dir = mount_table::at(target).or_fail_doing(exit::MOUNT_FAILED, format!("cannot unmount {shown}"))?;
    let found = match at_dir {
        Some(mount) => Some(mount),
        None => mount_table::of_volume(&mount_table::resolve(target).or_fail(exit::MOUNT_FAILED)?)
            .or_fail(exit::MOUNT_FAILED)?,
    };
    match found {
        Some(mount) if mount.is_oncefs() => Ok(Found::Ours(mount)),
        Some(mount) => Ok(Found::Foreign(mount)),
        None => {
            let detached = in_use::detached(target)
                .unwrap_or_else(|| format!("{shown} is not mounted (oncefs list shows mounts)"));
            Err(Failure::new(exit::MOUNT_FAILED, detached))
        }
    }
}

/// Unmounts another FUSE file system. umount(8) first asks it for its attributes, and waits forever if it does not
/// answer. umount2(2) sends no request. A mount of which umount(8) keeps a record, or that needs its rights, is left to
/// umount(8).
fn unmount_foreign(mount: &Mount, arguments: &UmountArgs) -> Outcome {
    if !setup::is_root() || arguments.read_only || has_record(&mount.dir) {
        return hand_back(arguments);
    }
    oncefs_fuse::unmount(&mount.dir, flags(arguments)).map_err(|e| refused(mount, &e))
}

/// Whether umount(8) keeps a record of a mount.
fn has_record(dir: &Path) -> bool {
    let records = std::fs::read("/run/mount/utab").unwrap_or_default();
    let dir = dir.as_os_str().as_bytes();
    records.windows(dir.len()).any(|part| part == dir)
}

/// Runs umount(8) without its helper.
fn hand_back(arguments: &UmountArgs) -> Outcome {
    let mut umount = programs::program("umount");
    umount.arg("--internal-only");
    let switches =
        [(arguments.lazy, "-l"), (arguments.force, "-f"), (arguments.read_only, "-r"), (arguments.verbose, "-v")];
    umount.args(switches.iter().filter(|(on, _)| *on).map(|(_, switch)| switch));
    let error = umount.arg("--").arg(&arguments.target).exec();
    Err(Failure::new(exit::MOUNT_SYSTEM, format!("cannot run umount: {error}")))
}

fn flags(arguments: &UmountArgs) -> libc::c_int {
    let force = if arguments.force { libc::MNT_FORCE } else { 0 };
    let lazy = if arguments.lazy { libc::MNT_DETACH } else { 0 };
    force | lazy
}

fn unmount_dead(mount: &Mount, arguments: &UmountArgs) -> Outcome {
    oncefs_fuse::unmount(&mount.dir, flags(arguments)).map_err(|e| refused(mount, &e))?;
    tell!(
        "oncefs: unmounted {}; its daemon had died: the next mount of {} continues from the last commit",
        shown(&mount.dir),
        shown(&mount.source)
    );
    Ok(())
}

/// Makes everything written so far durable and detaches the mount. The rest follows when the last file is closed.
fn unmount_lazily(mount: &Mount) -> Outcome {
    descriptors::sync_file_system(&mount.dir)
        .or_fail_doing(exit::MOUNT_FAILED, format!("cannot sync {}", shown(&mount.dir)))?;
    commit(mount)?;
    oncefs_fuse::unmount(&mount.dir, libc::MNT_DETACH).map_err(|e| refused(mount, &e))
}

fn commit(mount: &Mount) -> Outcome {
    let doing = format!("cannot reach the daemon of {}", shown(&mount.source));
    match Connection::open(&mount.source).or_fail_doing(exit::MOUNT_FAILED, doing)? {
        Some(daemon) => daemon.ask(Request::Commit).map(drop).or_fail(exit::MOUNT_FAILED),
        None => Ok(()),
    }
}

/// Why no daemon will report its exit.
enum Unreachable {
    /// No daemon listens.
    Nobody,
    /// The listener is not an oncefs daemon, or refuses.
    Refused(String),
    /// It hangs.
    Silent(String),
}

impl Unreachable {
    fn complain(&self, mount: &Mount) {
        match self {
            Self::Nobody => {}
            Self::Refused(message) | Self::Silent(message) => {
                tell!("oncefs: cannot reach the daemon of {}: {}", shown(&mount.source), printable(message));
            }
        }
    }
}

/// Asks the daemon before anything else accesses the mount: a file system whose daemon hangs does not answer stat(2).
fn expect_exit(mount: &Mount) -> Result<ExpectedExit, Unreachable> {
    let daemon = Connection::open(&mount.source).and_then(|daemon| daemon.map(Connection::expect_exit).transpose());
    match daemon {
        Ok(Some(expected)) => Ok(expected),
        Ok(None) => Err(Unreachable::Nobody),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(Unreachable::Silent(e.to_string())),
        Err(e) => Err(Unreachable::Refused(e.to_string())),
    }
}

fn silent(mount: &Mount, message: &str) -> Failure {
    let dir = shown(&mount.dir);
    let text = format!("{dir} stays mounted: {message}; oncefs umount --force {dir} gives up what it has not written");
    Failure::new(exit::MOUNT_FAILED, text)
}

fn finish(mount: &Mount, expected: Option<ExpectedExit>, verbose: bool) -> Outcome {
    let Some(expected) = expected else {
        tell!("oncefs: unmounted {}, but cannot reach its daemon: it may still be writing", shown(&mount.dir));
        return Ok(());
    };
    if let Some(other) = other_place(mount).or_fail(exit::MOUNT_FAILED)? {
        tell!("oncefs: the volume {} is still mounted on {}", shown(&mount.source), shown(&other.dir));
        return commit(mount);
    }
    match await_exit(mount, expected) {
        Exit::Clean => {
            if verbose {
                say!("{} unmounted: everything is durable", shown(&mount.dir));
            }
            Ok(())
        }
        Exit::NotLetGo(why) => {
            tell!("oncefs: {} is unmounted and everything is durable, but {}", shown(&mount.dir), printable(&why));
            Ok(())
        }
        Exit::Failed(message) => {
            Err(Failure::new(exit::MOUNT_FAILED, format!("{} is unmounted, but {message}", shown(&mount.dir))))
        }
        Exit::StillMounted => {
            tell!(
                "oncefs: unmounted {} here, but another mount namespace (a container?) still uses the volume",
                shown(&mount.dir)
            );
            commit(mount)
        }
    }
}

/// Waits for the daemon's end. A daemon that the kernel has told of the unmount may be busy: it is waited for.
fn await_exit(mount: &Mount, mut expected: ExpectedExit) -> Exit {
    let mut has_told = false;
    while !expected.notices(NOTICE_PATIENCE) && is_connected(mount) == Some(false) {
        if !has_told {
            tell!("oncefs: waiting for the daemon of {}, which is busy", shown(&mount.source));
        }
        has_told = true;
    }
    expected.wait(Duration::ZERO)
}

/// Whether the kernel still has a connection to the daemon of a mount, because it is mounted elsewhere. None: the
/// kernel does not show its connections.
fn is_connected(mount: &Mount) -> Option<bool> {
    let number = mount.device.strip_prefix("0:")?;
    let control = mount_table::all().ok()?.into_iter().find(|mount| mount.kind == "fusectl")?;
    Some(control.dir.join(number).exists())
}

/// A bind mount of the same file system.
fn other_place(mount: &Mount) -> io::Result<Option<Mount>> {
    Ok(mount_table::all()?.into_iter().find(|other| is_same(other, mount)))
}

/// Whether `other` is a mount of the file system that was just unmounted. The kernel may have given its device number
/// to another file system, but that has another volume.
fn is_same(other: &Mount, unmounted: &Mount) -> bool {
    other.is_oncefs() && other.device == unmounted.device && other.source == unmounted.source
}

fn make_read_only(mount: &Mount) -> Outcome {
    oncefs_fuse::remount(&mount.dir, libc::MS_RDONLY).map_err(|e| refused(mount, &e))?;
    tell!("oncefs: {} is in use: made it read-only instead", shown(&mount.dir));
    commit(mount)
}

/// The failure of a forced unmount. The kernel ends the connection before it finds that the mount is in use.
fn cut_off(mount: &Mount, expected: Option<ExpectedExit>) -> Failure {
    let kept = match expected.map(|daemon| daemon.wait(NOTICE_PATIENCE)) {
        Some(Exit::Clean | Exit::NotLetGo(_)) => "everything that had reached it is durable".to_owned(),
        Some(Exit::Failed(message)) => message,
        Some(Exit::StillMounted) | None => "it may still be writing".to_owned(),
    };
    let dir = shown(&mount.dir);
    let text = format!(
        "the daemon of {dir} is disconnected ({kept}), but {dir} stays mounted: programs that use it get errors now \
         (fuser -vm {dir} lists them); stop them and unmount again, or detach it (oncefs umount -l {dir})"
    );
    Failure::new(exit::MOUNT_FAILED, text)
}

/// A message about a disk that keeps the mount in use. No program has it open, so fuser(1) would list none.
fn disk_in_use(mount: &Mount) -> Option<String> {
    let (device, name) = disks::devices_of(&mount.dir).into_iter().next()?;
    let (dir, name) = (shown(&mount.dir), shown(&name));
    Some(match disks::mounted_at(&device).ok().flatten().map(|place| shown(&place)) {
        Some(place) => {
            format!("{dir} is in use: its disk {name} is mounted on {place}: unmount that first (umount {place})")
        }
        None => format!(
            "{dir} is in use: its disk {name} is attached as {}: detach it first (oncefs disk detach {dir} {name})",
            shown(&device)
        ),
    })
}

fn refused(mount: &Mount, error: &io::Error) -> Failure {
    let dir = shown(&mount.dir);
    let (code, text) = match error.raw_os_error() {
        Some(libc::EBUSY) => (
            exit::MOUNT_FAILED,
            disk_in_use(mount).unwrap_or_else(|| {
                format!(
                    "{dir} is in use: stop the programs that use it (fuser -vm {dir} lists them), or unmount lazily (oncefs umount -l {dir})"
                )
            }),
        ),
        Some(libc::EPERM) => (exit::MOUNT_USAGE, format!("unmounting {dir} needs root: use sudo")),
        _ => (exit::MOUNT_FAILED, format!("cannot unmount {dir}: {error}")),
    };
    Failure::new(code, text)
}

#[cfg(test)]
mod tests {
    use oncefs_fuse::MOUNT_TYPE;

    use super::*;

    #[test]
    fn another_volume_with_the_same_device_number_is_not_the_one_that_was_unmounted() {
        let mount = |device: &str, source: &str| Mount {
            device: device.to_owned(),
            dir: "/mnt".into(),
            kind: MOUNT_TYPE.into(),
            source: source.into(),
            owner: Some(0),
        };
        let unmounted = mount("0:50", "/srv/a");
        assert!(is_same(&mount("0:50", "/srv/a"), &unmounted), "a bind mount");
        assert!(!is_same(&mount("0:50", "/srv/b"), &unmounted), "mounted a moment later");
        assert!(!is_same(&mount("0:51", "/srv/a"), &unmounted));
    }

    #[test]
    fn a_volume_that_is_mounted_twice_is_found_in_another_directory_and_in_the_same() {
        let mount = |device: &str, dir: &str| Mount {
            device: device.to_owned(),
            dir: dir.into(),
            kind: MOUNT_TYPE.into(),
            source: "/srv/a".into(),
            owner: Some(0),
        };
        let place = |all: &[Mount]| second_place(all, &mount("0:50", "/mnt")).map(|other| other.dir.clone());
        assert_eq!(place(&[mount("0:50", "/mnt"), mount("0:51", "/other")]), None);
        assert_eq!(place(&[mount("0:50", "/bound"), mount("0:50", "/mnt")]), Some("/bound".into()));
        assert_eq!(place(&[mount("0:50", "/mnt"), mount("0:50", "/mnt")]), Some("/mnt".into()));
    }
}
