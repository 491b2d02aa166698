//! Copies of trees that end early: the command or the daemon is killed while the copy is built. Nothing stands under
//! the new name then, or the whole tree, and nothing is left behind.

use std::process::{Child, Stdio};

use super::*;

const FILES: u64 = 3_000;
/// How often a copy is begun at most until the end comes in the middle of it. It may be complete before.
const TRIES: u32 = 10;

/// A mount with a tree of many files, each with a block of its own.
fn mount_with_tree() -> Mount {
    let mount = Mount::new("1G");
    for number in 0..FILES {
        let directory = mount.join(format!("top/{}", number / 100));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), format!("content of {number}")).unwrap();
    }
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    mount
}

/// Starts a command that copies, and returns when the copy has references to some blocks.
fn under_way(mount: &Mount, mut command: Command) -> Child {
    let before = mount.figure("counters", "blocks_cloned");
    let child = command.stderr(Stdio::null()).spawn().unwrap();
    mount.wait_for("counters", "blocks_cloned", |now| now > before);
    child
}

/// Requires that there is nothing of this name, or the whole tree. Tells which.
fn is_whole(new: &Path) -> bool {
    let is_there = new.exists();
    if is_there {
        let files = run(Command::new("find").arg(new).args(["-type", "f"]));
        assert_eq!(files.lines().count() as u64, FILES, "a part of the tree has its name");
    }
    is_there
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn a_command_that_is_interrupted_or_killed_leaves_nothing_of_its_clone() {
    let mut mount = mount_with_tree();
    let held = mount.figure("space", "held_bytes");
    for with in [libc::SIGINT, libc::SIGKILL] {
        let is_in_the_middle = (0..TRIES).any(|_| {
            let (top, new) = (mount.join("top"), mount.join("new"));
            let mut child = under_way(&mount, clone(&top, &new));
            signal(&child, with);
            let status = child.wait().unwrap();
            let is_whole = is_whole(&new);
            match is_whole {
                true => fs::remove_dir_all(&new).unwrap(),
                false => assert!(!status.success(), "it said that there is a clone"),
            }
            mount.wait_for("space", "held_bytes", |now| now == held);
            assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 1);
            !is_whole
        });
        assert!(is_in_the_middle, "signal {with}: each copy was complete before it");
        mount.check();
    }
}

#[test]
fn a_killed_daemon_leaves_nothing_of_a_clone_or_snapshot_after_the_next_mount() {
    let mut mount = mount_with_tree();
    let held = mount.figure("space", "held_bytes");
    for is_snapshot in [false, true] {
        let top = mount.join("top");
        let is_in_the_middle = (0..TRIES).any(|_| {
            let (new, command) = match is_snapshot {
                false => (mount.join("new"), clone(&top, &mount.join("new"))),
                true => (mount.join(".oncefs/snapshots/new"), snapshot("create", &top, &["new"])),
            };
            let mut child = under_way(&mount, command);
            mount.kill();
            let status = child.wait().unwrap();
            mount.mount();
            let is_whole = is_whole(&new);
            match (is_whole, is_snapshot) {
                (true, false) => fs::remove_dir_all(&new).unwrap(),
                (true, true) => drop(run(&mut snapshot("remove", &mount.dir(), &["new"]))),
                (false, _) => assert!(!status.success() || !is_snapshot, "a snapshot is durable when the command ends"),
            }
            mount.wait_for("space", "held_bytes", |now| now == held);
            !is_whole && !status.success()
        });
        assert!(is_in_the_middle, "each copy was complete before the daemon was killed");
        assert_eq!(run(Command::new("find").arg(&top).args(["-type", "f"])).lines().count() as u64, FILES);
        mount.check();
    }
}
