//! Asks the other side which contents its volume has.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use oncefs_engine::{TAG_SECRET_BYTES, tag_with};
use oncefs_stream::{ASKED_MAX, Asked, BLOCK_BYTES, Key};

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::hex;

/// The line that a receiver begins with.
const LINE_BYTES_MAX: u64 = 4 * TAG_SECRET_BYTES as u64;

/// A receiver that answers.
pub struct Asker {
    answers: BufReader<File>,
    secret: [u8; TAG_SECRET_BYTES],
    /// Contents that it has said it has.
    known: u32,
}

impl Asker {
    /// Reads what the receiver's tags are made with.
    pub fn begin(answers: File) -> Outcome<Self> {
        let (mut answers, mut line) = (BufReader::new(answers), String::new());
        let read = answers.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        read.or_fail_doing(exit::FAILED, "cannot read the answers of the other side")?;
        let secret = hex::decode(line.trim_end()).and_then(|secret| secret.try_into().ok());
        let none = || {
            Failure::new(
                exit::FAILED,
                "the other side cannot be asked: it has another version of oncefs, or refuses; send without --ask",
            )
        };
        Ok(Self { answers, secret: secret.ok_or_else(none)?, known: 0 })
    }

    /// How a content is asked for.
    pub fn asked(&self, key: &Key, content: &[u8]) -> Asked {
        let mut block = [0; BLOCK_BYTES];
        block[..content.len()].copy_from_slice(content);
        Asked { tag: tag_with(&self.secret, &block).0, digest: key.strong_digest(&block) }
    }

    /// Reads the answer to a question for `count` contents: of each that is there, its number among all of those.
    pub fn answer(&mut self, count: usize) -> Outcome<Vec<Option<u32>>> {
        let mut bits = [0; ASKED_MAX / 8];
        let read = self.answers.read_exact(&mut bits);
        read.or_fail_doing(exit::FAILED, "the other side does not answer")?;
        let mut number = |at: usize| {
            let is_there = bits[at / 8] & 1 << (at % 8) != 0 && self.known < u32::MAX;
            is_there.then(|| {
                self.known += 1;
                self.known - 1
            })
        };
        Ok((0..count).map(&mut number).collect())
    }
}
