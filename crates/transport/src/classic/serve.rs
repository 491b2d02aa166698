//! The life of a thread that reads `/dev/fuse`.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::readers::Readers;
use crate::device::Received;
use crate::reply::Back;
use crate::server::Server;
use crate::waiting::{self, Waiter};
use crate::workers::Workers;

/// A read that took longer had to wait.
const WAIT_MIN: Duration = Duration::from_micros(10);
/// How long the reader rests after a FORGET where requests come over rings: then the kernel has many to hand over at
/// once, and waking for each costs what rings save. Deleted files are freed that much later.
const REST: Duration = Duration::from_millis(10);

/// What the reader of `/dev/fuse` is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// All requests.
    All,
    /// What does not come over rings: FORGET, INTERRUPT. All of it where the kernel refuses an entry.
    BesideRings,
}

/// Starts the threads that read. They end with the mount.
pub(crate) fn start(server: &Arc<Server>, threads: usize, duty: Duty, workers: &mut Workers) -> io::Result<()> {
    let readers = Arc::new(Readers::new(threads));
    for number in 0..threads {
        let (server, readers) = (server.clone(), readers.clone());
        workers.spawn(format!("fuse-{number}"), move || {
            let served = serve(&server, &readers, number, duty);
            readers.end();
            server.end_rings();
            served
        })?;
    }
    if threads > 1 {
        workers.spawn("fuse-watch".to_owned(), move || {
            readers.watch();
            Ok(())
        })?;
    }
    Ok(())
}

fn serve(server: &Arc<Server>, readers: &Arc<Readers>, number: usize, duty: Duty) -> io::Result<()> {
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
                if is_forget && duty == Duty::BesideRings {
                    thread::sleep(REST);
                }
            }
        }
    }
    Ok(())
}

/// A thread that waits leaves reading to another.
struct Parting(Arc<Readers>);

impl Waiter for Parting {
    fn before_waiting(&mut self) {
        self.0.before_waiting();
    }
}
