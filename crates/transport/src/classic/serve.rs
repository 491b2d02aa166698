//! The life of a thread that reads `/dev/fuse`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::readers::Readers;
use crate::device::Received;
use crate::reply::Back;
use crate::server::Server;
use crate::waiting::{self, Waiter};
use crate::workers::Workers;

/// A read that takes longer had to wait.
const WAIT_MIN: Duration = Duration::from_micros(10);
/// How long the reader rests after a FORGET if requests come over rings. The kernel then hands over many at once, and a
/// wakeup for each would cost what rings save. Deleted files are freed that much later.
const REST: Duration = Duration::from_millis(10);

/// Threads that read. They end with the mount.
pub(crate) struct Pool {
    server: Arc<Server>,
    readers: Arc<Readers>,
    threads_max: usize,
    threads: usize,
}

impl Pool {
    /// A pool without threads, for at most `threads_max`.
    pub(crate) fn new(server: Arc<Server>, threads_max: usize) -> Self {
        Self { server, readers: Arc::new(Readers::new(threads_max)), threads_max, threads: 0 }
    }

    /// Starts threads until there are `threads`.
    pub(crate) fn grow(&mut self, threads: usize, workers: &mut Workers) -> io::Result<()> {
        let wanted = threads.min(self.threads_max);
        let is_first_of_many = self.threads < 2 && wanted > 1;
        for number in self.threads..wanted {
            let (server, readers) = (self.server.clone(), self.readers.clone());
            workers.spawn(format!("fuse-{number}"), move || {
                let served = serve(&server, &readers, number);
                readers.end();
                server.end_rings();
                served
            })?;
        }
        self.threads = self.threads.max(wanted);
        if is_first_of_many {
            let readers = self.readers.clone();
            workers.spawn("fuse-watch".to_owned(), move || {
                readers.watch();
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn serve(server: &Arc<Server>, readers: &Arc<Readers>, number: usize) -> io::Result<()> {
    waiting::install(Box::new(Parting(readers.clone())));
    let mut buffer = vec![0; server.message_bytes_max()];
    while readers.sit(number) {
        let began = Instant::now();
        let received = server.device().receive(&mut buffer);
        readers.stand(began.elapsed() >= WAIT_MIN);
        match received? {
            Received::Unmounted => return Ok(()),
            Received::Message(len) => {
                let is_forget = server.serve(&buffer[..len], Back::Device);
                waiting::rearm();
                if is_forget && server.has_rings.load(Ordering::Relaxed) {
                    thread::sleep(REST);
                }
            }
        }
    }
    Ok(())
}

/// Lets another thread read before this one waits.
struct Parting(Arc<Readers>);

impl Waiter for Parting {
    fn before_waiting(&mut self) {
        self.0.before_waiting();
    }
}
