//! Corrects the kernel's caches where they would give wrong answers.
//!
//! Linux 6.18 does not keep five things up to date by itself: the block count of a file after it wrote pages back, the
//! positions of data in a file with dirty pages, the mode of a file that lost set-user-id or set-group-id by a change
//! of its content, the size of a file after a page of it was refused for lack of room, and names that commands change.
//! So
//! 1. after a write from the page cache that changed a file's block count, the kernel is told within `SETTLE` to ask
//!    for the attributes again (at close(2) it does so by itself);
//! 2. a search for data or holes through a handle that may write waits until the file's pages are written back. Through
//!    a read-only handle, while another one may write, the whole file counts as data, and only pages beyond the known
//!    end are written back;
//! 3. a change that clears such a bit is answered only after the kernel was told to ask for the attributes again. Until
//!    it has asked, neither stat nor exec uses the cached mode. The kernel drops an answer that crosses another
//!    notification, and exec then does use the cached mode. So a notification that is due for the block count is left
//!    out;
//! 4. the kernel keeps its own size of a file as long as it knows the inode, and that size counts refused pages. So the
//!    kernel is told to forget the inode within `SETTLE` of the last close for writing (Linux 6.18). It cannot forget a
//!    file that is open;
//! 5. a name that a command made or removed without the kernel's doing (a clone, a snapshot) is announced, because the
//!    kernel may remember that there was none, or what it stood for.
//!
//! All of them use notifications. The second kind makes the kernel send WRITE requests and wait for them, so an event loop
//! must never send it. It has a thread of its own.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use oncefs_fs::Ino;
use oncefs_transport::Notifier;
use parking_lot::Mutex;

use crate::inode_counts::InodeCounts;

/// How long the kernel may show an outdated block count of a file that stays open.
const SETTLE: Duration = Duration::from_millis(100);
/// How often the kernel is told to forget an inode that is in use at that moment. A further close starts the count
/// again.
const TRIES: u32 = 50;

/// Notifies the kernel. Created by `Adapter::new`, and active once it is connected.
pub struct KernelCache {
    /// Jobs for the thread, once it runs. Needs no bound, because a program waits for each job.
    jobs: OnceLock<Sender<Job>>,
    /// The connection, once there is one.
    notifier: OnceLock<Notifier>,
    /// Inodes that the kernel knows.
    lookups: Arc<InodeCounts>,
    /// Files open for writing.
    writers: InodeCounts,
    /// How often files are open.
    opens: AtomicU64,
    /// Inodes whose block counts the kernel may have wrong.
    outdated: Mutex<HashSet<Ino>>,
    /// Inodes whose size may be wrong in the kernel because pages were refused, with the number of notifications left.
    refused: Mutex<HashMap<Ino, u32>>,
}

enum Job {
    /// Writes an inode's pages back from a byte on, then calls `then`.
    WriteBack { ino: Ino, from: u64, then: Box<dyn FnOnce() + Send> },
    /// `outdated` or `refused` may need a notification.
    Outdated,
}

impl KernelCache {
    pub(crate) fn new(lookups: Arc<InodeCounts>) -> Arc<Self> {
        let (jobs, notifier) = (OnceLock::new(), OnceLock::new());
        let (outdated, refused) = (Mutex::default(), Mutex::default());
        let (writers, opens) = (InodeCounts::new(), AtomicU64::new(0));
        Arc::new(Self { jobs, notifier, lookups, writers, opens, outdated, refused })
    }

    /// Starts the thread. To be called between mounting and answering requests. The thread ends with the adapter.
    pub fn connect(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        let (jobs, received) = channel();
        // A second call keeps the first connection. Its thread ends at once, because its channel has no sender.
        let _ = self.notifier.set(notifier.clone());
        let weak = Arc::downgrade(self);
        let work = move || {
            let settle = || {
                let Some(cache) = weak.upgrade() else { return false };
                while cache.settle_one(|ino| forget_attributes(&notifier, ino)) {}
                let refused = cache.refused_and_closed();
                refused.iter().for_each(|ino| forget_inode(&notifier, *ino));
                !refused.is_empty()
            };
            run(&received, &notifier, settle);
        };
        thread::Builder::new().name("kernel-cache".to_owned()).spawn(work)?;
        let _ = self.jobs.set(jobs);
        Ok(())
    }

    /// A name of a directory came or went without a request of the kernel: it looks the name up again, and lists the
    /// directory again. Waits for programs that change names of the directory, so no thread that answers requests may
    /// call this, and no thread with a lock that a request needs.
    pub fn name_changed(&self, parent: Ino, name: &[u8]) {
        let Some(notifier) = self.notifier.get() else { return };
        // The pages of a directory hold its listing.
        for told in [notifier.invalidate_entry(parent.0, name), notifier.invalidate_inode(parent.0, 0, 0)] {
            if let Err(error) = told {
                log::debug!("directory {}: the kernel keeps what it knows: {error}", parent.0);
            }
        }
    }

    /// Whether the kernel knows an inode, so that a program may be using it.
    pub fn knows(&self, ino: Ino) -> bool {
        self.lookups.has(ino)
    }

    /// A file was opened for writing.
    pub(crate) fn writer_opened(&self, ino: Ino) {
        self.writers.add(ino);
    }

    /// A file that was open for writing is gone, and its pages were written back.
    pub(crate) fn writer_released(&self, ino: Ino) {
        self.writers.subtract(ino, 1);
    }

    /// A file was opened.
    pub(crate) fn opened(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether any file is open. Directories do not count.
    pub fn has_open_files(&self) -> bool {
        self.opens.load(Ordering::Relaxed) != 0
    }

    /// A file that was open is gone.
    pub(crate) fn released(&self, ino: Ino) {
        self.opens.fetch_sub(1, Ordering::Relaxed);
        if let Some(tries) = self.refused.lock().get_mut(&ino) {
            *tries = TRIES;
            self.ask_to_settle();
        }
    }

    /// A page of an inode was refused: it is not in the file, and the kernel's size may count it.
    pub(crate) fn page_refused(&self, ino: Ino) {
        self.refused.lock().insert(ino, TRIES);
        self.ask_to_settle();
    }

    /// The kernel does not know an inode any more.
    pub(crate) fn forgotten(&self, ino: Ino) {
        self.refused.lock().remove(&ino);
    }

    /// Inodes with refused pages that are not open for writing and have notifications left.
    fn refused_and_closed(&self) -> Vec<Ino> {
        let mut refused = self.refused.lock();
        let closed = refused.iter_mut().filter(|(ino, tries)| **tries > 0 && !self.writers.has(**ino));
        closed
            .map(|(ino, tries)| {
                *tries -= 1;
                *ino
            })
            .collect()
    }

    fn ask_to_settle(&self) {
        if let Some(jobs) = self.jobs.get() {
            // Fails only after the thread ended, with the mount.
            let _ = jobs.send(Job::Outdated);
        }
    }

    /// The files open for writing, in ascending order from `from` on. Only these have pages that are dirty, or sent and
    /// not answered: the last close waits for the answers.
    pub fn open_for_writing(&self, from: Ino) -> Vec<Ino> {
        self.writers.from(from)
    }

    /// Whether a file is open for writing.
    pub(crate) fn has_writer(&self, ino: Ino) -> bool {
        self.writers.has(ino)
    }

    /// The page cache wrote to an inode, and its block count changed.
    pub(crate) fn blocks_changed(&self, ino: Ino) {
        let first = {
            let mut outdated = self.outdated.lock();
            outdated.insert(ino) && outdated.len() == 1
        };
        if first {
            self.ask_to_settle();
        }
    }

    /// A change of an inode's content took privileges. An event loop may call this, because the kernel only marks the
    /// attributes as outdated and sends no request. When it asks for them again, it also gets the block count.
    pub(crate) fn privileges_dropped(&self, ino: Ino) {
        self.outdated.lock().remove(&ino);
        if let Some(notifier) = self.notifier.get() {
            forget_attributes(notifier, ino);
        }
    }

    /// Calls `forget` for one inode whose block count may be wrong in the kernel. False: no such inode is left. The lock
    /// is released first: the kernel may wait for an inode's last write, and its answer needs the lock.
    fn settle_one(&self, forget: impl FnOnce(Ino)) -> bool {
        let ino = {
            let mut outdated = self.outdated.lock();
            let Some(ino) = outdated.iter().next().copied() else { return false };
            outdated.remove(&ino);
            ino
        };
        forget(ino);
        true
    }

    /// Calls `then` when no page of the inode from byte `from` on is dirty. If the file is not open for writing, that
    /// is at once.
    pub(crate) fn when_written_back(&self, ino: Ino, from: u64, then: impl FnOnce() + Send + 'static) {
        match self.jobs.get() {
            Some(jobs) if self.has_writer(ino) => {
                // The job, with its reply, comes back only after the thread ended, with the mount.
                let _ = jobs.send(Job::WriteBack { ino, from, then: Box::new(then) });
            }
            _ => then(),
        }
    }
}

/// Works until the channel has no sender left. `settle` returns whether it must be called again.
fn run(jobs: &Receiver<Job>, notifier: &Notifier, settle: impl Fn() -> bool) {
    let mut settle_pending = false;
    loop {
        let job = if settle_pending { jobs.recv_timeout(SETTLE) } else { jobs.recv().map_err(RecvTimeoutError::from) };
        match job {
            Ok(Job::Outdated) => settle_pending = true,
            Ok(Job::WriteBack { ino, from, then }) => {
                write_back(notifier, ino, from);
                then();
            }
            Err(RecvTimeoutError::Timeout) => settle_pending = settle(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A negative offset invalidates the attributes alone.
fn forget_attributes(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.invalidate_inode(ino.0, -1, 0) {
        log::debug!("inode {}: the kernel keeps its cached attributes: {error}", ino.0);
    }
}

/// Makes the kernel forget an inode. It is not open for writing, so it has no dirty pages.
fn forget_inode(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.prune(ino.0) {
        log::debug!("inode {}: the kernel keeps the size that it knows: {error}", ino.0);
    }
}

/// Drops the pages from this byte to the last. Dirty ones are written first.
fn write_back(notifier: &Notifier, ino: Ino, from: u64) {
    // No file is longer than the largest offset.
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    if let Err(error) = notifier.invalidate_inode(ino.0, from, 0) {
        log::debug!("inode {}: the kernel keeps its cached pages: {error}", ino.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_notification_for_blocks_comes_behind_that_for_privileges() {
        let cache = KernelCache::new(Arc::new(InodeCounts::new()));
        (1..=3).for_each(|ino| cache.blocks_changed(Ino(ino)));
        cache.privileges_dropped(Ino(2));
        let mut told = Vec::new();
        while cache.settle_one(|ino| told.push(ino.0)) {}
        told.sort_unstable();
        assert_eq!(told, [1, 3]);
    }

    #[test]
    fn an_inode_of_which_a_page_was_refused_is_told_of_when_no_writer_is_left_until_it_is_forgotten() {
        let cache = KernelCache::new(Arc::new(InodeCounts::new()));
        let ino = Ino(5);
        cache.writer_opened(ino);
        cache.page_refused(ino);
        assert!(cache.refused_and_closed().is_empty(), "it is open for writing");
        cache.writer_released(ino);
        cache.released(ino);
        let told = (0..2 * TRIES).filter(|_| cache.refused_and_closed() == [ino]).count();
        assert_eq!(told, TRIES as usize, "somebody keeps it open");
        cache.released(ino);
        assert_eq!(cache.refused_and_closed(), [ino]);
        cache.forgotten(ino);
        assert!(cache.refused_and_closed().is_empty());
        cache.released(ino);
        assert!(cache.refused_and_closed().is_empty(), "others are not told of");
    }
}
