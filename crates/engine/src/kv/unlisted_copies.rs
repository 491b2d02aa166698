//! Record files that have their copies before a list names them.
//!
//! RocksDB's thread copies what it merged before the merge counts (`merge.rs`), and a checkpoint copies what it flushed.
//! Each claims a file first, so they never write one copy at the same time, and neither repeats the other's work.
//!
//! Nothing of this survives the process. After a crash, copies that no list names do not count and are written again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::{Condvar, Mutex};

use super::paths::Place;
use super::{files, table_proof};
use crate::Copies;
use crate::format::record_list::RecordFile;

/// Record files with copies that no list names yet.
pub struct Ahead {
    place: Place,
    copies: Copies,
    files: Mutex<BTreeMap<u64, Taken>>,
    changed: Condvar,
    /// Whether merges count without copies: the store is about to be closed, and its closing waits for them.
    is_closing: AtomicBool,
}

enum Taken {
    /// A thread is copying it.
    UnderWay,
    Done(RecordFile),
}

impl Ahead {
    /// No file is taken.
    pub fn new(place: Place, copies: Copies) -> Self {
        Self { place, copies, files: Mutex::default(), changed: Condvar::new(), is_closing: AtomicBool::default() }
    }

    /// The entry of a file whose copy proved itself. Its level is not known yet.
    pub fn entry(&self, number: u64) -> Option<RecordFile> {
        match self.files.lock().get(&number)? {
            Taken::UnderWay => None,
            Taken::Done(entry) => Some(*entry),
        }
    }

    /// Whether a copy of this file counts, or a thread is writing it.
    pub fn is_taken(&self, number: u64) -> bool {
        self.files.lock().contains_key(&number)
    }

    /// Whether no file is taken.
    pub fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
    }

    /// Waits until no other thread copies the file. Returns its entry if `counts` accepts it, otherwise a claim.
    pub fn claim(&self, number: u64, counts: impl Fn(&RecordFile) -> bool) -> Result<RecordFile, Claim<'_>> {
        let mut files = self.files.lock();
        loop {
            match files.get(&number) {
                Some(Taken::UnderWay) => self.changed.wait(&mut files),
                Some(Taken::Done(entry)) if counts(entry) => return Ok(*entry),
                Some(Taken::Done(_)) | None => break,
            }
        }
        files.insert(number, Taken::UnderWay);
        Err(Claim { ahead: self, number })
    }

    /// A claim to a file that no thread has copied or is copying.
    fn claim_free(&self, number: u64) -> Option<Claim<'_>> {
        let mut files = self.files.lock();
        if files.contains_key(&number) {
            return None;
        }
        files.insert(number, Taken::UnderWay);
        Some(Claim { ahead: self, number })
    }

    /// Forgets the copied files that `is_kept` refuses.
    pub fn retain(&self, is_kept: impl Fn(u64) -> bool) {
        self.files.lock().retain(|number, taken| matches!(taken, Taken::UnderWay) || is_kept(*number));
    }

    /// Lets merges count without copies from now on. The one under way ends after the file that it copies now.
    pub fn close(&self) {
        self.is_closing.store(true, Release);
    }

    /// After the store was closed, and before it is opened again: it may use numbers a second time.
    pub fn reopen(&self) {
        self.retain(|_| false);
        self.is_closing.store(false, Release);
    }

    /// Copies the record files from this number on that have no copy yet. A file that does not prove itself is left to
    /// the next list: it may be one that a flush is still writing.
    pub fn copy_from(&self, number: u64) {
        let new = files::tables_in(&self.place.records).into_iter().filter(|(found, _)| *found >= number);
        for (number, _) in new.filter(|(number, _)| !self.place.copy(*number).exists()) {
            if self.is_closing.load(Acquire) {
                return;
            }
            let Some(claim) = self.claim_free(number) else { continue };
            match self.take_in(number) {
                Ok(Some(entry)) => claim.done(entry),
                // Removed while it is still claimed, so it is this thread's copy.
                Ok(None) => drop(fs::remove_file(self.place.copy(number))),
                Err(e) => {
                    drop(fs::remove_file(self.place.copy(number)));
                    log::warn!("merged record files have no copies yet: {e}; the next checkpoint makes them");
                    return;
                }
            }
        }
    }

    /// None: the file does not prove itself.
    fn take_in(&self, number: u64) -> io::Result<Option<RecordFile>> {
        let (table, copy) = (self.place.table(number), self.place.copy(number));
        self.place.make_folder()?;
        let file = File::open(&table)?;
        let (entry, kept) = match self.copies {
            Copies::Two => (files::take_in(file, number, 0, Some(&copy))?, copy),
            Copies::One => {
                // A host without such names keeps none, as at each list.
                drop(files::give_name(&table, &copy));
                (files::take_in(file, number, 0, None)?, table)
            }
        };
        Ok(table_proof::proves_itself(&kept)?.then_some(entry))
    }
}

/// The right to copy a file. Dropped, another thread may.
pub struct Claim<'a> {
    ahead: &'a Ahead,
    number: u64,
}

impl Claim<'_> {
    /// The file has its copy, and it proved itself.
    pub fn done(self, entry: RecordFile) {
        self.ahead.files.lock().insert(self.number, Taken::Done(entry));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut files = self.ahead.files.lock();
        if matches!(files.get(&self.number), Some(Taken::UnderWay)) {
            files.remove(&self.number);
        }
        self.ahead.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const ENTRY: RecordFile = RecordFile { number: 7, len: 100, sum: 1, end_sum: 2, level: 0 };

    fn ahead() -> Ahead {
        Ahead::new(Place::of(std::path::Path::new("none"), [1; 16]), Copies::Two)
    }

    #[test]
    fn a_file_that_another_thread_copies_is_waited_for_and_not_copied_twice() {
        let ahead = ahead();
        let claim = ahead.claim(7, |_| true).err().unwrap();
        assert!(ahead.claim_free(7).is_none() && ahead.is_taken(7) && ahead.entry(7).is_none());
        let (sender, found) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| sender.send(ahead.claim(7, |_| true).ok()).unwrap());
            claim.done(ENTRY);
            assert_eq!(found.recv().unwrap(), Some(ENTRY));
        });
        assert_eq!(ahead.entry(7), Some(ENTRY));
    }

    #[test]
    fn a_claim_that_comes_to_nothing_leaves_the_file_to_others() {
        let ahead = ahead();
        drop(ahead.claim_free(7));
        assert!(!ahead.is_taken(7) && ahead.is_empty());
        ahead.claim(7, |_| true).err().unwrap().done(ENTRY);
        // Its copy is gone.
        assert!(ahead.claim(7, |_| false).is_err());
        assert!(ahead.is_empty());
    }

    #[test]
    fn nothing_is_remembered_over_a_store_that_was_closed() {
        let ahead = ahead();
        ahead.claim(7, |_| true).err().unwrap().done(ENTRY);
        ahead.close();
        ahead.reopen();
        assert!(ahead.is_empty() && !ahead.is_closing.load(Acquire));
    }
}
