//! The capabilities of this process, and those that an exec could add.
//!
//! Everything here applies to the calling thread and the threads it starts, so it must come before any other thread.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Read the directories of other users (capabilities(7)).
pub const CAP_DAC_READ_SEARCH: u32 = 2;

/// Mount and unmount.
pub const CAP_SYS_ADMIN: u32 = 21;

/// _LINUX_CAPABILITY_VERSION_3: two words of capabilities.
const VERSION: u32 = 0x2008_0522;
const WORDS: usize = 2;

/// Capabilities have numbers below this. The kernel knows the first few.
const CAPABILITIES_MAX: u32 = 64;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The capabilities that a process keeps to work on root's files at `path`: none, unless a directory above belongs to
/// another user and is closed to others.
pub fn kept_for(path: &Path) -> &'static [u32] {
    let is_closed = |dir: &Path| dir.metadata().is_ok_and(|found| found.uid() != 0 && found.mode() & 0o001 == 0);
    if path.ancestors().skip(1).any(is_closed) { &[CAP_DAC_READ_SEARCH] } else { &[] }
}

/// Drops every capability except those in `kept` for good: no program that this process starts gets them back.
pub fn keep_only(kept: &[u32]) -> io::Result<()> {
    forbid_new_privileges()?;
    let unbounded = bound(kept);
    set(kept)?;
    // Without CAP_SETPCAP the bounding set stays as it is, but no exec can gain its capabilities any more.
    unbounded.or_else(|e| if e.raw_os_error() == Some(libc::EPERM) { Ok(()) } else { Err(e) })
}

/// Forbids an exec to give this process or its children more privileges.
fn forbid_new_privileges() -> io::Result<()> {
    // SAFETY: prctl with integer arguments.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

/// Removes the other capabilities from the bounding set.
fn bound(kept: &[u32]) -> io::Result<()> {
    for capability in (0..CAPABILITIES_MAX).filter(|capability| !kept.contains(capability)) {
        // SAFETY: prctl with integer arguments. A capability that this kernel does not know is an error.
        if unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) } == 1 {
            // SAFETY: as above.
            check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) })?;
        }
    }
    Ok(())
}

fn set(kept: &[u32]) -> io::Result<()> {
    let held = held()?;
    let mut words = [Word { effective: 0, permitted: 0, inheritable: 0 }; WORDS];
    for capability in kept {
        let (word, bit) = ((capability / 32) as usize, 1 << (capability % 32));
        words[word].permitted |= bit & held[word].permitted;
        words[word].effective = words[word].permitted;
    }
    let header = Header { version: VERSION, pid: 0 };
    // SAFETY: header and words have the kernel's layout for this version and outlive the call.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) })
}

fn held() -> io::Result<[Word; WORDS]> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut words = [Word { effective: 0, permitted: 0, inheritable: 0 }; WORDS];
    // SAFETY: as in `set`; the kernel fills the words.
    check_long(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    Ok(words)
}

fn check(returned: libc::c_int) -> io::Result<()> {
    check_long(returned.into())
}

fn check_long(returned: libc::c_long) -> io::Result<()> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(value.trim(), 16).unwrap()
    }

    #[test]
    fn what_is_not_kept_is_gone_from_every_set_of_this_thread() {
        let test = || {
            keep_only(&[CAP_SYS_ADMIN]).unwrap();
            let kept = 1 << CAP_SYS_ADMIN;
            for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
                assert_eq!(status(set) & !kept, 0, "{set}");
            }
            assert_eq!((status("CapInh:"), status("CapAmb:"), status("NoNewPrivs:")), (0, 0, 1));
            keep_only(&[]).unwrap();
            assert_eq!(status("CapPrm:"), 0);
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_directory_of_another_user_above_is_what_takes_a_capability() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("home/volume");
        std::fs::create_dir_all(&volume).unwrap();
        assert!(kept_for(&volume).is_empty());
        let home = volume.parent().unwrap();
        std::os::unix::fs::chown(home, Some(65534), None).unwrap();
        assert!(kept_for(&volume).is_empty(), "everybody may pass");
        std::fs::set_permissions(home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(kept_for(&volume), [CAP_DAC_READ_SEARCH]);
    }

    #[test]
    fn what_is_not_held_cannot_be_kept() {
        let test = || {
            keep_only(&[]).unwrap();
            keep_only(&[CAP_SYS_ADMIN]).unwrap();
            assert_eq!(status("CapPrm:"), 0);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
