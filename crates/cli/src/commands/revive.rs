//! `oncefs revive`: mounts again what a dead daemon left, as fstab says.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::fstab::{self, Entry, FSTAB};
use crate::mounting::mount_table::{self, Mount};
use crate::names::shown;

/// A daemon that dies this often within [`TRIES_WITHIN`] is left dead: mounting it once more would hide what kills it.
const TRIES_MAX: usize = 5;
const TRIES_WITHIN: Duration = Duration::from_secs(600);

/// Arguments of `revive`.
#[derive(Debug, Args)]
#[command(after_help = "\
A daemon that died leaves its mount behind, and every call on it fails with 'Transport endpoint is not connected'.
This command detaches such a mount and mounts it again with mount(8), by its line in fstab. What was durable is there.
Programs that had files open in it must open them again.

With --watch it stays and looks again every so many seconds, as the unit oncefs-revive.service does. A mount whose
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
    /// Stay, and look again every so many seconds
    #[arg(long, short, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub watch: Option<u64>,
}

/// Mounts dead mounts again.
pub fn run(arguments: ReviveArgs) -> Outcome {
    let Some(seconds) = arguments.watch else {
        return end(revive_all(&arguments, &mut HashMap::new()));
    };
    let mut tries = HashMap::new();
    let mut told = HashSet::new();
    loop {
        for message in revive_all(&arguments, &mut tries)? {
            // Said once, not at every look.
            if told.insert(message.clone()) {
                tell!("oncefs: {message}");
            }
        }
        thread::sleep(Duration::from_secs(seconds));
    }
}

fn end(failures: Outcome<Vec<String>>) -> Outcome {
    let mut failures = failures?;
    let Some(last) = failures.pop() else { return Ok(()) };
    for message in failures {
        tell!("oncefs: {message}");
    }
    Err(Failure::new(exit::FAILED, last))
}

/// When each mount point was mounted again.
type Tries = HashMap<PathBuf, Vec<Instant>>;

/// Mounts every dead mount again. Why some could not be.
fn revive_all(arguments: &ReviveArgs, tries: &mut Tries) -> Outcome<Vec<String>> {
    let asked_for = resolve(&arguments.dirs)?;
    let dead = dead_mounts(&asked_for)?;
    if dead.is_empty() {
        return Ok(Vec::new());
    }
    let doing = format!("cannot read {}", shown(&arguments.fstab));
    let entries = fstab::read(&arguments.fstab).or_fail_doing(exit::FAILED, doing)?;
    let failures = dead.iter().filter_map(|mount| {
        let tries = tries.entry(mount.dir.clone()).or_default();
        if !may_try(tries, Instant::now()) {
            let dir = shown(&mount.dir);
            return Some(format!("the daemon of {dir} died {TRIES_MAX} times in ten minutes: {dir} is left as it is; the system log says why it died"));
        }
        revive(mount, &entries, &arguments.fstab).err()
    });
    Ok(failures.collect())
}

fn resolve(dirs: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let resolved =
        |dir: &PathBuf| mount_table::resolve(dir).or_fail_doing(exit::FAILED, format!("cannot look at {}", shown(dir)));
    dirs.iter().map(resolved).collect()
}

/// The mounts whose daemon is gone. Each is asked by a thread of its own: one whose daemon hangs answers nothing, and must
/// not keep the others dead.
fn dead_mounts(asked_for: &[PathBuf]) -> Outcome<Vec<Mount>> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let mounts = mount_table::all().or_fail_doing(exit::FAILED, "cannot read the mount table")?;
    let ours = mounts.into_iter().filter(|mount| mount.is_oncefs());
    let (say, answers) = std::sync::mpsc::channel();
    for mount in ours.filter(|mount| asked_for.is_empty() || asked_for.contains(&mount.dir)) {
        let say = say.clone();
        // The other end is gone where the answer comes too late.
        thread::spawn(move || say.send(mount.is_dead().then_some(mount)).ok());
    }
    drop(say);
    let until = Instant::now() + PATIENCE;
    let next = || answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    Ok(std::iter::from_fn(next).flatten().collect())
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

fn revive(mount: &Mount, entries: &[Entry], fstab: &Path) -> Result<(), String> {
    let (dir, volume) = (shown(&mount.dir), shown(&mount.source));
    if !entries.iter().any(|entry| mount_table::resolve(&entry.dir).is_ok_and(|at| at == mount.dir)) {
        return Err(format!(
            "the daemon of {dir} is dead, and {} does not name {dir}: oncefs umount -l {dir}, then oncefs mount {volume} {dir}",
            shown(fstab)
        ));
    }
    oncefs_fuse::unmount(&mount.dir, libc::MNT_DETACH)
        .map_err(|error| format!("cannot detach {dir}, whose daemon is dead: {error}"))?;
    let status = Command::new("mount").arg("-T").arg(fstab).arg(&mount.dir).status();
    match status {
        Ok(status) if status.success() => {
            say!("{dir} is mounted again: its daemon had died, and the volume {volume} continues from its last commit");
            Ok(())
        }
        Ok(_) => Err(format!("cannot mount {dir} again, whose daemon had died: mount {dir} says why")),
        Err(error) => Err(format!("cannot run mount: {error}; {dir}, whose daemon had died, is not mounted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
