//! A thread for what an event loop must not wait for.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after the other. Dropped, it ends when it has run those that it was given.
pub(crate) struct Worker {
    /// Not bounded: each job belongs to a request, of which the kernel sends a bounded number.
    jobs: Sender<Job>,
}

impl Worker {
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (jobs, received) = channel::<Job>();
        let work = move || received.into_iter().for_each(|job| job());
        thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self { jobs })
    }

    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The thread receives as long as `self` lives. Were it gone, dropping the job's reply would answer EIO.
        let _ = self.jobs.send(Box::new(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_order_and_all_of_them() {
        let worker = Worker::start("test").unwrap();
        let (done, results) = channel();
        for number in 0..100 {
            let done = done.clone();
            worker.run(move || done.send(number).unwrap());
        }
        drop((worker, done));
        assert_eq!(results.into_iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }
}
