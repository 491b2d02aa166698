//! Decodes untrusted bytes into a request that can be served. Every length is checked, and no bytes may follow the end
//! of a message.

use super::attributes::Time;
use super::extensions::Extensions;
use super::header::{IN_BYTES, InHeader};
use super::opcode::{self as op};
use super::operation::{Forgotten, Operation, SetAttributes, SetTime};
use super::wire::{Malformed, Reader};

/// The results of INIT that decoding depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// SETXATTR has a header of 16 bytes, not 8.
    pub is_setxattr_extended: bool,
}

/// A checked message, which can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The caller and the inode.
    pub header: InHeader,
    /// The operation.
    pub operation: Operation<'a>,
}

/// Why a message cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The header, if the message has one.
    pub header: Option<InHeader>,
    /// The fault in the message.
    pub why: Malformed,
}

impl<'a> Request<'a> {
    /// Checks a whole message.
    ///
    /// # Errors
    /// The message breaks the protocol. The error has the header if there was one, so that the caller can answer EIO.
    pub fn decode(message: &'a [u8], protocol: Protocol) -> Result<Self, Refused> {
        let mut reader = Reader::new(message);
        let header = InHeader::decode(&mut reader).map_err(|why| Refused { header: None, why })?;
        let refused = |why| Refused { header: Some(header), why };
        if header.len as usize != message.len() {
            return Err(refused(Malformed("its length is not the one it says")));
        }
        let body_len = (message.len() - IN_BYTES).checked_sub(header.extensions_len);
        let body_len = body_len.ok_or(refused(Malformed("its extensions are longer than it")))?;
        let (body, extensions) = message[IN_BYTES..].split_at(body_len);
        let mut operation = decode_body(header.opcode, body, extensions, protocol).map_err(refused)?;
        if let Operation::Forget(Forgotten::One(inode, _)) = &mut operation {
            *inode = header.inode;
        }
        Ok(Self { header, operation })
    }
}

fn decode_body<'a>(
    opcode: u32,
    body: &'a [u8],
    extensions: &'a [u8],
    protocol: Protocol,
) -> Result<Operation<'a>, Malformed> {
    let mut reader = Reader::new(body);
    let operation = match opcode {
        op::SYMLINK | op::MKNOD | op::MKDIR | op::TMPFILE | op::CREATE => {
            creation(opcode, &mut reader, Extensions::decode(extensions)?)?
        }
        _ if !extensions.is_empty() => return Err(Malformed("it has extensions that it cannot have")),
        op::LOOKUP | op::UNLINK | op::RMDIR | op::REMOVEXATTR | op::RENAME | op::RENAME2 | op::LINK => {
            of_names(opcode, &mut reader)?
        }
        op::SETXATTR | op::GETXATTR | op::LISTXATTR => of_xattrs(opcode, &mut reader, protocol)?,
        op::GETATTR | op::STATX | op::SETATTR | op::ACCESS => of_attributes(opcode, &mut reader)?,
        op::READ | op::WRITE | op::READDIR | op::READDIRPLUS => of_content(opcode, &mut reader)?,
        op::FALLOCATE | op::LSEEK | op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 | op::IOCTL => {
            of_ranges(opcode, &mut reader)?
        }
        op::OPEN | op::OPENDIR | op::RELEASE | op::RELEASEDIR | op::FLUSH | op::FSYNC | op::FSYNCDIR => {
            of_handles(opcode, &mut reader)?
        }
        op::FORGET | op::BATCH_FORGET | op::INTERRUPT => without_reply(opcode, &mut reader)?,
        op::READLINK => Operation::Readlink,
        op::STATFS => Operation::Statfs,
        op::DESTROY => Operation::Destroy,
        op::SYNCFS => reader.u64().map(|_| Operation::Syncfs)?,
        _ => return Ok(Operation::Unknown),
    };
    reader.end()?;
    Ok(operation)
}

/// An `int` of a system call, which the protocol sends as an unsigned number.
fn int(number: u32) -> i32 {
    i32::from_ne_bytes(number.to_ne_bytes())
}

fn creation<'a>(opcode: u32, from: &mut Reader<'a>, extensions: Extensions<'a>) -> Result<Operation<'a>, Malformed> {
    /// `FUSE_OPEN_KILL_SUIDGID`.
    const KILL_SUIDGID: u32 = 1;
    Ok(match opcode {
        op::SYMLINK => {
            let (name, target) = (from.name()?, from.text()?);
            Operation::Symlink { name, target, extensions }
        }
        op::MKNOD => {
            let (mode, rdev, umask) = (from.u32()?, from.u32()?, from.u32()?);
            from.skip(4)?;
            Operation::Mknod { name: from.name()?, mode, umask, rdev, extensions }
        }
        op::MKDIR => {
            let (mode, umask) = (from.u32()?, from.u32()?);
            Operation::Mkdir { name: from.name()?, mode, umask, extensions }
        }
        _ => {
            let (flags, mode, umask, open_flags) = (int(from.u32()?), from.u32()?, from.u32()?, from.u32()?);
            let (name, kills_privileges) = (from.text()?, open_flags & KILL_SUIDGID != 0);
            match opcode {
                // The name in a TMPFILE is not a file's.
                op::TMPFILE => Operation::Tmpfile { mode, umask, flags, extensions },
                _ if name.is_empty() => return Err(Malformed("a name is empty")),
                _ => Operation::Create { name, mode, umask, flags, kills_privileges, extensions },
            }
        }
    })
}

fn of_names<'a>(opcode: u32, from: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match opcode {
        op::LOOKUP => Operation::Lookup { name: from.name()? },
        op::UNLINK => Operation::Unlink { name: from.name()? },
        op::RMDIR => Operation::Rmdir { name: from.name()? },
        op::REMOVEXATTR => Operation::Removexattr { name: from.name()? },
        op::LINK => Operation::Link { of: from.u64()?, name: from.name()? },
        _ => {
            let new_parent = from.u64()?;
            let flags = if opcode == op::RENAME2 { from.u32()? } else { 0 };
            from.skip(if opcode == op::RENAME2 { 4 } else { 0 })?;
            Operation::Rename { name: from.name()?, new_parent, new_name: from.name()?, flags }
        }
    })
}

fn of_xattrs<'a>(opcode: u32, from: &mut Reader<'a>, protocol: Protocol) -> Result<Operation<'a>, Malformed> {
    /// `FUSE_SETXATTR_ACL_KILL_SGID`.
    const ACL_KILL_SGID: u32 = 1;
    let size = from.u32()?;
    Ok(match opcode {
        op::SETXATTR => {
            let flags = int(from.u32()?);
            let extended = if protocol.is_setxattr_extended { from.u32()? } else { 0 };
            from.skip(if protocol.is_setxattr_extended { 4 } else { 0 })?;
            let (name, clears_set_group_id) = (from.name()?, extended & ACL_KILL_SGID != 0);
            Operation::Setxattr { name, value: from.bytes(size as usize)?, flags, clears_set_group_id }
        }
        op::GETXATTR => {
            from.skip(4)?;
            Operation::Getxattr { name: from.name()?, size }
        }
        _ => {
            from.skip(4)?;
            Operation::Listxattr { size }
        }
    })
}

fn of_attributes<'a>(opcode: u32, from: &mut Reader<'_>) -> Result<Operation<'a>, Malformed> {
    /// `FUSE_GETATTR_FH`.
    const HAS_HANDLE: u32 = 1;
    if opcode == op::SETATTR {
        return set_attributes(from).map(Operation::Setattr);
    }
    let first = from.u32()?;
    from.skip(4)?;
    if opcode == op::ACCESS {
        return Ok(Operation::Access { mask: first });
    }
    let handle = Some(from.u64()?).filter(|_| first & HAS_HANDLE != 0);
    Ok(match opcode {
        op::GETATTR => Operation::Getattr { handle },
        _ => Operation::Statx { handle, flags: from.u32()?, mask: from.u32()? },
    })
}

/// `fuse_setattr_in`: bits say which fields count (`FATTR_...`).
fn set_attributes(from: &mut Reader<'_>) -> Result<SetAttributes, Malformed> {
    let valid = from.u32()?;
    let has = |bit: u32| valid & (1 << bit) != 0;
    from.skip(4)?;
    let (handle, size, _lock_owner) = (from.u64()?, from.u64()?, from.u64()?);
    let seconds = [from.u64()?, from.u64()?, from.u64()?];
    let nanoseconds = [from.u32()?, from.u32()?, from.u32()?];
    let mode = from.u32()?;
    from.skip(4)?;
    let (uid, gid) = (from.u32()?, from.u32()?);
    from.skip(4)?;
    let time = |at: usize| Time { seconds: seconds[at].cast_signed(), nanoseconds: nanoseconds[at] };
    let counted = [has(4) && !has(7), has(5) && !has(8), has(10)];
    if (0..3).any(|at| counted[at] && nanoseconds[at] >= 1_000_000_000) {
        return Err(Malformed("a time has a second or more in nanoseconds"));
    }
    let set = |is_set, is_now, at| match (is_set, is_now) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(time(at))),
        (false, false) => None,
    };
    Ok(SetAttributes {
        handle: has(6).then_some(handle),
        mode: has(0).then_some(mode),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: set(has(4), has(7), 0),
        mtime: set(has(5), has(8), 1),
        ctime: has(10).then(|| time(2)),
        kills_privileges: has(11),
    })
}

/// `fuse_read_in` and `fuse_write_in`, which have the same fields.
fn of_content<'a>(opcode: u32, from: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let (handle, offset, size, write_flags) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
    let (_lock_owner, flags) = (from.u64()?, int(from.u32()?));
    from.skip(4)?;
    Ok(match opcode {
        op::READ => Operation::Read { handle, offset, size, flags },
        op::READDIR => Operation::Readdir { handle, cookie: offset, size },
        op::READDIRPLUS => Operation::ReaddirPlus { handle, cookie: offset, size },
        _ => {
            let data = from.rest();
            if data.len() != size as usize {
                return Err(Malformed("a write has other data than it says"));
            }
            if offset.checked_add(size.into()).is_none_or(|end| end > i64::MAX as u64) {
                return Err(Malformed("a write ends beyond any file"));
            }
            Operation::Write { handle, offset, data, write_flags, flags }
        }
    })
}

fn of_ranges<'a>(opcode: u32, from: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let handle = from.u64()?;
    Ok(match opcode {
        op::FALLOCATE => {
            let (offset, len, mode) = (from.u64()?, from.u64()?, int(from.u32()?));
            from.skip(4)?;
            Operation::Fallocate { handle, offset, len, mode }
        }
        op::LSEEK => {
            let (offset, whence) = (from.u64()?.cast_signed(), int(from.u32()?));
            from.skip(4)?;
            Operation::Lseek { handle, offset, whence }
        }
        op::IOCTL => {
            let (flags, command, argument) = (from.u32()?, from.u32()?, from.u64()?);
            let (input_len, output_bytes) = (from.u32()?, from.u32()?);
            Operation::Ioctl { handle, flags, command, argument, input: from.bytes(input_len as usize)?, output_bytes }
        }
        _ => {
            let (offset, target, target_handle) = (from.u64()?, from.u64()?, from.u64()?);
            let (target_offset, len, flags) = (from.u64()?, from.u64()?, from.u64()?);
            Operation::CopyFileRange { handle, offset, target, target_handle, target_offset, len, flags }
        }
    })
}

fn of_handles<'a>(opcode: u32, from: &mut Reader<'_>) -> Result<Operation<'a>, Malformed> {
    /// `FUSE_OPEN_KILL_SUIDGID`, and `FUSE_FSYNC_FDATASYNC`.
    const FIRST_FLAG: u32 = 1;
    if let op::OPEN | op::OPENDIR = opcode {
        let (flags, open_flags) = (int(from.u32()?), from.u32()?);
        return Ok(match opcode {
            op::OPEN => Operation::Open { flags, kills_privileges: open_flags & FIRST_FLAG != 0 },
            _ => Operation::Opendir { flags },
        });
    }
    let (handle, flags) = (from.u64()?, from.u32()?);
    from.skip(4)?;
    let is_data_only = flags & FIRST_FLAG != 0;
    Ok(match opcode {
        op::FSYNC => Operation::Fsync { handle, is_data_only },
        op::FSYNCDIR => Operation::Fsyncdir { handle, is_data_only },
        _ => {
            let _lock_owner = from.u64()?;
            match opcode {
                op::RELEASE => Operation::Release { handle, flags: int(flags) },
                op::RELEASEDIR => Operation::Releasedir { handle },
                _ => Operation::Flush { handle },
            }
        }
    })
}

fn without_reply<'a>(opcode: u32, from: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match opcode {
        op::INTERRUPT => Operation::Interrupt { unique: from.u64()? },
        // The inode is in the header.
        op::FORGET => Operation::Forget(Forgotten::One(0, from.u64()?)),
        _ => {
            let count = from.u32()? as usize;
            from.skip(4)?;
            let pairs = from.rest();
            if count.checked_mul(Forgotten::PAIR_BYTES) != Some(pairs.len()) {
                return Err(Malformed("it forgets another number of inodes than it says"));
            }
            Operation::Forget(Forgotten::Many(pairs))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of each operation's own header, as `struct fuse_..._in` of fuse.h has them, and the names after it.
    const LAYOUTS: [(u32, usize, &[u8]); 36] = [
        (op::LOOKUP, 0, b"n\0"),
        (op::FORGET, 8, b""),
        (op::GETATTR, 16, b""),
        (op::SETATTR, 88, b""),
        (op::READLINK, 0, b""),
        (op::SYMLINK, 0, b"n\0t\0"),
        (op::MKNOD, 16, b"n\0"),
        (op::MKDIR, 8, b"n\0"),
        (op::UNLINK, 0, b"n\0"),
        (op::RMDIR, 0, b"n\0"),
        (op::RENAME, 8, b"n\0m\0"),
        (op::LINK, 8, b"n\0"),
        (op::OPEN, 8, b""),
        (op::READ, 40, b""),
        (op::WRITE, 40, b""),
        (op::STATFS, 0, b""),
        (op::RELEASE, 24, b""),
        (op::FSYNC, 16, b""),
        (op::SETXATTR, 16, b"n\0"),
        (op::GETXATTR, 8, b"n\0"),
        (op::LISTXATTR, 8, b""),
        (op::REMOVEXATTR, 0, b"n\0"),
        (op::FLUSH, 24, b""),
        (op::READDIR, 40, b""),
        (op::ACCESS, 8, b""),
        (op::CREATE, 16, b"n\0"),
        (op::INTERRUPT, 8, b""),
        (op::IOCTL, 32, b""),
        (op::BATCH_FORGET, 8, b""),
        (op::FALLOCATE, 32, b""),
        (op::RENAME2, 16, b"n\0m\0"),
        (op::LSEEK, 24, b""),
        (op::COPY_FILE_RANGE, 56, b""),
        (op::SYNCFS, 8, b""),
        (op::TMPFILE, 16, b"\0"),
        (op::STATX, 24, b""),
    ];

    fn message(opcode: u32, len: usize, names: &[u8]) -> Vec<u8> {
        let mut message = vec![0; IN_BYTES + len];
        message.extend_from_slice(names);
        let whole = message.len() as u32;
        message[..4].copy_from_slice(&whole.to_ne_bytes());
        message[4..8].copy_from_slice(&opcode.to_ne_bytes());
        message
    }

    #[test]
    fn every_header_has_the_size_that_the_kernel_gives_it() {
        let protocol = Protocol { is_setxattr_extended: true };
        for (opcode, len, names) in LAYOUTS {
            let name = op::name(opcode);
            let is_accepted = |len| match Request::decode(&message(opcode, len, names), protocol) {
                Ok(request) => !matches!(request.operation, Operation::Unknown),
                Err(_) => false,
            };
            assert!(is_accepted(len), "{name} with a header of {len} bytes");
            assert!(!is_accepted(len + 8), "{name} with 8 bytes more than {len}");
            assert!(len == 0 || !is_accepted(len - 8), "{name} with 8 bytes less than {len}");
        }
        assert!(Request::decode(&message(op::SETXATTR, 8, b"n\0"), Protocol::default()).is_ok(), "before 7.33");
    }

    #[test]
    fn a_message_of_another_length_than_it_says_is_refused_with_its_header() {
        let mut bytes = message(op::READLINK, 0, b"");
        bytes[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        bytes.push(0);
        let refused = Request::decode(&bytes, Protocol::default()).unwrap_err();
        assert_eq!(refused.header.map(|header| header.unique), Some(77));
        assert_eq!(Request::decode(&bytes[..39], Protocol::default()).unwrap_err().header, None);
    }

    #[test]
    fn a_write_has_the_data_that_it_says_and_ends_within_a_file() {
        let mut bytes = message(op::WRITE, 40, b"data");
        let with = |bytes: &mut Vec<u8>, offset: u64, size: u32| {
            bytes[48..56].copy_from_slice(&offset.to_ne_bytes());
            bytes[56..60].copy_from_slice(&size.to_ne_bytes());
            Request::decode(bytes, Protocol::default()).is_ok()
        };
        assert!(with(&mut bytes, 0, 4) && with(&mut bytes, i64::MAX as u64 - 4, 4));
        assert!(!with(&mut bytes, 0, 3) && !with(&mut bytes, 0, 5));
        assert!(!with(&mut bytes, i64::MAX as u64 - 3, 4) && !with(&mut bytes, u64::MAX, 4));
    }

    #[test]
    fn times_before_1970_count_forwards_and_nanoseconds_stay_below_a_second() {
        let mut bytes = message(op::SETATTR, 88, b"");
        bytes[40..44].copy_from_slice(&(1_u32 << 5).to_ne_bytes());
        bytes[80..88].copy_from_slice(&(-2_i64).to_ne_bytes());
        bytes[100..104].copy_from_slice(&800_000_000_u32.to_ne_bytes());
        let Ok(Request { operation: Operation::Setattr(set), .. }) = Request::decode(&bytes, Protocol::default())
        else {
            panic!("a change of the time was refused");
        };
        let expected = SetTime::At(Time { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!((set.mtime, set.atime, set.mode), (Some(expected), None, None));
        bytes[100..104].copy_from_slice(&1_000_000_000_u32.to_ne_bytes());
        assert!(Request::decode(&bytes, Protocol::default()).is_err());
    }
}
