//! Whether a user can make names that keep others from making theirs, in a directory that all may write to.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use oncefs_system_tests::sys;

use super::user::{User, directory_of, file_of, mount_for_all, open};

/// How a user aims names at a place, if listings give out how names are placed.
#[path = "../../../../crates/fs/tests/attack/mod.rs"]
mod attack;

const ATTACKER: User = User::new(1001);
const ROOT: User = User { uid: 0, gid: 0, groups: &[] };

/// The names of a directory with their cookies, as the kernel gives them to programs.
fn listed(directory: &Path) -> Vec<(Vec<u8>, u64)> {
    let path = sys::c_path(directory);
    let mut found = Vec::new();
    // SAFETY: the stream is used by this thread alone until it is closed, and an entry only until the next is read.
    unsafe {
        let stream = libc::opendir(path.as_ptr());
        assert!(!stream.is_null(), "{}", directory.display());
        loop {
            let entry = libc::readdir64(stream);
            let Some(entry) = entry.as_ref() else { break };
            found.push((CStr::from_ptr(entry.d_name.as_ptr()).to_bytes().to_vec(), entry.d_off as u64));
        }
        libc::closedir(stream);
    }
    found.retain(|(name, _)| name != b"." && name != b"..");
    found
}

#[test]
fn a_user_cannot_crowd_out_another_s_name() {
    let mount = mount_for_all(&[]);
    let shared = mount.join("shared");
    directory_of(ROOT, &shared, 0o1777);
    for name in ["a", "b", "c", "d"] {
        file_of(ATTACKER, &shared.join(name), 0o644);
    }
    let cookies = listed(&shared);
    assert_eq!(cookies.len(), 4);
    assert!(cookies.iter().all(|(_, cookie)| *cookie < 1 << 31), "32-bit programs can use cookies: {cookies:?}");
    let seed = attack::seed_from(&cookies);
    for name in attack::names_beside(b"report", seed.unwrap_or(1)).iter().take(256) {
        let path = CString::new(shared.join(OsStr::from_bytes(name)).as_os_str().as_bytes()).unwrap();
        assert_eq!(ATTACKER.does(|| open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644)), 0);
    }
    File::create(shared.join("report")).expect("root makes a file in a directory that a user tried to fill");
    assert_eq!(seed, None, "a listing gives out how names are placed");
}
