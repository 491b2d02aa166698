//! Replies about files: attributes, entries, statx, statfs.

use std::time::Duration;

use super::wire::Writer;

/// A time, as the kernel has it: nanoseconds count forwards, even before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Since 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// `fuse_attr`: an inode as stat(2) shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change at all.
    pub ctime: Time,
    /// Type (`S_IF...`) and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device.
    pub rdev: u32,
    /// Preferred bytes of a read or write.
    pub block_bytes: u32,
}

/// Bytes of `fuse_attr`.
const ATTR_BYTES: usize = 88;
/// Bytes of `fuse_attr_out`.
pub const ATTR_OUT_BYTES: usize = 16 + ATTR_BYTES;
/// Bytes of `fuse_entry_out`.
pub const ENTRY_OUT_BYTES: usize = 40 + ATTR_BYTES;
/// Bytes of `fuse_statx_out`.
pub const STATX_OUT_BYTES: usize = 32 + 256;
/// Bytes of `fuse_statfs_out`.
pub const STATFS_OUT_BYTES: usize = 80;

impl Attributes {
    fn encode(&self, writer: &mut Writer) {
        writer.u64(self.inode).u64(self.size).u64(self.blocks);
        writer.i64(self.atime.seconds).i64(self.mtime.seconds).i64(self.ctime.seconds);
        writer.u32(self.atime.nanoseconds).u32(self.mtime.nanoseconds).u32(self.ctime.nanoseconds);
        writer.u32(self.mode).u32(self.nlink).u32(self.uid).u32(self.gid).u32(self.rdev).u32(self.block_bytes);
        // No flags: they are only for DAX devices and submounts.
        writer.u32(0);
    }

    /// `fuse_attr_out`, valid for `valid`.
    pub fn encode_out(&self, valid: Duration) -> Vec<u8> {
        let mut writer = Writer::with_capacity(ATTR_OUT_BYTES);
        writer.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
        self.encode(&mut writer);
        writer.finish(ATTR_OUT_BYTES)
    }
}

/// `fuse_entry_out`: the inode of a name. Inode 0 means that the name does not exist, and the kernel caches that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The inode, or 0.
    pub inode: u64,
    /// Distinguishes inodes that used the same number at different times.
    pub generation: u64,
    /// How long the kernel may cache the name.
    pub name_valid: Duration,
    /// How long the kernel may cache the attributes.
    pub attributes_valid: Duration,
    /// The inode's.
    pub attributes: Attributes,
}

impl Entry {
    pub(crate) fn encode_into(&self, writer: &mut Writer) {
        writer.u64(self.inode).u64(self.generation);
        writer.u64(self.name_valid.as_secs()).u64(self.attributes_valid.as_secs());
        writer.u32(self.name_valid.subsec_nanos()).u32(self.attributes_valid.subsec_nanos());
        self.attributes.encode(writer);
    }

    /// `fuse_entry_out`.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(ENTRY_OUT_BYTES);
        self.encode_into(&mut writer);
        writer.finish(ENTRY_OUT_BYTES)
    }

    /// `fuse_entry_out` and `fuse_open_out`: the answer to CREATE and TMPFILE.
    pub fn encode_created(&self, handle: u64, opened: u32) -> Vec<u8> {
        let mut writer = Writer::with_capacity(ENTRY_OUT_BYTES + 16);
        self.encode_into(&mut writer);
        writer.u64(handle).u32(opened).u32(0);
        writer.finish(ENTRY_OUT_BYTES + 16)
    }
}

/// `fuse_statx`: what statx(2) shows beyond the attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statx {
    /// As stat(2) shows it.
    pub attributes: Attributes,
    /// Time of creation. None: not known.
    pub birth: Option<Time>,
    /// `STATX_ATTR_...` flags that are set.
    pub flags: u64,
    /// `STATX_ATTR_...` flags that the file system supports.
    pub flags_known: u64,
}

impl Statx {
    /// `fuse_statx_out`, valid for `valid`.
    pub fn encode_out(&self, valid: Duration) -> Vec<u8> {
        let has = &self.attributes;
        let mask = libc::STATX_BASIC_STATS | if self.birth.is_some() { libc::STATX_BTIME } else { 0 };
        let mut writer = Writer::with_capacity(STATX_OUT_BYTES);
        writer.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0).zeros(16);
        writer.u32(mask).u32(has.block_bytes).u64(self.flags);
        writer.u32(has.nlink).u32(has.uid).u32(has.gid);
        // Type and permissions have 16 bits.
        writer.u16(has.mode as u16).u16(0);
        writer.u64(has.inode).u64(has.size).u64(has.blocks).u64(self.flags_known);
        for time in [has.atime, self.birth.unwrap_or_default(), has.ctime, has.mtime] {
            writer.i64(time.seconds).u32(time.nanoseconds).u32(0);
        }
        writer.u32(libc::major(has.rdev.into())).u32(libc::minor(has.rdev.into())).u32(0).u32(0).zeros(14 * 8);
        writer.finish(STATX_OUT_BYTES)
    }
}

/// `fuse_kstatfs`: a file system as statfs(2) shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// In all.
    pub blocks: u64,
    /// Free.
    pub blocks_free: u64,
    /// Free for unprivileged users.
    pub blocks_available: u64,
    /// Inodes in all; 0 where there is no limit.
    pub files: u64,
    /// Inodes free.
    pub files_free: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of the longest name.
    pub name_bytes_max: u32,
}

impl Statfs {
    /// `fuse_statfs_out`.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(STATFS_OUT_BYTES);
        writer.u64(self.blocks).u64(self.blocks_free).u64(self.blocks_available).u64(self.files).u64(self.files_free);
        writer.u32(self.block_bytes).u32(self.name_bytes_max).u32(self.block_bytes).zeros(28);
        writer.finish(STATFS_OUT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where fuse.h puts each field: `fuse_attr` within `fuse_attr_out`.
    #[test]
    fn fields_are_where_the_kernel_looks_for_them() {
        let time = |seconds| Time { seconds, nanoseconds: 7 };
        let attributes = Attributes {
            inode: 1,
            size: 2,
            blocks: 3,
            atime: time(-4),
            mtime: time(5),
            ctime: time(6),
            mode: 8,
            nlink: 9,
            uid: 10,
            gid: 11,
            rdev: 0x0103,
            block_bytes: 13,
        };
        let out = attributes.encode_out(Duration::new(100, 200));
        let u64_at = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let u32_at = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((u64_at(&out, 0), u32_at(&out, 8)), (100, 200));
        assert_eq!([16, 24, 32].map(|at| u64_at(&out, at)), [1, 2, 3]);
        assert_eq!(u64_at(&out, 40) as i64, -4);
        assert_eq!(
            [64, 68, 72, 76, 80, 84, 88, 92, 96].map(|at| u32_at(&out, at)),
            [7, 7, 7, 8, 9, 10, 11, 0x0103, 13]
        );
        let statx = Statx { attributes, birth: Some(time(99)), flags: 16, flags_known: 48 };
        let out = statx.encode_out(Duration::ZERO);
        assert_eq!(u32_at(&out, 32), libc::STATX_BASIC_STATS | libc::STATX_BTIME);
        assert_eq!((u64_at(&out, 40), u64_at(&out, 32 + 0x38)), (16, 48), "attributes and their mask");
        assert_eq!((u64_at(&out, 32 + 0x50), u32_at(&out, 32 + 0x80)), (99, 1), "birth time, major number");
        assert_eq!(Entry::default().encode().len(), 128);
        assert_eq!(Statfs::default().encode().len(), 80);
    }
}
