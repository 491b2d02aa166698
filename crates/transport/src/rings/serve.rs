//! The life of a thread that serves a ring: it makes ring and entries, waits for INIT's answer, registers, and then
//! answers requests until the mount is gone.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use super::command::{Event, Ring};
use super::entry::{Entry, Held};
use super::low::{self, Delays};
use super::slot::{Finished, Letter, Mailbox, Slot};
use super::turns::{Class, Seat};
use crate::cpus;
use crate::reply::Back;
use crate::server::Server;
use crate::waiting::{self, Waiter};

/// Entries that one thread has at most.
const ENTRIES_MAX: usize = 64;

/// What a thread is to serve.
pub(crate) struct Post {
    pub(crate) queues: Vec<u16>,
    pub(crate) payload_bytes: usize,
    /// If it has one, there is another thread for the same queue.
    pub(crate) seat: Option<Seat>,
}

/// A thread's ring with its entries. The ring is closed first: until then the kernel may write to the entries.
pub(crate) struct RingThread {
    ring: Ring,
    /// By the number by which the ring knows them. None: handed over.
    held: Vec<Option<Held>>,
    mailbox: Arc<Mailbox>,
    post: Post,
    cpus: Vec<usize>,
    /// Of a thread of the lowest class.
    delays: Option<Delays>,
    /// The kernel takes no entry of this thread any more.
    is_out_of_use: bool,
}

impl RingThread {
    fn new(post: Post, server: &Server) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let ring = Ring::new(ENTRIES_MAX, server.device().raw())?;
        let cpus = post.queues.iter().map(|queue| usize::from(*queue)).collect();
        let (held, is_out_of_use) = (Vec::new(), false);
        let mut thread = Self { ring, held, mailbox, post, cpus, delays: None, is_out_of_use };
        thread.take_seat()?;
        server.add_mailbox(thread.mailbox.clone());
        Ok(thread)
    }

    /// A normal thread makes its entries. A low one has those that it is given.
    fn take_seat(&mut self) -> io::Result<()> {
        let class = self.post.seat.as_ref().map_or(Class::Normal, |seat| seat.class);
        match class {
            Class::Normal => {
                for queue in self.post.queues.clone() {
                    let held = self.make(queue, false)?;
                    self.hold(held);
                }
            }
            Class::Low => match Delays::new(Instant::now()) {
                Ok(delays) => self.delays = Some(delays),
                Err(e) => {
                    log::info!("answers may wake programs on other CPUs than they ran on: {e}");
                    return Ok(());
                }
            },
        }
        if let Some(seat) = &self.post.seat {
            seat.take(self.mailbox.clone());
        }
        Ok(())
    }

    fn make(&self, queue: u16, is_spare: bool) -> io::Result<Held> {
        let entry = Arc::new(Entry::new(self.post.payload_bytes)?);
        Ok(Held { entry, queue, is_waiting: false, is_spare })
    }

    /// Keeps an entry. Returns its number.
    fn hold(&mut self, held: Held) -> usize {
        let free = self.held.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[index] = Some(held);
        index
    }

    fn held(&mut self, index: usize) -> &mut Held {
        self.held[index].as_mut().expect("an entry with a request, or with a reply to commit, is not handed over")
    }

    /// Makes the ring, says whether that worked, and serves it if told to go on.
    ///
    /// # Errors
    /// io_uring failed while the mount was there.
    pub(crate) fn run(
        server: &Arc<Server>,
        post: Post,
        made: Sender<io::Result<()>>,
        go: &Receiver<()>,
    ) -> io::Result<()> {
        let thread = match Self::new(post, server) {
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
        let mailbox = thread.mailbox.clone();
        let served = thread.serve(server);
        mailbox.close();
        served
    }

    fn serve(mut self, server: &Arc<Server>) -> io::Result<()> {
        if self.delays.is_some()
            && let Err(e) = low::lower()
        {
            log::info!("a thread stays in its class, and may wake programs on other CPUs: {e}");
        }
        cpus::run_on(&self.cpus);
        waiting::install(Box::new(AnyCpu(server.cpus().to_vec())));
        for index in 0..self.held.len() {
            self.register(index)?;
        }
        self.ring.listen(self.mailbox.bell())?;
        let mut events = Vec::new();
        while !self.mailbox.is_closed() && !self.is_out_of_use {
            self.ring.submit(1)?;
            self.look_at_delays();
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
                self.held(index).is_waiting = false;
                self.told_of_end(index, errno);
                // Who has a partner may be given other entries as long as the mount is there.
                let has_waiting = self.held.iter().flatten().any(|held| held.is_waiting);
                self.is_out_of_use = !has_waiting && self.post.seat.is_none();
                Ok(())
            }
        }
    }

    /// A low thread that had to wait leaves the queue to normal ones.
    fn look_at_delays(&mut self) {
        let now = Instant::now();
        if let (Some(delays), Some(seat)) = (&mut self.delays, &self.post.seat)
            && let Some(waited) = delays.end_round(now)
        {
            seat.crowded(now, waited);
        }
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let held = self.held[index].as_mut().expect("just made");
        held.is_waiting = true;
        self.ring.register(held.queue, index, &held.entry)
    }

    /// Serves a request. One that waited is answered before the thread goes back to its CPU; any other together with the
    /// wait for the next.
    fn request(&mut self, server: &Arc<Server>, index: usize) -> io::Result<()> {
        self.held(index).is_waiting = false;
        let entry = self.held(index).entry.clone();
        dispatch(server, &self.mailbox, &entry, index);
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
        let Some(Held { queue, is_waiting: false, .. }) = self.held[index] else { return Ok(()) };
        let has_waiting = self.held.iter().flatten().any(|held| held.queue == queue && held.is_waiting);
        if has_waiting || self.held.len() >= ENTRIES_MAX.max(2 * self.post.queues.len()) {
            return Ok(());
        }
        let spare = self.make(queue, true)?;
        let index = self.hold(spare);
        self.register(index)
    }

    /// Commits all replies that are there, or has the other thread of the pair do so if it is its turn.
    fn commit(&mut self) -> io::Result<()> {
        for letter in self.mailbox.take() {
            match letter {
                Letter::Given(held, finished) => {
                    let index = self.hold(held);
                    self.commit_one(index, &finished)?;
                }
                Letter::Finished(finished) => match self.post.seat.as_ref().and_then(|seat| seat.other(Instant::now()))
                {
                    None => self.commit_one(finished.index, &finished)?,
                    Some(other) => {
                        let held = self.held[finished.index].take().expect("an entry is held until its reply is there");
                        other.put(Letter::Given(held, finished));
                    }
                },
            }
        }
        Ok(())
    }

    fn commit_one(&mut self, index: usize, finished: &Finished) -> io::Result<()> {
        let held = self.held[index].as_mut().expect("an entry is held until its reply is there");
        // SAFETY: nothing borrows from the request any more. The thread that ran its handler has taken the reply out of
        // its mailbox, which it does only after the handler. And only the thread that holds an entry commits it.
        unsafe { finished.prepare(&held.entry, held.is_spare) };
        held.is_waiting = true;
        self.ring.commit(held.queue, index, &held.entry)
    }

    fn told_of_end(&self, index: usize, errno: i32) {
        if !matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) {
            let error = io::Error::from_raw_os_error(errno);
            let queue = self.held[index].as_ref().map_or(0, |held| held.queue);
            log::error!("an entry of queue {queue} is out of use: {error}");
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
