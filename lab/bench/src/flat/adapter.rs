//! Connects the flat file system to the transport: flags, cache times and the operations that the workloads use.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oncefs_transport::flags::{init, opened};
use oncefs_transport::protocol::attributes::{Attributes, Entry, Statfs, Time};
use oncefs_transport::protocol::header::InHeader;
use oncefs_transport::protocol::listing::{Listed, Listing};
use oncefs_transport::protocol::operation::{SetAttributes, SetTime};
use oncefs_transport::{Errno, Negotiation, Operation, Reply, Request, Service};
use parking_lot::Mutex;

use super::data::Data;
use super::names::{Kind, Names, Node};
use crate::failure::{During, tell};

/// Nobody else changes the files, so the kernel may cache names and attributes for long.
const KEEP: Duration = Duration::from_secs(3600);
const MAX_BACKGROUND: u16 = 64;
const MAX_READAHEAD_BYTES: u32 = 128 << 10;

const WANTED: [u64; 9] = [
    init::WRITEBACK_CACHE,
    init::PARALLEL_DIROPS,
    init::DO_READDIRPLUS,
    init::READDIRPLUS_AUTO,
    init::ASYNC_DIO,
    init::ATOMIC_O_TRUNC,
    init::EXPLICIT_INVAL_DATA,
    init::CACHE_SYMLINKS,
    init::NO_OPENDIR_SUPPORT,
];

/// The file system's state.
pub struct Flat {
    names: Mutex<Names>,
    names_file: PathBuf,
    data: Data,
    max_write: u32,
}

/// An answer, or what went wrong.
type Answer<T> = Result<T, Errno>;

fn errno(code: i32) -> Errno {
    Errno::new(code)
}

fn time(of: SystemTime) -> Time {
    let since = of.duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

fn attributes_of(inode: u64, node: &Node) -> Attributes {
    let (kind, nlink) = match node.kind {
        Kind::Directory(_) => (libc::S_IFDIR, 2),
        Kind::File(_) => (libc::S_IFREG, 1),
    };
    let mtime = time(node.mtime);
    Attributes {
        inode,
        size: node.size,
        blocks: node.size.div_ceil(512),
        atime: mtime,
        mtime,
        ctime: mtime,
        mode: kind | u32::from(node.mode),
        nlink,
        uid: node.uid,
        gid: node.gid,
        rdev: 0,
        block_bytes: 4096,
    }
}

fn entry_of(attributes: Attributes) -> Entry {
    Entry { inode: attributes.inode, generation: 0, name_valid: KEEP, attributes_valid: KEEP, attributes }
}

fn name_of(bytes: &[u8]) -> Answer<&str> {
    std::str::from_utf8(bytes).map_err(|_| errno(libc::EINVAL))
}

impl Flat {
    /// Serves `names`, saving them to `names_file` at unmount.
    pub fn new(names: Names, names_file: PathBuf, data: Data, max_write: u32) -> Flat {
        Flat { names: Mutex::new(names), names_file, data, max_write }
    }

    fn attributes(&self, inode: u64) -> Answer<Attributes> {
        let names = self.names.lock();
        names.node(inode).map(|node| attributes_of(inode, node)).ok_or(errno(libc::ENOENT))
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Answer<Attributes> {
        let names = self.names.lock();
        let found = names.entries(parent).and_then(|entries| entries.get(std::str::from_utf8(name).ok()?).copied());
        let found = found.and_then(|inode| names.node(inode).map(|node| attributes_of(inode, node)));
        found.ok_or(errno(libc::ENOENT))
    }

    fn insert(&self, header: &InHeader, name: &[u8], kind: Kind, mode: u32) -> Answer<Attributes> {
        let node = Node::new(kind, (mode & 0o7777) as u16, header.uid, header.gid);
        let mut names = self.names.lock();
        let inode = names.insert(header.inode, name_of(name)?, node).ok_or(errno(libc::ENOTDIR))?;
        names.node(inode).map(|node| attributes_of(inode, node)).ok_or(errno(libc::EIO))
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Answer<()> {
        self.names.lock().remove(parent, name_of(name)?).ok_or(errno(libc::ENOENT))
    }

    fn set(&self, inode: u64, set: &SetAttributes) -> Answer<Attributes> {
        let mut names = self.names.lock();
        let node = names.node_mut(inode).ok_or(errno(libc::ENOENT))?;
        node.mode = set.mode.map_or(node.mode, |mode| (mode & 0o7777) as u16);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        match set.mtime {
            // Times before 1970 are of no use to a measurement.
            Some(SetTime::At(at)) => {
                node.mtime = UNIX_EPOCH + Duration::new(u64::try_from(at.seconds).unwrap_or(0), at.nanoseconds);
            }
            Some(SetTime::Now) => node.mtime = SystemTime::now(),
            None => {}
        }
        if let Some(size) = set.size {
            node.size = size;
            if let (Kind::File(chunks), 0) = (&mut node.kind, size) {
                chunks.clear();
            }
        }
        Ok(attributes_of(inode, node))
    }

    fn truncate_opened(&self, inode: u64, flags: i32) {
        if flags & libc::O_TRUNC != 0
            && let Some(Node { kind: Kind::File(chunks), size, .. }) = self.names.lock().node_mut(inode)
        {
            chunks.clear();
            *size = 0;
        }
    }

    fn read(&self, inode: u64, offset: u64, size: u32, reply: Reply) {
        let stretches = {
            let names = self.names.lock();
            let file_bytes = names.node(inode).map_or(0, |node| node.size);
            names.locate(inode, offset, u64::from(size).min(file_bytes.saturating_sub(offset)))
        };
        let bytes = stretches.iter().map(|stretch| stretch.bytes).sum::<u64>() as usize;
        reply.fill(bytes, |room| match self.data.read_into(&stretches, room) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(Errno::from(&error)),
        });
    }

    fn write(&self, inode: u64, offset: u64, data: &[u8]) -> Answer<()> {
        let stretches = {
            let mut names = self.names.lock();
            let end = offset + data.len() as u64;
            if let Some(node) = names.node_mut(inode) {
                node.size = node.size.max(end);
            }
            names.place(inode, offset, data.len() as u64)
        };
        self.data.write(&stretches, data).map_err(|error| Errno::from(&error))
    }

    /// Entries from `cookie` on, each with its attributes, until one does not fit.
    fn list(&self, inode: u64, cookie: u64, mut add: impl FnMut(&Listed<'_>, Attributes) -> bool) -> Answer<()> {
        let names = self.names.lock();
        let entries = names.entries(inode).ok_or(errno(libc::ENOTDIR))?;
        for (index, (name, child)) in entries.iter().enumerate().skip(cookie as usize) {
            let Some(node) = names.node(*child) else { continue };
            let attributes = attributes_of(*child, node);
            let cookie = index as u64 + 1;
            if !add(&Listed { inode: *child, cookie, mode: attributes.mode, name: name.as_bytes() }, attributes) {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Answer<()> {
        self.data.flush().map_err(|error| Errno::from(&error))
    }
}

fn answer<T>(result: Answer<T>, reply: Reply, give: impl FnOnce(Reply, T)) {
    match result {
        Ok(value) => give(reply, value),
        Err(errno) => reply.error(errno),
    }
}

impl Service for Flat {
    fn init(&mut self, negotiation: &mut Negotiation) -> io::Result<()> {
        for flag in WANTED {
            // An older kernel lacks some; what is left is still a valid ceiling for that kernel.
            negotiation.want(flag);
        }
        negotiation.request_bytes_max = self.max_write;
        negotiation.background_max = MAX_BACKGROUND;
        // The mount's read_ahead_kb, set after this, decides; a kernel with a smaller maximum keeps its own.
        negotiation.readahead_bytes_max = negotiation.readahead_bytes_max.min(MAX_READAHEAD_BYTES);
        Ok(())
    }

    fn serve(&self, request: Request<'_>, reply: Reply) {
        let header = request.header;
        let inode = header.inode;
        let entry = |reply: Reply, attributes| reply.entry(&entry_of(attributes));
        let attributes = |reply: Reply, found: Attributes| reply.attributes(&found, KEEP);
        let ok = |reply: Reply, ()| reply.ok();
        match request.operation {
            Operation::Lookup { name } => answer(self.lookup(inode, name), reply, entry),
            Operation::Getattr { .. } => answer(self.attributes(inode), reply, attributes),
            Operation::Setattr(set) => answer(self.set(inode, &set), reply, attributes),
            Operation::Mkdir { name, mode, .. } => {
                answer(self.insert(&header, name, Kind::Directory(Default::default()), mode), reply, entry);
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => answer(self.remove(inode, name), reply, ok),
            Operation::Create { name, mode, .. } => {
                answer(self.insert(&header, name, Kind::File(Vec::new()), mode), reply, |reply, made| {
                    reply.created(&entry_of(made), made.inode, opened::KEEP_CACHE);
                });
            }
            Operation::Open { flags, .. } => {
                self.truncate_opened(inode, flags);
                reply.opened(inode, opened::KEEP_CACHE);
            }
            Operation::Read { offset, size, .. } => self.read(inode, offset, size, reply),
            Operation::Write { offset, data, .. } => {
                answer(self.write(inode, offset, data), reply, |reply, ()| reply.written(data.len() as u64));
            }
            Operation::Fsync { .. } | Operation::Fsyncdir { .. } => answer(self.sync(), reply, ok),
            Operation::Release { .. } => reply.ok(),
            Operation::Readdir { cookie, size, .. } => {
                let mut listing = Listing::new(size);
                let listed = self.list(inode, cookie, |entry, _| listing.add(entry));
                answer(listed, reply, |reply, ()| reply.listing(listing));
            }
            Operation::ReaddirPlus { cookie, size, .. } => {
                let mut listing = Listing::new(size);
                let listed = self.list(inode, cookie, |entry, found| listing.add_plus(entry, &entry_of(found)));
                answer(listed, reply, |reply, ()| reply.listing(listing));
            }
            Operation::Statfs => reply.statfs(&STATFS),
            // Among others OPENDIR: the kernel then opens directories by itself and caches their entries.
            _ => reply.error(errno(libc::ENOSYS)),
        }
    }

    fn forget(&self, inode: u64, _lookups: u64) {
        self.names.lock().forget(inode);
    }

    fn destroy(&self) {
        let saved = self.names.lock().save(&self.names_file);
        if let Err(error) = saved.and_then(|()| self.data.flush().during(|| "cannot flush the data")) {
            tell(&format!("oncefs-bench: {error}"));
        }
    }
}

/// More room than any measurement fills.
const STATFS: Statfs = Statfs {
    blocks: 1 << 30,
    blocks_free: 1 << 30,
    blocks_available: 1 << 30,
    files: 1 << 30,
    files_free: 1 << 30,
    block_bytes: 4096,
    name_bytes_max: 255,
};
