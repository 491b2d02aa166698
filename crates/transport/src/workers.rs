//! The threads of a session.

use std::io;
use std::thread::{self, JoinHandle};

/// The threads of a session.
#[derive(Default)]
pub(crate) struct Workers(Vec<JoinHandle<io::Result<()>>>);

impl Workers {
    pub(crate) fn spawn(
        &mut self,
        name: String,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.0.push(thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Waits for all of them; the first error is told.
    pub(crate) fn join(self) -> io::Result<()> {
        let panicked = |_| Err(io::Error::other("a thread that serves requests panicked"));
        let ended: Vec<_> = self.0.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect();
        ended.into_iter().collect()
    }
}
