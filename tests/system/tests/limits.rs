//! Limits that README names ("What to know"), tried, so that none is named for longer than it holds. Not covered: what a
//! read leaves of atime depends on what the kernel's page cache holds at that moment.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use oncefs_system_tests::{Mount, bytes, sys};

/// The errno of an ioctl.
fn ioctl(file: &File, request: libc::c_ulong, argument: libc::c_ulong) -> i32 {
    // SAFETY: the argument is a number, or points to memory that the caller keeps.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if done == -1 { sys::last_errno() } else { 0 }
}

const FICLONE: libc::c_ulong = 0x4004_9409;
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;

#[test]
fn the_ioctls_of_reflinks_and_extents_do_not_reach_the_daemon_and_copies_share_all_the_same() {
    let mount = Mount::new("256M");
    fs::write(mount.join("a"), bytes(1, 8 << 20)).unwrap();
    let (from, to) = (File::open(mount.join("a")).unwrap(), File::create(mount.join("b")).unwrap());
    assert_eq!(ioctl(&to, FICLONE, from.as_raw_fd() as libc::c_ulong), libc::EOPNOTSUPP);
    // The head of struct fiemap: start, length, flags, mapped, room for extents, reserved.
    let mut fiemap = [0_u64, u64::MAX, 0, 0];
    let fiemap: *mut u64 = fiemap.as_mut_ptr();
    assert_eq!(ioctl(&from, FS_IOC_FIEMAP, fiemap as libc::c_ulong), libc::EOPNOTSUPP);

    from.sync_all().unwrap();
    let stored = mount.figure("space", "stored_bytes");
    fs::copy(mount.join("a"), mount.join("b")).unwrap();
    to.sync_all().unwrap();
    assert!(mount.figure("space", "stored_bytes") < stored + (1 << 20), "a copy stores nothing anew");
}

#[test]
fn a_file_of_a_mount_is_no_swap_file() {
    let mount = Mount::new("256M");
    // A page with the signature of swap space, and the number of the last page.
    let mut swap = vec![0; 4 << 20];
    swap[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    swap[1028..1032].copy_from_slice(&1023_u32.to_le_bytes());
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    fs::write(mount.join("swap"), &swap).unwrap();
    let path = sys::c_path(mount.join("swap"));
    // SAFETY: the path outlives the call.
    assert_eq!(unsafe { libc::swapon(path.as_ptr(), 0) }, -1);
    assert_eq!(sys::last_errno(), libc::EINVAL);
}
