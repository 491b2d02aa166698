//! Makes room on a full volume and tries requests again, on a thread of its own: no event loop waits for that.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use oncefs_fs::{Error, FileSystem, Result, Room};

/// How often and how long a request waits for room: 10 s in all while deleted files are being freed, half a second
/// where that is only possible.
const ROOM_TRIES_MAX: usize = 200;
const PERHAPS_TRIES_MAX: usize = 10;
const ROOM_TRY: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// Tries requests one after the other. Dropped, it ends when it has run those that it was given.
pub(crate) struct RoomMaker {
    /// Not bounded: each job belongs to a request, of which the kernel sends a bounded number.
    jobs: Sender<Job>,
}

impl RoomMaker {
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, received) = channel::<Job>();
        let work = move || received.into_iter().for_each(|job| job());
        thread::Builder::new().name("room-maker".to_owned()).spawn(work)?;
        Ok(Self { jobs })
    }

    /// Tries a request that found no room again after making some, and then replies.
    pub(crate) fn try_again<T>(
        &self,
        file_system: Arc<FileSystem>,
        again: impl Fn(&FileSystem) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        self.run(move || reply(retry_with_room(&file_system, &again)));
    }

    fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The thread receives as long as `self` lives. Were it gone, dropping the job's reply would answer EIO.
        let _ = self.jobs.send(Box::new(job));
    }
}

/// Tries again after making room, also when none was found to be made: somebody else may have made it just before.
fn retry_with_room<T>(file_system: &FileSystem, again: &impl Fn(&FileSystem) -> Result<T>) -> Result<T> {
    let mut tries = 0;
    loop {
        let tries_max = match file_system.make_room()? {
            Room::Coming => ROOM_TRIES_MAX,
            Room::Perhaps => PERHAPS_TRIES_MAX,
            Room::None => 0,
        };
        match again(file_system) {
            Err(Error::NoSpace) if tries < tries_max => thread::sleep(ROOM_TRY),
            result => return result,
        }
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_order_and_all_of_them() {
        let room_maker = RoomMaker::start().unwrap();
        let (done, results) = channel();
        for number in 0..100 {
            let done = done.clone();
            room_maker.run(move || done.send(number).unwrap());
        }
        drop((room_maker, done));
        assert_eq!(results.into_iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }
}
