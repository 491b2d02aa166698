//! Counts, not belief: what sharing saves in the data area, on the device and on the host.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use oncefs_system_tests::{BLOCK, HostDisk, Mount, elapsed, eventually, fill, gate_or_drill, sys, test_dir};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// What one copy_file_range(2) shares at least. What is copied through memory goes in pieces of 16 MiB.
const CALL_BYTES_MIN: u64 = GIB / 2;
/// What the host writes of its own beside a test: journals, and tables that a checkpoint writes.
const BESIDE: u64 = 4 * MIB;
/// A hint keeps 40 bits of a tag. Two of a gibibyte's 2^18 blocks agree in them in one volume of 32 (each has
/// its own key), and each such pair is stored twice, until the worker comes.
const COLLISIONS_MAX: u64 = 4;

/// Bytes of unique data: 128 MiB in the gate, a gibibyte in the drill.
fn unique_bytes() -> u64 {
    gate_or_drill(128 * MIB, GIB)
}

/// Writes `len` bytes of stream `key` with write(2), 1 MiB at a time, and syncs.
fn write_stream(path: &Path, key: u64, len: u64) {
    let mut file = File::create(path).unwrap();
    let mut buffer = vec![0; MIB as usize];
    for at in (0..len).step_by(MIB as usize) {
        fill(key, at, &mut buffer);
        file.write_all(&buffer).unwrap();
    }
    file.sync_all().unwrap();
}

/// Requires that a file holds exactly `len` bytes of stream `key`, repeated every `period` bytes.
fn assert_stream(path: &Path, key: u64, len: u64, period: u64) {
    let mut file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), len);
    let (mut buffer, mut wanted) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    for at in (0..len).step_by(MIB as usize) {
        file.read_exact(&mut buffer).unwrap();
        fill(key, at % period, &mut wanted);
        assert!(buffer == wanted, "{} differs in the MiB at {at}", path.display());
    }
}

#[test]
fn the_second_copy_takes_no_space_and_hardly_a_write() {
    let (disk, len) = (HostDisk::new(4 * GIB), unique_bytes());
    // Every request is looked up as it is written: what a share of them leaves, the worker finds later.
    let mut mount = Mount::on(&disk.path(), "2G", &["inline=all"]);
    let used_before = mount.figure("space", "stored_bytes");
    write_stream(&mount.join("first"), 1, len);
    let used_once = mount.figure("space", "stored_bytes");
    assert_eq!(used_once - used_before, len, "the first copy takes its size");

    let device_before = disk.bytes_written();
    write_stream(&mount.join("second"), 1, len);
    let device = disk.bytes_written() - device_before;
    println!("bytes written to the device for the second copy: {device} ({:.3} %)", device as f64 * 100.0 / len as f64);
    let more = mount.figure("space", "stored_bytes") - used_once;
    assert!(more <= COLLISIONS_MAX * 2 * BLOCK, "the second copy takes {more} bytes");
    assert!(device < len / 50 + BESIDE, "the second copy wrote {device} bytes to the device");
    assert_eq!(mount.figure("space", "held_bytes"), 2 * len);

    mount.check();
    assert_stream(&mount.join("first"), 1, len, len);
    assert_stream(&mount.join("second"), 1, len, len);
}

#[test]
fn a_copy_by_copy_file_range_writes_only_metadata_and_deleting_it_gives_the_space_back() {
    let disk = HostDisk::new(4 * GIB);
    let mut mount = Mount::on(&disk.path(), "3G", &[]);
    let large = make_large_file(&mount);
    let used = mount.figure("space", "stored_bytes");

    let device_before = disk.bytes_written();
    let (source, target) = (File::open(&large).unwrap(), File::create(mount.join("copy")).unwrap());
    let len = source.metadata().unwrap().len();
    let (calls, _) = elapsed("copy_file_range", || sys::copy_range_all(&source, 0, &target, 0, len).unwrap());
    target.sync_all().unwrap();
    let device = disk.bytes_written() - device_before;
    println!("bytes written to the device for the copy: {device}");
    assert!(device < len / 1000 + BESIDE, "the copy wrote {device} bytes: more than metadata");
    assert!(calls <= len.div_ceil(CALL_BYTES_MIN), "{len} bytes took {calls} calls: they were copied");
    assert_eq!(mount.figure("space", "stored_bytes"), used, "the copy takes no block");

    drop((source, target));
    mount.check();
    assert_stream(&mount.join("copy"), 9, len, unique_bytes());
    delete_and_get_the_space_back(&mount, &[&large, &mount.join("copy"), &mount.join("unique")]);
    mount.check();
}

/// A file that reads unique data ten times over, in few extents.
fn make_large_file(mount: &Mount) -> std::path::PathBuf {
    let len = unique_bytes();
    write_stream(&mount.join("unique"), 9, len);
    let path = mount.join("large");
    let (source, target) = (File::open(mount.join("unique")).unwrap(), File::create(&path).unwrap());
    for part in 0..10 {
        sys::copy_range_all(&source, 0, &target, part * len, len).unwrap();
    }
    target.sync_all().unwrap();
    path
}

fn delete_and_get_the_space_back(mount: &Mount, files: &[&Path]) {
    for file in files {
        elapsed(&format!("unlink of {}", file.display()), || fs::remove_file(file).unwrap());
    }
    mount.wait_for("space", "held_bytes", |mapped| mapped == 0);
    mount.wait_for("space", "stored_bytes", |used| used < MIB);
}

#[test]
fn blocks_that_nobody_uses_go_back_to_the_host() {
    let disk = HostDisk::new(2 * GIB);
    let mount = Mount::on(&disk.path(), "1G", &[]);
    let host_before = disk.bytes_used();
    write_stream(&mount.join("file"), 3, 256 * MIB);
    let host_full = disk.bytes_used();
    assert!(host_full >= host_before + 250 * MIB, "written data must be on the host");

    let file = File::options().write(true).open(mount.join("file")).unwrap();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    sys::fallocate(&file, punch, 0, 192 * MIB).unwrap();
    file.sync_all().unwrap();
    eventually("the host has 180 of 192 MiB back", || {
        sys::sync_file_system(&disk.path()).unwrap();
        disk.bytes_used() + 180 * MIB < host_full
    });
}

/// Runs of one block are shared here; what a budget refuses is another test's.
fn sharing_every_block() -> Mount {
    Mount::on(&test_dir(), "1G", &["run_blocks_min=1"])
}

#[test]
fn zeros_take_no_space_and_repeated_blocks_hardly_any() {
    let mount = sharing_every_block();
    let used = mount.figure("space", "stored_bytes");
    let zeros = File::create(mount.join("zeros")).unwrap();
    zeros.write_all_at(&vec![0; 8 * MIB as usize], 0).unwrap();
    zeros.sync_all().unwrap();
    assert_eq!(mount.figure("space", "stored_bytes"), used, "zeros are holes");

    let same = File::create(mount.join("same")).unwrap();
    same.write_all_at(&[7].repeat(8 * MIB as usize), 0).unwrap();
    same.sync_all().unwrap();
    // Requests of 1 MiB that are under way at the same time do not see each other's blocks.
    let stored = mount.figure("space", "stored_bytes") - used;
    assert!((BLOCK..=8 * BLOCK).contains(&stored), "2,048 equal blocks take {stored} bytes");
}

#[test]
fn writing_the_same_content_over_itself_stores_nothing() {
    let mount = Mount::new("1G");
    write_stream(&mount.join("file"), 5, 64 * MIB);
    let placed = mount.figure("counters", "blocks_placed");
    let file = File::options().write(true).open(mount.join("file")).unwrap();
    let mut buffer = vec![0; MIB as usize];
    for at in (0..64 * MIB).step_by(MIB as usize) {
        fill(5, at, &mut buffer);
        file.write_all_at(&buffer, at).unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!(mount.figure("counters", "blocks_placed"), placed);
}

#[test]
fn the_last_partial_block_is_shared_too() {
    let mut mount = sharing_every_block();
    write_stream(&mount.join("whole"), 6, MIB);
    let used = mount.figure("space", "stored_bytes");
    let part = oncefs_system_tests::bytes(6, 5000);
    fs::write(mount.join("a"), &part).unwrap();
    fs::write(mount.join("b"), &part).unwrap();
    mount.remount();
    assert_eq!(
        mount.figure("space", "stored_bytes"),
        used + BLOCK,
        "one whole block is known, one partial block is new"
    );
    assert_eq!(fs::read(mount.join("b")).unwrap(), part);
}
