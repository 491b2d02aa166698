//! Corrects the kernel's caches where they would make answers wrong.
//!
//! The kernel holds four things that it does not reconcile by itself (Linux 6.18): the block count of a file that it
//! was told before it wrote pages back; where a file has data, which it asks while pages that say so are still dirty;
//! the mode of a file that lost set-user-id or set-group-id by a change of its content; and the size of a file of which a
//! page was refused, for lack of room. So
//! 1. after a write from the page cache that changed a file's block count, the kernel is told within `SETTLE` to ask
//!    for the attributes again (at close(2) it does so by itself);
//! 2. a search for data or holes by who has a file open for writing waits until its pages are written back. For who only
//!    reads it while another writes, all is data, and only pages beyond the end that is known are written back;
//! 3. a change that takes such a bit is answered only after the kernel was told to ask for the attributes again. Until it
//!    has asked, neither stat nor exec goes by the mode it remembers. The kernel drops an answer that crosses another
//!    notification, and then exec does go by that mode; so a notification that is due for the block count is left out;
//! 4. the size is the kernel's own as long as it knows the inode, and counts what was refused. So it is told to forget the
//!    inode within `SETTLE` of the last file open for writing (Linux 6.18). Whoever has it open keeps it from that.
//!
//! All work by notifications. The second kind makes the kernel send WRITE requests and wait for them, so it must
//! never be sent by an event loop: it has a thread of its own.

use std::collections::{HashMap, HashSet};
use std::io;
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
/// How often the kernel is told to forget an inode, if somebody uses it just then; when it is closed again, as often anew.
const TRIES: u32 = 50;

/// Notifies the kernel. Made by `Adapter::new`, and at work once it is connected.
pub struct KernelCache {
    /// To the thread, once there is one. Not bounded: each job waits together with a program.
    jobs: OnceLock<Sender<Job>>,
    /// The connection, once there is one.
    notifier: OnceLock<Notifier>,
    /// Files open for writing.
    writers: InodeCounts,
    /// Inodes whose block counts the kernel may have wrong.
    outdated: Mutex<HashSet<Ino>>,
    /// Inodes whose sizes the kernel has wrong, as pages of them were refused, and how often it is to be told yet.
    refused: Mutex<HashMap<Ino, u32>>,
}

enum Job {
    /// Writes an inode's pages back from a byte on, then goes on.
    WriteBack { ino: Ino, from: u64, then: Box<dyn FnOnce() + Send> },
    /// There may be something to tell in `outdated` or `refused`.
    Outdated,
}

impl KernelCache {
    pub(crate) fn new() -> Arc<Self> {
        let (jobs, notifier) = (OnceLock::new(), OnceLock::new());
        let (outdated, refused) = (Mutex::default(), Mutex::default());
        Arc::new(Self { jobs, notifier, writers: InodeCounts::new(), outdated, refused })
    }

    /// Starts the work, to be called between mounting and answering requests. The thread ends with the adapter.
    pub fn connect(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        let (jobs, received) = channel();
        // A second call keeps the first connection; its thread ends at once, because nobody sends to it.
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

    /// A file was opened for writing.
    pub(crate) fn writer_opened(&self, ino: Ino) {
        self.writers.add(ino);
    }

    /// A file that was open for writing is gone, and its pages were written back.
    pub(crate) fn writer_released(&self, ino: Ino) {
        self.writers.subtract(ino, 1);
    }

    /// A file that was open is gone.
    pub(crate) fn released(&self, ino: Ino) {
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

    /// Those of which pages were refused, that nobody has open for writing and of which the kernel is to be told.
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

    /// A change of an inode's content took privileges. An event loop may say so: attributes are only marked as outdated,
    /// and the kernel sends no request for it. The kernel asks for the block count with it.
    pub(crate) fn privileges_dropped(&self, ino: Ino) {
        self.outdated.lock().remove(&ino);
        if let Some(notifier) = self.notifier.get() {
            forget_attributes(notifier, ino);
        }
    }

    /// Has the attributes of an inode forgotten whose block count the kernel may have wrong. False: there is none.
    /// Locked meanwhile, so that none comes behind that of `privileges_dropped`.
    fn settle_one(&self, forget: impl FnOnce(Ino)) -> bool {
        let mut outdated = self.outdated.lock();
        let Some(ino) = outdated.iter().next().copied() else { return false };
        outdated.remove(&ino);
        forget(ino);
        true
    }

    /// Goes on with `then` when no pages of the inode from a byte on are dirty: at once if nobody can have made any.
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

/// Works until nobody can send jobs any more. `settle` gives whether it has to be called again.
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

/// A negative offset concerns the attributes alone.
fn forget_attributes(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.invalidate_inode(ino.0, -1, 0) {
        log::debug!("inode {}: the kernel keeps its cached attributes: {error}", ino.0);
    }
}

/// Nobody has it open for writing, so it has no dirty pages.
fn forget_inode(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.prune(ino.0) {
        log::debug!("inode {}: the kernel keeps the size that it knows: {error}", ino.0);
    }
}

/// From the page with this byte to the last: dirty ones are written before they are dropped.
fn write_back(notifier: &Notifier, ino: Ino, from: u64) {
    // No file is longer than an offset can say.
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
        let cache = KernelCache::new();
        (1..=3).for_each(|ino| cache.blocks_changed(Ino(ino)));
        cache.privileges_dropped(Ino(2));
        let mut told = Vec::new();
        while cache.settle_one(|ino| told.push(ino.0)) {}
        told.sort_unstable();
        assert_eq!(told, [1, 3]);
    }

    #[test]
    fn an_inode_of_which_a_page_was_refused_is_told_of_when_no_writer_is_left_until_it_is_forgotten() {
        let cache = KernelCache::new();
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
