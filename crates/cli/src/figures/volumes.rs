//! The volumes of this machine: those that are mounted, and those that fstab names; how each one is.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_engine::Store;

use super::health::{Cause, Finding, Limits, findings};
use super::snapshot::Snapshot;
use crate::control::client::Connection;
use crate::control::target::Daemon;
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

/// How a volume is.
#[derive(Clone, Debug)]
pub enum State {
    /// Mounted, with what its daemon says.
    Mounted(Box<Snapshot>),
    /// Mounted, and its daemon is gone.
    Dead,
    /// Mounted, and its daemon does not answer.
    Hangs(String),
    /// Not mounted here, and in use: mounted where this process cannot see it, or being closed.
    Elsewhere,
    /// Not mounted.
    NotMounted,
    /// It is named, and not there.
    Missing,
    /// It could not be asked.
    Unknown(String),
}

impl State {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mounted(snapshot) if snapshot.read_only || snapshot.read_only_because.is_some() => "read-only",
            Self::Mounted(_) => "mounted",
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
    /// Whether it ought to be mounted: somebody asks for it, or fstab names it without `noauto`.
    pub is_wanted: bool,
    /// Whether fstab names it.
    pub in_fstab: bool,
    /// How it is.
    pub state: State,
}

impl Volume {
    /// What needs attention; an error says why that is unknown.
    pub fn findings(&self, limits: &Limits) -> Result<Vec<Finding>, String> {
        let (volume, place) = (shown(&self.volume), shown(self.place()));
        let one = |cause, message| Ok(vec![Finding::new(cause, message)]);
        match &self.state {
            State::Mounted(snapshot) => Ok(findings(snapshot, limits)),
            State::Dead => {
                let text = format!("its daemon has died: oncefs umount {place}, and mount it again");
                one(Cause::Dead, text)
            }
            State::Hangs(why) => one(Cause::Hangs, format!("its daemon does not answer: {why}")),
            State::NotMounted if self.is_wanted => {
                let dir = self.mount.as_deref().map_or_else(|| "DIR".to_owned(), |dir| shown(dir).to_string());
                one(Cause::NotMounted, format!("not mounted: oncefs mount {volume} {dir}"))
            }
            State::Missing if self.is_wanted => one(Cause::NotMounted, format!("there is no volume {volume}")),
            State::NotMounted | State::Missing => Ok(Vec::new()),
            State::Elsewhere => Err("it is in use, and not mounted where this command sees it".to_owned()),
            State::Unknown(why) => Err(why.clone()),
        }
    }

    /// The name that people know it by.
    pub fn place(&self) -> &Path {
        self.mount.as_deref().unwrap_or(&self.volume)
    }
}

/// All volumes: first the mounts, in the order in which they were made, then what fstab names beside them.
pub fn all(places: &Where) -> Outcome<Vec<Volume>> {
    let file = shown(&places.fstab);
    let entries = fstab::read(&places.fstab).or_fail_doing(exit::USAGE, format!("cannot read {file}"))?;
    let named = |volume: &Path| entries.iter().any(|entry| real(&entry.volume) == volume);
    let mounts = mount_table::all().or_fail(exit::USAGE)?.into_iter().filter(Mount::is_oncefs).collect();
    let mut volumes = all_mounted(mounts, &named);
    volumes.retain(|volume| !matches!(volume.state, State::NotMounted));
    for entry in &entries {
        let volume = real(&entry.volume);
        if !volumes.iter().any(|other| other.volume == volume) {
            let state = unmounted(&volume);
            let (mount, is_wanted) = (Some(entry.dir.clone()), !entry.has("noauto"));
            volumes.push(Volume { volume, mount, is_wanted, in_fstab: true, state });
        }
    }
    Ok(volumes)
}

/// The volume that a path means: one whose mount it lies in, or its own directory.
pub fn of(path: &Path) -> Outcome<Volume> {
    let real = resolve(path).or_fail_doing(exit::USAGE, shown(path))?;
    let around = mount_table::containing(&real).or_fail(exit::USAGE)?;
    if let Some(user) = around.as_ref().and_then(Mount::foreign_user) {
        // Looking into it might wait for ever.
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
    Ok(Volume { volume: real, mount: None, is_wanted: true, in_fstab: false, state })
}

/// Asks all daemons at the same time: one that hangs keeps nobody waiting for the others.
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
    Volume { volume, mount: dir, is_wanted: true, in_fstab, state: state_of(mount) }
}

/// The mount itself is asked only where it must be: one whose daemon hangs answers never, but its socket is given up.
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

/// Whether it was not unmounted meanwhile.
fn is_there(mount: &Mount) -> bool {
    mount_table::all().is_ok_and(|mounts| mounts.contains(mount))
}

/// Whether its volume was mounted anew while it was dead, or is mounted anew itself.
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
