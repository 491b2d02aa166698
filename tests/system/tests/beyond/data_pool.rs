//! Volumes whose data area lies in an erasure-coded pool of its own, on a real cluster.

use std::os::unix::fs::FileExt;

use super::machines::{Machine, copy_key};
use super::pool_room::{Quota, free_by_df};
use super::*;

/// The erasure-coded pool of these tests: two parts and one code over three OSDs.
const CODED: &str = "coded";

impl Cluster {
    /// Makes an erasure-coded pool, unless there is one.
    fn make_coded(&self, pool: &str) {
        let code = ["k=2", "m=1", "crush-failure-domain=osd"];
        self.ceph(&[&["osd", "erasure-code-profile", "set", "two-and-one"][..], &code].concat());
        self.ceph(&["osd", "pool", "create", pool, "8", "8", "erasure", "two-and-one"]);
        self.ceph(&["osd", "pool", "application", "enable", pool, "oncefs"]);
    }

    /// The same, for a volume's data.
    fn of_coded(name: &str) -> Option<Self> {
        let cluster = Self::of_test(name)?;
        cluster.make_coded(CODED);
        cluster.ceph(&["osd", "pool", "set", CODED, "allow_ec_overwrites", "true"]);
        Some(cluster)
    }

    /// A client with the rights of the line for two pools in docs/beyond.md.
    fn with_key_for_two_pools(&self) -> Documented {
        let name = &self.namespace;
        self.with_key(&format!("allow rwx pool=oncefs namespace={name}, allow rw pool={CODED} namespace={name}"))
    }
}

/// With a key that has the documented rights and no more.
#[test]
fn data_in_a_pool_of_its_own_survives_kills_grows_and_goes_when_it_is_deleted() {
    let Some(cluster) = Cluster::of_coded("coded") else { return };
    let own = cluster.with_key_for_two_pools();
    let address = format!("{}?id={}", own.address(), own.namespace);
    let more = ["--records", "rados", "--data-pool", CODED];
    let mut mount = Mount::in_objects_with(&address, &own.conf, "1G", &more);
    mount.mount();
    make_tree(&mount.join("tree"));
    (0..4).for_each(|n| write_synced(&mount.join(format!("file-{n}")), n, 16 * MIB).unwrap());
    let data = cluster.objects_in(CODED, "data");
    assert!(data >= 16, "{data} objects");
    assert_eq!(cluster.objects("data"), 0, "all data is in the other pool");
    let names = cluster.rados(CODED, &["ls"]);
    // What `rados` says beside them has several words.
    let mut names = names.lines().filter(|line| !line.is_empty() && !line.contains(' '));
    assert!(names.all(|name| name == "data" || name.starts_with("data.")), "only data is there");
    mount.crash();
    assert!(mount.logged().contains("blocklisting"), "the dead daemon was not fenced");
    let assert_files = |mount: &Mount| {
        (0..4).for_each(|n| assert_content(&mount.join(format!("file-{n}")), n, 16 * MIB));
        assert_content(&mount.join("tree/dir-1/file-41"), 41, 1 + 41 * 700);
    };
    assert_files(&mount);
    mount.check();
    run(Command::new(oncefs()).args(["grow"]).arg(mount.dir()).arg("2G"));
    // Blocks here and there: parts of stripes.
    let file = File::options().write(true).open(mount.join("file-0")).unwrap();
    let mut expected = bytes(0, 16 * MIB as usize);
    for at in (0..expected.len()).step_by(3 * BLOCK as usize) {
        let block = bytes(at as u64, BLOCK as usize);
        file.write_all_at(&block, at as u64).unwrap();
        expected[at..at + block.len()].copy_from_slice(&block);
    }
    file.sync_all().unwrap();
    mount.crash();
    assert!(fs::read(mount.join("file-0")).unwrap() == expected, "file-0 changed");
    mount.check();
    fs::remove_dir_all(mount.join("tree")).unwrap();
    (0..4).for_each(|n| fs::remove_file(mount.join(format!("file-{n}"))).unwrap());
    eventually("the objects go", || cluster.objects_in(CODED, "data") <= 2);
    mount.check();
}

#[test]
fn a_machine_that_has_never_seen_a_volume_finds_its_data_in_another_pool() {
    let Some(cluster) = Cluster::of_coded("coded-moves") else { return };
    let (first, second) = (Machine::of(&cluster), Machine::of(&cluster));
    first.mkfs(&cluster, &["--data-pool", CODED]);
    first.mount();
    write_synced(&first.dir().join("file"), 1, MIB).unwrap();
    first.umount();
    copy_key(&cluster, &first, &second);
    second.mount();
    assert_content(&second.dir().join("file"), 1, MIB);
    write_synced(&second.dir().join("file"), 2, MIB).unwrap();
    second.umount();
    first.succeeds("fsck", &[]);
    first.mount();
    assert_content(&first.dir().join("file"), 2, MIB);
    first.umount();
}

#[test]
fn mkfs_refuses_pools_that_cannot_keep_what_is_to_lie_there() {
    let Some(cluster) = Cluster::of_coded("coded-mkfs") else { return };
    const APPENDED: &str = "appended";
    cluster.make_coded(APPENDED);
    let dir = tempfile::tempdir().unwrap();
    let (dir, address) = (dir.path().join("volume"), cluster.address());
    let refused = |address: &str, pool: &str| {
        let place = ["--experimental", "rados", "--size", "1G", "--data", address, "--data-pool", pool];
        let told = mkfs_refusal(&cluster, &dir, &place);
        assert!(!dir.exists(), "a refused mkfs leaves nothing");
        told
    };
    assert!(refused(&address, "nowhere").contains("ceph osd pool create nowhere"));
    let told = refused(&address, APPENDED);
    assert!(told.contains(&format!("ceph osd pool set {APPENDED} allow_ec_overwrites true")), "{told}");
    let told = refused(&format!("rados://{CODED}/{}", cluster.namespace), "oncefs");
    assert!(told.contains("has no keys (omap)") && told.contains("--data-pool coded"), "{told}");
    assert!(refused(&address, "oncefs").contains("leave out"), "the pool itself");
    cluster.rados(CODED, &["create", "foreign"]);
    let told = refused(&address, CODED);
    assert!(told.contains("1 objects are in the namespace") && told.contains("of the pool coded"), "{told}");
    let place = ["--data-pool", CODED, "--force"];
    let mut mount = Mount::in_objects_with(&address, &cluster.conf, "1G", &place);
    assert!(!cluster.rados(CODED, &["ls"]).contains("foreign"), "--force destroys it");
    mount.mount();
    write_synced(&mount.join("file"), 1, MIB).unwrap();
    mount.check();
}

/// The lock of a volume is in its first pool, so `--force` with another first pool cannot see it. With the same first
/// pool, `--force` replaces the volume and takes its data with it.
#[test]
fn force_spares_the_data_of_a_volume_of_a_third_pool_and_removes_that_of_its_own() {
    let Some(cluster) = Cluster::of_coded("coded-force") else { return };
    const THIRD: &str = "third";
    cluster.ceph(&["osd", "pool", "create", THIRD, "8"]);
    cluster.ceph(&["osd", "pool", "application", "enable", THIRD, "oncefs"]);
    let scratch = tempfile::tempdir().unwrap();
    let (dir, again) = (scratch.path().join("volume"), scratch.path().join("again"));
    let place = ["--data-pool", CODED, "--records", "rados"];
    let key = scratch.path().join("key");
    let key = ["--key-file", key.to_str().unwrap()];
    let mut mount = Mount::in_objects_with(&cluster.address(), &cluster.conf, "1G", &[&place[..], &key].concat());
    mount.mount();
    write_synced(&mount.join("file"), 1, 16 * MIB).unwrap();
    let elsewhere = format!("rados://{THIRD}/{}", cluster.namespace);
    let common = ["--experimental", "rados", "--size", "1G", "--force", "--data"];
    let told = mkfs_refusal(&cluster, &dir, &[&common[..], &[&elsewhere, "--data-pool", CODED]].concat());
    assert!(told.contains("the data of a volume whose other objects are in another pool"), "{told}");
    assert_content(&mount.join("file"), 1, 16 * MIB);
    mount.check();
    mount.umount();
    let mut mkfs = Command::new(oncefs());
    let mkfs = mkfs.arg("mkfs").arg(&again).arg("--conf").arg(&cluster.conf).args(common).arg(cluster.address());
    run(mkfs.args(["--records", "rados"]).args(key));
    assert_eq!(cluster.objects_in(CODED, "data"), 0, "the former data went");
}

/// Either pool refuses new data, and `status` names it.
#[test]
fn each_of_two_pools_with_little_room_refuses_new_data_and_is_named() {
    let Some(cluster) = Cluster::of_coded("coded-room") else { return };
    let mut mount = Mount::in_objects_with(&cluster.address(), &cluster.conf, "10T", &["--data-pool", CODED]);
    mount.mount();
    write_synced(&mount.join("kept"), 1, 16 * MIB).unwrap();
    eventually("the room of both is known", || mount.stats()["cluster"]["data_pool_left_bytes"].is_u64());
    assert!(free_by_df(&mount) < mount.figure("cluster", "data_pool_left_bytes"));
    let shortage = |mount: &Mount| (mount.figure("space", "pool_full"), mount.figure("space", "data_pool_full"));
    assert_eq!(shortage(&mount), (0, 0));
    for (pool, figure, expected, named) in [
        (CODED, "data_pool_full", (0, 1), "with its data is full"),
        ("oncefs", "pool_full", (1, 0), "with its objects is full"),
    ] {
        let stored = if pool == CODED { "data_pool_stored_bytes" } else { "pool_stored_bytes" };
        let quota = Quota::set(&cluster, pool, mount.figure("cluster", stored) + 96 * MIB);
        mount.wait_for("space", figure, |is_full| is_full == 1);
        assert_eq!(shortage(&mount), expected);
        eventually("writes are refused", || {
            write_synced(&mount.join("more"), 3, MIB).is_err_and(|e| e.raw_os_error() == Some(libc::ENOSPC))
        });
        assert_eq!(free_by_df(&mount), 0);
        let status = Command::new(oncefs()).arg("status").arg(mount.dir()).output().unwrap();
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.contains(named), "{status}");
        drop(quota);
        eventually("a pool with room takes data", || write_synced(&mount.join("again"), 4, MIB).is_ok());
    }
    assert_content(&mount.join("kept"), 1, 16 * MIB);
}

impl Cluster {
    /// A pool that goes when its test ends, with its name.
    fn make_doomed(&self, name: &str) -> String {
        let pool = format!("{name}-{}", std::process::id());
        self.ceph(&["config", "set", "mon", "mon_allow_pool_delete", "true"]);
        self.ceph(&["osd", "pool", "create", &pool, "8"]);
        self.ceph(&["osd", "pool", "application", "enable", &pool, "oncefs"]);
        pool
    }

    fn delete(&self, pool: &str) {
        self.ceph(&["osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it"]);
    }
}

/// A cluster says of objects of a pool that is gone that they are missing, as holes are.
#[test]
fn a_data_pool_that_is_deleted_under_a_mount_is_an_error_and_no_zeros() {
    let Some(cluster) = Cluster::of_test("doomed-data") else { return };
    let pool = cluster.make_doomed("doomed-data");
    let mut mount =
        Mount::in_objects_with(&cluster.address(), &cluster.conf, "1G", &["--data-pool", &pool, "--records", "rados"]);
    // Without a comparison with the block table, which would find the zeros.
    mount.set_options(&["verify=off"]);
    mount.mount();
    write_synced(&mount.join("file"), 1, 64 * MIB).unwrap();
    let renamed = format!("{pool}-renamed");
    cluster.ceph(&["osd", "pool", "rename", &pool, &renamed]);
    assert_content(&mount.join("file"), 1, 64 * MIB);
    mount.umount();
    let refused = Command::new(oncefs()).arg("mount").arg(mount.volume()).arg(mount.dir()).output().unwrap();
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains(&format!("no pool {pool}")) && refused.contains("ceph osd pool rename"), "{refused}");
    cluster.ceph(&["osd", "pool", "rename", &renamed, &pool]);
    // Neither the kernel nor the daemon has a block of it in memory.
    mount.mount();
    cluster.delete(&pool);
    let failed = fs::read(mount.join("file")).expect_err("no zeros are read");
    assert_eq!(failed.raw_os_error(), Some(libc::EIO), "{failed}");
    write_synced(&mount.join("late"), 2, 16 * MIB).expect_err("no data is lost without an error");
    let told = mount.logged().matches(&format!("error: the pool {pool} is gone")).count();
    assert_eq!(told, 1, "{}", mount.logged());
    mount.end();
}

#[test]
fn a_pool_that_is_deleted_under_a_mount_ends_it() {
    let Some(cluster) = Cluster::of_test("doomed") else { return };
    let pool = cluster.make_doomed("doomed");
    let address = format!("rados://{pool}/{}", cluster.namespace);
    let mut mount = Mount::in_objects_with(&address, &cluster.conf, "1G", &["--records", "rados"]);
    mount.mount();
    write_synced(&mount.join("file"), 1, 16 * MIB).unwrap();
    cluster.delete(&pool);
    eventually("the mount ends", || fs::read(mount.join("file")).is_err());
    assert!(mount.logged().contains(&format!("the pool {pool} is gone")), "{}", mount.logged());
    mount.end();
}
