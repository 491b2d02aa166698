//! The tree's answers to the kernel.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use oncefs_transport::flags::{init, opened};
use oncefs_transport::protocol::attributes::{Entry, Statfs, Statx};
use oncefs_transport::protocol::extensions::Extensions;
use oncefs_transport::protocol::listing::{Listed, Listing};
use oncefs_transport::{Negotiation, Operation, Reply, Request, Service, may_be_late, may_wait};

use super::nodes::{Answer, Nodes, ROOT, errno};

const VALID: Duration = Duration::from_secs(60);
/// `TREE_IOC_ECHO`: the sum of two bytes, `_IOWR('T', 1, [u8; 2])`.
const ECHO: u32 = 0xc002_5401;

/// A file tree.
pub struct Tree(Mutex<State>);

struct State {
    nodes: Nodes,
    /// Reads that wait for a signal, by number.
    waiting: HashMap<u64, Reply>,
    interrupted: u64,
    waited: u64,
    /// Reads that would have waited, had their queue had another entry.
    refused: u64,
    /// Bytes.
    largest_read: u32,
}

impl Tree {
    pub fn new() -> Self {
        let mut nodes = Nodes::new();
        for name in ["wait", "stats"] {
            let inode = nodes.make(libc::S_IFREG | 0o644, 0, Vec::new());
            nodes.link(ROOT, name.as_bytes(), inode).expect("the root is empty");
        }
        Self(Mutex::new(State {
            nodes,
            waiting: HashMap::new(),
            interrupted: 0,
            waited: 0,
            refused: 0,
            largest_read: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, name: &[u8], inode: u64) -> bool {
        self.lock().nodes.find(ROOT, name) == Ok(inode)
    }

    /// Holds its thread until there is a file `go`, and then waits for a signal if other requests can come meanwhile.
    fn read_patiently(&self, reply: Reply) {
        may_wait();
        while self.lock().nodes.find(ROOT, b"go").is_err() {
            thread::sleep(Duration::from_millis(1));
        }
        match may_be_late() {
            true => self.lock().wait(reply),
            false => {
                self.lock().refused += 1;
                reply.error(errno(libc::EBUSY));
            }
        }
    }
}

impl State {
    /// The reply that gives the kernel an inode.
    fn entry(&mut self, inode: u64) -> Answer<Entry> {
        let node = self.nodes.get_mut(inode)?;
        node.lookups += 1;
        let attributes = node.attributes;
        Ok(Entry { inode, generation: 0, name_valid: VALID, attributes_valid: VALID, attributes })
    }

    /// Makes an inode with a name, and returns the reply for the kernel. Labels become attributes.
    fn made(&mut self, parent: u64, name: &[u8], mode: u32, rdev: u32, extensions: &Extensions<'_>) -> Answer<Entry> {
        let inode = self.nodes.make(mode, rdev, Vec::new());
        self.nodes.link(parent, name, inode)?;
        for label in &extensions.security_contexts {
            self.nodes.get_mut(inode)?.xattrs.insert(label.name.to_vec(), label.value.to_vec());
        }
        self.entry(inode)
    }

    fn list(&mut self, directory: u64, cookie: u64, mut add: impl FnMut(&mut Self, &Listed<'_>) -> bool) -> Answer<()> {
        let names: Vec<_> =
            self.nodes.get(directory)?.names.iter().map(|(name, inode)| (name.clone(), *inode)).collect();
        for (at, (name, inode)) in names.iter().enumerate().skip(cookie as usize) {
            let mode = self.nodes.get(*inode)?.attributes.mode;
            if !add(self, &Listed { inode: *inode, cookie: at as u64 + 1, mode, name }) {
                break;
            }
        }
        Ok(())
    }

    fn read(&mut self, inode: u64, offset: u64, size: u32, reply: Reply) {
        let is = |name: &[u8]| self.nodes.find(ROOT, name).is_ok_and(|found| found == inode);
        if is(b"stats") {
            let (nodes, interrupted, waited) = (self.nodes.count(), self.interrupted, self.waited);
            let (refused, largest_read) = (self.refused, self.largest_read);
            let text = format!(
                "nodes={nodes} interrupted={interrupted} waited={waited} refused={refused} largest_read={largest_read}\n"
            );
            let rest = text.as_bytes().get(offset as usize..).unwrap_or_default();
            return reply.data(&rest[..rest.len().min(size as usize)]);
        }
        if is(b"wait") {
            return self.wait(reply);
        }
        self.largest_read = self.largest_read.max(size);
        match self.nodes.read(inode, offset, size.into()) {
            Ok(bytes) => reply.fill(size as usize, |room| {
                room[..bytes.len()].copy_from_slice(bytes);
                Ok(bytes.len())
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn wait(&mut self, reply: Reply) {
        self.waited += 1;
        let unique = reply.unique();
        self.waiting.insert(unique, reply);
        if self.waiting[&unique].is_interrupted() {
            self.interrupt(unique);
        }
    }

    fn interrupt(&mut self, unique: u64) -> bool {
        let found = self.waiting.remove(&unique);
        self.interrupted += u64::from(found.is_some());
        found.map(|reply| reply.error(errno(libc::EINTR))).is_some()
    }
}

fn give<T>(answer: Answer<T>, reply: Reply, give: impl FnOnce(Reply, T)) {
    match answer {
        Ok(value) => give(reply, value),
        Err(errno) => reply.error(errno),
    }
}

/// Replies with a value, or with its length if `size` is 0.
fn give_value(value: &[u8], size: u32, reply: Reply) {
    match size {
        0 => reply.size(value.len() as u32),
        _ if value.len() > size as usize => reply.error(errno(libc::ERANGE)),
        _ => reply.data(value),
    }
}

impl Service for Tree {
    fn init(&mut self, negotiation: &mut Negotiation) -> io::Result<()> {
        for flag in [
            init::WRITEBACK_CACHE,
            init::ATOMIC_O_TRUNC,
            init::DO_READDIRPLUS,
            init::READDIRPLUS_AUTO,
            init::PARALLEL_DIROPS,
            init::SETXATTR_EXT,
            init::HANDLE_KILLPRIV_V2,
            init::NO_OPENDIR_SUPPORT,
            init::SECURITY_CTX,
            init::CREATE_SUPP_GROUP,
        ] {
            negotiation.want(flag);
        }
        negotiation.request_bytes_max = 1 << 20;
        Ok(())
    }

    fn serve(&self, request: Request<'_>, reply: Reply) {
        let inode = request.header.inode;
        if matches!(request.operation, Operation::Read { .. }) && self.is(b"patient", inode) {
            return self.read_patiently(reply);
        }
        let state = &mut *self.lock();
        let entry = |reply: Reply, entry| reply.entry(&entry);
        let ok = |reply: Reply, ()| reply.ok();
        match request.operation {
            Operation::Lookup { name } => {
                give(state.nodes.find(inode, name).and_then(|found| state.entry(found)), reply, entry);
            }
            Operation::Getattr { .. } => give(state.nodes.get(inode), reply, |reply, node| {
                reply.attributes(&node.attributes, VALID);
            }),
            Operation::Statx { .. } => give(state.nodes.get(inode), reply, |reply, node| {
                let attributes = node.attributes;
                reply.statx(&Statx { attributes, birth: Some(node.birth), flags: 0, flags_known: 0 }, VALID);
            }),
            Operation::Setattr(set) => give(state.nodes.set(inode, &set), reply, |reply, attributes| {
                reply.attributes(&attributes, VALID);
            }),
            Operation::Readlink => give(state.nodes.get(inode), reply, |reply, node| reply.data(&node.data)),
            Operation::Symlink { name, target, .. } => {
                let link = state.nodes.make(libc::S_IFLNK | 0o777, 0, target.to_vec());
                give(state.nodes.link(inode, name, link).and_then(|()| state.entry(link)), reply, entry);
            }
            Operation::Mknod { name, mode, rdev, extensions, .. } => {
                give(state.made(inode, name, mode, rdev, &extensions), reply, entry);
            }
            Operation::Mkdir { name, mode, extensions, .. } => {
                give(state.made(inode, name, libc::S_IFDIR | mode, 0, &extensions), reply, entry);
            }
            Operation::Create { name, mode, extensions, .. } => {
                give(state.made(inode, name, mode, 0, &extensions), reply, |reply, made| {
                    reply.created(&made, 0, opened::KEEP_CACHE);
                });
            }
            Operation::Tmpfile { mode, .. } => {
                let made = state.nodes.make(mode, 0, Vec::new());
                give(state.entry(made), reply, |reply, made| reply.created(&made, 0, opened::KEEP_CACHE));
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => give(state.nodes.unlink(inode, name), reply, ok),
            Operation::Rename { name, new_parent, new_name, flags } => {
                give(state.nodes.rename((inode, name), (new_parent, new_name), flags), reply, ok);
            }
            Operation::Link { of, name } => {
                give(state.nodes.link(inode, name, of).and_then(|()| state.entry(of)), reply, entry);
            }
            Operation::Open { flags, .. } => {
                let is_special =
                    [&b"wait"[..], b"patient", b"stats"].iter().any(|name| state.nodes.find(ROOT, name) == Ok(inode));
                if flags & libc::O_TRUNC != 0
                    && let Ok(node) = state.nodes.get_mut(inode)
                {
                    node.data.clear();
                    node.attributes.size = 0;
                }
                reply.opened(0, if is_special { opened::DIRECT_IO } else { opened::KEEP_CACHE });
            }
            Operation::Read { offset, size, .. } => state.read(inode, offset, size, reply),
            Operation::Write { offset, data, .. } => {
                give(state.nodes.write(inode, offset, data), reply, |reply, written| reply.written(written));
            }
            Operation::Fsync { .. } => {
                // Answered by another thread, later.
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(5));
                    reply.ok();
                });
            }
            Operation::Release { .. } | Operation::Flush { .. } | Operation::Fsyncdir { .. } => reply.ok(),
            Operation::Readdir { cookie, size, .. } => {
                let mut listing = Listing::new(size);
                let listed = state.list(inode, cookie, |_, entry| listing.add(entry));
                give(listed, reply, |reply, ()| reply.listing(listing));
            }
            Operation::ReaddirPlus { cookie, size, .. } => {
                let mut listing = Listing::new(size);
                let listed = state.list(inode, cookie, |state, listed| {
                    let Ok(entry) = state.entry(listed.inode) else { return false };
                    let is_added = listing.add_plus(listed, &entry);
                    if !is_added {
                        state.nodes.forget(listed.inode, 1);
                    }
                    is_added
                });
                give(listed, reply, |reply, ()| reply.listing(listing));
            }
            Operation::Statfs => reply.statfs(&Statfs {
                blocks: 4711,
                blocks_free: 42,
                block_bytes: 4096,
                name_bytes_max: 255,
                ..Statfs::default()
            }),
            Operation::Setxattr { name, value, .. } => give(state.nodes.get_mut(inode), reply, |reply, node| {
                node.xattrs.insert(name.to_vec(), value.to_vec());
                reply.ok();
            }),
            Operation::Getxattr { name, size } => {
                let found = state.nodes.get(inode).and_then(|node| node.xattrs.get(name).ok_or(errno(libc::ENODATA)));
                give(found, reply, |reply, value| give_value(value, size, reply));
            }
            Operation::Listxattr { size } => give(state.nodes.get(inode), reply, |reply, node| {
                let names: Vec<u8> = node.xattrs.keys().flat_map(|name| [name, &b"\0"[..]].concat()).collect();
                give_value(&names, size, reply);
            }),
            Operation::Removexattr { name } => {
                let removed = state.nodes.get_mut(inode).map(|node| node.xattrs.remove(name));
                give(removed.and_then(|old| old.map(drop).ok_or(errno(libc::ENODATA))), reply, ok);
            }
            Operation::Fallocate { offset, len, .. } => give(state.nodes.get_mut(inode), reply, |reply, node| {
                let end = node.data.len().max((offset + len) as usize);
                node.data.resize(end, 0);
                node.attributes.size = end as u64;
                reply.ok();
            }),
            Operation::Lseek { offset, whence, .. } => give(state.nodes.get(inode), reply, |reply, node| {
                reply.found_at(if whence == libc::SEEK_HOLE { node.data.len() as u64 } else { offset.unsigned_abs() });
            }),
            Operation::CopyFileRange { offset, target, target_offset, len, .. } => {
                let bytes = state.nodes.read(inode, offset, len).map(<[u8]>::to_vec);
                let copied = bytes.and_then(|bytes| state.nodes.write(target, target_offset, &bytes));
                give(copied, reply, |reply, copied| reply.written(copied));
            }
            Operation::Ioctl { command: ECHO, input: [one, two], .. } => {
                reply.ioctl(i32::from(*one) + i32::from(*two), &[*two, *one]);
            }
            Operation::Ioctl { .. } => reply.error(errno(libc::ENOTTY)),
            _ => reply.error(errno(libc::ENOSYS)),
        }
    }

    fn forget(&self, inode: u64, lookups: u64) {
        self.lock().nodes.forget(inode, lookups);
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.lock().interrupt(unique)
    }
}
