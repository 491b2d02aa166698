//! Volumes whose superblock lies in the cluster, on several machines. A machine is a place for directories of volumes
//! and a place for keys.

use std::process::Output;

use super::*;

pub(super) struct Machine {
    scratch: tempfile::TempDir,
    /// The volume's name with the way to the cluster, which a machine without the volume's directory needs.
    name: String,
}

impl Machine {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let scratch = tempfile::tempdir_in(oncefs_system_tests::test_dir()).unwrap();
        fs::create_dir(scratch.path().join("mnt")).unwrap();
        Self { scratch, name: format!("{}?conf={}", cluster.address(), cluster.conf.display()) }
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// What the volume has on this machine.
    fn state(&self, cluster: &Cluster) -> PathBuf {
        self.scratch.path().join("states/oncefs").join(&cluster.namespace)
    }

    fn key(&self, cluster: &Cluster) -> PathBuf {
        self.scratch.path().join("keys/oncefs").join(format!("{}.key", cluster.namespace))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = oncefs_with(&self.scratch.path().join("states"), arguments);
        command.env("ONCEFS_KEYS", self.scratch.path().join("keys"));
        command
    }

    /// Runs a command with the volume as its first argument.
    fn on_volume(&self, command: &str, more: &[&str]) -> Output {
        self.command(&[command, &self.name]).args(more).output().unwrap()
    }

    pub(super) fn succeeds(&self, command: &str, more: &[&str]) -> String {
        let done = self.on_volume(command, more);
        assert!(done.status.success(), "{command} {more:?}: {done:?}");
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    pub(super) fn refused(&self, command: &str, more: &[&str]) -> String {
        let done = self.on_volume(command, more);
        assert!(!done.status.success(), "{command} {more:?} succeeded: {done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    pub(super) fn mount(&self) -> String {
        self.succeeds("mount", &[self.dir().to_str().unwrap()])
    }

    pub(super) fn umount(&self) {
        self.succeeds("umount", &[]);
    }

    pub(super) fn mkfs(&self, cluster: &Cluster, more: &[&str]) -> String {
        let conf = cluster.conf.to_str().unwrap();
        let address = cluster.address();
        let arguments = ["mkfs", &address, "--experimental", "rados", "--records", "rados", "--conf", conf];
        run(self.command(&arguments).args(["--size", "1G"]).args(more))
    }

    fn stored_bytes(&self) -> u64 {
        self.succeeds("sync", &[]);
        let stats: serde_json::Value = serde_json::from_str(&self.succeeds("stats", &["--json"])).unwrap();
        stats["space"]["stored_bytes"].as_u64().expect("a number")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir()).stderr(std::process::Stdio::null()).status();
    }
}

/// Gives a machine the key of another.
pub(super) fn copy_key(cluster: &Cluster, from: &Machine, to: &Machine) {
    fs::create_dir_all(to.key(cluster).parent().unwrap()).unwrap();
    fs::copy(from.key(cluster), to.key(cluster)).unwrap();
}

#[test]
fn a_machine_that_has_never_seen_a_volume_opens_it_with_a_copy_of_the_key() {
    let Some(cluster) = Cluster::of_test("moves") else { return };
    let (first, second) = (Machine::of(&cluster), Machine::of(&cluster));
    let made = first.mkfs(&cluster, &[]);
    let key = first.key(&cluster);
    assert!(made.contains(&format!("copy {} there", key.display())), "{made}");
    first.mount();
    write_synced(&first.dir().join("file"), 1, MIB).unwrap();
    first.umount();
    let dir = second.dir();
    let dir = dir.to_str().unwrap();
    let told = second.refused("mount", &[dir]);
    assert!(told.contains("there is no key") && told.contains(&format!("copy {}", key.display())), "{told}");
    let wrong = second.scratch.path().join("wrong.key");
    fs::copy(&key, &wrong).unwrap();
    fs::write(&wrong, "00".repeat(32)).unwrap();
    let told = second.refused("mount", &[dir, "--key-file", wrong.to_str().unwrap()]);
    assert!(told.contains("is not the key with which the secret"), "{told}");
    assert!(!second.state(&cluster).exists(), "a refused mount leaves nothing");
    second.succeeds("mount", &[dir, "--key-file", key.to_str().unwrap()]);
    assert_content(&second.dir().join("file"), 1, MIB);
    second.umount();
    fs::remove_dir_all(second.state(&cluster)).unwrap();
    second.succeeds("fsck", &["--key-file", key.to_str().unwrap()]);
    fs::remove_dir_all(second.state(&cluster)).unwrap();
    let told = second.refused("failover", &["--key-file", key.to_str().unwrap()]);
    assert!(told.contains("is not mounted") && second.state(&cluster).exists(), "{told}");
    copy_key(&cluster, &first, &second);
    second.succeeds("fsck", &[]);
    fs::remove_dir_all(second.state(&cluster)).unwrap();
    second.succeeds("grow", &["2G"]);
    fs::remove_dir_all(second.state(&cluster)).unwrap();
    let told = second.refused("stats", &[]);
    assert!(told.contains("is not mounted"), "{told}");
    second.mount();
    second.succeeds("scrub", &[]);
    second.succeeds("stats", &[]);
    assert!(second.succeeds("status", &[]).contains(dir));
    second.umount();
    first.mount();
    assert_content(&first.dir().join("file"), 1, MIB);
    first.umount();
    first.succeeds("fsck", &[]);
}

#[test]
fn the_secret_of_a_volume_is_not_in_its_cluster() {
    let Some(cluster) = Cluster::of_test("sealed") else { return };
    let machine = Machine::of(&cluster);
    machine.mkfs(&cluster, &[]);
    machine.mount();
    write_synced(&machine.dir().join("file"), 1, MIB).unwrap();
    machine.umount();
    let superblock = fs::read(machine.state(&cluster).join("superblock")).unwrap();
    let secret = &superblock[40..72];
    assert_ne!(secret, [0; 32]);
    let rados = |arguments: &[&str]| {
        let mut command = Command::new("rados");
        command.arg("-c").arg(&cluster.conf).args(["-p", "oncefs", "-N", &cluster.namespace]).args(arguments);
        command.output().unwrap().stdout
    };
    let names = String::from_utf8(rados(&["ls"])).unwrap();
    assert!(names.lines().any(|name| name == "superblock"), "{names}");
    for name in names.lines() {
        let content = rados(&["get", name, "/dev/stdout"]);
        assert!(!content.windows(32).any(|part| part == secret), "{name} has the secret");
    }
}

#[test]
fn a_lost_directory_costs_sharing_only_until_the_worker_has_looked() {
    let Some(cluster) = Cluster::of_test("lost") else { return };
    let machine = Machine::of(&cluster);
    machine.mkfs(&cluster, &[]);
    machine.mount();
    write_synced(&machine.dir().join("first"), 1, 8 * MIB).unwrap();
    let alone = machine.stored_bytes();
    machine.umount();
    fs::remove_dir_all(machine.state(&cluster)).unwrap();
    let told = machine.mount();
    assert!(told.contains("from the superblock in the cluster"), "{told}");
    write_synced(&machine.dir().join("second"), 1, 8 * MIB).unwrap();
    machine.succeeds("dedup", &["--now"]);
    assert_eq!(machine.stored_bytes(), alone, "the worker finds what hints would have found");
    write_synced(&machine.dir().join("third"), 1, 8 * MIB).unwrap();
    machine.succeeds("dedup", &["--now"]);
    assert_eq!(machine.stored_bytes(), alone);
    machine.umount();
    machine.succeeds("fsck", &[]);
}

#[test]
fn a_directory_of_the_volume_that_had_the_name_before_is_made_anew() {
    let Some(cluster) = Cluster::of_test("stale") else { return };
    let (first, second) = (Machine::of(&cluster), Machine::of(&cluster));
    first.mkfs(&cluster, &[]);
    copy_key(&cluster, &first, &second);
    second.mount();
    write_synced(&second.dir().join("old"), 1, MIB).unwrap();
    second.umount();
    fs::remove_dir_all(first.state(&cluster)).unwrap();
    first.mkfs(&cluster, &["--force"]);
    first.mount();
    write_synced(&first.dir().join("new"), 2, MIB).unwrap();
    first.umount();
    let told = second.mount();
    assert!(told.contains("from the superblock in the cluster"), "{told}");
    assert!(!second.dir().join("old").exists());
    assert_content(&second.dir().join("new"), 2, MIB);
    second.umount();
    second.succeeds("fsck", &[]);
}

#[test]
fn a_volume_without_a_superblock_in_the_cluster_is_moved_by_its_next_mount() {
    let Some(cluster) = Cluster::of_test("early") else { return };
    let (first, second) = (Machine::of(&cluster), Machine::of(&cluster));
    first.mkfs(&cluster, &[]);
    // As an early version left it.
    let mut remove = Command::new("rados");
    run(remove.arg("-c").arg(&cluster.conf).args(["-p", "oncefs", "-N", &cluster.namespace, "rm", "superblock"]));
    copy_key(&cluster, &first, &second);
    let told = second.refused("fsck", &[]);
    assert!(told.contains("only the machine where mkfs made it can open it"), "{told}");
    first.succeeds("fsck", &[]);
    assert!(second.refused("fsck", &[]).contains("only the machine"), "a check changes nothing");
    let told = first.mount();
    assert!(told.contains("can be mounted by other machines from now on"), "{told}");
    write_synced(&first.dir().join("file"), 1, MIB).unwrap();
    first.umount();
    second.mount();
    assert_content(&second.dir().join("file"), 1, MIB);
    second.umount();
}

#[test]
fn a_standby_without_the_directory_of_the_head_takes_over_with_all_that_was_synced() {
    let Some(cluster) = Cluster::of_test("two") else { return };
    let (first, second) = (Machine::of(&cluster), Machine::of(&cluster));
    first.mkfs(&cluster, &[]);
    copy_key(&cluster, &first, &second);
    let dir = first.dir();
    let head = first.command(&["mount", "-f", &first.name]).arg(&dir).spawn().unwrap();
    let mut head = Reaped(head);
    eventually("the head is mounted", || is_mounted(&first));
    let waiting = second.command(&["mount", "-f", "--standby", &second.name]).arg(second.dir()).spawn().unwrap();
    let mut waiting = Reaped(waiting);
    eventually("the standby has its directory", || second.state(&cluster).join("superblock").exists());
    let synced =
        (0..50).map(|n| write_synced(&dir.join(format!("file-{n}")), n, 64 << 10)).filter(Result::is_ok).count();
    assert!(!is_mounted(&second), "the head is alive");
    head.0.kill().unwrap();
    eventually("the standby takes over", || is_mounted(&second));
    assert_eq!(synced, 50);
    (0..50).for_each(|n| assert_content(&second.dir().join(format!("file-{n}")), n, 64 << 10));
    second.umount();
    assert!(waiting.0.wait().unwrap().success());
    second.succeeds("fsck", &[]);
}

#[test]
fn a_failover_moves_a_volume_with_what_was_not_synced_to_the_standby_that_was_named() {
    let Some(cluster) = Cluster::of_test("failover") else { return };
    let [first, second, third] = [0; 3].map(|_| Machine::of(&cluster));
    first.mkfs(&cluster, &[]);
    [&second, &third].into_iter().for_each(|other| copy_key(&cluster, &first, other));
    first.mount();
    let told = first.refused("failover", &[]);
    assert!(told.contains("nobody waits for") && is_mounted(&first), "{told}");
    let wait = |machine: &Machine| {
        Reaped(machine.command(&["mount", "-f", "--standby", &machine.name]).arg(machine.dir()).spawn().unwrap())
    };
    let (mut second_waits, mut third_waits) = (wait(&second), wait(&third));
    let state = |machine: &Machine| machine.state(&cluster).to_str().unwrap().to_owned();
    eventually("both standbys are known", || {
        let told = first.on_volume("failover", &["--dry-run"]).stdout;
        let told = String::from_utf8_lossy(&told);
        told.contains(&state(&second)) && told.contains(&state(&third))
    });
    let told = second.refused("failover", &[]);
    assert!(told.contains("run the command where it is") && told.contains(&state(&first)), "{told}");
    let told = first.refused("failover", &["--to", "nowhere"]);
    assert!(told.contains("nowhere does not wait for"), "{told}");
    let heir = format!("{}:{}", machine_name(&first), state(&third));
    let open = File::create(first.dir().join("open")).unwrap();
    let told = first.refused("failover", &["--to", &heir]);
    assert!(told.contains("in use") && told.contains("nothing has changed") && is_mounted(&first), "{told}");
    drop(open);
    let mut copy = Command::new("unshare");
    let copy = Reaped(copy.args(["--mount", "--propagation", "private", "sleep", "1000"]).spawn().unwrap());
    let name = PathBuf::from(format!("/proc/{}/comm", copy.0.id()));
    eventually("another mount namespace has a copy of the mount", || fs::read(&name).unwrap() == b"sleep\n");
    let told = first.refused("failover", &["--to", &heir]);
    let place = format!("in the mount namespace of process {}", copy.0.id());
    assert!(told.contains(&place) && told.contains("nothing has changed") && is_mounted(&first), "{told}");
    drop(copy);
    fs::write(first.dir().join("file"), bytes(1, MIB as usize)).unwrap();
    let told = first.succeeds("failover", &["--to", &heir]);
    assert!(told.contains(&format!("goes to {heir}")) && told.contains("has mounted it"), "{told}");
    assert!(!is_mounted(&first) && !is_mounted(&second) && is_mounted(&third));
    assert_content(&third.dir().join("file"), 1, MIB);
    let cluster_of = |machine: &Machine| -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(&machine.succeeds("stats", &["--json"])).unwrap()["cluster"].clone()
    };
    assert_eq!(cluster_of(&third)["has_taken_over"], false, "nobody was fenced");
    let told = third.succeeds("failover", &["--dry-run"]);
    assert!(told.contains(&state(&second)), "{told}");
    third.succeeds("failover", &[]);
    assert!(third_waits.0.wait().unwrap().success() && is_mounted(&second));
    assert_content(&second.dir().join("file"), 1, MIB);
    second.umount();
    assert!(second_waits.0.wait().unwrap().success());
    second.succeeds("fsck", &[]);
}

#[test]
fn a_volume_whose_heir_died_is_taken_by_another_after_the_length_of_a_lease() {
    let Some(cluster) = Cluster::of_test("heirless") else { return };
    let (first, second) = (Machine::of(&cluster), Machine::of(&cluster));
    first.mkfs(&cluster, &[]);
    copy_key(&cluster, &first, &second);
    first.mount();
    let waiting = second.command(&["mount", "-f", "--standby", &second.name]).arg(second.dir()).spawn().unwrap();
    let mut waiting = Reaped(waiting);
    eventually("the standby is known", || first.on_volume("failover", &["--dry-run"]).status.success());
    // It stands still, so it takes nothing, and is listed for a while yet.
    // SAFETY: plain numbers; the child is not reaped before it has ended.
    unsafe { libc::kill(waiting.0.id() as i32, libc::SIGSTOP) };
    fs::write(first.dir().join("file"), bytes(1, MIB as usize)).unwrap();
    let told = first.refused("failover", &["--wait", "0"]);
    assert!(told.contains("unmounted here with everything written") && told.contains("mount it here again"), "{told}");
    waiting.0.kill().unwrap();
    let began = Instant::now();
    first.mount();
    let waited = began.elapsed();
    // It waits for five seconds by its own clock. Without a reservation it would wait for nothing.
    assert!(waited >= Duration::from_millis(4500), "the time of the heir was not waited for: {waited:?}");
    assert_content(&first.dir().join("file"), 1, MIB);
    first.umount();
    first.succeeds("fsck", &[]);
}

/// This machine, as locks name it.
fn machine_name(head: &Machine) -> String {
    let stats: serde_json::Value = serde_json::from_str(&head.succeeds("stats", &["--json"])).unwrap();
    let holder = stats["cluster"]["holder"].as_str().expect("a text").to_owned();
    holder.split_once(':').expect("a machine and a directory").0.to_owned()
}

/// A process that ends with the test.
struct Reaped(std::process::Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_mounted(machine: &Machine) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.contains(machine.dir().to_str().unwrap()) && machine.on_volume("stats", &[]).status.success()
}
