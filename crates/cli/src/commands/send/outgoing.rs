//! A stream on its way out, and the entry that is being sent.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use oncefs_stream::{Asked, Contents, Digest, Header, Record, TreePath, Writer};

use super::asker::Asker;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::shown;

/// Bytes written at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// The stream.
pub struct Outgoing<'a> {
    /// The daemon of the mount.
    pub daemon: &'a Daemon,
    /// The directory that is sent.
    pub top: &'a InMount,
    /// The header, which is written.
    pub header: Header,
    /// The records.
    pub out: Writer<BufWriter<File>>,
    /// Below the top: the entry that is being sent.
    pub path: TreePath,
    /// The contents that came before.
    pub contents: Contents,
    /// The other side, if it may be asked.
    pub asker: Option<Asker>,
}

impl<'a> Outgoing<'a> {
    /// Writes the header of a stream.
    pub fn begin(
        daemon: &'a Daemon,
        top: &'a InMount,
        header: Header,
        out: File,
        asker: Option<Asker>,
    ) -> io::Result<Self> {
        let out = Writer::begin(BufWriter::with_capacity(BUFFER_BYTES, out), &header)?;
        Ok(Self { daemon, top, header, out, path: TreePath::default(), contents: Contents::default(), asker })
    }

    /// Writes a record.
    pub fn record(&mut self, record: &Record) -> Outcome {
        let written = self.out.record(record);
        written.map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => self.failed(&e),
            _ => Failure::new(exit::FAILED, format!("cannot write the stream: {e}")),
        })
    }

    /// Asks the other side for contents of the file that is being sent, and remembers those that it has.
    pub fn ask<'c>(&mut self, contents: impl Iterator<Item = (Digest, &'c [u8])>) -> Outcome {
        let Some(asker) = &self.asker else { return Ok(()) };
        let (digests, asked): (Vec<Digest>, Vec<Asked>) = contents
            .filter(|(digest, _)| self.contents.find(digest).is_none())
            .map(|(digest, content)| (digest, asker.asked(&self.header.key, content)))
            .unzip();
        if asked.is_empty() {
            return Ok(());
        }
        self.record(&Record::Ask { contents: asked })?;
        self.out.flush().or_fail_doing(exit::FAILED, "cannot write the stream")?;
        let Some(asker) = &mut self.asker else { return Ok(()) };
        for (digest, number) in digests.iter().zip(asker.answer(digests.len())?) {
            if let Some(number) = number {
                self.contents.remember_known(*digest, number);
            }
        }
        Ok(())
    }

    /// The failure of the entry that is being sent.
    pub fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(exit::FAILED, format!("cannot send {}: {error}", shown(&self.shown_path())))
    }

    /// The path of the entry that is being sent, for messages.
    pub fn shown_path(&self) -> PathBuf {
        let mut path = self.top.path.clone();
        path.extend(self.path.names().iter().map(|name| OsStr::from_bytes(name.bytes())));
        path
    }
}
