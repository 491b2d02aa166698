//! Handles damage that is found while the store is in use.
//!
//! The damaged file is restored from its copy on the spot: the database is closed, the file replaced and the database
//! opened again. A file that was written after the last list has no copy yet. If it does not prove itself, the store
//! goes back to that list, which has everything that was flushed, provided that the last flush brought it up to date. A
//! read-only store reads the copies in place of all files instead, and nothing is written.
//!
//! Unflushed writes are lost when the database is closed. Only a checkpoint writes, so it is notified: its next write
//! or flush fails, and it begins again.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Release};

use rocksdb::DB;

use super::copies::Updated;
use super::paths::Place;
use super::restore::{self, FilesFound};
use super::rocks::{self, Records};
use super::rocks_errors::{failed, table_of};
use super::{correct_bytes, files, manifest, salvage, table_proof};
use crate::format::record_list::RecordList;
use crate::{Error, Result};

/// The result for damaged files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rescued {
    /// They are sound again, or their copies are read.
    Restored,
    /// None was damaged.
    AllSound,
    /// They cannot be restored.
    Hopeless,
}

impl Records {
    /// Runs an action on the database. After damage it is tried once more, with the restored files.
    pub(super) fn with<T>(&self, what: &str, act: impl Fn(&DB) -> std::result::Result<T, rocksdb::Error>) -> Result<T> {
        let error = match self.try_with(what, &act) {
            Err(error @ Error::Corrupt { .. }) => error,
            other => return other,
        };
        let table = table_of(&error);
        // Damage that no copy restores is not tried again and again.
        if self.hopeless.lock().contains(&table) {
            return Err(error);
        }
        let rescued = self.rescue(table);
        let again = self.try_with(what, &act);
        if rescued == Rescued::Hopeless && again.is_err() {
            self.hopeless.lock().insert(table);
        }
        again
    }

    pub(super) fn try_with<T>(
        &self,
        what: &str,
        act: impl Fn(&DB) -> std::result::Result<T, rocksdb::Error>,
    ) -> Result<T> {
        let db = self.db.read();
        let db =
            db.as_ref().ok_or_else(|| Error::corrupt("the record store", "it was damaged and did not open again"))?;
        act(db).map_err(|e| failed(what, &e))
    }

    /// Acts on the result of updating the copies. True: the database was opened again.
    pub(super) fn follow_up(&self, updated: &Updated) -> bool {
        let Updated::Unproved(table) = *updated else { return false };
        if self.hopeless.lock().contains(&table) {
            return false;
        }
        let rescued = self.rescue(table);
        if rescued == Rescued::Hopeless {
            self.hopeless.lock().insert(table);
            let what = table.map_or_else(|| "manifest".to_owned(), files::table_name);
            log::error!("the record store's {what} is damaged, and it was written after the last copies");
        }
        rescued == Rescued::Restored
    }

    /// Restores the damaged live files, or one of them.
    pub(super) fn rescue(&self, table: Option<u64>) -> Rescued {
        let _alone = self.rescuing.lock();
        let right = self.seek_wrong_bytes(table);
        self.exchange(&mut self.db.write(), table, &right)
    }

    /// Corrects the files that cannot be restored otherwise. It may take minutes, so no thread waits for the database
    /// meanwhile: a file never changes, and a file that is no longer live by then is not replaced.
    pub(super) fn seek_wrong_bytes(&self, table: Option<u64>) -> Right {
        let place = self.keeper.place();
        let list = place.list();
        let can_go_back = || self.may_go_back() && list.as_ref().is_some_and(|list| restore::can_go_back(place, list));
        if self.read_only || !manifest::is_whole(place) {
            return Right::new();
        }
        let live = live(self.db.read().as_ref(), list.as_ref());
        let mut damaged = damaged(place, list.as_ref(), &live, table);
        damaged.retain(|number| self.copy_of(list.as_ref(), *number).is_none());
        if damaged.is_empty() || can_go_back() {
            return Right::new();
        }
        damaged.iter().filter_map(|number| Some((*number, put_right(place, list.as_ref(), *number)?))).collect()
    }

    /// Closes the database and restores the damaged live files, or one of them.
    pub(super) fn exchange(&self, db: &mut Option<DB>, table: Option<u64>, right: &Right) -> Rescued {
        let place = self.keeper.place();
        let list = place.list();
        let live = live(db.as_ref(), list.as_ref());
        if self.read_only {
            return self.read_copies(db, list.as_ref(), &live);
        }
        let damaged = damaged(place, list.as_ref(), &live, table);
        let manifest_is_whole = manifest::is_whole(place);
        if damaged.is_empty() && manifest_is_whole {
            return Rescued::AllSound;
        }
        let copied = |number: u64| self.copy_of(list.as_ref(), number);
        let put_right = |number: u64| right.get(&number).map(|bytes| Way::PutRight(number, bytes.clone()));
        let by = |way: &dyn Fn(u64) -> Option<Way>| {
            damaged.iter().map(|number| way(*number)).collect::<Option<Vec<Way>>>().map(Act::Tables)
        };
        let back = || {
            let list = list.clone().filter(|list| self.may_go_back() && restore::can_go_back(place, list))?;
            self.went_back.store(true, Release);
            Some(Act::GoBack(list))
        };
        // A database with a damaged manifest opens only with another manifest.
        let act = match manifest_is_whole {
            true => by(&copied).or_else(back).or_else(|| by(&|number| copied(number).or_else(|| put_right(number)))),
            false => back(),
        };
        let Some(act) = act else { return Rescued::Hopeless };
        if self.reopened(db, || act.run(place)) { Rescued::Restored } else { Rescued::Hopeless }
    }

    /// After damage in a write or flush: see [`Kv::restore`](super::Kv::restore).
    pub(super) fn restore(&self) -> bool {
        if self.read_only {
            return false;
        }
        let _alone = self.rescuing.lock();
        let right = self.seek_wrong_bytes(None);
        let mut db = self.db.write();
        let is_restored = match self.exchange(&mut db, None, &right) {
            Rescued::Restored => true,
            // RocksDB stopped at an error that has passed, and continues when it is opened again.
            Rescued::AllSound => self.must_repeat.load(Acquire) || self.reopened(&mut db, || Ok(FilesFound::default())),
            Rescued::Hopeless => false,
        };
        self.must_repeat.swap(false, Acquire) || is_restored
    }

    /// See [`Kv::check_files`](super::Kv::check_files).
    pub(super) fn check_files(&self, mend: bool) -> Result<FilesFound> {
        let place = self.keeper.place();
        let Some(list) = place.list() else { return Ok(std::mem::take(&mut *self.found.lock())) };
        let live = || self.with("looking at the record files", rocks::live_numbers);
        let compare = |mend| restore::compare(place, &list, live, mend);
        let mut compared = compare(mend)?;
        if mend && !compared.left.is_empty() && self.rescue(None) == Rescued::Restored {
            compared.left = compare(false)?.left;
        }
        let mut found = std::mem::take(&mut *self.found.lock());
        found.add(compared);
        Ok(found)
    }

    /// Whether the last list has everything that was flushed, and going back to it has not failed before.
    pub(super) fn may_go_back(&self) -> bool {
        !self.list_is_behind.load(Acquire) && !self.went_back.load(Acquire)
    }

    /// Closes the database, restores files and opens it again. False: that failed.
    pub(super) fn reopened(&self, db: &mut Option<DB>, restore: impl FnOnce() -> Result<FilesFound>) -> bool {
        self.keeper.ahead().close();
        drop(db.take());
        self.keeper.ahead().reopen();
        if self.unflushed.load(Acquire) {
            self.must_repeat.store(true, Release);
        }
        let restored = restore().inspect_err(|e| log::error!("restoring a record file: {e}"));
        let opened = rocks::open(self.keeper.place(), &self.options);
        // Reading continues in any case.
        let opened = opened.or_else(|error| {
            log::error!("the record store does not open again: {error}");
            rocks::open_read_only(self.keeper.place(), &self.options)
        });
        *db = opened.inspect_err(|error| log::error!("nor can it be read: {error}")).ok();
        self.keeper.list_was_kept();
        let Ok(restored) = restored else { return false };
        restored.mended.iter().for_each(|what| log::warn!("{what}"));
        self.found.lock().add(restored);
        db.is_some()
    }

    /// The way of a file that has an intact copy, listed or made by a merge since the last list.
    fn copy_of(&self, list: Option<&RecordList>, number: u64) -> Option<Way> {
        let listed = list.and_then(|list| list.entry(number)).copied();
        let entry = listed.or_else(|| self.keeper.ahead().entry(number))?;
        files::is_whole(&self.keeper.place().copy(number), &entry).then_some(Way::Copy(number))
    }

    /// Uses the copies in place of all live files, if they are intact.
    fn read_copies(&self, db: &mut Option<DB>, list: Option<&RecordList>, live: &[u64]) -> Rescued {
        let place = self.keeper.place();
        match rocks::open_copies(place, &self.options, list, live) {
            Some(opened) => {
                log::warn!("record files in {} are damaged: their copies are read", place.records.display());
                *db = Some(opened);
                Rescued::Restored
            }
            None => Rescued::Hopeless,
        }
    }
}

/// Damaged files by number, with their corrected bytes.
pub(super) type Right = BTreeMap<u64, Vec<u8>>;

/// How a damaged file is restored.
enum Way {
    Copy(u64),
    /// By its own bytes with single ones corrected.
    PutRight(u64, Vec<u8>),
}

enum Act {
    Tables(Vec<Way>),
    GoBack(RecordList),
}

impl Act {
    fn run(self, place: &Place) -> Result<FilesFound> {
        let failed = |e| Error::io("restoring the record store from its copies", e);
        match self {
            Act::GoBack(list) => Ok(restore::state(place, &list).map_err(failed)?.unwrap_or_default()),
            Act::Tables(ways) => {
                let mut found = FilesFound::default();
                for way in ways {
                    found.mended.push(way.follow(place).map_err(failed)?);
                }
                Ok(found)
            }
        }
    }
}

impl Way {
    fn follow(self, place: &Place) -> std::io::Result<String> {
        match self {
            Way::Copy(number) => {
                files::replace_by_copy(&place.table(number), &place.copy(number))?;
                Ok(restore::restored(number))
            }
            Way::PutRight(number, bytes) => {
                files::replace(&place.table(number), &bytes)?;
                Ok(format!(
                    "single bytes of the record file {} were wrong: they were put right",
                    files::table_name(number)
                ))
            }
        }
    }
}

/// The live files. If the database is closed, those of the list.
fn live(db: Option<&DB>, list: Option<&RecordList>) -> Vec<u64> {
    let listed = || list.iter().flat_map(|list| &list.files).map(|entry| entry.number).collect();
    db.and_then(|db| rocks::live_numbers(db).ok()).unwrap_or_else(listed)
}

/// The damaged files among the live ones, or one of them.
fn damaged(place: &Place, list: Option<&RecordList>, live: &[u64], table: Option<u64>) -> Vec<u64> {
    let is_meant = |number: &u64| table.is_none_or(|table| table == *number || !live.contains(&table));
    live.iter().copied().filter(is_meant).filter(|number| !is_sound(place, list, *number)).collect()
}

/// Whether a file matches the list, or, if it is not listed, proves itself.
fn is_sound(place: &Place, list: Option<&RecordList>, number: u64) -> bool {
    match list.and_then(|list| list.entry(number)) {
        Some(entry) => files::is_whole(&place.table(number), entry),
        None => table_proof::proves_itself(&place.table(number)).is_ok_and(|is_proved| is_proved),
    }
}

/// The corrected bytes of a damaged file.
fn put_right(place: &Place, list: Option<&RecordList>, number: u64) -> Option<Vec<u8>> {
    let entry = list.and_then(|list| list.entry(number));
    let bytes = correct_bytes::mended(&salvage::read_what_can_be_read(&place.table(number)).ok()?, entry.is_some())?;
    entry.is_none_or(|entry| files::is_of(&bytes, entry)).then_some(bytes)
}

#[cfg(test)]
mod tests;
