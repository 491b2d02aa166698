//! Volumes whose blocks lie in objects of a real Ceph cluster. They need `ONCEFS_CEPH_CONF`, the configuration file of
//! a cluster with a pool `oncefs` that they may fill, freeze and stop: `scripts/beyond` starts one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncefs_system_tests::{BLOCK, Mount, bytes, eventually, oncefs, run};

mod data_pool;
mod machines;
mod pool_room;
mod records;
mod rounds;

const MIB: u64 = 1 << 20;

/// A cluster, and the namespace of one test in it.
struct Cluster {
    conf: PathBuf,
    namespace: String,
}

impl Cluster {
    /// None, with a message: there is none.
    fn of_test(name: &str) -> Option<Self> {
        let Some(conf) = std::env::var_os("ONCEFS_CEPH_CONF") else {
            println!("NOT checked: ONCEFS_CEPH_CONF is not set; scripts/beyond starts a cluster and sets it");
            return None;
        };
        Some(Self { conf: conf.into(), namespace: format!("{name}-{}", std::process::id()) })
    }

    fn address(&self) -> String {
        format!("rados://oncefs/{}", self.namespace)
    }

    fn volume(&self, size: &str) -> Mount {
        Mount::in_objects(&self.address(), &self.conf, size)
    }

    fn mounted(&self, size: &str) -> Mount {
        let mut mount = self.volume(size);
        mount.mount();
        mount
    }

    fn ceph(&self, arguments: &[&str]) -> String {
        run(Command::new("ceph").arg("-c").arg(&self.conf).args(arguments))
    }

    /// The objects of a part of the volume.
    fn objects(&self, part: &str) -> usize {
        self.objects_in("oncefs", part)
    }

    /// The same in another pool.
    fn objects_in(&self, pool: &str, part: &str) -> usize {
        let names = self.rados(pool, &["ls"]);
        names.lines().filter(|name| name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'))).count()
    }

    /// Runs `rados` on the namespace in a pool.
    fn rados(&self, pool: &str, arguments: &[&str]) -> String {
        let mut rados = Command::new("rados");
        run(rados.arg("-c").arg(&self.conf).args(["-p", pool, "-N", &self.namespace]).args(arguments))
    }

    /// Sets how full OSDs may be: to be near the end, to take copies of others, to take data.
    fn set_full_ratios(&self, [near, backfill, full]: [&str; 3]) {
        for (what, ratio) in [("nearfull", near), ("backfillfull", backfill), ("full", full)] {
            self.ceph(&["osd", &format!("set-{what}-ratio"), ratio]);
        }
    }

    /// Sets the most bytes that the pool may store. 0: there is no bound.
    fn set_quota(&self, pool: &str, bytes: u64) {
        self.ceph(&["osd", "pool", "set-quota", pool, "max_bytes", &bytes.to_string()]);
    }

    /// The same for a client with the rights of the line in docs/beyond.md. It has the name of the namespace.
    fn with_documented_key(&self) -> Documented {
        self.with_key(&format!("allow rwx pool=oncefs namespace={}", self.namespace))
    }

    /// The same with other rights in the OSDs.
    fn with_key(&self, reach: &str) -> Documented {
        let dir = tempfile::tempdir().unwrap();
        let (conf, keyring) = (dir.path().join("ceph.conf"), dir.path().join("keyring"));
        let client = format!("client.{}", self.namespace);
        let key = self.ceph(&["auth", "get-or-create", &client, "mon", "profile rbd", "osd", reach]);
        fs::write(&keyring, key).unwrap();
        let global = fs::read_to_string(&self.conf).unwrap();
        let global = global.split("[osd]").next().unwrap();
        fs::write(&conf, format!("{global}[client]\nkeyring = {}\n", keyring.display())).unwrap();
        Documented { cluster: Cluster { conf, namespace: self.namespace.clone() }, dir }
    }

    /// Sends a signal to all OSDs.
    fn signal_osds(&self, signal: i32) {
        (0..3).for_each(|id| self.signal_osd(id, signal));
    }

    fn signal_osd(&self, id: u32, signal: i32) {
        let file = self.conf.with_file_name(format!("run/osd.{id}.pid"));
        let pid: i32 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        // SAFETY: plain numbers.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "osd.{id} is gone");
    }
}

/// A cluster as a client sees it that has a configuration and a key of its own, with the directory of both.
struct Documented {
    cluster: Cluster,
    dir: tempfile::TempDir,
}

impl std::ops::Deref for Documented {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

fn write_synced(path: &Path, key: u64, len: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&bytes(key, len as usize))?;
    file.sync_all()
}

fn assert_content(path: &Path, key: u64, len: u64) {
    assert!(fs::read(path).unwrap() == bytes(key, len as usize), "{} changed", path.display());
}

/// A tree of small and middle-sized files, of which every fourth repeats another one's content.
fn make_tree(top: &Path) {
    for number in 0..200_u64 {
        let dir = top.join(format!("dir-{}", number % 10));
        fs::create_dir_all(&dir).unwrap();
        let (key, len) = if number % 4 == 0 { (7, 64 * 1024) } else { (number, 1 + number * 700) };
        fs::write(dir.join(format!("file-{number}")), bytes(key, len as usize)).unwrap();
    }
}

/// Blocks stored after the tree was written twice.
fn stored_after_two_trees(mount: &Mount) -> u64 {
    for copy in ["first", "second"] {
        make_tree(&mount.join(copy));
    }
    run(Command::new(oncefs()).args(["dedup", "--now"]).arg(mount.dir()));
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    mount.figure("space", "stored_bytes") / BLOCK
}

fn assert_two_trees(mount: &Mount) {
    let expected = tempfile::tempdir().unwrap();
    make_tree(expected.path());
    for copy in ["first", "second"] {
        run(Command::new("diff").arg("-r").arg(expected.path()).arg(mount.join(copy)));
    }
}

#[test]
fn a_tree_in_objects_saves_as_much_as_in_files_and_survives_a_killed_daemon() {
    let Some(cluster) = Cluster::of_test("tree") else { return };
    let local = stored_after_two_trees(&Mount::new("256M"));
    let mut mount = cluster.mounted("10T");
    assert_eq!(stored_after_two_trees(&mount), local, "blocks stored, in objects and in files");
    assert_two_trees(&mount);
    mount.crash();
    assert_two_trees(&mount);
    mount.check();
    run(Command::new(oncefs()).args(["scrub"]).arg(mount.dir()));
    assert_two_trees(&mount);
    run(Command::new(oncefs()).args(["grow"]).arg(mount.dir()).arg("11T"));
    assert_eq!(mount.figure("space", "data_bytes"), 11 << 40);
    mount.check();
    assert_two_trees(&mount);
}

#[test]
fn what_was_synced_survives_a_daemon_killed_under_load() {
    let Some(cluster) = Cluster::of_test("kill") else { return };
    let mut mount = cluster.mounted("1G");
    for round in 0..5_u64 {
        let dir = mount.dir();
        let writer = thread::spawn(move || {
            let synced = |n: &u64| write_synced(&dir.join(format!("{round}-{n}")), round * 1000 + n, 128 << 10).is_ok();
            (0..1000).take_while(synced).count() as u64
        });
        thread::sleep(Duration::from_millis(700));
        mount.kill();
        let synced = writer.join().unwrap();
        mount.mount();
        assert!(synced > 0, "nothing was synced in round {round}");
        (0..synced).for_each(|n| assert_content(&mount.join(format!("{round}-{n}")), round * 1000 + n, 128 << 10));
        assert!(mount.logged().contains("ended without a word: blocklisting"), "the dead daemon was not fenced");
    }
    mount.check();
}

#[test]
fn a_full_pool_is_an_error_and_files_can_be_deleted() {
    let Some(cluster) = Cluster::of_test("full") else { return };
    let mut mount = cluster.mounted("1G");
    write_synced(&mount.join("kept"), 1, 16 * MIB).unwrap();
    write_synced(&mount.join("goes"), 2, 16 * MIB).unwrap();
    cluster.set_full_ratios(["0.0001", "0.0002", "0.0003"]);
    let (mut refused, mut key) = (None, 100);
    eventually("a full pool is an error", || {
        key += 1;
        refused = write_synced(&mount.join(format!("more-{key}")), key, MIB).err();
        refused.is_some()
    });
    let refused = refused.expect("the last write failed");
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC), "{refused}");
    assert_eq!(mount.figure("space", "pool_full"), 1);
    fs::remove_file(mount.join("goes")).expect("deleting works on a full pool");
    File::open(mount.dir()).unwrap().sync_all().unwrap();
    assert_content(&mount.join("kept"), 1, 16 * MIB);
    mount.kill();
    mount.mount();
    assert_content(&mount.join("kept"), 1, 16 * MIB);
    assert!(!mount.join("goes").exists(), "a full pool does not keep the next head from mounting");
    cluster.set_full_ratios(["0.85", "0.90", "0.95"]);
    eventually("a pool with room takes data", || write_synced(&mount.join("again"), 3, 16 * MIB).is_ok());
    mount.check();
    assert_content(&mount.join("kept"), 1, 16 * MIB);
    assert_content(&mount.join("again"), 3, 16 * MIB);
}

#[test]
fn a_cluster_that_does_not_answer_is_waited_for_with_one_message() {
    let Some(cluster) = Cluster::of_test("silent") else { return };
    let mut mount = cluster.mounted("1G");
    write_synced(&mount.join("before"), 1, MIB).unwrap();
    cluster.signal_osds(libc::SIGSTOP);
    let path = mount.join("during");
    let writer = thread::spawn(move || write_synced(&path, 2, 16 * MIB));
    eventually("the daemon says that it waits", || mount.logged().contains("does not answer"));
    assert!(!writer.is_finished(), "nothing can be durable yet");
    assert_eq!(mount.figure("space", "cluster_silent"), 1);
    cluster.signal_osds(libc::SIGCONT);
    writer.join().unwrap().unwrap();
    eventually("the daemon says that it goes on", || mount.logged().contains("answers again"));
    assert_eq!(mount.figure("space", "cluster_silent"), 0);
    assert_eq!(mount.logged().matches("does not answer").count(), 1, "{}", mount.logged());
    mount.check();
    assert_content(&mount.join("before"), 1, MIB);
    assert_content(&mount.join("during"), 2, 16 * MIB);
}

#[test]
fn one_frozen_osd_of_three_delays_writes_and_loses_nothing() {
    let Some(cluster) = Cluster::of_test("frozen") else { return };
    let mut mount = cluster.mounted("1G");
    write_synced(&mount.join("before"), 1, 8 * MIB).unwrap();
    cluster.signal_osd(1, libc::SIGSTOP);
    let during = write_synced(&mount.join("during"), 2, 8 * MIB);
    assert_content(&mount.join("before"), 1, 8 * MIB);
    cluster.signal_osd(1, libc::SIGCONT);
    during.expect("two of three copies are enough");
    mount.check();
    assert_content(&mount.join("before"), 1, 8 * MIB);
    assert_content(&mount.join("during"), 2, 8 * MIB);
}

#[test]
fn what_is_deleted_leaves_no_objects_of_data() {
    let Some(cluster) = Cluster::of_test("deleted") else { return };
    let mount = cluster.mounted("1G");
    (0..8).for_each(|n| write_synced(&mount.join(format!("file-{n}")), n, 16 * MIB).unwrap());
    let before = cluster.objects("data");
    assert!(before >= 32, "{before} objects");
    (0..8).for_each(|n| fs::remove_file(mount.join(format!("file-{n}"))).unwrap());
    eventually("the objects go", || cluster.objects("data") <= 2);
}

#[test]
fn a_copy_of_the_directory_does_not_open_what_another_holds() {
    let Some(cluster) = Cluster::of_test("copy") else { return };
    let mount = cluster.mounted("1G");
    write_synced(&mount.join("file"), 1, MIB).unwrap();
    let copy = tempfile::tempdir_in(oncefs_system_tests::test_dir()).unwrap();
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(mount.volume()).arg(copy.path()));
    let refused = Command::new(oncefs()).arg("fsck").arg(copy.path().join("volume")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("holds the objects"), "{said}");
    assert!(said.contains(mount.volume().to_str().unwrap()), "the holder is named: {said}");
    write_synced(&mount.join("file"), 2, MIB).expect("the holder goes on");
}

#[test]
fn a_key_with_the_documented_rights_is_enough_and_reaches_one_namespace() {
    let Some(cluster) = Cluster::of_test("rights") else { return };
    let own = cluster.with_documented_key();
    let dir = &own.dir;
    let mut mount = Mount::in_objects(&format!("{}?id={}", own.address(), own.namespace), &own.conf, "1G");
    mount.mount();
    write_synced(&mount.join("file"), 1, MIB).unwrap();
    mount.crash();
    assert!(mount.logged().contains("blocklisting"), "the dead daemon was not fenced");
    assert_content(&mount.join("file"), 1, MIB);
    mount.check();
    let elsewhere =
        ["--experimental", "rados", "--id", &own.namespace, "--size", "1G", "--data", "rados://oncefs/elsewhere"];
    let refused = mkfs_refusal(&own, &dir.path().join("volume"), &elsewhere);
    assert!(refused.contains("needs more rights"), "{refused}");
    let unknown = ["--experimental", "rados", "--id", "nobody", "--size", "1G", "--data", &own.address()];
    let refused = mkfs_refusal(&own, &dir.path().join("volume"), &unknown);
    assert!(refused.contains("client.nobody"), "{refused}");
}

/// What mkfs says when it refuses.
fn mkfs_refusal(cluster: &Cluster, dir: &Path, arguments: &[&str]) -> String {
    let mut mkfs = Command::new(oncefs());
    let output = mkfs.arg("mkfs").arg(dir).arg("--conf").arg(&cluster.conf).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn mkfs_says_what_is_missing_and_takes_no_foreign_objects() {
    let Some(cluster) = Cluster::of_test("mkfs") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (dir, address) = (dir.path().join("volume"), cluster.address());
    let with = |more: &[&str]| mkfs_refusal(&cluster, &dir, more);
    assert!(with(&["--data", &address, "--size", "1G"]).contains("--experimental rados"));
    let experimental = ["--experimental", "rados", "--data"];
    assert!(with(&[&experimental[..], &[&address]].concat()).contains("--size"));
    let no_pool = with(&[&experimental[..], &["rados://nowhere/x", "--size", "1G"]].concat());
    assert!(no_pool.contains("ceph osd pool create nowhere"), "{no_pool}");
    let wrong = with(&[&experimental[..], &["rados://oncefs", "--size", "1G"]].concat());
    assert!(wrong.contains("give rados://POOL/NAME"), "{wrong}");
    assert!(!dir.exists(), "a refused mkfs leaves nothing");
    let silent = dir.with_file_name("silent.conf");
    fs::write(&silent, "[global]\nmon host = 127.0.0.1:1\nauth client required = none\n").unwrap();
    let nobody = Cluster { conf: silent, namespace: "x".to_owned() };
    let unreachable = mkfs_refusal(&nobody, &dir, &[&experimental[..], &[&address, "--size", "1G"]].concat());
    assert!(unreachable.contains("does not answer"), "{unreachable}");
    let _taken = cluster.volume("1G");
    let in_the_way = with(&[&experimental[..], &[&address, "--size", "1G"]].concat());
    assert!(in_the_way.contains("objects are in the namespace"), "{in_the_way}");
}

/// A second process that mounts a volume, at a mount point of its own.
struct Second {
    scratch: tempfile::TempDir,
    child: std::process::Child,
}

impl Second {
    /// Starts it. It may wait for the volume.
    fn start(volume: &Path, options: &[&str]) -> Self {
        let scratch = tempfile::tempdir_in(oncefs_system_tests::test_dir()).unwrap();
        let dir = scratch.path().join("mnt");
        fs::create_dir(&dir).unwrap();
        let log = File::create(scratch.path().join("log")).unwrap();
        let mut mount = Command::new(oncefs());
        mount.args(["mount", "-f"]).args(options).arg(volume).arg(dir);
        let child = mount.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Self { scratch, child }
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    fn logged(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap()
    }

    fn is_live(&self) -> bool {
        self.logged().contains("mounted ")
    }

    fn umount(mut self) {
        run(Command::new(oncefs()).arg("umount").arg(self.dir()));
        assert!(self.child.wait().unwrap().success(), "{}", self.logged());
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(self.dir()).status();
        }
    }
}

#[test]
fn a_standby_takes_over_with_all_that_was_synced() {
    let Some(cluster) = Cluster::of_test("standby") else { return };
    let mut mount = cluster.mounted("1G");
    for round in 0..3_u64 {
        let standby = Second::start(&mount.volume(), &["--standby"]);
        let dir = mount.dir();
        let writer = thread::spawn(move || {
            let synced = |n: &u64| write_synced(&dir.join(format!("{round}-{n}")), round * 1000 + n, 64 << 10).is_ok();
            (0..1000).take_while(synced).count() as u64
        });
        thread::sleep(Duration::from_millis(700));
        assert!(!standby.is_live(), "the head is alive: {}", standby.logged());
        mount.kill();
        let synced = writer.join().unwrap();
        assert!(synced > 0, "nothing was synced in round {round}");
        eventually("the standby takes over", || standby.is_live());
        for n in 0..synced {
            assert_content(&standby.dir().join(format!("{round}-{n}")), round * 1000 + n, 64 << 10);
        }
        standby.umount();
        mount.mount();
    }
    mount.check();
}

/// The second head has its records from a copy of the directory, to which the log in the cluster adds what came since.
#[test]
fn no_write_of_a_head_that_stood_still_lands_after_another_took_over() {
    let Some(cluster) = Cluster::of_test("paused") else { return };
    let mut mount = cluster.mounted("1G");
    mount.umount();
    let copy = tempfile::tempdir_in(oncefs_system_tests::test_dir()).unwrap();
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(mount.volume()).arg(copy.path()));
    mount.mount();
    write_synced(&mount.join("before"), 1, 64 << 10).unwrap();
    // SAFETY: plain numbers; the child is not reaped before it has ended.
    unsafe { libc::kill(mount.pid(), libc::SIGSTOP) };
    let second = Second::start(&copy.path().join("volume"), &[]);
    eventually("the second head takes over", || second.is_live());
    assert!(second.logged().contains("ran out: taking over"), "{}", second.logged());
    assert_content(&second.dir().join("before"), 1, 64 << 10);
    write_synced(&second.dir().join("after"), 2, 64 << 10).unwrap();
    let late = mount.join("late");
    let writer = thread::spawn(move || write_synced(&late, 3, 64 << 10));
    // SAFETY: as above.
    unsafe { libc::kill(mount.pid(), libc::SIGCONT) };
    assert!(writer.join().unwrap().is_err(), "the old head answers no more");
    mount.ended();
    assert!(mount.logged().contains("stood still for longer than its lease"), "{}", mount.logged());
    assert!(!second.dir().join("late").exists());
    write_synced(&second.dir().join("more"), 4, 64 << 10).expect("the new head goes on");
    second.umount();
    let fsck = Command::new(oncefs()).arg("fsck").arg(copy.path().join("volume")).output().unwrap();
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
}

/// `oncefs` with arguments, in which volumes have names whose directories are below `states`.
fn oncefs_with(states: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(oncefs());
    command.env("ONCEFS_STATE", states).args(arguments);
    command
}

#[test]
fn a_volume_has_its_name_in_the_cluster_wherever_a_directory_is_accepted() {
    let Some(cluster) = Cluster::of_test("named") else { return };
    let scratch = tempfile::tempdir_in(oncefs_system_tests::test_dir()).unwrap();
    let (states, dir) = (scratch.path().join("states"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    let (name, at, conf) = (cluster.address(), dir.to_str().unwrap(), cluster.conf.to_str().unwrap());
    let said = |arguments: &[&str]| run(&mut oncefs_with(&states, arguments));
    let elsewhere = oncefs_with(&states, &["fsck", &name]).output().unwrap();
    let elsewhere = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(elsewhere.contains("give rados://") && elsewhere.contains("?id=USER&conf=FILE"), "{elsewhere}");
    let made = said(&["mkfs", &name, "--experimental", "rados", "--conf", conf, "--size", "1G"]);
    assert!(made.contains(&format!("oncefs mount {name} DIR")), "{made}");
    said(&["mount", &name, at]);
    write_synced(&dir.join("file"), 1, MIB).unwrap();
    said(&["stats", &name]);
    said(&["grow", &name, "2G"]);
    said(&["scrub", &name]);
    assert!(said(&["status", &name]).contains(at));
    said(&["umount", &name]);
    said(&["fsck", &name]);
    said(&["mount", &name, at]);
    assert_content(&dir.join("file"), 1, MIB);
    said(&["umount", at]);
    let again = oncefs_with(&states, &["mkfs", &name, "--experimental", "rados", "--conf", conf, "--size", "1G"]);
    let again = { again }.output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("is a volume already"), "{again:?}");
}

#[test]
fn pjdfstest_passes_on_a_volume_in_objects() {
    let Some(cluster) = Cluster::of_test("pjdfstest") else { return };
    let mut mount = Mount::in_objects_with(&cluster.address(), &cluster.conf, "4G", &["--records", "rados"]);
    mount.mount();
    crate::pjdfstest::passes_on(&mut mount);
}
