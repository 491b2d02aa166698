//! Volumes whose records lie in objects too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;

/// Names in all. With objects of [`KEYS`] records, they are in hundreds of objects.
const NAMES: u64 = 20_000;
const KEYS: &str = "rados:400";
/// Names between two times that a directory is synced.
const SYNCED: u64 = 250;

/// The file of a number: a thousand in each directory.
fn path_of(top: &Path, number: u64) -> PathBuf {
    top.join(format!("d{:02}/name-{number:05}", number / 1000))
}

/// Makes files from a number on, until all are there or the daemon is gone. `synced` follows what was synced.
fn make_names(top: &Path, from: u64, synced: &AtomicU64) -> io::Result<()> {
    for number in from..NAMES {
        let path = path_of(top, number);
        let dir = path.parent().expect("a directory");
        fs::create_dir_all(dir)?;
        fs::write(&path, number.to_string())?;
        if number % SYNCED == SYNCED - 1 {
            File::open(dir)?.sync_all()?;
            synced.store(number + 1, Relaxed);
        }
    }
    Ok(())
}

fn assert_names(top: &Path, count: u64) {
    for number in 0..count {
        let content = fs::read_to_string(path_of(top, number));
        assert!(content.as_deref().is_ok_and(|text| *text == number.to_string()), "{number} of {count}: {content:?}");
    }
}

#[test]
fn names_in_objects_survive_kills_during_checkpoints_and_splits() {
    let Some(cluster) = Cluster::of_test("names") else { return };
    let options = ["--records", KEYS, "--log-size", "4M"];
    let mut mount = Mount::in_objects_with(&cluster.address(), &cluster.conf, "1G", &options);
    mount.mount();
    let mut there = 0;
    for round in 0_u64.. {
        let (synced, top) = (AtomicU64::new(there), mount.dir());
        let is_done = thread::scope(|scope| {
            let writer = scope.spawn(|| make_names(&top, there, &synced));
            // A different moment in each round. In the sixth, all are made.
            if round < 5 {
                eventually("names are made", || {
                    synced.load(Relaxed) >= there + (1 + round) * 1000 || writer.is_finished()
                });
                mount.kill();
            }
            writer.join().expect("the writer ends").is_ok()
        });
        there = synced.load(Relaxed);
        if is_done {
            break;
        }
        mount.mount();
        assert_names(&mount.dir(), there);
    }
    mount.check();
    assert_names(&mount.dir(), NAMES);
    let objects = cluster.objects("records");
    assert!(objects > 30, "{objects} objects have the records");
    run(Command::new(oncefs()).arg("scrub").arg(mount.dir()));
    fs::remove_dir_all(mount.join("d07")).unwrap();
    mount.crash();
    mount.check();
    (0..20).filter(|dir| *dir != 7).for_each(|dir| {
        assert_eq!(fs::read_dir(mount.join(format!("d{dir:02}"))).unwrap().count(), 1000);
    });
    for dir in 0..20 {
        let _ = fs::remove_dir_all(mount.join(format!("d{dir:02}")));
    }
    // Deleted files are reclaimed in the background.
    eventually("the objects of the records of deleted files go", || {
        mount.check();
        cluster.objects("records") < objects / 4
    });
}

#[test]
fn records_in_objects_give_a_tree_back_and_need_no_salvage() {
    let Some(cluster) = Cluster::of_test("records") else { return };
    let mut mount = Mount::in_objects_with(&cluster.address(), &cluster.conf, "1G", &["--records", "rados"]);
    mount.mount();
    stored_after_two_trees(&mount);
    assert!(!mount.volume().join("records").exists(), "the records are in the volume's directory");
    mount.crash();
    assert_two_trees(&mount);
    mount.umount();
    let salvage = Command::new(oncefs()).args(["fsck", "--salvage"]).arg(mount.volume()).output().unwrap();
    assert!(salvage.status.success(), "{salvage:?}");
    let rados = |arguments: &[&str]| {
        let mut command = Command::new("rados");
        run(command.arg("-c").arg(&cluster.conf).args(["-p", "oncefs", "-N", &cluster.namespace]).args(arguments))
    };
    rados(&["rm", "records.0000000000000000"]);
    let (code, told) = mount.fsck();
    assert!(code != 0 && told.contains("records.0000000000000000 is missing"), "{code}: {told}");
    let salvage = Command::new(oncefs()).args(["fsck", "--salvage"]).arg(mount.volume()).output().unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&salvage.stdout), String::from_utf8_lossy(&salvage.stderr));
    assert!(!salvage.status.success() && told.contains("ceph pg repair"), "{told}");
}

#[test]
fn mkfs_puts_records_into_objects_only_with_the_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let output = Command::new(oncefs()).arg("mkfs").arg(dir.path().join("v")).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["--records", "rados"]).contains("--data"));
    let told = refused(&["--records", "rados", "--data", "/dev/null"]);
    assert!(told.contains("are for --data rados://POOL/NAME"), "{told}");
    let told = refused(&["--records", "rados:3", "--data", "rados://a/b"]);
    assert!(told.contains("give 16 to 200000"), "{told}");
    assert!(refused(&["--records", "here", "--data", "rados://a/b"]).contains("give rados or rados:N"));
}
