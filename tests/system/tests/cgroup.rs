//! Memory pressure: heavy writeback with the daemon and the writer in one small memory cgroup.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use oncefs_system_tests::{MemoryCgroup, Mount, elapsed, fill, sys};

const MIB: usize = 1 << 20;
const LIMIT: u64 = 256 * MIB as u64;
const WRITTEN: usize = 1024 * MIB;

#[test]
fn writing_four_times_the_memory_of_the_cgroup_does_not_deadlock() {
    let cgroup = MemoryCgroup::new(LIMIT);
    let mut mount = Mount::in_cgroup("2G", &cgroup.procs(), &["memory=64M"]);
    let path = sys::c_path(mount.join("file"));
    let procs = sys::c_path(cgroup.procs());
    let mut buffer = vec![0u8; MIB];
    let start = Instant::now();
    // The writer only makes system calls and fills a buffer that exists.
    let failed = sys::in_child(|| write_in_cgroup(&procs, &path, &mut buffer));
    println!(
        "writing {} MiB in a cgroup of {} MiB: {:.1} s",
        WRITTEN / MIB,
        LIMIT >> 20,
        start.elapsed().as_secs_f64()
    );
    assert_eq!(failed, 0, "errno of the writer");

    // The daemon is still well: it answers, and keeps what it acknowledged. One that hangs is killed by the harness.
    elapsed("a synced write afterwards", || {
        let mut file = File::create(mount.join("after")).unwrap();
        file.write_all(b"alive").unwrap();
        file.sync_all().unwrap();
    });
    mount.check();
    assert_eq!(std::fs::metadata(mount.join("file")).unwrap().len(), WRITTEN as u64);
}

fn write_in_cgroup(procs: &std::ffi::CStr, path: &std::ffi::CStr, buffer: &mut [u8]) -> i32 {
    sys::close_files();
    // SAFETY: plain system calls with arguments that outlive them, in a child with one thread.
    unsafe {
        let entry = libc::open(procs.as_ptr(), libc::O_WRONLY);
        if libc::write(entry, c"0".as_ptr().cast(), 1) != 1 {
            return sys::last_errno();
        }
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o644);
        for at in (0..WRITTEN).step_by(MIB) {
            fill(11, at as u64, buffer);
            if libc::write(file, buffer.as_ptr().cast(), buffer.len()) != buffer.len() as isize {
                return sys::last_errno();
            }
        }
        if libc::fsync(file) != 0 { sys::last_errno() } else { libc::close(file) }
    }
}
