//! Streams of records in the order of their keys, and records that belong to no structure.

use std::collections::VecDeque;

use oncefs_engine::Store;

use crate::format::codec::after;
use crate::format::records::{LETTERS, is_known};
use crate::format::{lease, placement};
use crate::fsck::audit::Audit;
use crate::fsck::fault::Fault;
use crate::{Ino, Result};

/// Records fetched at a time.
const PAGE_RECORDS: usize = 512;

/// The first key of the file system's records, and the key after the last. Lower keys are the engine's.
const FIRST: u8 = 0x10;
const END: [u8; 1] = [0xFF];
const _: () = assert!(FIRST < LETTERS[0] && LETTERS[LETTERS.len() - 1] < END[0], "all structures are in between");

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// The records of one structure.
pub struct Records<'a> {
    store: &'a Store,
    from: Vec<u8>,
    to: Vec<u8>,
    page: VecDeque<Record>,
    is_last: bool,
    /// Malformed keys that were skipped.
    pub unknown: Vec<Vec<u8>>,
}

impl<'a> Records<'a> {
    /// The records whose keys start with `letter`.
    pub fn of(store: &'a Store, letter: u8) -> Self {
        Self {
            store,
            from: vec![letter],
            to: vec![letter + 1],
            page: VecDeque::new(),
            is_last: false,
            unknown: Vec::new(),
        }
    }

    /// The next record, which stays in the stream.
    pub fn peek(&mut self) -> Result<Option<&Record>> {
        if self.page.is_empty() && !self.is_last {
            let page = self.store.scan(&self.from, &self.to, PAGE_RECORDS)?;
            self.is_last = page.len() < PAGE_RECORDS;
            if let Some((key, _)) = page.last() {
                debug_assert!(*key >= self.from && *key < self.to, "the scan gave the key {key:02x?}");
                self.from = after(key);
            }
            self.page = page.into();
        }
        Ok(self.page.front())
    }

    /// Takes the next record.
    pub fn pop(&mut self) -> Result<Option<Record>> {
        self.peek()?;
        Ok(self.page.pop_front())
    }

    /// The inode in the next well-formed key. Sets malformed keys apart.
    pub fn next_ino(&mut self) -> Result<Option<Ino>> {
        while let Some((key, _)) = self.peek()? {
            if is_known(key) {
                let number = key[1..9].try_into().expect("a well-formed key has eight bytes after its letter");
                return Ok(Some(Ino(u64::from_be_bytes(number))));
            }
            let unknown = self.pop()?.map(|(key, _)| key);
            self.unknown.extend(unknown);
        }
        Ok(None)
    }

    /// Takes the next record if it belongs to this inode.
    pub fn pop_of(&mut self, ino: Ino) -> Result<Option<Record>> {
        if self.next_ino()? == Some(ino) { self.pop() } else { Ok(None) }
    }
}

impl Audit<'_> {
    /// Reports records between the known structures. Malformed keys within a structure are found when it is read.
    pub fn unknown_records(&mut self) -> Result<()> {
        let mut from = vec![FIRST];
        for end in LETTERS.map(|letter| vec![letter]).into_iter().chain([END.to_vec()]) {
            for (key, _) in self.store.scan(&from, &end, usize::MAX)? {
                (self.found)(Fault::Key { key });
            }
            from = vec![end[0].saturating_add(1)];
        }
        for single in [lease::KEY, placement::KEY] {
            let records = self.store.scan(single, &[single[0] + 1], usize::MAX)?;
            let foreign = records.into_iter().filter(|(key, _)| !is_known(key));
            foreign.for_each(|(key, _)| (self.found)(Fault::Key { key }));
        }
        Ok(())
    }
}
