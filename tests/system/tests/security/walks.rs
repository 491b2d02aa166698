//! Commands of root that walk a tree while its owner replaces parts of it: no link leads them out.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use oncefs_system_tests::{Mount, eventually, gate_or_drill, oncefs, sys};
use serde_json::Value;

use super::user::{User, directory_of, file_of};

const ATTRIBUTE: &str = "user.oncefs.policy";
const USER: User = User::new(1000);
const OTHER: User = User::new(1001);
/// Walks while the owner swaps, in the gate and in the drill. The first walks already went astray before walks held on to
/// descriptors.
const WALKS: (u64, u64) = (20, 500);
/// Swaps meanwhile, at least: several in a walk.
const SWAPS_OF_WALK: u64 = 5;
/// Files in the private directory: many more than in the tree.
const PRIVATE_FILES: usize = 50;
/// Files in the tree that is walked.
const OWN_FILES: u64 = 3;

fn command(arguments: &[&str], path: &Path) -> Output {
    Command::new(oncefs()).args(arguments).arg(path).output().unwrap()
}

/// A private directory of one user, and a tree of another one with a link to it beside a directory.
fn trees() -> Mount {
    let mount = Mount::new("256M");
    directory_of(OTHER, &mount.join("private"), 0o700);
    (0..PRIVATE_FILES).for_each(|n| file_of(OTHER, &mount.join(format!("private/{n}")), 0o600));
    directory_of(USER, &mount.join("tree"), 0o755);
    directory_of(USER, &mount.join("tree/way"), 0o755);
    directory_of(USER, &mount.join("tree/way/below"), 0o755);
    for name in ["tree/one", "tree/way/two", "tree/way/below/three"] {
        file_of(USER, &mount.join(name), 0o644);
    }
    symlink(mount.join("private"), mount.join("tree/link")).unwrap();
    mount
}

/// Ends the swapping, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` again and again while the directory and the link change places.
fn while_swapped(mount: &Mount, work: impl Fn()) {
    let (way, link) = (mount.join("tree/way"), mount.join("tree/link"));
    let (is_over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                sys::rename(&way, &link, libc::RENAME_EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _over = Over(&is_over);
        for walk in 1..=gate_or_drill(WALKS.0, WALKS.1) {
            work();
            eventually("the owner swaps", || swaps.load(Ordering::Relaxed) >= SWAPS_OF_WALK * walk);
        }
    });
}

fn private_attributes(mount: &Mount) -> usize {
    let files = (0..PRIVATE_FILES).map(|n| mount.join(format!("private/{n}")));
    files.chain([mount.join("private")]).filter(|path| sys::get_xattr(path, ATTRIBUTE).is_ok()).count()
}

#[test]
fn a_policy_never_gets_out_of_a_tree_whose_owner_swaps_a_directory_for_a_link() {
    let mount = trees();
    while_swapped(&mount, || {
        Command::new(oncefs()).args(["policy", "set"]).arg(mount.join("tree")).arg("off").output().unwrap();
        assert_eq!(private_attributes(&mount), 0, "the command went through the link");
    });
    assert_eq!(sys::get_xattr(&mount.join("tree"), ATTRIBUTE).unwrap(), b"off");
    assert_eq!(sys::get_xattr(&mount.join("tree/one"), ATTRIBUTE).unwrap(), b"off");
}

#[test]
fn defrag_never_gets_out_of_a_tree_whose_owner_swaps_a_directory_for_a_link() {
    let mount = trees();
    while_swapped(&mount, || {
        let said = command(&["defrag", "--dry-run", "--json"], &mount.join("tree")).stdout;
        let said: Value = serde_json::from_slice(&said).unwrap();
        let files = said["files_examined"].as_u64().unwrap();
        assert!(files <= OWN_FILES, "{files} files were examined: the command went through the link");
    });
}

#[test]
fn a_link_in_the_path_that_is_given_is_named_and_not_followed() {
    let mount = trees();
    for path in ["tree/link", "tree/link/7"] {
        for arguments in [&["policy", "show"][..], &["explain"], &["defrag"]] {
            let output = command(arguments, &mount.join(path));
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{arguments:?} followed {path}");
            assert!(error.contains("symbolic link"), "{arguments:?} {path}: {error}");
        }
        let set = Command::new(oncefs()).args(["policy", "set"]).arg(mount.join(path)).arg("off").output().unwrap();
        assert!(!set.status.success(), "policy set followed {path}");
    }
    assert_eq!(private_attributes(&mount), 0);
    // Links outside the mount are followed as always.
    let outside = tempfile::tempdir().unwrap();
    symlink(mount.dir(), outside.path().join("mnt")).unwrap();
    let shown = command(&["policy", "show"], &outside.path().join("mnt/tree/one"));
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
}

#[test]
fn pipes_and_devices_are_passed_over_and_never_opened() {
    let mount = trees();
    sys::mknod(&mount.join("tree/way/pipe"), libc::S_IFIFO | 0o666, 0).unwrap();
    // Opening a watchdog or a tape has effects; /dev/full's numbers stand for them here.
    sys::mknod(&mount.join("tree/way/device"), libc::S_IFCHR | 0o666, libc::makedev(1, 7)).unwrap();
    for path in ["tree", "tree/way/pipe", "tree/way/device"] {
        for arguments in [&["policy", "show"][..], &["explain"], &["defrag", "--dry-run"], &["sync"]] {
            let mut child = Command::new(oncefs()).args(arguments).arg(mount.join(path)).spawn().unwrap();
            eventually(&format!("{arguments:?} {path} ends"), || child.try_wait().unwrap().is_some());
        }
    }
    let set = Command::new(oncefs()).args(["policy", "set"]).arg(mount.join("tree")).arg("off").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&set.stdout), "off: 3 files and 3 directories\n");
}
