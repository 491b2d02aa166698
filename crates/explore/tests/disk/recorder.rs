//! A mount with one file, in memory, that records what its writers do: the file below a loop device.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use oncefs_transport::flags::opened;
use oncefs_transport::protocol::attributes::{Attributes, Entry, Statfs};
use oncefs_transport::{
    Errno, MountSpec, Negotiation, Operation, Reply, Request, Service, Session, Settings, Transport, attach,
    open_device, unmount,
};

const ROOT: u64 = 1;
const DISK: u64 = 2;
const NAME: &[u8] = b"disk";
const VALID: Duration = Duration::from_secs(3600);

/// One request for the file.
#[derive(Clone, Debug)]
pub enum Io {
    /// Bytes were written.
    Write { at: u64, data: Vec<u8> },
    /// A range was punched, or zeroed.
    Fallocate { at: u64, len: u64, mode: i32 },
    /// Everything before is durable.
    Flush,
}

#[derive(Default)]
struct State {
    content: Vec<u8>,
    done: Vec<Io>,
}

impl State {
    fn fallocate(&mut self, at: u64, len: u64, mode: i32) {
        self.content[at as usize..(at + len) as usize].fill(0);
        self.done.push(Io::Fallocate { at, len, mode });
    }
}

/// The mount. Unmounted when it is dropped.
pub struct Recorder {
    state: Arc<Mutex<State>>,
    dir: PathBuf,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Recorder {
    /// Mounts a file of `len` bytes.
    pub fn mount(dir: &Path, len: usize) -> Self {
        let state = Arc::new(Mutex::new(State { content: vec![0; len], done: Vec::new() }));
        let spec = MountSpec { source: "disk".into(), dir: dir.into(), kind: "fuse.disk", kernel_flags: 0 };
        let settings = Settings { transport: Transport::Classic, threads: 4, ring_bytes_max: 0 };
        let device = open_device().unwrap();
        drop(attach(device.as_fd(), &spec).unwrap());
        let session = Session::start(device, Disk(state.clone()), &settings)
            .inspect_err(|_| drop(unmount(dir, libc::MNT_DETACH)))
            .unwrap();
        let session = std::thread::spawn(move || session.run());
        Self { state, dir: dir.to_owned(), session: Some(session) }
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// What was done since the last call.
    pub fn take(&self) -> Vec<Io> {
        std::mem::take(&mut self.state.lock().unwrap().done)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = unmount(&self.dir, libc::MNT_DETACH);
        if let Some(session) = self.session.take() {
            let _ = session.join();
        }
    }
}

struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn attributes(&self, inode: u64) -> Attributes {
        let of_root =
            Attributes { inode, mode: libc::S_IFDIR | 0o755, nlink: 2, block_bytes: 4096, ..Default::default() };
        match inode {
            ROOT => of_root,
            _ => {
                Attributes { mode: libc::S_IFREG | 0o600, nlink: 1, size: self.lock().content.len() as u64, ..of_root }
            }
        }
    }
}

impl Service for Disk {
    fn init(&mut self, negotiation: &mut Negotiation) -> io::Result<()> {
        negotiation.request_bytes_max = 1 << 20;
        Ok(())
    }

    fn serve(&self, request: Request<'_>, reply: Reply) {
        let inode = request.header.inode;
        match request.operation {
            Operation::Lookup { name: NAME } if inode == ROOT => {
                let (attributes, generation) = (self.attributes(DISK), 0);
                reply.entry(&Entry { inode: DISK, generation, name_valid: VALID, attributes_valid: VALID, attributes });
            }
            Operation::Lookup { .. } => reply.error(Errno::new(libc::ENOENT)),
            Operation::Getattr { .. } | Operation::Setattr(_) => reply.attributes(&self.attributes(inode), VALID),
            Operation::Open { .. } => reply.opened(0, opened::DIRECT_IO),
            Operation::Read { offset, size, .. } => {
                let state = self.lock();
                let from = state.content.get(offset as usize..).unwrap_or_default();
                reply.data(&from[..from.len().min(size as usize)]);
            }
            Operation::Write { offset, data, .. } => {
                let mut state = self.lock();
                state.content[offset as usize..offset as usize + data.len()].copy_from_slice(data);
                state.done.push(Io::Write { at: offset, data: data.to_vec() });
                reply.written(data.len() as u64);
            }
            Operation::Fallocate { offset, len, mode, .. } => {
                self.lock().fallocate(offset, len, mode);
                reply.ok();
            }
            Operation::Fsync { .. } => {
                self.lock().done.push(Io::Flush);
                reply.ok();
            }
            Operation::Statfs => reply.statfs(&Statfs { block_bytes: 4096, name_bytes_max: 255, ..Statfs::default() }),
            Operation::Release { .. } | Operation::Flush { .. } => reply.ok(),
            _ => reply.error(Errno::new(libc::ENOSYS)),
        }
    }

    fn forget(&self, _: u64, _: u64) {}
}
