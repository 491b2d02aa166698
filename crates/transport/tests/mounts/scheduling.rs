//! The CPUs and the scheduling of a daemon's threads, and the memory of its buffers.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::thread;

use super::tree::{Tree, WAYS, ends};
use super::waiting::eventually;

const MIB: usize = 1 << 20;

/// A value from a file in /proc, for each thread of a process.
fn of_threads(pid: u32, file: &str, find: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let told = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join(file)).unwrap());
    told.map(|text| find(&text).unwrap()).collect()
}

fn line(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned())
}

#[test]
fn no_thread_is_of_the_lowest_class_which_may_wait_for_seconds_with_a_lock() {
    for way in WAYS {
        let tree = Tree::mount(way);
        fs::write(tree.path("file"), "content").unwrap();
        // The 41st field of stat, the 39th after the name.
        let policy = |stat: &str| stat.rsplit(") ").next()?.split(' ').nth(38).map(str::to_owned);
        let policies = of_threads(tree.daemon.id(), "stat", policy);
        assert!(policies.iter().all(|policy| *policy == "0"), "over {way}: {policies:?}");
        tree.unmount();
    }
}

#[test]
fn a_daemon_stays_on_the_cpus_that_it_was_given() {
    for way in WAYS {
        let tree = Tree::mount_on_cpu(way, 1);
        fs::write(tree.path("file"), "content").unwrap();
        for _ in 0..100 {
            // Reads may wait, and may then run on any CPU that the daemon may use.
            fs::read(tree.path("stats")).unwrap();
        }
        let cpus = of_threads(tree.daemon.id(), "status", |status| line(status, "Cpus_allowed_list:"));
        assert!(cpus.iter().all(|list| *list == "1"), "over {way}: {cpus:?}");
        tree.unmount();
    }
}

#[test]
fn a_large_read_comes_as_several_requests_that_threads_answer_at_once() {
    for way in WAYS {
        let tree = Tree::mount(way);
        let path = tree.path("file");
        let content: Vec<u8> = (0..2 * MIB).map(|at| (at / 4096) as u8).collect();
        fs::write(&path, &content).unwrap();
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let mut buffer = vec![0; 2 * MIB];
        let start = buffer.as_ptr().align_offset(4096);
        let read = &mut buffer[start..start + MIB];
        assert_eq!(direct.read_at(read, MIB as u64 / 2).unwrap(), MIB);
        assert!(read == &content[MIB / 2..MIB / 2 + MIB], "over {way}");
        drop(direct);
        assert_eq!(tree.count("largest_read"), 256 << 10, "over {way}");
        tree.unmount();
    }
}

/// Keeps the calling thread on a CPU.
fn stay_on(cpu: usize) {
    // SAFETY: a plain set of bits, large enough for the number.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus), 0, "a second CPU is needed");
    }
}

#[test]
fn requests_that_wait_for_others_leave_each_queue_an_entry_that_comes_back() {
    /// More than a queue has entries at first, with its spares.
    const READERS: u64 = 12;
    /// Entries of a queue at first, at most.
    const ENTRIES: u64 = 4;
    let tree = Tree::mount("rings");
    let path = tree.path("patient");
    fs::write(&path, "").unwrap();
    // All are in the queue of one CPU. This thread must send it no request, which would wake it.
    stay_on(1);
    let reader = || Command::new("taskset").args(["-c", "0", "cat"]).arg(&path).stderr(Stdio::null()).spawn().unwrap();
    let mut readers: Vec<_> = (0..READERS).map(|_| reader()).collect();
    eventually("some are in the daemon, and the others wait in the kernel", || tree.under_way() == READERS);
    fs::write(tree.path("go"), "").unwrap();
    eventually("all are served", || tree.count("waited") + tree.count("refused") == READERS);
    assert!(tree.count("refused") > 0, "the queue has lent out its last entry");
    let waited = tree.count("waited");
    assert!(waited > ENTRIES, "{waited} wait: spares take requests that were queued before, and may wait with them");
    for reader in &mut readers {
        reader.kill().unwrap();
        ends(reader, "a reader");
    }
    tree.unmount();
}

/// The peak of a process's own memory.
fn most_kib(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    line(&status, "VmHWM:").unwrap().trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn many_answers_to_come_take_no_more_memory_than_was_said() {
    /// The memory that `examples/tree` gives to rings.
    const BUFFERS_MIB: usize = 64;
    let tree = Tree::mount("rings");
    let path = tree.path("file");
    fs::write(&path, vec![1; MIB]).unwrap();
    let before = most_kib(tree.daemon.id());
    thread::scope(|scope| {
        for _ in 0..256 {
            scope.spawn(|| {
                let file = File::options().read(true).write(true).open(&path).unwrap();
                let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
                let mut buffer = vec![0; 2 * MIB];
                let start = buffer.as_ptr().align_offset(4096);
                for _ in 0..4 {
                    // SAFETY: fsync on a descriptor that is open.
                    assert_eq!(unsafe { libc::fsync(file.as_raw_fd()) }, 0);
                    assert_eq!(direct.read_at(&mut buffer[start..start + MIB], 0).unwrap(), MIB);
                }
            });
        }
    });
    let more = most_kib(tree.daemon.id()) - before;
    assert!(more < (BUFFERS_MIB << 10), "{more} KiB");
    tree.unmount();
}
