//! `oncefs revive`: mounts again the mounts that dead daemons left, as fstab says, and the disks of their volumes.

mod disks;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::daemon::logging;
use crate::disks::dead::{self, DeviceOfDisk};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::fstab::{self, Entry, FSTAB};
use crate::mounting::hidden;
use crate::mounting::mount_table::{self, Mount};
use crate::names::{printable, shown};

/// A daemon that dies this often within [`TRIES_WITHIN`] is left dead: mounting it again would hide the cause.
const TRIES_MAX: usize = 5;
const TRIES_WITHIN: Duration = Duration::from_secs(600);

/// How long one round waits for mount(8).
const MOUNT_SECONDS: u64 = 60;

/// Arguments of `revive`.
#[derive(Debug, Args)]
#[command(after_help = "\
A daemon that died leaves its mount behind, and every call on it fails with 'Transport endpoint is not connected'.
This command detaches such a mount and mounts it again with mount(8), by its line in fstab. What was durable is there.
Programs that had files open in it must open them again. The same goes for disks of its volume: a file system that fstab
mounts from one is mounted again after the volume, and a disk that was attached by hand and is not in use is attached
again, perhaps as another device.

With --watch it keeps running and looks again every SECONDS, as the unit oncefs-revive.service does. A mount whose
daemon dies five times within ten minutes is left alone until the command is started again.

Exits with 1 if a dead mount could not be mounted again, for instance because fstab does not name it.

Examples:
  oncefs revive
  oncefs revive /mnt
  oncefs revive --watch 5")]
pub struct ReviveArgs {
    /// Look at these mount points only
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// The file to read instead of /etc/fstab
    #[arg(long, short = 'T', value_name = "FILE", default_value = FSTAB)]
    pub fstab: PathBuf,
    /// Keep running, and look again every SECONDS
    #[arg(long, short, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub watch: Option<u64>,
}

/// Mounts dead mounts again.
pub fn run(arguments: ReviveArgs) -> Outcome {
    let watch = arguments.watch;
    let mut reviver = Reviver::new(arguments)?;
    let Some(seconds) = watch else { return once(&mut reviver) };
    let mut told = HashSet::new();
    loop {
        for message in news(&mut told, reviver.look()?) {
            tell!("oncefs: {message}");
        }
        thread::sleep(Duration::from_secs(seconds));
    }
}

/// The messages that the last round did not have. Only the last round's messages are kept, so a message that returns is
/// printed again.
fn news(told: &mut HashSet<String>, messages: Vec<String>) -> Vec<String> {
    let before = std::mem::replace(told, messages.iter().cloned().collect());
    messages.into_iter().filter(|message| !before.contains(message)).collect()
}

/// Repeats a few rounds, because a killed daemon may take a while to release its volume.
fn once(reviver: &mut Reviver) -> Outcome {
    const LOOKS: usize = 10;
    let mut failures = reviver.look()?;
    for _ in 1..LOOKS {
        if reviver.owed.is_empty() && reviver.unattached.is_empty() {
            break;
        }
        thread::sleep(Duration::from_secs(1));
        failures = reviver.look()?;
    }
    let Some(last) = failures.pop() else { return Ok(()) };
    for message in failures {
        tell!("oncefs: {message}");
    }
    Err(Failure::new(exit::FAILED, last))
}

struct Reviver {
    /// The mount points to check. Empty: all.
    dirs: Vec<PathBuf>,
    fstab: PathBuf,
    /// The times at which each mount point was mounted again.
    tries: HashMap<PathBuf, Vec<Instant>>,
    /// Unanswered questions, by device number: a mount whose daemon hangs is asked once.
    questions: HashMap<String, Receiver<bool>>,
    /// Detached mounts that are to be mounted again, by mount point.
    owed: BTreeMap<PathBuf, Owed>,
    /// Disks that are to be attached again.
    unattached: Vec<disks::Unattached>,
    /// Runs of mount(8) under way, by mount point.
    mounting: HashMap<PathBuf, Mounting>,
}

/// A mount that is to be made again.
#[derive(Clone, Debug)]
struct Owed {
    volume: PathBuf,
    /// The file system on a disk of the volume, and not the volume.
    is_on_disk: bool,
}

impl Reviver {
    fn new(arguments: ReviveArgs) -> Outcome<Self> {
        let resolved = |dir: &PathBuf| {
            mount_table::resolve(dir).or_fail_doing(exit::FAILED, format!("cannot look at {}", shown(dir)))
        };
        let dirs = arguments.dirs.iter().map(resolved).collect::<Outcome<_>>()?;
        let (tries, questions, owed, mounting) = Default::default();
        Ok(Self { dirs, fstab: arguments.fstab, tries, questions, owed, unattached: Vec::new(), mounting })
    }

    /// Mounts every dead mount again. Returns the failures.
    fn look(&mut self) -> Outcome<Vec<String>> {
        let mounts = mount_table::all().or_fail_doing(exit::FAILED, "cannot read the mount table")?;
        self.owed.retain(|dir, owed| {
            let is_it = |mount: &&Mount| mount.dir == *dir && (owed.is_on_disk || mount.source == owed.volume);
            !mounts.iter().any(|mount| is_it(&mount))
        });
        self.mounting.retain(|dir, mounting| self.owed.contains_key(dir) || !mounting.has_ended());
        let now = Instant::now();
        self.tries.retain(|_, tries| tries.last().is_some_and(|last| now.duration_since(*last) < TRIES_WITHIN));
        let dead = self.dead(mounts.iter().filter(|mount| mount.is_oncefs()).cloned().collect());
        let devices = dead::devices(&mounts, &dead).or_fail_doing(exit::FAILED, "cannot look at block devices")?;
        let mut failures = Vec::new();
        if !dead.is_empty() || !devices.is_empty() {
            let doing = format!("cannot read {}", shown(&self.fstab));
            let entries = fstab::read(&self.fstab).or_fail_doing(exit::FAILED, doing)?;
            for device in &devices {
                failures.extend(self.detach_disk(device, &mounts, &entries));
            }
            // A mount out of sight ends by itself, and mounting a disk makes another.
            let dead = dead.iter().filter(|mount| self.is_meant(&mount.dir) && !hidden::is_one(&mount.dir));
            let dead: Vec<&Mount> = dead.collect();
            failures.extend(dead.into_iter().filter_map(|mount| self.detach(mount, &entries).err()));
        }
        // The volumes first: a disk of a volume that is not mounted would be mounted with it, out of sight.
        failures.extend(self.mount_owed(false));
        failures.extend(self.mount_owed(true));
        failures.extend(self.attach_again());
        Ok(failures)
    }

    fn is_meant(&self, dir: &Path) -> bool {
        self.dirs.is_empty() || self.dirs.iter().any(|meant| meant == dir)
    }

    /// Mounts volumes, or the file systems on disks of volumes that are mounted. Volumes at the same time, disks one after
    /// the other, because the first of a volume may have to mount that. Returns the failures.
    fn mount_owed(&mut self, is_on_disk: bool) -> Vec<String> {
        let is_next = |owed: &Owed| owed.is_on_disk == is_on_disk && !(is_on_disk && self.owes_volume(&owed.volume));
        let next: Vec<(PathBuf, PathBuf)> = self
            .owed
            .iter()
            .filter(|(_, owed)| is_next(owed))
            .map(|(dir, owed)| (dir.clone(), owed.volume.clone()))
            .collect();
        let begin = |reviver: &mut Self, dir: &Path| {
            let command = || Mounting::begin(mount_command(&reviver.fstab, dir));
            reviver.mounting.entry(dir.to_owned()).or_insert_with(command);
        };
        if !is_on_disk {
            next.iter().for_each(|(dir, _)| begin(self, dir));
        }
        let mut failures = Vec::new();
        for (dir, volume) in next {
            begin(self, &dir);
            failures.extend(self.mount(&dir, &volume).err());
        }
        failures
    }

    /// Whether a volume is to be mounted again.
    fn owes_volume(&self, volume: &Path) -> bool {
        self.owed.values().any(|owed| !owed.is_on_disk && owed.volume == volume)
    }

    /// Ends a dead device and what is mounted from it. From then on its mounts are in `owed`, or it is in `unattached`.
    /// Returns the failures.
    fn detach_disk(&mut self, found: &DeviceOfDisk, mounts: &[Mount], entries: &[Entry]) -> Vec<String> {
        let Self { dirs, fstab, tries, owed, unattached, .. } = self;
        let table = disks::Table { mounts, entries, fstab, dirs };
        let places = table.places(found);
        if places.is_empty() {
            return table.end_unmounted(found).map(|disk| unattached.extend(disk)).err().into_iter().collect();
        }
        let (mut failures, mut is_detached) = (Vec::new(), true);
        for place in places {
            let may_try = || may_try(tries.entry(place.to_owned()).or_default(), Instant::now());
            match table.detach(found, place, may_try) {
                Ok(Some(volume)) => drop(owed.insert(place.to_owned(), Owed { volume, is_on_disk: true })),
                Ok(None) => is_detached = false,
                Err(why) => failures.push(why),
            }
        }
        if failures.is_empty() && is_detached {
            disks::end(found);
        }
        failures
    }

    /// Attaches disks of volumes that are mounted again. Returns the failures.
    fn attach_again(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for disk in std::mem::take(&mut self.unattached) {
            let attached = if self.owes_volume(&disk.volume) { None } else { Some(disk.attach()) };
            if attached != Some(Ok(())) {
                self.unattached.push(disk);
            }
            failures.extend(attached.and_then(Result::err));
        }
        failures
    }

    /// The mounts whose daemon is gone. A thread of its own asks each: a mount whose daemon hangs does not answer, and
    /// must not delay the others.
    fn dead(&mut self, mounts: Vec<Mount>) -> Vec<Mount> {
        const PATIENCE: Duration = Duration::from_secs(2);
        self.questions.retain(|device, _| mounts.iter().any(|mount| mount.device == *device));
        for mount in &mounts {
            if !self.questions.contains_key(&mount.device)
                && let Some(answer) = ask(mount.clone())
            {
                self.questions.insert(mount.device.clone(), answer);
            }
        }
        let until = Instant::now() + PATIENCE;
        let mut is_dead = |mount: &Mount| {
            let Some(answer) = self.questions.get(&mount.device) else { return false };
            let answer = answer.recv_timeout(until.saturating_duration_since(Instant::now()));
            if answer != Err(RecvTimeoutError::Timeout) {
                self.questions.remove(&mount.device);
            }
            answer == Ok(true)
        };
        mounts.into_iter().filter(|mount| is_dead(mount)).collect()
    }

    /// Detaches a dead mount that fstab names. From then on it is in `owed`.
    fn detach(&mut self, mount: &Mount, entries: &[Entry]) -> Result<(), String> {
        let (dir, volume) = (shown(&mount.dir), shown(&mount.source));
        if !entries.iter().any(|entry| mount_table::resolve(&entry.dir).is_ok_and(|at| at == mount.dir)) {
            return Err(format!(
                "the daemon of {dir} is dead, and {} does not name {dir}: oncefs umount -l {dir}, then oncefs mount {volume} {dir}",
                shown(&self.fstab)
            ));
        }
        // Another process may have mounted something there since.
        if mount_table::at(&mount.dir).ok().flatten().is_none_or(|top| top.device != mount.device) {
            return Ok(());
        }
        if !may_try(self.tries.entry(mount.dir.clone()).or_default(), Instant::now()) {
            return Err(format!(
                "the daemon of {dir} died {TRIES_MAX} times in ten minutes: {dir} is left as it is; its log says why ({})",
                logging::place()
            ));
        }
        oncefs_fuse::unmount(&mount.dir, libc::MNT_DETACH)
            .map_err(|error| format!("cannot detach {dir}, whose daemon is dead: {error}"))?;
        self.owed.insert(mount.dir.clone(), Owed { volume: mount.source.clone(), is_on_disk: false });
        Ok(())
    }

    /// Mounts a volume from `owed` and waits for the end. A mount that fails or takes longer stays in `owed`.
    fn mount(&mut self, dir: &Path, volume: &Path) -> Result<(), String> {
        let Some(run) = self.mounting.get(dir).and_then(Mounting::outcome) else {
            return Err(format!("mount has not mounted {} within {MOUNT_SECONDS} s and goes on", shown(dir)));
        };
        self.mounting.remove(dir);
        let run = run.map_err(|error| format!("cannot run mount: {error}; {} is not mounted", shown(dir)))?;
        if !run.status.success() {
            let said = String::from_utf8(run.stderr).unwrap_or_default();
            let why = printable(said.trim());
            return Err(format!("cannot mount {} again, whose daemon had died: {why}", shown(dir)));
        }
        self.owed.remove(dir);
        let (dir, volume) = (shown(dir), shown(volume));
        say!("{dir} is mounted again: its daemon had died, and the volume {volume} continues from its last commit");
        Ok(())
    }
}

fn mount_command(fstab: &Path, dir: &Path) -> Command {
    let mut command = Command::new("mount");
    command.arg("-T").arg(fstab).arg(dir).stdin(Stdio::null());
    command
}

/// A run of mount(8). A thread waits for it, so that a hanging run does not delay others. It is never killed, because a
/// long recovery must be completed at some time.
struct Mounting {
    until: Instant,
    outcome: Receiver<io::Result<Output>>,
}

impl Mounting {
    fn begin(mut command: Command) -> Self {
        let (say, outcome) = mpsc::channel();
        let failed = say.clone();
        let run = move || {
            // The receiver is gone if another process mounted it.
            let _ = say.send(command.output());
        };
        if let Err(error) = thread::Builder::new().name("mount".into()).spawn(run) {
            let _ = failed.send(Err(error));
        }
        Self { until: Instant::now() + Duration::from_secs(MOUNT_SECONDS), outcome }
    }

    /// The outcome, waited for until the deadline. None: it has not ended.
    fn outcome(&self) -> Option<io::Result<Output>> {
        self.outcome.recv_timeout(self.until.saturating_duration_since(Instant::now())).ok()
    }

    /// Whether it has ended, for callers that do not need the outcome.
    fn has_ended(&self) -> bool {
        !matches!(self.outcome.try_recv(), Err(mpsc::TryRecvError::Empty))
    }
}

/// Asks once whether a mount's daemon is gone. None: no thread could be started.
fn ask(mount: Mount) -> Option<Receiver<bool>> {
    let (say, answer) = mpsc::channel();
    let ask = move || {
        // The receiver is gone if the answer comes too late.
        let _ = say.send(mount.is_dead());
    };
    thread::Builder::new().name("ask".into()).spawn(ask).ok().map(|_| answer)
}

/// Whether a mount point may be mounted again, and if so, notes that it is.
fn may_try(tries: &mut Vec<Instant>, now: Instant) -> bool {
    tries.retain(|then| now.duration_since(*then) < TRIES_WITHIN);
    let may = tries.len() < TRIES_MAX;
    if may {
        tries.push(now);
    }
    may
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_said_once_and_again_when_it_comes_back() {
        let mut told = HashSet::new();
        let mut news = |messages: &[&str]| news(&mut told, messages.iter().map(ToString::to_string).collect());
        assert_eq!(news(&["one", "two"]), ["one", "two"]);
        assert_eq!(news(&["two", "three"]), ["three"]);
        assert_eq!(news(&[]), [""; 0]);
        assert_eq!(news(&["two"]), ["two"]);
        assert_eq!(told.len(), 1, "what is not said any more is not kept");
    }

    #[test]
    fn a_mount_that_hangs_is_not_waited_for_longer_than_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut command = Command::new("cat");
        command.arg(&pipe).stdin(Stdio::null());
        let mut mounting = Mounting::begin(command);
        let patience = std::mem::replace(&mut mounting.until, Instant::now());
        assert!(mounting.outcome().is_none() && !mounting.has_ended(), "it waits for somebody to write");
        std::fs::write(&pipe, "mounted").unwrap();
        mounting.until = patience;
        assert_eq!(mounting.outcome().unwrap().unwrap().stdout, b"mounted");
    }

    #[test]
    fn a_daemon_that_dies_again_and_again_is_left_dead_for_a_while() {
        let (mut tries, start) = (Vec::new(), Instant::now());
        let at = |minutes: u64| start + Duration::from_secs(minutes * 60);
        assert!((0..TRIES_MAX as u64).all(|minute| may_try(&mut tries, at(minute))));
        assert!(!may_try(&mut tries, at(6)));
        assert!(may_try(&mut tries, at(10)), "the first is ten minutes old");
        assert!(!may_try(&mut tries, at(10)));
    }
}
