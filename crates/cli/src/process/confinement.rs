//! Restricts the files that the daemon, fsck and mkfs can reach once they know their volume: Landlock, the kernel's
//! sandbox for one process.
//!
//! Without it, an attacker who controls the daemon through a bug could read and change every file of root: dropping
//! capabilities does not help, because most files belong to root. `Rules` lists what is allowed. Files that are already
//! open stay usable under any rules.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use oncefs_engine::temporary_dir;

use crate::names::shown;
use crate::process::privileges;

/// The version of Landlock whose rights are known here. An older kernel enforces those that it has.
const KNOWN: ABI = ABI::V6;

/// A path and the access that is allowed below it.
struct Rule {
    path: PathBuf,
    allowed: BitFlags<AccessFs>,
}

/// How much of the rules the kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Every rule is in force.
    Full,
    /// The kernel knows only some of the rights.
    Partial,
    /// The kernel has no Landlock, or it is switched off.
    None,
}

/// Restricts this thread, and those that it starts, to the rules, and its connections to `ports`. This cannot be
/// undone, and forbids mount(2) and umount2(2).
fn confine(rules: Vec<Rule>, ports: &[u16]) -> Result<Confinement, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::Signal)?;
    let mut ruleset = ruleset.create()?;
    for rule in rules {
        // A path that this machine does not have needs no rule.
        if let Ok(place) = PathFd::new(&rule.path) {
            ruleset = ruleset.add_rule(PathBeneath::new(place, rule.allowed))?;
        }
    }
    for port in ports {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
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

/// The rights to the files of a volume.
struct Rules {
    read_file: BitFlags<AccessFs>,
    read: BitFlags<AccessFs>,
    write_file: BitFlags<AccessFs>,
    /// To create and remove files and directories.
    change: BitFlags<AccessFs>,
}

impl Rules {
    fn new() -> Self {
        Self {
            read_file: AccessFs::ReadFile.into(),
            read: AccessFs::ReadFile | AccessFs::ReadDir,
            write_file: AccessFs::WriteFile | AccessFs::Truncate,
            change: AccessFs::MakeReg
                | AccessFs::MakeDir
                | AccessFs::RemoveFile
                | AccessFs::RemoveDir
                | AccessFs::Refer,
        }
    }

    /// The files that every process with an open volume opens by name. `parts` are the volume's parts outside its
    /// directory.
    fn of_volume(&self, volume: &Path, parts: &[PathBuf]) -> Vec<Rule> {
        let mut rules = vec![
            // RocksDB creates and removes its files.
            Rule { path: volume.to_owned(), allowed: self.read | self.write_file | self.change },
            // Load, battery, cgroup limits, the queue limits of the device below, and a caller's groups.
            rule("/sys", self.read),
            rule("/proc", self.read),
            rule("/dev/null", self.read_file | self.write_file),
            rule("/dev/urandom", self.read_file),
            // Local times in the log.
            rule("/etc/localtime", self.read_file),
        ];
        // Function names in the message of a panic.
        rules.extend(std::env::current_exe().map(|path| Rule { path, allowed: self.read_file }));
        for part in parts {
            let allowed = match part.is_dir() {
                true => self.read | self.write_file | self.change,
                false => self.read_file | self.write_file | AccessFs::IoctlDev,
            };
            rules.push(Rule { path: part.clone(), allowed });
        }
        rules
    }

    /// The files that only the daemon opens.
    fn of_daemon(&self, volume: &Path) -> Vec<Rule> {
        vec![
            // The control socket.
            Rule { path: volume.to_owned(), allowed: AccessFs::MakeSock.into() },
            // The kernel's knobs for the mount, which do not exist yet.
            rule("/sys/devices/virtual/bdi", self.write_file),
            rule("/proc/sys/fs/fuse/max_pages_limit", self.write_file),
            rule("/sys/module/fuse/parameters/enable_uring", self.write_file),
            // The target of log lines if no log daemon listens.
            rule("/dev/kmsg", self.write_file),
        ]
    }

    /// For a check, which sorts data larger than memory in files without a name.
    fn of_check(&self) -> Rule {
        let allowed = self.read_file | self.write_file | AccessFs::MakeReg | AccessFs::RemoveFile;
        Rule { path: temporary_dir(), allowed }
    }

    /// To find the monitors of a cluster by name, where its configuration has no addresses.
    fn of_cluster(&self, ports: &[u16]) -> Vec<Rule> {
        let resolver = ["/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/gai.conf"];
        let resolver = if ports.is_empty() { &[][..] } else { &resolver[..] };
        resolver.iter().map(|path| rule(path, self.read_file)).collect()
    }

    /// For mkfs, which removes a volume that it could not complete, and restores an empty directory.
    fn of_mkfs(volume: &Path) -> Option<Rule> {
        let path = volume.parent()?.to_owned();
        Some(Rule { path, allowed: AccessFs::MakeDir | AccessFs::RemoveDir })
    }
}

fn rule(path: &str, allowed: BitFlags<AccessFs>) -> Rule {
    Rule { path: path.into(), allowed }
}

/// Confines the daemon, and logs what the kernel cannot enforce. `ports` are those of the cluster with the volume's
/// objects.
pub fn confine_daemon(volume: &Path, parts: &[PathBuf], ports: &[u16]) {
    let rules = Rules::new();
    let mut allowed = rules.of_volume(volume, parts);
    allowed.extend(rules.of_daemon(volume));
    allowed.extend(rules.of_cluster(ports));
    match confine(allowed, ports) {
        Ok(Confinement::Full) => {}
        Ok(Confinement::Partial) => log::info!("this kernel has an older Landlock: the daemon is only partly confined"),
        Ok(Confinement::None) => {
            log::warn!("this kernel has no Landlock: the daemon is not confined to the volume {}", shown(volume));
        }
        Err(e) => log::warn!("cannot confine the daemon to the volume {}: {e}", shown(volume)),
    }
}

/// Confines a check to what it needs to check and repair `volume`.
pub fn confine_check(volume: &Path, parts: &[PathBuf], ports: &[u16]) {
    let rules = Rules::new();
    let mut allowed = rules.of_volume(volume, parts);
    allowed.push(rules.of_check());
    allowed.extend(rules.of_cluster(ports));
    confine_command(volume, allowed, ports);
}

/// Confines mkfs to what it needs to fill `volume`, an empty directory, and `parts`.
pub fn confine_mkfs(volume: &Path, parts: &[PathBuf], ports: &[u16]) {
    let rules = Rules::new();
    let mut allowed = rules.of_volume(volume, parts);
    allowed.extend(Rules::of_mkfs(volume));
    allowed.extend(rules.of_cluster(ports));
    confine_command(volume, allowed, ports);
}

/// Confines a command. It reports only failures, and not a kernel without Landlock: its user cannot change that, and
/// the daemon's log reports it.
fn confine_command(volume: &Path, rules: Vec<Rule>, ports: &[u16]) {
    if let Err(e) = privileges::keep_only(privileges::kept_for(volume)) {
        tell!("oncefs: cannot drop the privileges of root: {e}");
    }
    if let Err(e) = confine(rules, ports) {
        tell!("oncefs: cannot confine this command to the volume {}: {e}", shown(volume));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    /// Runs a test in a thread of its own, because confinement cannot be undone.
    fn confined(test: impl FnOnce(&Path, &Path) + Send + 'static) {
        let (volume, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(volume.path().join("inside"), "x").unwrap();
        fs::write(other.path().join("outside"), "x").unwrap();
        let work = move || {
            let rules = Rules::new();
            let allowed = rules.of_volume(volume.path(), &[]).into_iter().chain(rules.of_daemon(volume.path()));
            assert_eq!(confine(allowed.collect(), &[]).unwrap(), Confinement::Full, "this test needs Landlock");
            test(volume.path(), other.path());
            (volume, other)
        };
        // The directories are removed by a thread that is not confined.
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

    fn is_refused(result: std::io::Result<()>) -> bool {
        result.unwrap_err().kind() == ErrorKind::PermissionDenied
    }

    /// A volume's directory next to a file `letter`, for a thread that confines itself.
    fn beside_a_letter(test: impl FnOnce(&Path, &Path) + Send + 'static) {
        let parent = tempfile::tempdir().unwrap();
        let (volume, letter) = (parent.path().join("volume"), parent.path().join("letter"));
        fs::create_dir(&volume).unwrap();
        fs::write(&letter, "dear").unwrap();
        std::thread::spawn(move || test(&volume, &letter)).join().unwrap();
        assert_eq!(fs::read(parent.path().join("letter")).unwrap(), b"dear");
    }

    #[test]
    fn mkfs_reaches_its_volume_alone_and_can_remove_it() {
        beside_a_letter(|volume, letter| {
            confine_mkfs(volume, &[], &[]);
            assert!(is_refused(fs::read(letter).map(drop)) && is_refused(fs::write(letter, "you")));
            assert!(is_refused(fs::remove_file(letter)) && is_refused(fs::read("/etc/shadow").map(drop)));
            assert!(is_refused(std::process::Command::new("/bin/true").status().map(drop)));
            fs::create_dir(volume.join("records")).unwrap();
            fs::write(volume.join("records/CURRENT"), "x").unwrap();
            fs::remove_dir_all(volume).unwrap();
            fs::create_dir(volume).unwrap();
        });
    }

    #[test]
    fn a_check_reaches_its_volume_and_its_temporary_files() {
        beside_a_letter(|volume, letter| {
            confine_check(volume, &[letter.to_owned()], &[]);
            assert_eq!(fs::read(letter).unwrap(), b"dear", "a part outside of the volume");
            assert!(is_refused(fs::read(std::env::var("CARGO_MANIFEST_DIR").unwrap() + "/Cargo.toml").map(drop)));
            assert!(is_refused(fs::read("/etc/shadow").map(drop)) && is_refused(fs::read_dir("/root").map(drop)));
            assert!(is_refused(std::process::Command::new("/bin/true").status().map(drop)));
            fs::write(volume.join("table"), "x").unwrap();
            fs::remove_file(volume.join("table")).unwrap();
            let temporary = temporary_dir().join(format!("oncefs-confine-{}", std::process::id()));
            fs::write(&temporary, "x").unwrap();
            fs::remove_file(temporary).unwrap();
        });
    }

    #[test]
    fn of_the_network_only_the_ports_of_the_cluster_can_be_reached() {
        let [cluster, other] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let [cluster, other] = [cluster, other].map(|listener| (listener.local_addr().unwrap(), listener));
        beside_a_letter(move |volume, letter| {
            confine_mkfs(volume, &[], &[cluster.0.port()]);
            std::net::TcpStream::connect(cluster.0).unwrap();
            assert!(is_refused(std::net::TcpStream::connect(other.0).map(drop)));
            assert!(is_refused(std::net::TcpListener::bind("127.0.0.1:0").map(drop)));
            assert!(is_refused(fs::read(letter).map(drop)));
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
            ready.send(confine(Rules::new().of_volume(&path, &[]), &[]).unwrap()).unwrap();
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
