//! The threads of a session, and their reports.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// A report of a thread to the one that waits for all of them.
#[derive(Debug)]
pub(crate) enum News {
    /// It has ended.
    Ended(io::Result<()>),
    /// The kernel refuses entries of rings, so requests come by `/dev/fuse`.
    RingsRefused,
}

/// The threads of a session.
pub(crate) struct Workers {
    running: Vec<JoinHandle<()>>,
    ended: usize,
    sender: Sender<News>,
    news: Receiver<News>,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let (sender, news) = channel();
        Self { running: Vec::new(), ended: 0, sender, news }
    }

    /// The sender for a thread's reports.
    pub(crate) fn sender(&self) -> Sender<News> {
        self.sender.clone()
    }

    pub(crate) fn spawn(
        &mut self,
        name: String,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let told = Told(Some(self.sender.clone()));
        self.running.push(thread::Builder::new().name(name).spawn(move || told.tell(work()))?);
        Ok(())
    }

    /// Waits until all threads have ended. Until then it calls `refused` whenever a ring is refused.
    ///
    /// # Errors
    /// Returns the first error of a thread at once. Other threads may still run, because requests of the failed thread
    /// stay unanswered.
    pub(crate) fn wait(mut self, mut refused: impl FnMut(&mut Self) -> io::Result<()>) -> io::Result<()> {
        while self.ended < self.running.len() {
            match self.news.recv().expect("this holds a sender itself") {
                News::Ended(ended) => {
                    ended?;
                    self.ended += 1;
                }
                News::RingsRefused => refused(&mut self)?,
            }
        }
        for worker in self.running {
            worker.join().map_err(|_| io::Error::other("a thread that serves requests panicked"))?;
        }
        Ok(())
    }
}

/// Reports a thread's end, even after a panic.
struct Told(Option<Sender<News>>);

impl Told {
    fn tell(mut self, ended: io::Result<()>) {
        self.send(ended);
    }

    fn send(&mut self, ended: io::Result<()>) {
        if let Some(sender) = self.0.take() {
            // Fails only if another thread's error ended the session.
            let _ = sender.send(News::Ended(ended));
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.send(Err(io::Error::other("a thread that serves requests panicked")));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_error_is_told_while_other_threads_run_on() {
        let mut workers = Workers::new();
        let (end, until) = channel::<()>();
        let forever = move || {
            let _ = until.recv();
            Ok(())
        };
        workers.spawn("forever".to_owned(), forever).unwrap();
        workers.spawn("fails".to_owned(), || Err(io::Error::other("planned"))).unwrap();
        assert_eq!(workers.wait(|_| Ok(())).unwrap_err().to_string(), "planned");
        drop(end);
    }

    #[test]
    fn a_panic_is_an_error() {
        let mut workers = Workers::new();
        workers.spawn("panics".to_owned(), || panic!("planned")).unwrap();
        assert!(workers.wait(|_| Ok(())).unwrap_err().to_string().contains("panicked"));
    }

    #[test]
    fn who_waits_can_add_threads_when_rings_are_refused() {
        let mut workers = Workers::new();
        let sender = workers.sender();
        workers
            .spawn("refused".to_owned(), move || {
                sender.send(News::RingsRefused).unwrap();
                Ok(())
            })
            .unwrap();
        let (told, ran) = channel();
        let add = |workers: &mut Workers| {
            let told = told.clone();
            workers.spawn("more".to_owned(), move || {
                told.send(()).unwrap();
                Ok(())
            })
        };
        workers.wait(add).unwrap();
        assert_eq!(ran.try_iter().count(), 1);
    }
}
