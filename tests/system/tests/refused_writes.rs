//! Writes that a full volume refuses: of whatever shape, once the file is closed everybody sees the size that it has, and
//! what write(2) took is in it. Not covered: while such a file is open, the kernel's size counts what was refused, and
//! before Linux 6.18 until the kernel forgets the file by itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::thread;

use oncefs_system_tests::{BLOCK, Mount, bytes, eventually, leave_free, oncefs, run_json, sys, test_dir};

const FREE: u64 = 300 << 10;
const MIB: usize = 1 << 20;

/// Writes on until an error comes, and gives the bytes that were taken.
fn write_on(file: &mut File, content: &[u8]) -> (usize, io::Result<()>) {
    let mut taken = 0;
    while taken < content.len() {
        match file.write(&content[taken..]) {
            Ok(len) => taken += len,
            Err(error) => return (taken, Err(error)),
        }
    }
    (taken, Ok(()))
}

/// A shape of writes into a new file, which find no room; gives how many bytes were taken.
fn refused(shape: &str, path: &Path) -> usize {
    let mut file = File::options().write(true).create_new(true).append(shape == "append").open(path).unwrap();
    if shape == "reserved" {
        sys::fallocate(&file, 0, 0, 8 * BLOCK).unwrap();
    }
    // Requests of the kernel's are smaller than what is written at once, or larger.
    let step = if shape == "append" { MIB / 16 } else { 4 * MIB };
    let content = bytes(1 + shape.len() as u64, 4 * MIB);
    let mut taken = 0;
    for part in content.chunks(step) {
        let (len, result) = write_on(&mut file, part);
        taken += len;
        if let Err(error) = result {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{shape}: {error}");
            return taken;
        }
    }
    panic!("{shape}: all of it was taken");
}

/// A file's size in blocks by the daemon itself, past what the kernel knows.
fn blocks_of(path: &Path) -> u64 {
    let said = run_json(Command::new(oncefs()).arg("explain").arg(path).arg("--json"));
    said["runs"].as_array().unwrap().iter().map(|run| run["blocks"].as_u64().unwrap()).sum()
}

/// Whether the kernel forgets a file when it is asked to.
fn kernel_forgets_on_request() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release.split(['.', '-']).take(2).filter_map(|number| number.parse().ok()).collect();
    numbers >= vec![6, 18]
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn a_file_has_one_size_after_a_write_that_found_no_room() {
    let mut mount = Mount::new("64M");
    let copied = test_dir().join(format!("oncefs-refused-{}", std::process::id()));
    fs::write(&copied, bytes(9, 4 * MIB)).unwrap();
    leave_free(&mount, FREE);
    let shapes = ["append", "reserved", "large", "another"];
    let path_of = |shape: &str| mount.join(shape);
    let paths = shapes.map(path_of);
    let copy = mount.join("copy");
    let taken = thread::scope(|scope| {
        let (copied, copy) = (&copied, &copy);
        let cp = scope.spawn(move || Command::new("cp").arg(copied).arg(copy).output().unwrap());
        let writers = shapes.iter().zip(&paths).map(|(shape, path)| scope.spawn(|| refused(shape, path)));
        let writers: Vec<_> = writers.collect();
        assert!(!cp.join().unwrap().status.success(), "cp said nothing of a full volume");
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    fs::remove_file(&copied).unwrap();
    let all: Vec<_> = paths.iter().chain([&copy]).cloned().collect();
    let sizes: Vec<_> = all.iter().map(|path| blocks_of(path)).collect();
    for (path, blocks) in all.iter().zip(&sizes).filter(|_| kernel_forgets_on_request()) {
        let what = format!("{} shows the size that it has", path.display());
        eventually(&what, || size(path).div_ceil(BLOCK) == *blocks);
    }
    mount.remount();
    let after: Vec<_> = all.iter().map(|path| size(path).div_ceil(BLOCK)).collect();
    assert_eq!(after, sizes, "after a remount");
    for ((shape, path), taken) in shapes.iter().zip(&paths).zip(&taken) {
        let (kept, content) = (fs::read(path).unwrap(), bytes(1 + shape.len() as u64, 4 * MIB));
        assert!(kept.len() >= *taken && kept[..*taken] == content[..*taken], "{shape}: {taken} bytes were taken");
    }
    fs::remove_file(mount.join("rest")).unwrap();
    mount.check();
}
