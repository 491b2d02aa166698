//! A file of the host, open for both ways to it: past the host's page cache, and through it.

use std::fs::File;

use super::transfer::Io;

/// The ways to one file.
pub struct OpenFile {
    /// The way of all writes, and of reads unless they say otherwise.
    pub direct: File,
    /// The way through the host's page cache, if the other one passes it by.
    pub cached: Option<File>,
}

impl OpenFile {
    /// The way that a request takes. The kernel keeps both ways coherent: a direct write makes the page cache forget
    /// what it replaces, before and after.
    pub fn way_of(&self, io: &Io<'_>) -> &File {
        if io.is_through_host_cache() { self.cached.as_ref().unwrap_or(&self.direct) } else { &self.direct }
    }
}
