//! `oncefs sync`: what was written before it is durable, also through files that are still open, whose last pages the
//! kernel has sent but the daemon may not have answered yet.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Command;

use oncefs_system_tests::{Mount, bytes, oncefs, sys};

/// Several, so that many requests are under way at once.
const FILES: u64 = 4;
const FILE_BYTES: usize = 24 << 20;

fn signal(pid: i32, signal: i32) {
    // SAFETY: plain numbers; the process is the daemon, which has not been reaped.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Sends the file's dirty pages without waiting for the answers.
fn start_write_back(file: &File) {
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) }, 0);
}

#[test]
fn what_open_files_hold_is_durable_too() {
    let mut mount = Mount::new("1G");
    let path = |mount: &Mount, number: u64| mount.join(format!("file{number}"));
    let mut files = Vec::new();
    for number in 0..FILES {
        let file = File::options().read(true).write(true).create_new(true).open(path(&mount, number)).unwrap();
        file.write_all_at(&vec![1; FILE_BYTES], 0).unwrap();
        file.sync_all().unwrap();
        let mut mapping = sys::Mapping::new(&file, FILE_BYTES, libc::MAP_SHARED).unwrap();
        assert!(mapping.bytes().iter().all(|byte| *byte == 1), "the pages are in memory");
        files.push((file, mapping));
    }
    // A file without a name is open for writing too, and no obstacle.
    let nameless = File::create(mount.join("nameless")).unwrap();
    fs::remove_file(mount.join("nameless")).unwrap();

    // The pages go to a daemon that stands still, so they are neither dirty nor taken when the command begins.
    signal(mount.pid(), libc::SIGSTOP);
    for (number, (file, mapping)) in (0..).zip(&mut files) {
        mapping.bytes().copy_from_slice(&bytes(number << 40, FILE_BYTES));
        start_write_back(file);
    }
    let mut sync = Command::new(oncefs()).arg("sync").arg(mount.dir()).spawn().unwrap();
    signal(mount.pid(), libc::SIGCONT);
    assert!(sync.wait().unwrap().success());
    mount.kill();
    drop((files, nameless));
    mount.mount();

    for number in 0..FILES {
        let kept = fs::read(path(&mount, number)).unwrap();
        assert!(kept == bytes(number << 40, FILE_BYTES), "file {number}: {} bytes, or others than written", kept.len());
    }
    mount.check();
}
