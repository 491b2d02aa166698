//! Copies of trees that end early: the command or the daemon is killed while the copy is built. Nothing stands under
//! the new name then, or the whole tree, and nothing is left behind.

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use super::*;

/// Files of the smallest tree.
const FILES: u64 = 3_000;
/// How often a copy is begun at most until the end comes in the middle of it. It may be complete before.
const TRIES: u64 = 8;

/// Adds files with a block of their own to a tree until it has this many. Returns the bytes that all of them hold.
fn grow_tree(mount: &Mount, files: u64) -> u64 {
    let there = fs::read_dir(mount.join("top")).map_or(0, |directories| directories.count() as u64 * 100);
    for number in there..files {
        let directory = mount.join(format!("top/{}", number / 100));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), format!("content of {number}")).unwrap();
    }
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    mount.figure("space", "held_bytes")
}

/// Tries copies of larger and larger trees until one ends in the middle. `try_once` gets the number of the tree's files
/// and the bytes that they hold, and tells whether the copy ended in the middle.
fn until_it_ends_in_the_middle(mount: &mut Mount, try_once: impl Fn(&mut Mount, u64, u64) -> bool) {
    let is_in_the_middle = (1..=TRIES).any(|step| {
        let files = step * FILES;
        let held = grow_tree(mount, files);
        try_once(mount, files, held)
    });
    assert!(is_in_the_middle, "each copy was complete before it was interrupted");
}

/// Starts a command that copies, and returns when the copy has references to some blocks.
fn under_way(mount: &Mount, mut command: Command) -> Child {
    let before = mount.figure("counters", "blocks_cloned");
    // SAFETY: signal(2) may be called between fork and exec. A shell starts what runs in its background with SIGINT
    // ignored, and the tests with it.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    // Without a pause: a copy takes no longer than a few questions.
    while mount.figure("counters", "blocks_cloned") == before && child.try_wait().unwrap().is_none() {}
    child
}

/// Requires that there is nothing of this name, or the whole tree of this many files. Tells which.
fn is_whole(new: &Path, all: u64) -> bool {
    let is_there = new.exists();
    if is_there {
        let files = run(Command::new("find").arg(new).args(["-type", "f"]));
        assert_eq!(files.lines().count() as u64, all, "a part of the tree has its name");
    }
    is_there
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn a_command_that_is_interrupted_or_killed_leaves_nothing_of_its_clone() {
    for with in [libc::SIGINT, libc::SIGKILL] {
        let mut mount = Mount::new("1G");
        until_it_ends_in_the_middle(&mut mount, |mount, files, held| {
            let (top, new) = (mount.join("top"), mount.join("new"));
            let mut child = under_way(mount, clone(&top, &new));
            signal(&child, with);
            let status = child.wait().unwrap();
            let is_whole = is_whole(&new, files);
            match is_whole {
                true => fs::remove_dir_all(&new).unwrap(),
                false => assert!(!status.success(), "it said that there is a clone"),
            }
            mount.wait_for("space", "held_bytes", |now| now == held);
            assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 1);
            !is_whole
        });
        mount.check();
    }
}

#[test]
fn a_killed_daemon_leaves_nothing_of_a_clone_or_snapshot_after_the_next_mount() {
    for is_snapshot in [false, true] {
        let mut mount = Mount::new("1G");
        until_it_ends_in_the_middle(&mut mount, |mount, files, held| {
            let top = mount.join("top");
            let (new, command) = match is_snapshot {
                false => (mount.join("new"), clone(&top, &mount.join("new"))),
                true => (mount.join(".oncefs/snapshots/new"), snapshot("create", &top, &["new"])),
            };
            let mut child = under_way(mount, command);
            mount.kill();
            let status = child.wait().unwrap();
            mount.mount();
            let is_copied = is_whole(&new, files);
            match (is_copied, is_snapshot) {
                (true, false) => fs::remove_dir_all(&new).unwrap(),
                (true, true) => drop(run(&mut snapshot("remove", &mount.dir(), &["new"]))),
                (false, _) => assert!(!status.success() || !is_snapshot, "a snapshot is durable when the command ends"),
            }
            mount.wait_for("space", "held_bytes", |now| now == held);
            assert!(is_whole(&top, files));
            !is_copied && !status.success()
        });
        mount.check();
    }
}
