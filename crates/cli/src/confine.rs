//! Which files the daemon can still reach after it has been started: Landlock, the kernel's sandbox for one process.
//!
//! Without it, a daemon that an error lets others steer could read and change every file of root: giving up
//! capabilities does not help, since most files belong to root. What is allowed is listed here, in `rules`.
//! Files that are open already stay usable whatever the rules say.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::mounts::shown;

/// The version of Landlock whose rights are known here. An older kernel enforces those that it has.
const KNOWN: ABI = ABI::V6;

/// A path and what may be done below it.
struct Rule {
    path: PathBuf,
    allowed: BitFlags<AccessFs>,
}

/// How far the kernel goes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Every rule is in force.
    Full,
    /// The kernel knows some of the rights only.
    Partial,
    /// The kernel has no Landlock, or it is switched off.
    None,
}

/// Leaves this thread, and those it starts, only what serving `volume` takes. `parts` are the volume's parts outside
/// its directory. There is no way back, and no mount(2) or umount2(2) any more.
pub fn confine(volume: &Path, parts: &[PathBuf]) -> Result<Confinement, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::Signal)?;
    let mut ruleset = ruleset.create()?;
    for rule in rules(volume, parts) {
        // What this machine does not have needs no rule.
        if let Ok(place) = PathFd::new(&rule.path) {
            ruleset = ruleset.add_rule(PathBeneath::new(place, rule.allowed))?;
        }
    }
    Ok(confinement(&ruleset.restrict_self()?))
}

fn confinement(status: &RestrictionStatus) -> Confinement {
    match status.ruleset {
        RulesetStatus::FullyEnforced => Confinement::Full,
        RulesetStatus::PartiallyEnforced => Confinement::Partial,
        RulesetStatus::NotEnforced => Confinement::None,
    }
}

/// Everything that the daemon opens by name once it is started.
fn rules(volume: &Path, parts: &[PathBuf]) -> Vec<Rule> {
    let read_file = BitFlags::from(AccessFs::ReadFile);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write_file = AccessFs::WriteFile | AccessFs::Truncate;
    let change = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile | AccessFs::RemoveDir | AccessFs::Refer;
    let rule = |path: &str, allowed| Rule { path: path.into(), allowed };
    let mut rules = vec![
        // Its files come and go (RocksDB), and it holds the control socket.
        Rule { path: volume.to_owned(), allowed: read | write_file | change | AccessFs::MakeSock },
        // Load, battery, cgroup limits, the queue limits of the device below; a caller's groups.
        rule("/sys", read),
        rule("/proc", read),
        // The kernel's knobs for the mount, which do not exist yet.
        rule("/sys/devices/virtual/bdi", write_file),
        rule("/proc/sys/fs/fuse/max_pages_limit", write_file),
        // What becomes of stdin, stdout and stderr; where a log line goes that nobody takes; random numbers.
        rule("/dev/null", read_file | write_file),
        rule("/dev/kmsg", write_file),
        rule("/dev/urandom", read_file),
        // Times in the log.
        rule("/etc/localtime", read_file),
    ];
    // The names of functions in the message of a panic.
    rules.extend(std::env::current_exe().map(|path| Rule { path, allowed: read_file }));
    for part in parts {
        let allowed =
            if part.is_dir() { read | write_file | change } else { read_file | write_file | AccessFs::IoctlDev };
        rules.push(Rule { path: part.clone(), allowed });
    }
    rules
}

/// Confines the daemon, and says in the log where the kernel does not go along.
pub fn confine_daemon(volume: &Path, parts: &[PathBuf]) {
    match confine(volume, parts) {
        Ok(Confinement::Full) => {}
        Ok(Confinement::Partial) => log::info!("this kernel knows an older Landlock: the daemon is confined in part"),
        Ok(Confinement::None) => {
            log::warn!("this kernel has no Landlock: the daemon is not confined to the volume {}", shown(volume));
        }
        Err(e) => log::warn!("cannot confine the daemon to the volume {}: {e}", shown(volume)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    /// In a thread of its own, as there is no way back.
    fn confined(test: impl FnOnce(&Path, &Path) + Send + 'static) {
        let (volume, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(volume.path().join("inside"), "x").unwrap();
        fs::write(other.path().join("outside"), "x").unwrap();
        let work = move || {
            assert_eq!(confine(volume.path(), &[]).unwrap(), Confinement::Full, "this test needs Landlock");
            test(volume.path(), other.path());
            (volume, other)
        };
        // The directories are removed by a thread that still may.
        drop(std::thread::spawn(work).join().unwrap());
    }

    #[test]
    fn only_the_volume_and_the_kernels_own_files_can_be_reached() {
        confined(|volume, other| {
            let refused = |result: std::io::Result<()>| result.unwrap_err().kind() == ErrorKind::PermissionDenied;
            assert!(refused(fs::read(other.join("outside")).map(drop)));
            assert!(refused(fs::write(other.join("outside"), "y")));
            assert!(refused(fs::write(other.join("new"), "y")));
            assert!(refused(fs::remove_file(other.join("outside"))));
            assert!(refused(fs::read("/etc/shadow").map(drop)));
            assert!(refused(fs::read_dir("/root").map(drop)));
            assert!(refused(std::process::Command::new("/bin/true").status().map(drop)));
            assert!(refused(std::net::TcpListener::bind("127.0.0.1:0").map(drop)));
            fs::write(volume.join("inside"), "y").unwrap();
            fs::rename(volume.join("inside"), volume.join("renamed")).unwrap();
            fs::remove_file(volume.join("renamed")).unwrap();
            fs::read("/proc/self/status").unwrap();
        });
    }

    #[test]
    fn a_directory_that_takes_the_volumes_place_is_not_the_volume() {
        let parent = tempfile::tempdir().unwrap();
        let volume = parent.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("records"), "ours").unwrap();
        let (swapped, wait) = std::sync::mpsc::channel::<()>();
        let (ready, is_confined) = std::sync::mpsc::channel();
        let path = volume.clone();
        let daemon = std::thread::spawn(move || {
            ready.send(confine(&path, &[]).unwrap()).unwrap();
            wait.recv().unwrap();
            fs::read(path.join("records")).map_err(|e| e.kind())
        });
        assert_eq!(is_confined.recv().unwrap(), Confinement::Full, "this test needs Landlock");
        fs::rename(&volume, parent.path().join("away")).unwrap();
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("records"), "theirs").unwrap();
        swapped.send(()).unwrap();
        assert_eq!(daemon.join().unwrap(), Err(ErrorKind::PermissionDenied));
    }
}
