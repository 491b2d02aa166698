//! What the daemon tells the kernel without being asked.

use super::header::encode_out;
use super::wire::Writer;

/// A message to the kernel, whole.
pub type Message = Vec<u8>;

/// Cached attributes of an inode are outdated, and its pages from `offset` on: `len` bytes, 0 for all. A negative offset
/// concerns the attributes alone. Dirty pages are written back first.
pub fn invalidate_inode(inode: u64, offset: i64, len: i64) -> Message {
    let mut body = Writer::with_capacity(24);
    body.u64(inode).i64(offset).i64(len);
    whole(2, &body.finish(24), &[])
}

/// A cached name is outdated.
pub fn invalidate_entry(parent: u64, name: &[u8]) -> Message {
    let mut body = Writer::with_capacity(16);
    body.u64(parent).u32(name.len() as u32).u32(0);
    whole(3, &body.finish(16), &[name, &[0]])
}

/// Pages of an inode have this content from `offset` on.
pub fn store(inode: u64, offset: u64, data: &[u8]) -> Message {
    let mut body = Writer::with_capacity(24);
    body.u64(inode).u64(offset).u32(data.len() as u32).u32(0);
    whole(4, &body.finish(24), &[data])
}

fn whole(code: i32, body: &[u8], parts: &[&[u8]]) -> Message {
    let len = body.len() + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut message = encode_out(len, code, 0).to_vec();
    message.extend_from_slice(body);
    parts.iter().for_each(|part| message.extend_from_slice(part));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_codes_are_those_of_the_protocol() {
        let entry = invalidate_entry(1, b"name");
        assert_eq!(entry[..4], (16 + 16 + 5_u32).to_ne_bytes());
        assert_eq!(entry[4..8], 3_i32.to_ne_bytes());
        assert!(entry.ends_with(b"name\0"));
        assert_eq!(invalidate_inode(1, -1, 0).len(), 40);
        assert_eq!(store(1, 0, &[7; 10]).len(), 50);
    }
}
