//! From bytes, which anybody may have written, to a request that can be served. Every length is checked, and nothing may
//! follow the end of a message.

use super::attributes::Time;
use super::extensions::Extensions;
use super::header::{IN_BYTES, InHeader};
use super::opcode::{self as op};
use super::operation::{Forgotten, Operation, SetAttributes, SetTime};
use super::wire::{Malformed, Reader};

/// What decoding has to know of what INIT agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// SETXATTR has a header of 16 bytes, not 8.
    pub is_setxattr_extended: bool,
}

/// A message that was checked: it can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who asks, about which inode.
    pub header: InHeader,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// Why a message cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The message's, if it has one.
    pub header: Option<InHeader>,
    /// What is wrong.
    pub why: Malformed,
}

impl<'a> Request<'a> {
    /// Checks a whole message.
    ///
    /// # Errors
    /// What does not follow the protocol is refused, with the header if there was one: then EIO can be answered.
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

/// An int of system calls, which the protocol has as an unsigned number.
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
                // The kernel gives it the name of no file.
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
        // The inode stands in the header.
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
