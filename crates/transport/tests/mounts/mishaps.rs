//! Mishaps of mounts, daemons and machines: signals, forgetting, abort, unmounting under load, a daemon that dies or is
//! frozen, CPUs that go off line and come back.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use oncefs_transport::unmount;

use super::load::Load;
use super::tree::{Tree, WAYS, alone, ends};
use super::waiting::{eventually, refused_by_the_dead};

fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: takes two numbers; the process is a child of this one and not waited for.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
}

#[test]
fn a_signal_ends_a_call_that_waits_in_the_daemon() {
    /// Three for each of two CPUs: a queue of a ring has four entries at first, and needs one for signals and counts.
    const WAITERS: usize = 6;
    for way in WAYS {
        let tree = Tree::mount(way);
        let mut waiters: Vec<_> = (0..WAITERS).map(|n| tree.waiter_on(n % 2)).collect();
        assert_eq!(tree.count("interrupted"), 0);
        for waiter in &mut waiters {
            assert!(waiter.try_wait().unwrap().is_none(), "it waits");
            signal(waiter.id(), libc::SIGTERM);
        }
        for waiter in &mut waiters {
            ends(waiter, "a reader with a signal");
        }
        assert_eq!(tree.count("interrupted"), WAITERS as u64, "over {way}");
        tree.unmount();
    }
}

#[test]
fn a_signal_right_after_the_call_is_not_lost() {
    for way in WAYS {
        let tree = Tree::mount(way);
        for delay_us in (0..200).map(|step| step % 60 * 50) {
            let mut reader = Command::new("cat").arg(tree.path("wait")).stderr(Stdio::null()).spawn().unwrap();
            thread::sleep(Duration::from_micros(delay_us));
            signal(reader.id(), libc::SIGTERM);
            ends(&mut reader, "a reader with a signal");
        }
        tree.unmount();
    }
}

#[test]
fn everything_that_is_deleted_is_forgotten() {
    for way in WAYS {
        let tree = Tree::mount(way);
        let before = tree.count("nodes");
        for number in 0..3000 {
            fs::write(tree.path(&format!("file-{number}")), "content").unwrap();
        }
        assert_eq!(tree.count("nodes"), before + 3000);
        for number in 0..3000 {
            fs::remove_file(tree.path(&format!("file-{number}"))).unwrap();
        }
        eventually("the kernel forgets all of them", || tree.count("nodes") == before);
        tree.unmount();
    }
}

#[test]
fn an_abort_ends_the_daemon_and_every_call() {
    for way in WAYS {
        let mut tree = Tree::mount(way);
        let load = Load::start(&tree, 2);
        let mut waiter = tree.waiter();
        tree.abort();
        assert!(!ends(&mut waiter, "a reader whose mount was aborted").success());
        load.ends();
        tree.ends_well();
        refused_by_the_dead(|| fs::metadata(tree.path("never-looked-up")));
    }
}

#[test]
fn a_mount_that_is_taken_away_under_load_ends_when_its_last_user_does() {
    for way in WAYS {
        let mut tree = Tree::mount(way);
        let load = Load::start(&tree, 4);
        unmount(tree.root(), libc::MNT_DETACH).unwrap();
        assert!(tree.daemon.try_wait().unwrap().is_none(), "its users still work");
        drop(load);
        tree.ends_well();
    }
}

#[test]
fn a_busy_mount_is_not_unmounted_and_an_idle_one_is_at_once() {
    for way in WAYS {
        let tree = Tree::mount(way);
        let file = fs::File::create(tree.path("open")).unwrap();
        assert_eq!(unmount(tree.root(), 0).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        drop(file);
        tree.unmount();
    }
}

#[test]
fn a_daemon_that_is_killed_under_load_takes_no_program_with_it() {
    for way in WAYS {
        let mut tree = Tree::mount(way);
        let load = Load::start(&tree, 4);
        let mut waiter = tree.waiter();
        tree.daemon.kill().unwrap();
        ends(&mut tree.daemon, "the daemon");
        load.ends();
        assert!(!ends(&mut waiter, "a reader whose daemon died").success());
        refused_by_the_dead(|| fs::metadata(tree.path("stats")));
        eventually("nobody uses the mount", || unmount(tree.root(), 0).is_ok());
    }
}

/// A cgroup of either version whose processes are frozen. Dropping it thaws them.
struct Freezer {
    dir: PathBuf,
    knob: &'static str,
    words: [&'static str; 2],
}

impl Freezer {
    fn of(pid: u32) -> Self {
        let name = format!("oncefs-transport-{pid}");
        let (one, two) = (PathBuf::from("/sys/fs/cgroup/freezer"), PathBuf::from("/sys/fs/cgroup"));
        let freezer = match one.is_dir() {
            true => Self { dir: one.join(name), knob: "freezer.state", words: ["THAWED", "FROZEN"] },
            false => Self { dir: two.join(name), knob: "cgroup.freeze", words: ["0", "1"] },
        };
        fs::create_dir(&freezer.dir).unwrap_or_else(|e| panic!("no freezer at {}: {e}", freezer.dir.display()));
        fs::write(freezer.dir.join("cgroup.procs"), pid.to_string()).unwrap();
        freezer
    }

    fn set(&self, is_frozen: bool) {
        fs::write(self.dir.join(self.knob), self.words[usize::from(is_frozen)]).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set(false);
        let home = self.dir.parent().unwrap().join("cgroup.procs");
        for pid in fs::read_to_string(self.dir.join("cgroup.procs")).unwrap().lines() {
            // Fails for a process that has just ended.
            drop(fs::write(&home, pid));
        }
        eventually("the freezer is empty", || fs::remove_dir(&self.dir).is_ok());
    }
}

#[test]
fn a_frozen_daemon_holds_calls_up_and_answers_them_when_it_thaws() {
    for way in WAYS {
        let tree = Tree::mount(way);
        let mut load = Load::start(&tree, 2);
        {
            let freezer = Freezer::of(tree.daemon.id());
            freezer.set(true);
            let (dir, began) = (tree.path("made-while-frozen"), Instant::now());
            let maker = thread::spawn(move || fs::create_dir(dir).map(|()| began.elapsed()));
            thread::sleep(Duration::from_millis(500));
            assert!(!maker.is_finished(), "a call was answered by a daemon that stands still");
            freezer.set(false);
            assert!(maker.join().unwrap().unwrap() >= Duration::from_millis(500));
        }
        assert!(load.goes_on(&tree), "over {way}");
        drop(load);
        tree.unmount();
    }
}

/// A CPU that is off line until dropped.
struct Offline(&'static str);

impl Offline {
    fn take() -> Self {
        let knob = "/sys/devices/system/cpu/cpu1/online";
        fs::write(knob, "0").unwrap_or_else(|e| panic!("a second CPU is needed that can be taken off line: {e}"));
        Self(knob)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        fs::write(self.0, "1").unwrap();
    }
}

#[test]
#[ignore = "takes a CPU off line; if it is killed meanwhile, the CPU stays so: run it by hand"]
fn cpus_go_off_line_and_come_back_under_load() {
    let _alone = alone();
    for way in WAYS {
        let tree = Tree::mount_alone(way);
        let mut load = Load::start(&tree, 4);
        for _ in 0..3 {
            let offline = Offline::take();
            assert!(load.goes_on(&tree), "over {way} with a CPU less");
            drop(offline);
            assert!(load.goes_on(&tree), "over {way} with all CPUs again");
        }
        let offline = Offline::take();
        let other = Tree::mount_alone(way);
        fs::write(other.path("file"), "content").unwrap();
        drop(offline);
        assert_eq!(fs::read_to_string(other.path("file")).unwrap(), "content", "mounted with a CPU less");
        other.unmount();
        drop(load);
        tree.unmount();
    }
}

#[test]
fn many_mounts_at_a_time_all_get_the_way_that_they_want() {
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..4).for_each(|_| Tree::mount("rings").unmount()));
        }
    });
}

#[test]
fn a_lock_on_the_kernel_s_switch_itself_holds_no_mount_up() {
    let switch = fs::File::open("/sys/module/fuse/parameters/enable_uring").unwrap();
    switch.lock().unwrap();
    Tree::mount("rings").unmount();
}
