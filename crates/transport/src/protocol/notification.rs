//! Messages that the daemon sends to the kernel without a request.

use super::header::encode_out;
use super::wire::Writer;

/// A complete message to the kernel.
pub type Message = Vec<u8>;

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
const INVALIDATE_ENTRY: i32 = 3;
/// `FUSE_NOTIFY_RETRIEVE`.
const RETRIEVE: i32 = 5;
/// `FUSE_NOTIFY_PRUNE`, of version 7.45.
const PRUNE: i32 = 9;

/// Invalidates the cached attributes of an inode, and its pages from `offset` on: `len` bytes, 0 for all. A negative
/// offset invalidates the attributes alone. The kernel writes dirty pages back first.
pub fn invalidate_inode(inode: u64, offset: i64, len: i64) -> Message {
    let mut body = Writer::with_capacity(24);
    body.u64(inode).i64(offset).i64(len);
    message(INVALIDATE_INODE, &body.finish(24))
}

/// Makes the kernel forget what a name in a directory stands for, or that there is none of this name. `name` has at
/// most 255 bytes.
pub fn invalidate_entry(parent: u64, name: &[u8]) -> Message {
    let mut body = Writer::with_capacity(16);
    // The length without the NUL byte after the name, and no flags.
    body.u64(parent).u32(name.len() as u32).u32(0);
    let mut body = body.finish(16);
    body.extend_from_slice(name);
    body.push(0);
    message(INVALIDATE_ENTRY, &body)
}

/// The root's inode number, which the kernel always knows.
pub const ROOT: u64 = 1;

/// Makes the kernel send a request (`FUSE_NOTIFY_REPLY`) with `unique` as its number, and with no bytes of the cached
/// pages of an inode. The kernel must know the inode, and newer kernels refuse any but a regular file (EINVAL; 6.18.44
/// does).
pub fn retrieve_nothing(unique: u64, inode: u64) -> Message {
    let mut body = Writer::with_capacity(32);
    // From the beginning, no bytes, and padding.
    body.u64(unique).u64(inode).u64(0).u32(0).u32(0);
    message(RETRIEVE, &body.finish(32))
}

/// Makes the kernel forget an unused inode and its cached names.
pub fn prune(inode: u64) -> Message {
    // The number of inodes, and padding.
    let mut body = Writer::with_capacity(24);
    body.u32(1).u32(0).u64(0).u64(inode);
    message(PRUNE, &body.finish(24))
}

fn message(code: i32, body: &[u8]) -> Message {
    let mut message = encode_out(body.len(), code, 0).to_vec();
    message.extend_from_slice(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_codes_are_those_of_the_protocol() {
        let message = invalidate_inode(1, -1, 0);
        assert_eq!((&message[..4], message.len()), (&40_u32.to_ne_bytes()[..], 40));
        assert_eq!(message[4..8], 2_i32.to_ne_bytes());
        assert_eq!(message[24..32], (-1_i64).to_ne_bytes());
        let message = invalidate_entry(5, b"new");
        assert_eq!((&message[..4], message.len()), (&36_u32.to_ne_bytes()[..], 36));
        assert_eq!((&message[4..8], &message[16..24]), (&3_i32.to_ne_bytes()[..], &5_u64.to_ne_bytes()[..]));
        assert_eq!((&message[24..28], &message[32..]), (&3_u32.to_ne_bytes()[..], &b"new\0"[..]));
        let message = retrieve_nothing(6, 1);
        assert_eq!((&message[..4], message.len()), (&48_u32.to_ne_bytes()[..], 48));
        assert_eq!((&message[4..8], &message[16..24]), (&5_i32.to_ne_bytes()[..], &6_u64.to_ne_bytes()[..]));
        assert_eq!((&message[24..32], &message[32..]), (&1_u64.to_ne_bytes()[..], &[0; 16][..]));
        let message = prune(7);
        assert_eq!((&message[..4], message.len()), (&40_u32.to_ne_bytes()[..], 40));
        assert_eq!((&message[4..8], &message[16..20]), (&9_i32.to_ne_bytes()[..], &1_u32.to_ne_bytes()[..]));
        assert_eq!(message[32..40], 7_u64.to_ne_bytes());
    }
}
