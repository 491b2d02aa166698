//! Mounts and unmounts a FUSE file system. The process that mounts need not be the one that serves the mount: the
//! descriptor of `/dev/fuse` may belong to another.
//!
//! A path leads to the present mount there, and to the directory below it once the mount is gone. So a mount is opened
//! once, right after it was made. It counts only if the kernel's table shows that it is this mount, and it is then held
//! open.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount};

use crate::mount_id::MountId;

/// Bytes of the largest READ. The kernel reads a MiB ahead and waits for it. With this size it sends four requests,
/// which four threads answer at once, on all CPUs (docs/results/older/reads.md). A large O_DIRECT read is split in
/// the same way.
const READ_BYTES_MAX: usize = 256 << 10;

/// Where and how to mount.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// Shown as the mount's source.
    pub source: PathBuf,
    /// The mount point. Absolute.
    pub dir: PathBuf,
    /// Shown as its type, such as `fuse.flat`; umount(8) finds its helper by it.
    pub kind: &'static str,
    /// `MS_...` flags of mount(2).
    pub kernel_flags: libc::c_ulong,
}

/// A mount that this process made. As long as this lives, the mount can only be unmounted lazily, and even then its
/// numbers are not reused.
#[derive(Debug)]
pub struct Mounted {
    id: MountId,
    _root: OwnedFd,
}

impl Mounted {
    /// Its identity, which is valid even after the mount is released.
    pub fn id(&self) -> MountId {
        self.id
    }
}

/// Calls mount(2). The process that reads from `connection` serves the mount, for all users. The kernel checks
/// permissions by the attributes in the replies.
///
/// # Errors
/// NotFound: it was unmounted, or hidden by another mount, before it was found. Otherwise the kernel's errors.
pub fn attach(connection: BorrowedFd<'_>, spec: &MountSpec) -> io::Result<Mounted> {
    let mode = File::open(&spec.dir)?.metadata()?.mode();
    let descriptor = connection.as_raw_fd();
    let data = format!(
        "fd={descriptor},rootmode={mode:o},user_id=0,group_id=0,default_permissions,allow_other,\
         max_read={READ_BYTES_MAX}\0"
    );
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).map_err(io::Error::other)?;
    mount(&spec.source, &spec.dir, spec.kind, flags(spec.kernel_flags), data)?;
    let root = open_root(&spec.dir)?;
    let id = MountId::of(root.as_fd())?;
    match is_in_table(&fs::read("/proc/self/mountinfo")?, id.device(), spec) {
        true => Ok(Mounted { id, _root: root }),
        false => Err(io::Error::new(io::ErrorKind::NotFound, "it was unmounted or hidden as soon as it was there")),
    }
}

/// Whether the file system with this number is one of this kind and source.
fn is_in_table(table: &[u8], (major, minor): (u32, u32), spec: &MountSpec) -> bool {
    let device = format!("{major}:{minor}");
    let (kind, source) = (escaped(spec.kind.as_bytes()), escaped(spec.source.as_os_str().as_bytes()));
    table.split(|byte| *byte == b'\n').any(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else { return false };
        fields[2] == device.as_bytes() && fields.get(dash + 1..dash + 3) == Some(&[&kind[..], &source])
    })
}

/// `text` as the kernel's table escapes it.
fn escaped(text: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![*byte],
    };
    text.iter().flat_map(escape).collect()
}

/// `MS_...` flags.
fn flags(kernel_flags: libc::c_ulong) -> MountFlags {
    MountFlags::from_bits_retain(kernel_flags as libc::c_uint)
}

/// Opens a directory without following a link or sending a request.
fn open_root(dir: &Path) -> io::Result<OwnedFd> {
    Ok(open(dir, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Unmounts the mount on `dir` itself, without following a link. `flags`: `MNT_...`.
///
/// # Errors
/// The kernel's errors.
pub fn unmount(dir: &Path, flags: libc::c_int) -> io::Result<()> {
    let flags = UnmountFlags::from_bits_retain(flags.cast_unsigned()) | UnmountFlags::NOFOLLOW;
    Ok(rustix::mount::unmount(dir, flags)?)
}

/// Unmounts this mount if `dir` leads to it. Between check and unmount only root can put another mount there.
///
/// # Errors
/// EINVAL: another mount is there. Otherwise the kernel's errors.
pub fn unmount_own(dir: &Path, own: MountId) -> io::Result<()> {
    open_own(dir, own)?;
    unmount(dir, 0)
}

/// Detaches this mount, and no other, if `dir` leads to it. It ends with its last user.
///
/// # Errors
/// As [`unmount_own`].
pub fn detach_own(dir: &Path, own: MountId) -> io::Result<()> {
    let root = open_own(dir, own)?;
    Ok(rustix::mount::unmount(format!("/proc/self/fd/{}", root.as_raw_fd()), UnmountFlags::DETACH)?)
}

/// The root of this mount, if `dir` leads to it. Sends no request to the daemon. The mount cannot be unmounted as long
/// as its root is open.
///
/// # Errors
/// EINVAL: another mount is there. Otherwise the kernel's errors.
pub fn open_own(dir: &Path, own: MountId) -> io::Result<OwnedFd> {
    let root = open_root(dir)?;
    match MountId::of(root.as_fd())? == own {
        true => Ok(root),
        false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Changes the flags of an existing mount. `kernel_flags`: `MS_...` of mount(2).
///
/// # Errors
/// The kernel's errors.
pub fn remount(dir: &Path, kernel_flags: libc::c_ulong) -> io::Result<()> {
    Ok(mount_remount(dir, flags(kernel_flags), c"")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_in_the_table_by_its_number_kind_and_source_together() {
        let table =
            b"98 28 0:52 / /mnt rw shared:4 - fuse.flat /srv/a\\040b rw,user_id=0\n99 1 0:53 / /x rw - proc proc rw\n";
        let is_there = |kind, source: &str, device| {
            let spec = MountSpec { source: source.into(), dir: "/mnt".into(), kind, kernel_flags: 0 };
            is_in_table(table, device, &spec)
        };
        assert!(is_there("fuse.flat", "/srv/a b", (0, 52)));
        assert!(!is_there("fuse.flat", "/srv/a b", (0, 53)) && !is_there("fuse.flat", "/srv/a", (0, 52)));
        assert!(!is_there("fuse.tree", "/srv/a b", (0, 52)));
        assert!(!is_in_table(
            b"\n1 2\n",
            (0, 1),
            &MountSpec { source: "a".into(), dir: "/".into(), kind: "b", kernel_flags: 0 }
        ));
    }

    #[test]
    fn what_is_not_ours_is_neither_unmounted_nor_opened() {
        let other = MountId::of(File::open("/").unwrap().as_fd()).unwrap();
        for refused in [unmount_own(Path::new("/proc"), other), detach_own(Path::new("/proc"), other)] {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
        assert!(Path::new("/proc/self").exists());
    }
}
