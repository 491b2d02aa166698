//! Records in the order of their keys, several structures side by side; and those that belong to none.

use std::collections::VecDeque;

use oncefs_engine::Store;

use crate::format::codec::after;
use crate::format::lease;
use crate::format::records::{LETTERS, is_known};
use crate::fsck::audit::Audit;
use crate::fsck::fault::Fault;
use crate::{Ino, Result};

/// Records fetched at a time.
const PAGE_RECORDS: usize = 512;

/// First key of the callers' records, and one behind the last.
const FIRST: u8 = 0x10;
const BEHIND: [u8; 1] = [0xFF];

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// The records of one structure.
pub struct Records<'a> {
    store: &'a Store,
    from: Vec<u8>,
    to: Vec<u8>,
    page: VecDeque<Record>,
    is_last: bool,
    /// Keys of an unknown form that were passed over.
    pub unknown: Vec<Vec<u8>>,
}

impl<'a> Records<'a> {
    /// All whose key begins with `letter`.
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

    /// The next one, left where it is.
    pub fn peek(&mut self) -> Result<Option<&Record>> {
        if self.page.is_empty() && !self.is_last {
            let page = self.store.scan(&self.from, &self.to, PAGE_RECORDS)?;
            self.is_last = page.len() < PAGE_RECORDS;
            if let Some((key, _)) = page.last() {
                self.from = after(key);
            }
            self.page = page.into();
        }
        Ok(self.page.front())
    }

    /// The next one.
    pub fn pop(&mut self) -> Result<Option<Record>> {
        self.peek()?;
        Ok(self.page.pop_front())
    }

    /// The inode in the next key; keys of an unknown form are set apart.
    pub fn next_ino(&mut self) -> Result<Option<Ino>> {
        while let Some((key, _)) = self.peek()? {
            if is_known(key) {
                let number = key[1..9].try_into().expect("known keys have eight bytes behind their letter");
                return Ok(Some(Ino(u64::from_be_bytes(number))));
            }
            let unknown = self.pop()?.map(|(key, _)| key);
            self.unknown.extend(unknown);
        }
        Ok(None)
    }

    /// The next one, if it is of this inode.
    pub fn pop_of(&mut self, ino: Ino) -> Result<Option<Record>> {
        if self.next_ino()? == Some(ino) { self.pop() } else { Ok(None) }
    }
}

impl Audit<'_> {
    /// Keys between those of the known structures. Within a structure they are met when it is read.
    pub fn unknown_records(&mut self) -> Result<()> {
        let mut from = vec![FIRST];
        for end in LETTERS.map(|letter| vec![letter]).into_iter().chain([BEHIND.to_vec()]) {
            for (key, _) in self.store.scan(&from, &end, usize::MAX)? {
                (self.found)(Fault::Key { key });
            }
            from = vec![end[0].saturating_add(1)];
        }
        let leases = self.store.scan(lease::KEY, &[lease::KEY[0] + 1], usize::MAX)?;
        let foreign = leases.into_iter().filter(|(key, _)| !is_known(key));
        foreign.for_each(|(key, _)| (self.found)(Fault::Key { key }));
        Ok(())
    }
}
