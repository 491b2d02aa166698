//! The life of a thread that serves a ring: it makes ring and entries, waits for INIT's answer, registers, and then
//! answers requests until the mount is gone.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use super::command::{Event, Ring};
use super::entry::Entry;
use super::slot::{Mailbox, Slot};
use crate::cpus;
use crate::reply::Back;
use crate::server::Server;
use crate::waiting::{self, Waiter};

/// Entries that one thread has at most.
const ENTRIES_MAX: usize = 64;

/// One entry of a thread.
struct Held {
    entry: Arc<Entry>,
    queue: u16,
    /// The kernel has it and may put a request there. Otherwise one is being answered.
    is_waiting: bool,
}

/// A thread's ring with its entries. The ring is closed first: until then the kernel may write to the entries.
pub(crate) struct RingThread {
    ring: Ring,
    held: Vec<Held>,
    mailbox: Arc<Mailbox>,
    queues: Vec<u16>,
    payload_bytes: usize,
    cpus: Vec<usize>,
}

impl RingThread {
    fn new(queues: &[u16], payload_bytes: usize, server: &Server) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let ring = Ring::new(ENTRIES_MAX, server.device().raw())?;
        let cpus = queues.iter().map(|queue| usize::from(*queue)).collect();
        let mut thread = Self { ring, held: Vec::new(), mailbox, queues: queues.to_vec(), payload_bytes, cpus };
        for queue in queues {
            thread.add(*queue)?;
        }
        server.add_mailbox(thread.mailbox.clone());
        Ok(thread)
    }

    fn add(&mut self, queue: u16) -> io::Result<()> {
        let entry = Arc::new(Entry::new(self.payload_bytes)?);
        self.held.push(Held { entry, queue, is_waiting: false });
        Ok(())
    }

    /// Makes the ring, says whether that worked, and serves it if told to go on.
    ///
    /// # Errors
    /// io_uring failed while the mount was there.
    pub(crate) fn run(
        server: &Arc<Server>,
        queues: &[u16],
        payload_bytes: usize,
        made: Sender<io::Result<()>>,
        go: &Receiver<()>,
    ) -> io::Result<()> {
        let thread = match Self::new(queues, payload_bytes, server) {
            Err(e) => {
                // Nobody listens any more if another thread failed before.
                let _ = made.send(Err(e));
                return Ok(());
            }
            Ok(thread) => thread,
        };
        let _ = made.send(Ok(()));
        // Who counts the results waits until nobody is left to send one.
        drop(made);
        // Not told: there will be no rings.
        if go.recv().is_err() {
            return Ok(());
        }
        thread.serve(server)
    }

    fn serve(mut self, server: &Arc<Server>) -> io::Result<()> {
        cpus::run_on(&self.cpus);
        waiting::install(Box::new(AnyCpu(server.cpus().to_vec())));
        for index in 0..self.held.len() {
            self.register(index)?;
        }
        self.ring.listen(self.mailbox.bell())?;
        let mut events = Vec::new();
        while !self.mailbox.is_closed() && self.held.iter().any(|held| held.is_waiting) {
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
            Event::Ended(index, errno) => {
                self.held[index].is_waiting = false;
                self.told_of_end(index, errno);
                Ok(())
            }
        }
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let held = &mut self.held[index];
        held.is_waiting = true;
        self.ring.register(held.queue, index, &held.entry)
    }

    /// Serves a request. One that waited is answered before the thread goes back to its CPU; any other together with the
    /// wait for the next.
    fn request(&mut self, server: &Arc<Server>, index: usize) -> io::Result<()> {
        self.held[index].is_waiting = false;
        dispatch(server, &self.mailbox, &self.held[index].entry, index);
        self.commit()?;
        self.add_spare(index)?;
        if waiting::rearm() {
            self.ring.submit(0)?;
        }
        // Also where the thread was moved because its CPU went off line: it may be back.
        if cpus::current().is_none_or(|cpu| !self.cpus.contains(&cpu)) {
            cpus::run_on(&self.cpus);
        }
        Ok(())
    }

    /// A request that is answered later keeps its entry. So that others do not wait for it, the queue gets another one:
    /// once as many as were ever answered later at a time, it needs no more.
    fn add_spare(&mut self, index: usize) -> io::Result<()> {
        let queue = self.held[index].queue;
        let has_waiting = self.held.iter().any(|held| held.queue == queue && held.is_waiting);
        if has_waiting || self.held.len() >= ENTRIES_MAX.max(2 * self.queues.len()) {
            return Ok(());
        }
        self.add(queue)?;
        self.register(self.held.len() - 1)
    }

    /// Commits all replies that are there.
    fn commit(&mut self) -> io::Result<()> {
        for finished in self.mailbox.take_finished() {
            let held = &mut self.held[finished.index];
            // SAFETY: this is the ring's thread, and no handler is running in it: what borrowed from the request is gone.
            unsafe { finished.prepare(&held.entry, finished.index >= self.queues.len()) };
            held.is_waiting = true;
            self.ring.commit(held.queue, finished.index, &held.entry)?;
        }
        Ok(())
    }

    fn told_of_end(&self, index: usize, errno: i32) {
        if !matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) {
            let error = io::Error::from_raw_os_error(errno);
            log::error!("an entry of queue {} is out of use: {error}", self.held[index].queue);
        }
    }
}

fn dispatch(server: &Arc<Server>, mailbox: &Arc<Mailbox>, entry: &Arc<Entry>, index: usize) {
    let slot = |is_payload_free| Slot { mailbox: mailbox.clone(), entry: entry.clone(), index, is_payload_free };
    // SAFETY: the kernel gave the entry a request, and it is committed after this function. Replies are written to the
    // payload meanwhile only where the request has none.
    match unsafe { entry.message() } {
        Ok((message, in_payload)) => drop(server.serve(message, Back::Ring(slot(in_payload == 0)))),
        Err(why) => {
            log::error!("a request over a ring cannot be read: {why}");
            // What a reply is committed with is the request's number.
            slot(true).reply(entry.commit_id(), libc::EIO, Vec::new());
        }
    }
}

/// A request that waits for a device is woken where the device's interrupt comes: on any CPU.
struct AnyCpu(Vec<usize>);

impl Waiter for AnyCpu {
    fn before_waiting(&mut self) {
        cpus::run_on(&self.0);
    }
}
