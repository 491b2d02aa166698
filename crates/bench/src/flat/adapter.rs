//! Connects the flat file system to `fuser`: flags, cache times and the operations that the workloads use.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use super::data::Data;
use super::names::{Kind, Names, Node};
use crate::failure::{During, tell};

/// Nobody else changes the files, so the kernel may cache names and attributes for long.
const KEEP: Duration = Duration::from_secs(3600);
const MAX_BACKGROUND: u16 = 64;
const MAX_READAHEAD_BYTES: u32 = 128 << 10;

const WANTED: [InitFlags; 9] = [
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// The file system's state.
pub struct Flat {
    names: Mutex<Names>,
    names_file: PathBuf,
    data: Data,
    max_write: u32,
}

impl Flat {
    /// Serves `names`, saving them to `names_file` at unmount.
    pub fn new(names: Names, names_file: PathBuf, data: Data, max_write: u32) -> Flat {
        Flat { names: Mutex::new(names), names_file, data, max_write }
    }

    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        self.names.lock().node(inode).map(|node| attributes_of(inode, node))
    }

    fn insert(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: Kind,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let name = name.to_str().ok_or(Errno::EINVAL)?;
        let node = Node::new(kind, (mode & 0o7777) as u16, request.uid(), request.gid());
        let mut names = self.names.lock();
        let inode = names.insert(parent.0, name, node).ok_or(Errno::ENOTDIR)?;
        names.node(inode).map(|node| attributes_of(inode, node)).ok_or(Errno::EIO)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut names = self.names.lock();
        match name.to_str().and_then(|name| names.remove(parent.0, name)) {
            Some(()) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn sync(&self, reply: ReplyEmpty) {
        match self.data.flush() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

fn attributes_of(inode: u64, node: &Node) -> FileAttr {
    let (kind, nlink) = match node.kind {
        Kind::Directory(_) => (FileType::Directory, 2),
        Kind::File(_) => (FileType::RegularFile, 1),
    };
    FileAttr {
        ino: INodeNo(inode),
        size: node.size,
        blocks: node.size.div_ceil(512),
        atime: node.mtime,
        mtime: node.mtime,
        ctime: node.mtime,
        crtime: node.mtime,
        kind,
        perm: node.mode,
        nlink,
        uid: node.uid,
        gid: node.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Flat {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // An older kernel lacks some; what is left is still a valid ceiling for that kernel.
            let _unsupported = config.add_capabilities(flag);
        }
        let refused = |nearest| io::Error::other(format!("the kernel allows at most {nearest}"));
        config.set_max_write(self.max_write).map_err(refused)?;
        config.set_max_background(MAX_BACKGROUND).map_err(|nearest| refused(u32::from(nearest)))?;
        // The mount's read_ahead_kb, set after this, decides; a kernel with a smaller maximum keeps its own.
        let _kernel_maximum = config.set_max_readahead(MAX_READAHEAD_BYTES);
        Ok(())
    }

    fn destroy(&mut self) {
        let saved = self.names.lock().save(&self.names_file);
        if let Err(error) = saved.and_then(|()| self.data.flush().during(|| "cannot flush the data")) {
            tell(&format!("oncefs-bench: {error}"));
        }
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let names = self.names.lock();
        let found = name.to_str().and_then(|name| names.entries(parent.0)?.get(name).copied());
        match found.and_then(|inode| names.node(inode).map(|node| attributes_of(inode, node))) {
            Some(attributes) => reply.entry(&KEEP, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn forget(&self, _request: &Request, inode: INodeNo, _lookups: u64) {
        self.names.lock().forget(inode.0);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode.0) {
            Some(attributes) => reply.attr(&KEEP, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut names = self.names.lock();
        let Some(node) = names.node_mut(inode.0) else { return reply.error(Errno::ENOENT) };
        node.mode = mode.map_or(node.mode, |mode| (mode & 0o7777) as u16);
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
        match mtime {
            Some(TimeOrNow::SpecificTime(time)) => node.mtime = time,
            Some(TimeOrNow::Now) => node.mtime = SystemTime::now(),
            None => {}
        }
        if let Some(size) = size {
            node.size = size;
            if let (Kind::File(chunks), 0) = (&mut node.kind, size) {
                chunks.clear();
            }
        }
        reply.attr(&KEEP, &attributes_of(inode.0, node));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        match self.insert(request, parent, name, Kind::Directory(Default::default()), mode) {
            Ok(attributes) => reply.entry(&KEEP, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.insert(request, parent, name, Kind::File(Vec::new()), mode) {
            Ok(attributes) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&KEEP, &attributes, Generation(0), FileHandle(attributes.ino.0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.0 & libc::O_TRUNC != 0
            && let Some(Node { kind: Kind::File(chunks), size, .. }) = self.names.lock().node_mut(inode.0)
        {
            chunks.clear();
            *size = 0;
        }
        reply.opened(FileHandle(inode.0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let stretches = {
            let names = self.names.lock();
            let file_bytes = names.node(inode.0).map_or(0, |node| node.size);
            names.locate(inode.0, offset, u64::from(size).min(file_bytes.saturating_sub(offset)))
        };
        self.data.read(&stretches, |result| match result {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let stretches = {
            let mut names = self.names.lock();
            let end = offset + data.len() as u64;
            if let Some(node) = names.node_mut(inode.0) {
                node.size = node.size.max(end);
            }
            names.place(inode.0, offset, data.len() as u64)
        };
        match self.data.write(&stretches, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(&self, _request: &Request, _inode: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn fsyncdir(&self, _request: &Request, _inode: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn opendir(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // The kernel then opens directories by itself and caches their entries.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _request: &Request, inode: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let names = self.names.lock();
        let Some(entries) = names.entries(inode.0) else { return reply.error(Errno::ENOTDIR) };
        for (index, (name, child)) in entries.iter().enumerate().skip(offset as usize) {
            let Some(node) = names.node(*child) else { continue };
            if reply.add(INodeNo(*child), index as u64 + 1, attributes_of(*child, node).kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let names = self.names.lock();
        let Some(entries) = names.entries(inode.0) else { return reply.error(Errno::ENOTDIR) };
        for (index, (name, child)) in entries.iter().enumerate().skip(offset as usize) {
            let Some(node) = names.node(*child) else { continue };
            let attributes = attributes_of(*child, node);
            if reply.add(INodeNo(*child), index as u64 + 1, name, &KEEP, &attributes, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        const BLOCKS: u64 = 1 << 30;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, 4096, 255, 4096);
    }
}
