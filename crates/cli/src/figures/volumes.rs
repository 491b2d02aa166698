//! The volumes of this machine, mounted or named in fstab, and the state of each.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_engine::Store;

use super::health::{Cause, Finding, Limits, findings};
use super::of_mount::Snapshot;
use crate::control::client::Connection;
use crate::control::in_use;
use crate::control::target::Daemon;
use crate::disks::shown_disk;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table::{self, Mount};
use crate::mounting::{fstab, mount_table::resolve};
use crate::names::shown;

/// Where to look for volumes.
#[derive(Clone, Debug, Args)]
pub struct Where {
    /// Take the volumes that are to be mounted from this file
    #[arg(short = 'T', long, value_name = "FILE", default_value = fstab::FSTAB)]
    pub fstab: PathBuf,
}

/// The state of a volume.
#[derive(Clone, Debug)]
pub enum State {
    /// Mounted, with the figures of its daemon.
    Mounted(Box<Snapshot>),
    /// A disk of it is mounted. The volume has its own line.
    DiskMounted,
    /// Mounted, and its daemon is gone.
    Dead,
    /// Mounted, and its daemon does not answer.
    Hangs(String),
    /// In use, but not mounted here: mounted where this process cannot see it, or being closed.
    Elsewhere,
    /// Not mounted.
    NotMounted,
    /// Named, but it does not exist.
    Missing,
    /// The state could not be found out.
    Unknown(String),
}

impl State {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mounted(snapshot) if snapshot.read_only || snapshot.read_only_because.is_some() => "read-only",
            Self::Mounted(_) | Self::DiskMounted => "mounted",
            Self::Dead => "dead",
            Self::Hangs(_) => "hangs",
            Self::Elsewhere => "in use",
            Self::NotMounted => "not mounted",
            Self::Missing => "missing",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// A volume, in one of its places.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its directory.
    pub volume: PathBuf,
    /// Where it is mounted, or where fstab wants it.
    pub mount: Option<PathBuf>,
    /// The disk of it that fstab wants there.
    pub disk: Option<String>,
    /// Whether it should be mounted: a command names it, or fstab names it without `noauto`.
    pub is_wanted: bool,
    /// Whether fstab names it.
    pub in_fstab: bool,
    /// Its state.
    pub state: State,
}

impl Volume {
    /// The findings. An error says why they are unknown.
    pub fn findings(&self, limits: &Limits) -> Result<Vec<Finding>, String> {
        let volume = shown(&self.volume);
        let one = |cause, message| Ok(vec![Finding::new(cause, message)]);
        match &self.state {
            State::Mounted(snapshot) => Ok(findings(snapshot, limits)),
            State::Dead => {
                one(Cause::Dead, format!("its daemon has died: {}", mount_table::way_back(&self.volume, self.place())))
            }
            State::Hangs(why) => one(Cause::Hangs, format!("its daemon does not answer: {why}")),
            State::NotMounted if self.is_wanted && self.disk.is_some() => {
                let (disk, dir) = (self.disk.as_deref().unwrap_or_default(), shown(self.place()));
                one(Cause::NotMounted, format!("the disk {disk} of {volume} is not mounted: mount {dir}"))
            }
            State::NotMounted if self.is_wanted => {
                let dir = self.mount.as_deref().map_or_else(|| "DIR".to_owned(), |dir| shown(dir).to_string());
                one(Cause::NotMounted, format!("not mounted: oncefs mount {volume} {dir}"))
            }
            State::Missing if self.is_wanted => one(Cause::NotMounted, format!("there is no volume {volume}")),
            State::NotMounted | State::Missing | State::DiskMounted => Ok(Vec::new()),
            State::Elsewhere => Err(in_use::detached(&self.volume)
                .unwrap_or_else(|| "it is in use, and not mounted where this command sees it".to_owned())),
            State::Unknown(why) => Err(why.clone()),
        }
    }

    /// The name for messages.
    pub fn place(&self) -> &Path {
        self.mount.as_deref().unwrap_or(&self.volume)
    }
}

/// All volumes: first the mounts, in the order in which they were made, then the other volumes and the disks in fstab.
pub fn all(places: &Where) -> Outcome<Vec<Volume>> {
    let file = shown(&places.fstab);
    let entries = fstab::read(&places.fstab).or_fail_doing(exit::USAGE, format!("cannot read {file}"))?;
    let named = |volume: &Path| entries.iter().any(|entry| real(&entry.volume) == volume);
    let mounts = mount_table::all().or_fail(exit::USAGE)?.into_iter().filter(Mount::is_oncefs).collect();
    let mut volumes = all_mounted(mounts, &named);
    volumes.retain(|volume| !matches!(volume.state, State::NotMounted));
    for entry in &entries {
        let volume = real(&entry.volume);
        let disk = entry.disk().map(str::to_owned);
        let state = match &disk {
            Some(disk) => of_disk(&volume, disk, &entry.dir),
            None if volumes.iter().any(|other| other.volume == volume) => continue,
            None => unmounted(&volume),
        };
        let (mount, is_wanted) = (Some(entry.dir.clone()), !entry.has("noauto"));
        volumes.push(Volume { volume, mount, disk, is_wanted, in_fstab: true, state });
    }
    Ok(volumes)
}

/// The state of a disk that fstab wants mounted on `dir`.
fn of_disk(volume: &Path, disk: &str, dir: &Path) -> State {
    let mounted = match mount_table::at(dir) {
        Ok(mounted) => mounted,
        // There is no such directory.
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return State::Unknown(e.to_string()),
    };
    let shown = mounted.and_then(|mount| shown_disk(&mount.source));
    match shown.is_some_and(|path| path.file_name().is_some_and(|name| name == disk)) {
        true => State::DiskMounted,
        false if !volume.exists() => State::Missing,
        false => State::NotMounted,
    }
}

/// The volume of a path: the path lies in its mount, or is its directory.
pub fn of(path: &Path) -> Outcome<Volume> {
    let real = resolve(path).or_fail_doing(exit::USAGE, shown(path))?;
    let around = mount_table::containing(&real).or_fail(exit::USAGE)?;
    if let Some(user) = around.as_ref().and_then(Mount::foreign_user) {
        // Reading it might block forever.
        let text = format!("{} is in a mount of user {user}, not in an oncefs mount", shown(path));
        return Err(Failure::new(exit::USAGE, text));
    }
    if let Some(mount) = around.filter(Mount::is_oncefs) {
        return Ok(mounted(&mount, false));
    }
    if let Some(mount) = mount_table::of_volume(&real).or_fail(exit::USAGE)? {
        return Ok(mounted(&mount, false));
    }
    let state = unmounted(&real);
    Ok(Volume { volume: real, mount: None, disk: None, is_wanted: true, in_fstab: false, state })
}

/// Asks all daemons at the same time, so that one that hangs does not delay the others.
fn all_mounted(mounts: Vec<Mount>, is_named: &(dyn Fn(&Path) -> bool + Sync)) -> Vec<Volume> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            mounts.iter().map(|mount| scope.spawn(|| mounted(mount, is_named(&mount.source)))).collect();
        asked.into_iter().map(|thread| thread.join().expect("asking a daemon panics not")).collect()
    })
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn mounted(mount: &Mount, in_fstab: bool) -> Volume {
    let (volume, dir) = (mount.source.clone(), Some(mount.dir.clone()));
    Volume { volume, mount: dir, disk: None, is_wanted: true, in_fstab, state: state_of(mount) }
}

/// Finds the state of a mount. Sends requests to the mount itself only if necessary: a daemon that hangs never answers
/// them, but requests to its socket time out.
fn state_of(mount: &Mount) -> State {
    match Connection::open(&mount.source) {
        Ok(None) if is_there(mount) => State::Dead,
        Ok(None) => State::NotMounted,
        Ok(Some(_)) if is_one_of_several(mount) && mount.is_dead() => State::Dead,
        Ok(Some(_)) => {
            let daemon = Daemon { volume: mount.source.clone() };
            Snapshot::take(&daemon).map_or_else(
                |failure| State::Unknown(failure.message),
                |snapshot| State::Mounted(Box::new(Snapshot { mount: Some(mount.dir.clone()), ..snapshot })),
            )
        }
        Err(e) => unreachable_daemon(&e),
    }
}

/// Whether it is still mounted.
fn is_there(mount: &Mount) -> bool {
    mount_table::all().is_ok_and(|mounts| mounts.contains(mount))
}

/// Whether its volume has another mount, because one of them replaced the other after its daemon died.
fn is_one_of_several(mount: &Mount) -> bool {
    let is_another = |other: &Mount| other.is_oncefs() && other.source == mount.source && other.device != mount.device;
    mount_table::all().is_ok_and(|mounts| mounts.iter().any(is_another))
}

fn unreachable_daemon(error: &io::Error) -> State {
    match error.kind() {
        io::ErrorKind::TimedOut => State::Hangs(error.to_string()),
        io::ErrorKind::PermissionDenied => State::Unknown("only root may ask its daemon: use sudo".to_owned()),
        _ => State::Unknown(error.to_string()),
    }
}

fn unmounted(volume: &Path) -> State {
    match Connection::open(volume) {
        Ok(Some(_)) => State::Elsewhere,
        Err(e) => unreachable_daemon(&e),
        Ok(None) if !volume.exists() => State::Missing,
        Ok(None) => Store::profile_of(volume).map_or_else(|e| State::Unknown(e.to_string()), |_| State::NotMounted),
    }
}
