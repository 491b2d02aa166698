//! Sends the contents of a file: each content once, and later only where it came first.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use oncefs_engine::{Compared, ComparedRun, ComparedState};
use oncefs_stream::{BLOCK_BYTES, DATA_BYTES_MAX, Digest, Place, Record};

use super::older::OlderFile;
use super::outgoing::Outgoing;
use crate::control::protocol::Request;
use crate::failure::Outcome;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// All contents of a shorter file without reserved room are remembered, which saves asking the daemon which of them
/// other files share.
const ASKED_BYTES_MIN: u64 = 128 << 10;

/// The other side is not asked about shorter files: each question costs a round trip.
const ASK_OTHERS_BYTES_MIN: u64 = 64 << 10;

/// The next record, which is not written yet because more of the same may follow.
enum Pending {
    Nothing,
    Data { at: u64, bytes: Vec<u8>, digests: Vec<Digest> },
    Share { at: u64, length: u64, first: Place },
}

/// The contents of a file on their way out.
pub struct Body<'a, 'b> {
    outgoing: &'a mut Outgoing<'b>,
    file: &'a File,
    about: &'a Metadata,
    /// The file that it is compared with.
    older: Option<OlderFile>,
    /// Its number among the files whose contents are remembered.
    number: Option<u32>,
    pending: Pending,
    buffer: Vec<u8>,
    /// Memory for the next contents: that of the last ones.
    spare: Vec<u8>,
}

impl<'a, 'b> Body<'a, 'b> {
    /// The contents of the file that is being sent.
    pub fn new(outgoing: &'a mut Outgoing<'b>, file: &'a File, about: &'a Metadata, older: Option<OlderFile>) -> Self {
        Self {
            outgoing,
            file,
            about,
            older,
            number: None,
            pending: Pending::Nothing,
            buffer: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Sends everything from byte `start` on.
    pub fn send(mut self, start: u64) -> Outcome {
        let mut next = Some(start / BLOCK);
        while let Some(lbn) = next {
            let portion = self.portion(lbn)?;
            for run in portion.runs {
                self.run(&run)?;
            }
            next = portion.next;
        }
        self.flush()
    }

    /// Where the file has contents.
    fn portion(&self, lbn: u64) -> Outcome<Compared> {
        let size_blocks = self.about.len().div_ceil(BLOCK);
        if self.about.blocks() == 0 {
            return Ok(Compared::default());
        }
        if self.older.is_none() && self.about.len() < ASKED_BYTES_MIN && self.is_dense(size_blocks) {
            let all = ComparedRun { lbn, blocks: size_blocks.saturating_sub(lbn), state: ComparedState::Shared };
            return Ok(Compared { runs: vec![all], next: None });
        }
        let older = self.older.as_ref().map(|older| older.inode);
        self.outgoing.daemon.ask(Request::Compare { inode: self.about.ino(), older, lbn })
    }

    /// Whether all of it is contents: no hole and no reserved room, neither in it nor after it.
    fn is_dense(&self, size_blocks: u64) -> bool {
        // SAFETY: an open descriptor and plain numbers.
        let hole = unsafe { libc::lseek(self.file.as_raw_fd(), 0, libc::SEEK_HOLE) };
        self.about.blocks() * 512 == size_blocks * BLOCK && u64::try_from(hole) == Ok(self.about.len())
    }

    fn run(&mut self, run: &ComparedRun) -> Outcome {
        let (at, end) = (run.lbn * BLOCK, (run.lbn + run.blocks) * BLOCK);
        match run.state {
            ComparedState::Reserved => {
                self.flush()?;
                self.outgoing.record(&Record::Reserve { at, length: end - at })
            }
            ComparedState::Same => self.same(at, end),
            ComparedState::Shared => self.contents(at, end, true),
            ComparedState::Own => self.contents(at, end, false),
        }
    }

    /// Sends where the older file has these contents.
    fn same(&mut self, at: u64, end: u64) -> Outcome {
        let Some(older) = &self.older else { return self.contents(at, end, true) };
        let end = end.min(self.about.len());
        // The last block of the older file may go on with zeros in this one.
        let known = if end <= older.size { end } else { older.size / BLOCK * BLOCK };
        if known > at {
            let record = Record::Share { at, length: known - at, source: older.source(), source_at: at };
            self.flush()?;
            self.outgoing.record(&record)?;
        }
        self.contents(known.max(at), end, true)
    }

    /// Sends contents. `remembers`: they may come again.
    fn contents(&mut self, mut at: u64, end: u64, remembers: bool) -> Outcome {
        let end = end.min(self.about.len());
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(DATA_BYTES_MAX, 0);
        while at < end {
            let wanted = (end - at).min(DATA_BYTES_MAX as u64) as usize;
            let read = self.read(&mut buffer[..wanted], at)?;
            let key = &self.outgoing.header.key;
            let digests: Vec<Digest> = buffer[..read].chunks(BLOCK_BYTES).map(|content| key.digest(content)).collect();
            let contents = || digests.iter().copied().zip(buffer[..read].chunks(BLOCK_BYTES));
            if self.about.len() >= ASK_OTHERS_BYTES_MIN {
                self.outgoing.ask(contents())?;
            }
            for (n, (digest, content)) in (0..).zip(contents()) {
                self.content(at + n * BLOCK, (digest, content), remembers)?;
            }
            at += read as u64;
            if read < wanted {
                // The file was cut meanwhile: what it has lost is a hole.
                break;
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Reads until the buffer is full or the file ends. A file that ends within a block was cut, and its last block is
    /// left out: no part of a block may come before the end.
    fn read(&self, buffer: &mut [u8], at: u64) -> Outcome<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match self.file.read_at(&mut buffer[read..], at + read as u64) {
                Ok(0) => return Ok(read - read % BLOCK_BYTES),
                Ok(more) => read += more,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.outgoing.failed(&e)),
            }
        }
        Ok(read)
    }

    fn content(&mut self, at: u64, (digest, content): (Digest, &[u8]), remembers: bool) -> Outcome {
        if let Some(place) = self.outgoing.contents.find(&digest) {
            return self.share(at, content.len() as u64, place);
        }
        if remembers && let Some(number) = self.number() {
            self.outgoing.contents.remember(digest, number, at);
        }
        self.data(at, content, digest)
    }

    fn number(&mut self) -> Option<u32> {
        if self.number.is_none() {
            self.number = self.outgoing.contents.add_file(&self.outgoing.path);
        }
        self.number
    }

    fn share(&mut self, at: u64, length: u64, place: Place) -> Outcome {
        match &mut self.pending {
            Pending::Share { at: first_at, length: so_far, first }
                if *first_at + *so_far == at && *so_far % BLOCK == 0 && place.is_after(*first, *so_far / BLOCK) =>
            {
                *so_far += length;
                Ok(())
            }
            _ => {
                self.flush()?;
                self.pending = Pending::Share { at, length, first: place };
                Ok(())
            }
        }
    }

    fn data(&mut self, at: u64, content: &[u8], digest: Digest) -> Outcome {
        let continues = matches!(&self.pending, Pending::Data { at: first, bytes, .. }
            if *first + bytes.len() as u64 == at && bytes.len() < DATA_BYTES_MAX);
        if !continues {
            self.flush()?;
            self.pending = Pending::Data { at, bytes: std::mem::take(&mut self.spare), digests: Vec::new() };
        }
        if let Pending::Data { bytes, digests, .. } = &mut self.pending {
            bytes.extend_from_slice(content);
            digests.push(digest);
        }
        Ok(())
    }

    /// Writes what is pending.
    fn flush(&mut self) -> Outcome {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => Ok(()),
            Pending::Data { at, bytes, digests } => {
                let record = Record::Data { at, bytes, digests };
                let written = self.outgoing.record(&record);
                if let Record::Data { mut bytes, .. } = record {
                    bytes.clear();
                    self.spare = bytes;
                }
                written
            }
            Pending::Share { at, length, first } => {
                let source = self.outgoing.contents.source(first);
                self.outgoing.record(&Record::Share { at, length, source, source_at: first.at() })
            }
        }
    }
}
