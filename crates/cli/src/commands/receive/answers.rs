//! Answers to a sender that asks which contents the volume has.
//!
//! The daemon finds blocks by their tags; this compares their content. What is here is kept in a file beside the tree,
//! with references to the blocks that the volume has, so that no content that was promised can go.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use oncefs_stream::{Asked, BLOCK_BYTES, Key};

use super::state::State;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::hex;

/// The answers of one receive.
pub struct Answers<'a> {
    daemon: &'a Daemon,
    /// The contents that are here, in the order of the answers.
    known: File,
    known_blocks: u64,
}

impl<'a> Answers<'a> {
    /// Begins with what tags are made with, as a line.
    pub fn begin(daemon: &'a Daemon, state: &State) -> io::Result<Self> {
        let secret: String = daemon.ask(Request::TagSecret).map_err(|failure| io::Error::other(failure.message))?;
        let known = state.known_contents()?;
        say(format!("{secret}\n").as_bytes())?;
        Ok(Self { daemon, known, known_blocks: 0 })
    }

    /// The file of the contents that are here.
    pub fn known(&self) -> io::Result<File> {
        self.known.try_clone()
    }

    /// Answers with a bit for each content, in 32 bytes.
    pub fn answer(&mut self, key: &Key, asked: &[Asked]) -> Result<(), String> {
        let tags = asked.iter().map(|content| content.tag).collect();
        let found: Vec<Option<String>> =
            self.daemon.ask(Request::BlocksByTag { tags }).map_err(|failure| failure.message)?;
        let mut bits = [0_u8; ANSWER_BYTES];
        for (number, (content, block)) in asked.iter().zip(found).enumerate() {
            let block = block.and_then(|block| hex::decode(&block)).filter(|block| block.len() == BLOCK_BYTES);
            if let Some(block) = block.filter(|block| key.strong_digest(block) == content.digest) {
                let at = self.known_blocks * BLOCK_BYTES as u64;
                self.known.write_all_at(&block, at).map_err(|e| format!("cannot keep a content: {e}"))?;
                self.known_blocks += 1;
                bits[number / 8] |= 1 << (number % 8);
            }
        }
        say(&bits).map_err(|e| format!("cannot answer the sender: {e}"))
    }
}

/// Bytes of an answer: a bit for each content that one record can ask for.
pub const ANSWER_BYTES: usize = oncefs_stream::ASKED_MAX / 8;

fn say(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
