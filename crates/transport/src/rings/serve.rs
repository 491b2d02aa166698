//! The life of a thread that serves a ring: it makes the ring and its entries, waits for the reply to INIT, registers,
//! and answers requests until the mount is gone.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

use super::buffers::Buffers;
use super::command::{Event, FOR_NOW, Ring, is_for_now};
use super::entry::Entry;
use super::slot::{Finished, Mailbox, Slot};
use super::spares::Spares;
use crate::cpus;
use crate::protocol::notification;
use crate::reply::Back;
use crate::server::Server;
use crate::waiting::{self, Waiter};
use crate::workers::News;

/// Most entries that one thread adds.
const ADDED_MAX: usize = 64;

/// The queues that a thread serves, with its resources.
pub(crate) struct Post {
    pub(crate) queues: Vec<u16>,
    /// For its own entries, one for each queue.
    pub(crate) buffers: Arc<Buffers>,
    /// For the spares of all threads.
    pub(crate) spare_buffers: Arc<Buffers>,
    /// The CPUs that it runs on, except while a handler waits.
    pub(crate) cpus: Vec<usize>,
    pub(crate) spares: Arc<Spares>,
    /// Receives the report that the kernel refuses its entries.
    pub(crate) news: Sender<News>,
}

/// The present owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The registration is under way.
    Registering,
    /// The kernel's: it has the reply, and may put a request there.
    Committed,
    /// Ours: a request is being answered, or is about to be registered.
    Ours,
    /// The entry is out of use: the kernel does not accept it any more.
    Gone,
}

impl Turn {
    fn is_kernel_s(self) -> bool {
        matches!(self, Self::Registering | Self::Committed)
    }
}

/// One entry of a thread.
struct Held {
    entry: Arc<Entry>,
    queue: u16,
    turn: Turn,
    is_spare: bool,
    /// It is sure to come back to the kernel (see `spares`).
    is_steady: bool,
    /// It is a spare without a reply so far.
    is_fresh: bool,
}

/// A thread's ring with its entries. The ring is closed first: until then the kernel may write to the entries.
pub(crate) struct RingThread {
    ring: Ring,
    /// By index, which the ring uses too.
    held: Vec<Held>,
    mailbox: Arc<Mailbox>,
    post: Post,
    /// The kernel takes no entry of this thread any more.
    is_out_of_use: bool,
}

impl RingThread {
    fn new(post: Post, server: &Server) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new(post.spares.clone())?);
        let ring = Ring::new(post.queues.len() + ADDED_MAX, server.device().raw())?;
        let mut thread = Self { ring, held: Vec::new(), mailbox, post, is_out_of_use: false };
        for queue in thread.post.queues.clone() {
            thread.make(queue, false)?;
            thread.post.spares.add_thread(queue);
        }
        Ok(thread)
    }

    /// Makes an entry and returns its index.
    fn make(&mut self, queue: u16, is_spare: bool) -> io::Result<usize> {
        let buffers = if is_spare { &self.post.spare_buffers } else { &self.post.buffers };
        let entry = Arc::new(Entry::new(buffers)?);
        self.held.push(Held { entry, queue, turn: Turn::Ours, is_spare, is_steady: false, is_fresh: false });
        Ok(self.held.len() - 1)
    }

    /// Makes the ring, reports whether that worked, and serves the ring after a message from `go`.
    ///
    /// # Errors
    /// io_uring failed while the mount existed.
    pub(crate) fn run(
        server: &Arc<Server>,
        post: Post,
        made: Sender<io::Result<Arc<Mailbox>>>,
        go: &Receiver<()>,
    ) -> io::Result<()> {
        let thread = match Self::new(post, server) {
            Err(e) => {
                // The receiver is gone if another thread has failed.
                let _ = made.send(Err(e));
                return Ok(());
            }
            Ok(thread) => thread,
        };
        let _ = made.send(Ok(thread.mailbox.clone()));
        // The receiver of the results waits until all senders are dropped.
        drop(made);
        // The sender was dropped: there will be no rings.
        if go.recv().is_err() {
            return Ok(());
        }
        thread.serve(server)
    }

    fn serve(mut self, server: &Arc<Server>) -> io::Result<()> {
        cpus::run_on(&self.post.cpus);
        waiting::install(Box::new(InQueue { cpus: server.cpus().to_vec(), mailbox: self.mailbox.clone() }));
        (0..self.held.len()).try_for_each(|index| self.register(index))?;
        self.ring.listen(self.mailbox.bell())?;
        let mut events = Vec::new();
        while !self.mailbox.is_closed() && !self.is_out_of_use {
            self.ring.submit(1)?;
            self.ring.events(&mut events);
            let last = events.len().saturating_sub(1);
            for (at, event) in events.drain(..).enumerate() {
                self.handle(server, event)?;
                self.commit()?;
                if at < last {
                    // No reply waits for the handler of another request.
                    self.ring.submit(0)?;
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, server: &Arc<Server>, event: Event) -> io::Result<()> {
        match event {
            Event::Request(index) => self.request(server, index),
            Event::Bell => {
                self.mailbox.hush();
                self.ring.listen(self.mailbox.bell())
            }
            Event::Ended(index, errno) => self.ended(index, errno),
        }
    }

    /// The kernel refused an entry.
    ///
    /// # Errors
    /// A reply was refused, so its caller would wait forever.
    fn ended(&mut self, index: usize, errno: i32) -> io::Result<()> {
        let turn = self.set_turn(index, Turn::Gone);
        self.set_steady(index, false);
        self.is_no_more_fresh(index);
        let (queue, error) = (self.held[index].queue, io::Error::from_raw_os_error(errno));
        match (turn, errno) {
            // The mount is gone, or the ring is being closed.
            (_, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) => {}
            (_, errno) if is_for_now(Some(errno)) => {
                thread::sleep(FOR_NOW);
                return self.submit_again(index, turn);
            }
            (Turn::Registering, _) if self.held[index].is_spare => {
                self.post.spares.end(queue);
                log::warn!("the kernel takes no further entry of queue {queue}: {error}");
            }
            (Turn::Registering, _) => {
                log::error!("the kernel refuses an entry of queue {queue}: {error}");
                // Fails only if the session has ended.
                let _ = self.post.news.send(News::RingsRefused);
            }
            (Turn::Committed | Turn::Ours | Turn::Gone, _) => {
                return Err(io::Error::new(error.kind(), format!("an answer of queue {queue} was refused: {error}")));
            }
        }
        self.is_out_of_use = self.held.iter().all(|held| held.turn == Turn::Gone);
        Ok(())
    }

    fn submit_again(&mut self, index: usize, turn: Turn) -> io::Result<()> {
        match turn {
            Turn::Registering => self.register(index),
            Turn::Committed | Turn::Ours | Turn::Gone => self.commit_one(index),
        }
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        self.set_turn(index, Turn::Registering);
        // The kernel sends no requests before all queues have such entries.
        self.set_steady(index, !self.held[index].is_spare);
        let held = &self.held[index];
        self.ring.register(held.queue, index, &held.entry)
    }

    /// Serves a request. If its handler waited, the reply is submitted at once, before the thread goes back to its CPU.
    /// Otherwise it is submitted together with the wait for the next request. After a long request the thread stays on
    /// its present CPUs.
    fn request(&mut self, server: &Arc<Server>, index: usize) -> io::Result<()> {
        self.set_turn(index, Turn::Ours);
        let Held { queue, is_steady, .. } = self.held[index];
        let own_fresh = self.held.iter().filter(|held| held.is_fresh && held.queue == queue).count();
        self.mailbox.begin_request(queue, is_steady, own_fresh);
        let entry = self.held[index].entry.clone();
        dispatch(server, &self.mailbox, &entry, (index, queue));
        self.held[index].is_steady = self.mailbox.is_steady();
        self.commit()?;
        if self.held[index].turn == Turn::Ours {
            // It comes back only when others are answered.
            self.is_no_more_fresh(index);
        }
        self.add_spare(server, index)?;
        let said = waiting::rearm();
        if said.waits {
            self.ring.submit(0)?;
        }
        // The next request is likely to be as long, so it is served on any idle CPU, and not on the one that its reader
        // needs.
        if said.is_long {
            return Ok(());
        }
        // Also needed if the thread was moved because its CPU went off line: the CPU may be back.
        if !self.post.cpus.contains(&cpus::current()) {
            cpus::run_on(&self.post.cpus);
        }
        Ok(())
    }

    /// A request with a late reply keeps its entry. The queue gets another entry, so that other requests do not wait.
    /// It needs no more than the largest number of late replies at a time. Without memory for the entry, other requests
    /// wait.
    ///
    /// The kernel sends the new entry a request that was asked for, and with the reply to it the entry comes back for
    /// those that are queued.
    fn add_spare(&mut self, server: &Server, late: usize) -> io::Result<()> {
        let Held { queue, turn: Turn::Ours, .. } = self.held[late] else { return Ok(()) };
        if self.has_entry(queue) || !self.can_add() || !self.post.spares.take(queue) {
            return Ok(());
        }
        match self.make(queue, true) {
            Ok(index) => {
                self.register(index)?;
                self.held[index].is_fresh = true;
                self.ring.submit(0)?;
                let inode = self.held[late].entry.inode();
                if !self.ask_for_request(server, queue, inode) {
                    self.is_no_more_fresh(index);
                }
                Ok(())
            }
            Err(e) => {
                self.post.spares.lose_fresh(queue);
                self.post.spares.end(queue);
                log::warn!("no further entry for queue {queue}: {e}");
                Ok(())
            }
        }
    }

    /// Has the kernel send a request to a queue: of the inode of the late request, or of the root. It goes to the queue of
    /// the CPU that asks. False: it sends none, and a later request makes the new entry steady.
    fn ask_for_request(&self, server: &Server, queue: u16, inode: u64) -> bool {
        if cpus::current() != usize::from(queue) && !(cpus::run_on(&[queue.into()])) {
            return false;
        }
        // Some kernels refuse any but a regular file, and all know the root.
        [inode, notification::ROOT].into_iter().any(|inode| {
            let asked = notification::retrieve_nothing(self.post.spares.next_asked(), inode);
            let sent = server.device().notify(&asked);
            if let Err(e) = &sent {
                log::debug!("the kernel sends no request of inode {inode} for a new entry of queue {queue}: {e}");
            }
            sent.is_ok()
        })
    }

    /// Sets the owner and returns the previous one.
    fn set_turn(&mut self, index: usize, turn: Turn) -> Turn {
        std::mem::replace(&mut self.held[index].turn, turn)
    }

    fn set_steady(&mut self, index: usize, is_steady: bool) {
        let held = &mut self.held[index];
        match (std::mem::replace(&mut held.is_steady, is_steady), is_steady) {
            (false, true) => self.post.spares.add_steady(held.queue),
            (true, false) => self.post.spares.lose_steady(held.queue),
            _ => {}
        }
    }

    fn is_no_more_fresh(&mut self, index: usize) {
        let held = &mut self.held[index];
        if std::mem::take(&mut held.is_fresh) {
            self.post.spares.lose_fresh(held.queue);
        }
    }

    fn can_add(&self) -> bool {
        self.held.len() < self.post.queues.len() + ADDED_MAX
    }

    /// Whether the kernel has an entry of this thread for a queue.
    fn has_entry(&self, queue: u16) -> bool {
        self.held.iter().any(|held| held.queue == queue && held.turn.is_kernel_s())
    }

    /// Commits all replies that have come.
    fn commit(&mut self) -> io::Result<()> {
        for finished in self.mailbox.take() {
            self.prepare(&finished);
            self.commit_one(finished.index)?;
            if finished.is_late {
                self.post.spares.lose_returning(finished.queue);
            }
        }
        Ok(())
    }

    fn prepare(&self, finished: &Finished) {
        // SAFETY: nothing borrows from the request any more. This thread ran its handler, and takes the reply out of
        // the mailbox only after that. Only this thread commits the entry.
        unsafe { finished.prepare(&self.held[finished.index].entry) };
    }

    fn commit_one(&mut self, index: usize) -> io::Result<()> {
        self.set_turn(index, Turn::Committed);
        self.set_steady(index, true);
        self.is_no_more_fresh(index);
        let held = &self.held[index];
        self.ring.commit(held.queue, index, &held.entry)
    }
}

fn dispatch(server: &Arc<Server>, mailbox: &Arc<Mailbox>, entry: &Arc<Entry>, (index, queue): (usize, u16)) {
    let slot = |is_payload_free| Slot { mailbox: mailbox.clone(), entry: entry.clone(), index, queue, is_payload_free };
    // SAFETY: the kernel gave the entry a request, and it is committed after this function. Replies are written to the
    // payload meanwhile only where the request has none.
    match unsafe { entry.message() } {
        Ok((message, in_payload)) => drop(server.serve(message, Back::Ring(slot(in_payload == 0)))),
        Err(why) => {
            log::error!("a request over a ring cannot be read: {why}");
            // The commit id is the request's number.
            slot(true).reply(entry.commit_id(), libc::EIO, Vec::new());
        }
    }
}

/// A request that is about to wait.
struct InQueue {
    cpus: Vec<usize>,
    mailbox: Arc<Mailbox>,
}

impl Waiter for InQueue {
    /// A thread that waits for a device is woken on the CPU that gets the device's interrupt, which may be any.
    fn before_waiting(&mut self) {
        cpus::run_on(&self.cpus);
    }

    fn leaves_room(&mut self) -> bool {
        self.mailbox.leaves_room()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::device::Device;
    use crate::protocol::negotiation::Negotiation;
    use crate::protocol::request::Request;
    use crate::reply::Reply;
    use crate::service::Service;

    struct Nothing;

    impl Service for Nothing {
        fn init(&mut self, _: &mut Negotiation) -> io::Result<()> {
            Ok(())
        }

        fn serve(&self, _: Request<'_>, reply: Reply) {
            drop(reply);
        }

        fn forget(&self, _: u64, _: u64) {}
    }

    /// A thread with two queues over a device that takes no entries.
    fn thread(spares: usize) -> (RingThread, Arc<Server>, Receiver<News>) {
        let device = Device::new(tempfile::tempfile().unwrap().into());
        let init: Vec<u8> = [7, 45, 131_072, 0, 0].iter().flat_map(|number: &u32| number.to_ne_bytes()).collect();
        let server = Arc::new(Server::new(device, Nothing, &Negotiation::decode(&init, 4096).unwrap()));
        let (news, told) = channel();
        let (spares, cpus) = (Arc::new(Spares::new(spares, 2, spares)), cpus::allowed().unwrap());
        let buffers = Buffers::new(4, 8192).unwrap();
        let post = Post { queues: vec![0, 1], buffers: buffers.clone(), spare_buffers: buffers, cpus, spares, news };
        (RingThread::new(post, &server).unwrap(), server, told)
    }

    #[test]
    fn a_kernel_that_takes_no_entry_is_told_of_and_ends_the_thread() {
        let (thread, server, told) = thread(0);
        thread.serve(&server).unwrap();
        assert!(matches!(told.try_recv(), Ok(News::RingsRefused)));
    }

    #[test]
    fn an_answer_that_is_refused_is_an_error_and_a_refusal_for_now_is_not() {
        let (mut thread, _, told) = thread(0);
        thread.set_turn(0, Turn::Committed);
        thread.ended(0, libc::EAGAIN).unwrap();
        assert_eq!(thread.held[0].turn, Turn::Committed, "it is asked again");
        thread.ended(0, libc::EOPNOTSUPP).unwrap_err();
        thread.set_turn(1, Turn::Registering);
        thread.ended(1, libc::EBUSY).unwrap();
        assert_eq!(thread.held[1].turn, Turn::Registering);
        assert!(told.try_recv().is_err() && !thread.is_out_of_use);
    }

    #[test]
    fn a_spare_entry_that_is_refused_is_no_error_and_ends_nothing() {
        let (mut thread, server, told) = thread(1);
        thread.add_spare(&server, 0).unwrap();
        assert_eq!(thread.held.len(), 3, "no other entry of the queue is the kernel's");
        thread.add_spare(&server, 1).unwrap();
        assert_eq!(thread.held.len(), 3, "there are no more");
        thread.ended(2, libc::ENOMEM).unwrap();
        assert!(told.try_recv().is_err() && !thread.is_out_of_use, "both others have requests");
    }

    #[test]
    fn the_last_steady_entry_of_a_queue_is_not_for_what_waits_for_others() {
        let (mut thread, _, _) = thread(1);
        thread.set_steady(0, true);
        thread.mailbox.begin_request(0, true, 0);
        assert!(!thread.mailbox.leaves_room(), "it is the last");
        assert!(thread.mailbox.is_steady());
        thread.make(0, true).unwrap();
        thread.register(2).unwrap();
        assert!(!thread.mailbox.leaves_room(), "a new entry gets no request that is queued already");
        thread.mailbox.begin_request(0, false, 0);
        assert!(thread.mailbox.leaves_room(), "the new one may be late");
        thread.set_steady(2, true);
        thread.mailbox.begin_request(0, true, 0);
        assert!(thread.mailbox.leaves_room() && thread.mailbox.leaves_room(), "there are two after its reply");
        assert!(!thread.mailbox.is_steady());
        thread.mailbox.begin_request(0, true, 0);
        assert!(!thread.mailbox.leaves_room(), "and one of them is late");
    }

    #[test]
    fn a_thread_whose_mount_is_gone_ends_when_the_last_entry_is() {
        let (mut thread, _, told) = thread(0);
        thread.ended(0, libc::ENOTCONN).unwrap();
        assert!(!thread.is_out_of_use);
        thread.ended(1, libc::ECONNABORTED).unwrap();
        assert!(thread.is_out_of_use && told.try_recv().is_err());
    }
}
