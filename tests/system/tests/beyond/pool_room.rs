//! The room of a pool, and the figures of the lease, on a real cluster. Its figures need a manager.

use std::fs;
use std::process::Command;

use oncefs_system_tests::{Mount, eventually, oncefs, run};

use super::{Cluster, MIB, assert_content, write_synced};

/// A quota of the pool. Other tests use the pool too, so it goes with this value.
pub(super) struct Quota<'a>(&'a Cluster, &'static str);

impl<'a> Quota<'a> {
    pub(super) fn set(cluster: &'a Cluster, pool: &'static str, bytes: u64) -> Self {
        cluster.set_quota(pool, bytes);
        Self(cluster, pool)
    }
}

impl Drop for Quota<'_> {
    fn drop(&mut self) {
        self.0.set_quota(self.1, 0);
    }
}

/// Bytes that df says are left.
pub(super) fn free_by_df(mount: &Mount) -> u64 {
    let said = run(Command::new("df").args(["--output=avail", "-B1"]).arg(mount.dir()));
    said.lines().nth(1).and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("df says {said}"))
}

/// The rights of the documented key are enough for the question, because the volume is opened with it.
#[test]
fn a_pool_with_little_room_refuses_new_data_before_it_is_full() {
    let Some(cluster) = Cluster::of_test("room") else { return };
    let own = cluster.with_documented_key();
    let mut mount = Mount::in_objects(&format!("{}?id={}", own.address(), own.namespace), &own.conf, "10T");
    mount.mount();
    write_synced(&mount.join("kept"), 1, 16 * MIB).unwrap();
    write_synced(&mount.join("goes"), 2, 16 * MIB).unwrap();
    eventually("the pool's room is known", || mount.stats()["cluster"]["pool_left_bytes"].is_u64());
    let left = mount.figure("cluster", "pool_left_bytes");
    eventually("df shows it", || free_by_df(&mount) < left);
    assert_eq!(mount.figure("space", "pool_full"), 0);
    let stored = mount.wait_for("cluster", "pool_stored_bytes", |stored| stored >= 32 * MIB);
    let quota = Quota::set(&cluster, "oncefs", stored + 96 * MIB);
    mount.wait_for("space", "pool_full", |is_full| is_full == 1);
    let refused = write_synced(&mount.join("more"), 3, MIB).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC), "{refused}");
    assert!(!cluster.ceph(&["osd", "pool", "ls", "detail"]).contains("full_quota"), "the pool itself takes data");
    assert_eq!(free_by_df(&mount), 0);
    let status = Command::new(oncefs()).arg("status").arg(mount.dir()).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("the pool with its objects is full"), "{status}");
    fs::remove_file(mount.join("goes")).expect("deleting works");
    mount.kill();
    mount.mount();
    assert_content(&mount.join("kept"), 1, 16 * MIB);
    drop(quota);
    eventually("a pool with room takes data", || write_synced(&mount.join("again"), 4, MIB).is_ok());
    mount.check();
    assert_content(&mount.join("kept"), 1, 16 * MIB);
}

#[test]
fn stats_tell_who_holds_the_volume_and_how_its_lease_goes() {
    let Some(cluster) = Cluster::of_test("lease") else { return };
    let mut mount = cluster.mounted("1G");
    mount.wait_for("cluster", "renewals", |renewals| renewals > 1);
    let first = mount.stats();
    let of_cluster = &first["cluster"];
    assert!(of_cluster["holder"].as_str().unwrap().contains(mount.volume().to_str().unwrap()), "{first:#}");
    assert_eq!(of_cluster["has_taken_over"], false);
    assert_eq!(of_cluster["renewals_failed"], 0);
    assert!(of_cluster["renewed_seconds"].as_f64().unwrap() < of_cluster["lease_seconds"].as_f64().unwrap());
    mount.kill();
    mount.mount();
    let second = mount.stats();
    let epoch = |stats: &serde_json::Value| stats["cluster"]["epoch"].as_u64().unwrap();
    assert_eq!(epoch(&second), epoch(&first) + 1);
    assert_eq!(second["cluster"]["has_taken_over"], true, "the killed daemon was fenced");
    assert_ne!(second["cluster"]["address"], first["cluster"]["address"]);
    let metrics = run(Command::new(oncefs()).arg("metrics").arg(mount.dir()));
    assert!(metrics.lines().any(|line| line.starts_with("oncefs_cluster_has_taken_over{") && line.ends_with(" 1")));
}
