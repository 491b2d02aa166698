//! Chooses the threads that read `/dev/fuse`: as few as the load needs. The kernel wakes waiting readers in turn, so
//! with a second reader every request wakes a cold thread. Measured, that is most of the time of a small request.
//!
//! So there is one seat. The seated thread reads a request, answers it and sits down again. All others are parked. One
//! of them is called when a handler announces that it waits. The watcher covers handlers that do not: if no thread
//! waited in a read for a whole tick, it calls another and adds a seat, until readers are idle.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long requests may come without a pause, or without a seated reader, before one more thread reads.
const TICK: Duration = Duration::from_millis(1);

/// Threads that read, or are parked.
#[derive(Debug)]
pub(super) struct Readers {
    state: Mutex<State>,
    /// Wakes each parked thread.
    calls: Vec<Condvar>,
    /// Wakes the watcher.
    stirred: Condvar,
}

#[derive(Debug)]
struct State {
    /// Threads that wait in a read, or are about to.
    seated: usize,
    /// Most threads that may be seated.
    seats: usize,
    /// Parked threads; the last one is the warmest.
    parked: Vec<usize>,
    /// Requests that a reader had to wait for.
    pauses: u64,
    /// Requests read.
    requests: u64,
    is_watcher_asleep: bool,
    has_ended: bool,
}

impl Readers {
    pub(super) fn new(threads: usize) -> Self {
        assert!(threads > 0, "{threads} threads cannot read");
        let state = State {
            seated: 0,
            seats: 1,
            parked: Vec::with_capacity(threads),
            pauses: 0,
            requests: 0,
            is_watcher_asleep: false,
            has_ended: false,
        };
        let calls = (0..threads).map(|_| Condvar::new()).collect();
        Self { state: Mutex::new(state), calls, stirred: Condvar::new() }
    }

    /// Waits until this thread is to read. False: the mount is gone.
    pub(super) fn sit(&self, thread: usize) -> bool {
        let mut state = self.state.lock();
        while !state.has_ended && state.seated >= state.seats {
            state.parked.push(thread);
            while state.parked.contains(&thread) {
                self.calls[thread].wait(&mut state);
            }
        }
        state.seated += 1;
        !state.has_ended
    }

    /// This thread has read a request. `has_waited`: it had to wait for it.
    pub(super) fn stand(&self, has_waited: bool) {
        let mut state = self.state.lock();
        assert!(state.seated > 0, "{} threads sit, and one stands up", state.seated);
        state.seated -= 1;
        state.requests += 1;
        state.pauses += u64::from(has_waited);
        if std::mem::take(&mut state.is_watcher_asleep) {
            self.stirred.notify_one();
        }
    }

    /// A thread that stood up is about to wait, so another must sit.
    pub(super) fn before_waiting(&self) {
        let mut state = self.state.lock();
        if state.seated == 0 {
            self.call(&mut state);
        }
    }

    fn call(&self, state: &mut State) {
        if let Some(thread) = state.parked.pop() {
            self.calls[thread].notify_one();
        }
    }

    /// The mount is gone: no thread reads any more.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.parked.clear();
        for call in &self.calls {
            call.notify_one();
        }
        self.stirred.notify_one();
    }

    /// Runs the watcher until the mount is gone. It sleeps while no requests come.
    pub(super) fn watch(&self) {
        let mut state = self.state.lock();
        while !state.has_ended {
            let (requests, pauses) = (state.requests, state.pauses);
            self.stirred.wait_for(&mut state, TICK);
            match (state.seated, state.pauses - pauses) {
                (0, 0) => self.add_seat(&mut state),
                (seated, _) if seated >= state.seats && state.seats > 1 => state.seats -= 1,
                (seated, _) if seated > 0 && state.requests == requests && !state.has_ended => {
                    state.seats = 1;
                    state.is_watcher_asleep = true;
                    self.stirred.wait(&mut state);
                }
                _ => {}
            }
        }
    }

    fn add_seat(&self, state: &mut State) {
        state.seats = (state.seats + 1).min(self.calls.len());
        self.call(state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(10);

    /// Threads 1 and up, each of which reports when it sits and whether the mount is gone.
    fn others(readers: &Arc<Readers>, count: usize) -> Receiver<(usize, bool)> {
        let (told, sits) = channel();
        for thread in 1..=count {
            let (readers, told) = (readers.clone(), told.clone());
            thread::spawn(move || told.send((thread, readers.sit(thread))));
        }
        sits
    }

    fn parked(readers: &Readers, count: usize) {
        while readers.state.lock().parked.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn one_reads_and_another_is_called_only_when_that_one_waits() {
        let readers = Arc::new(Readers::new(3));
        assert!(readers.sit(0));
        let sits = others(&readers, 2);
        parked(&readers, 2);
        readers.stand(true);
        assert!(readers.sit(0), "the same one goes on");
        readers.before_waiting();
        assert!(sits.recv_timeout(SOON).is_err(), "somebody sits already");
        readers.stand(true);
        readers.before_waiting();
        assert!(sits.recv_timeout(LONG).unwrap().1);
        assert!(sits.recv_timeout(SOON).is_err(), "one was called, not both");
        readers.end();
        assert_eq!(sits.recv_timeout(LONG).map(|(_, goes_on)| goes_on), Ok(false));
        assert!(!readers.sit(0));
    }

    #[test]
    fn the_watcher_calls_another_when_a_handler_waits_without_saying_so() {
        let readers = Arc::new(Readers::new(2));
        assert!(readers.sit(0));
        let sits = others(&readers, 1);
        parked(&readers, 1);
        let watched = readers.clone();
        let watcher = thread::spawn(move || watched.watch());
        assert!(sits.recv_timeout(SOON).is_err(), "nothing happens, nobody is called");
        readers.stand(true);
        assert!(sits.recv_timeout(LONG).unwrap().1, "thread 0 has not come back");
        readers.end();
        watcher.join().unwrap();
    }

    #[test]
    fn seats_come_with_the_load_and_go_with_it() {
        let readers = Arc::new(Readers::new(2));
        assert!(readers.sit(0));
        let sits = others(&readers, 1);
        parked(&readers, 1);
        readers.stand(false);
        let watched = readers.clone();
        let watcher = thread::spawn(move || watched.watch());
        assert!(sits.recv_timeout(LONG).unwrap().1, "nobody was seen to wait for a request");
        while readers.state.lock().seats > 1 {
            thread::yield_now();
        }
        readers.end();
        watcher.join().unwrap();
    }
}
