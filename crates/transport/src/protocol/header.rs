//! The headers that begin every message.

use super::wire::{Malformed, Reader, Writer};

/// Bytes before every message from the kernel.
pub const IN_BYTES: usize = 40;
/// Bytes before every message to the kernel.
pub const OUT_BYTES: usize = 16;

/// `fuse_in_header`, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InHeader {
    /// Bytes of the whole message.
    pub len: u32,
    /// The operation.
    pub opcode: u32,
    /// Number of the request. Its reply has the same.
    pub unique: u64,
    /// The inode of the operation. For operations with a name, the directory.
    pub inode: u64,
    /// The caller's user, as file systems see it. `u32::MAX`: the mount is idmapped, and the operation creates no
    /// inode.
    pub uid: u32,
    /// The caller's group, likewise.
    pub gid: u32,
    /// The caller's thread. 0: the kernel itself.
    pub pid: u32,
    /// Bytes of extensions at the end of the message.
    pub extensions_len: usize,
}

impl InHeader {
    /// Decodes the beginning of a message.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (len, opcode, unique, inode) = (reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?);
        let (uid, gid, pid) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let extensions_len = usize::from(reader.u16()?) * 8;
        reader.skip(2)?;
        Ok(Self { len, opcode, unique, inode, uid, gid, pid, extensions_len })
    }
}

/// `fuse_out_header` of a message with `body_len` bytes after it. `error` is an errno, 0 for none; notifications have the
/// number 0, and their code for an error.
pub fn encode_out(body_len: usize, error: i32, unique: u64) -> [u8; OUT_BYTES] {
    let mut writer = Writer::with_capacity(OUT_BYTES);
    let len = u32::try_from(OUT_BYTES + body_len).expect("a reply is shorter than 4 GiB: a request said how long");
    let error = if unique == 0 { error } else { -error };
    writer.u32(len).i32(error).u64(unique);
    writer.finish(OUT_BYTES).try_into().expect("finish checked the length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_negative_and_codes_of_notifications_are_not() {
        let reply = encode_out(8, libc::EIO, 7);
        assert_eq!(reply[..4], 24_u32.to_ne_bytes());
        assert_eq!(reply[4..8], (-libc::EIO).to_ne_bytes());
        assert_eq!(encode_out(0, 2, 0)[4..8], 2_i32.to_ne_bytes());
    }
}
