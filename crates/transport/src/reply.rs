//! The reply to one request, given once, now or later, by any thread.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::device::Device;
use crate::errno::Errno;
use crate::interrupts::{Interrupts, has_signal};
use crate::protocol::attributes::{Attributes, Entry, Statfs, Statx};
use crate::protocol::header::InHeader;
use crate::protocol::listing::Listing;
use crate::protocol::opcode;
use crate::protocol::wire_out;
use crate::rings::slot::Slot;

const PAGE_BYTES: usize = 4096;

thread_local! {
    /// The buffer for content on its way to `/dev/fuse`, as large as the largest reply so far.
    static CONTENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The state that all requests of a session share.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) device: Device,
    pub(crate) interrupts: Interrupts,
}

/// The way back.
pub(crate) enum Back {
    Device,
    Ring(Slot),
}

/// The reply to one request. Dropped before it is given, it answers EIO.
pub struct Reply {
    connection: Arc<Connection>,
    unique: u64,
    opcode: u32,
    /// The caller's thread.
    caller: u32,
    /// None: answered.
    back: Option<Back>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reply to request {} ({})", self.unique, opcode::name(self.opcode))
    }
}

impl Reply {
    pub(crate) fn new(connection: Arc<Connection>, header: &InHeader, back: Back) -> Self {
        let InHeader { unique, opcode, pid: caller, .. } = *header;
        Self { connection, unique, opcode, caller, back: Some(back) }
    }

    /// The request's number, as [`Service::interrupt`](crate::Service::interrupt) names it.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Whether the caller got a signal before the request began to wait. A request that is about to wait long calls
    /// this once [`Service::interrupt`](crate::Service::interrupt) can find it, so that no signal is lost in between.
    /// Over rings this reads a file of `/proc`.
    pub fn is_interrupted(&self) -> bool {
        self.connection.interrupts.take(self.unique)
            || matches!(self.back, Some(Back::Ring(_))) && has_signal(self.caller)
    }

    /// Sends no reply, because the kernel expects none. An entry of a ring still goes back to the kernel.
    pub(crate) fn none(mut self) {
        match self.back.take() {
            Some(Back::Ring(slot)) => slot.reply(self.unique, 0, Vec::new()),
            Some(Back::Device) | None => {}
        }
    }

    /// The operation failed.
    pub fn error(mut self, errno: Errno) {
        self.send(errno.code(), Vec::new());
    }

    /// The operation succeeded without a result.
    pub fn ok(self) {
        self.body(Vec::new());
    }

    /// The inode of a name: LOOKUP, MKNOD, MKDIR, SYMLINK, LINK.
    pub fn entry(self, entry: &Entry) {
        self.body(entry.encode());
    }

    /// A new file and its handle: CREATE, TMPFILE. `opened`: flags of [`flags::opened`](crate::flags::opened).
    pub fn created(self, entry: &Entry, handle: u64, opened: u32) {
        self.body(entry.encode_created(handle, opened));
    }

    /// Attributes, valid for `valid`: GETATTR, SETATTR.
    pub fn attributes(self, attributes: &Attributes, valid: Duration) {
        self.body(attributes.encode_out(valid));
    }

    /// The result of statx(2), valid for `valid`.
    pub fn statx(self, statx: &Statx, valid: Duration) {
        self.body(statx.encode_out(valid));
    }

    /// A handle: OPEN, OPENDIR. `opened`: flags of [`flags::opened`](crate::flags::opened).
    pub fn opened(self, handle: u64, opened: u32) {
        self.body(wire_out::opened(handle, opened));
    }

    /// The number of bytes written or copied: WRITE, COPY_FILE_RANGE.
    pub fn written(self, bytes: u64) {
        let is_wide = self.opcode == opcode::COPY_FILE_RANGE_64;
        self.body(wire_out::written(bytes, is_wide));
    }

    /// The length of an extended attribute or of the list of names: GETXATTR and LISTXATTR with a size of 0.
    pub fn size(self, bytes: u32) {
        self.body(wire_out::size(bytes));
    }

    /// Where data or a hole begins: LSEEK.
    pub fn found_at(self, offset: u64) {
        self.body(offset.to_ne_bytes().to_vec());
    }

    /// The file system as a whole: STATFS.
    pub fn statfs(self, statfs: &Statfs) {
        self.body(statfs.encode());
    }

    /// The result of ioctl(2), and its output for the caller.
    pub fn ioctl(self, result: i32, output: &[u8]) {
        self.body(wire_out::ioctl(result, output));
    }

    /// Entries of a directory: READDIR, READDIRPLUS.
    pub fn listing(self, listing: Listing) {
        self.body(listing.into_bytes());
    }

    /// Bytes that are already in memory: READ, READLINK, GETXATTR, LISTXATTR.
    pub fn data(mut self, bytes: &[u8]) {
        match self.back.take() {
            Some(Back::Device) => self.connection.device.reply(self.unique, 0, bytes),
            Some(Back::Ring(slot)) => slot.reply_data(self.unique, bytes),
            None => {}
        }
    }

    /// Up to `len` bytes, which `fill` writes to the memory that the kernel takes them from, at a page's boundary.
    /// `fill` returns their number.
    pub fn fill(mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        match self.back.take() {
            Some(Back::Device) => self.fill_for_device(len, fill),
            Some(Back::Ring(slot)) => slot.fill(self.unique, len, fill),
            None => {}
        }
    }

    fn fill_for_device(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let mut content = CONTENT.take();
        if content.len() < len + PAGE_BYTES {
            content.resize(len + PAGE_BYTES, 0);
        }
        let start = content.as_ptr().align_offset(PAGE_BYTES);
        let room = &mut content[start..start + len];
        match fill(room) {
            Ok(filled) => self.connection.device.reply(self.unique, 0, &room[..filled]),
            Err(errno) => self.connection.device.reply(self.unique, errno.code(), &[]),
        }
        CONTENT.set(content);
    }

    fn body(mut self, body: Vec<u8>) {
        self.send(0, body);
    }

    fn send(&mut self, error: i32, body: Vec<u8>) {
        match self.back.take() {
            Some(Back::Device) => self.connection.device.reply(self.unique, error, &body),
            Some(Back::Ring(slot)) => slot.reply(self.unique, error, body),
            None => {}
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.back.is_some() {
            log::error!("a request was dropped without an answer: {} {}", opcode::name(self.opcode), self.unique);
            self.send(libc::EIO, Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The reply that the kernel would get: its errno and its body.
    fn told(answer: impl FnOnce(Reply)) -> (i32, Vec<u8>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let device = Device::new(ours.into());
        let connection = Arc::new(Connection { device, interrupts: Interrupts::default() });
        let header =
            InHeader { len: 80, opcode: opcode::READ, unique: 9, inode: 1, uid: 0, gid: 0, pid: 0, extensions_len: 0 };
        answer(Reply::new(connection.clone(), &header, Back::Device));
        drop(connection);
        let mut message = Vec::new();
        theirs.read_to_end(&mut message).unwrap();
        assert_eq!(message[8..16], 9_u64.to_ne_bytes(), "the number of the request");
        (-i32::from_ne_bytes(message[4..8].try_into().unwrap()), message[16..].to_vec())
    }

    #[test]
    fn an_answer_is_filled_as_far_as_it_says() {
        let filled = told(|reply| {
            reply.fill(10, |room| {
                assert!(room.as_ptr().addr().is_multiple_of(PAGE_BYTES));
                room[..3].copy_from_slice(b"abc");
                Ok(3)
            });
        });
        assert_eq!(filled, (0, b"abc".to_vec()));
        assert_eq!(told(|reply| reply.fill(10, |_| Err(Errno::new(libc::ENXIO)))), (libc::ENXIO, Vec::new()));
    }

    #[test]
    fn whoever_forgets_to_answer_answers_with_an_input_output_error() {
        assert_eq!(told(drop), (libc::EIO, Vec::new()));
    }
}
