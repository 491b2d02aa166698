//! The thread that asks a cluster for the room of the pools below a volume.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::pool_rooms::PoolRooms;
use crate::sync::AtomicBool;

/// How often the cluster is asked for its figures.
const ASK: Duration = Duration::from_secs(5);
/// How often it is asked whether it takes data again.
const ASK_WHETHER_FULL: Duration = Duration::from_secs(1);
/// How often the thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// The thread. Dropped, it ends, which takes as long as a question under way.
pub struct RoomWatch {
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RoomWatch {
    /// Starts the thread, which asks at once.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(rooms: PoolRooms) -> io::Result<Self> {
        let is_closing = Arc::new(AtomicBool::new(false));
        let closing = is_closing.clone();
        let thread = thread::Builder::new().name("oncefs-room".to_owned());
        let thread = Some(thread.spawn(move || watch(&rooms, &closing))?);
        Ok(Self { is_closing, thread })
    }
}

impl Drop for RoomWatch {
    fn drop(&mut self) {
        self.is_closing.store(true, Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that asks for the room of the pool panicked");
        }
    }
}

fn watch(rooms: &PoolRooms, is_closing: &AtomicBool) {
    let (mut asked, mut asked_whether_full) = (None, Instant::now());
    while !is_closing.load(Acquire) {
        if asked.is_none_or(|asked: Instant| asked.elapsed() >= ASK) {
            rooms.ask();
            asked = Some(Instant::now());
        } else if rooms.is_full() && asked_whether_full.elapsed() >= ASK_WHETHER_FULL {
            rooms.ask_whether_full();
            asked_whether_full = Instant::now();
        }
        thread::sleep(LOOK);
    }
}
