//! Damage that is met while the store is in use.
//!
//! The damaged file is restored from its copy on the spot: the database is closed, the file put into its place and the
//! database opened again. A file that was made after the last list has no copy yet: if it does not prove itself, the store
//! goes back to that list, which has everything that was flushed as long as the last flush brought it up to date. A store
//! that is read-only reads the copies in the place of all files instead, and nothing is written.
//!
//! What was written and not flushed is lost with the database that is closed. Only a checkpoint writes, so it is told: its
//! next write or flush fails, and it begins again.

use std::sync::atomic::Ordering::{Acquire, Release};

use rocksdb::DB;

use super::copies::{Place, Updated};
use super::failed::{failed, table_of};
use super::restore::{self, FilesFound};
use super::rocks::{self, Records};
use super::{files, manifest, mend, proof, salvage};
use crate::format::record_list::RecordList;
use crate::{Error, Result};

/// What became of damaged files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rescued {
    /// They are sound again, or others are read.
    Restored,
    /// None was damaged.
    AllSound,
    /// Nothing restores them.
    Hopeless,
}

impl Records {
    /// Does something with the database. After damage it is tried once more with what could be restored.
    pub(super) fn with<T>(&self, what: &str, act: impl Fn(&DB) -> std::result::Result<T, rocksdb::Error>) -> Result<T> {
        let error = match self.try_with(what, &act) {
            Err(error @ Error::Corrupt { .. }) => error,
            other => return other,
        };
        let table = table_of(&error);
        // What no copy restores is not tried again and again.
        if self.hopeless.lock().contains(&table) {
            return Err(error);
        }
        let is_restored = self.rescue(&mut self.db.write(), table) == Rescued::Restored;
        let again = self.try_with(what, &act);
        if !is_restored && again.is_err() {
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

    /// Acts on what bringing the copies up to date found. True: the database was opened again.
    pub(super) fn follow_up(&self, updated: &Updated) -> bool {
        let Updated::Unproved(table) = *updated else { return false };
        !self.hopeless.lock().contains(&table) && {
            let is_restored = self.rescue(&mut self.db.write(), table) == Rescued::Restored;
            if !is_restored {
                self.hopeless.lock().insert(table);
                let what = table.map_or_else(|| "manifest".to_owned(), files::table_name);
                log::error!("the record store's {what} is damaged, and it was written after the last copies");
            }
            is_restored
        }
    }

    /// Restores what is damaged of the live files, or of one of them.
    pub(super) fn rescue(&self, db: &mut Option<DB>, table: Option<u64>) -> Rescued {
        let place = self.keeper.place();
        let list = place.list();
        let listed = || list.iter().flat_map(|list| &list.files).map(|entry| entry.number).collect();
        let live: Vec<u64> = db.as_ref().and_then(|db| rocks::live_numbers(db).ok()).unwrap_or_else(listed);
        if self.read_only {
            return self.read_copies(db, list.as_ref(), &live);
        }
        let is_meant = |number: &u64| table.is_none_or(|table| table == *number || !live.contains(&table));
        let mut damaged: Vec<u64> = live.iter().copied().filter(is_meant).collect();
        damaged.retain(|number| !is_sound(place, list.as_ref(), *number));
        let manifest_is_whole = manifest::is_whole(place);
        if damaged.is_empty() && manifest_is_whole {
            return Rescued::AllSound;
        }
        let by = |way: fn(&Place, Option<&RecordList>, u64) -> Option<Way>| {
            damaged
                .iter()
                .map(|number| way(place, list.as_ref(), *number))
                .collect::<Option<Vec<Way>>>()
                .map(Act::Tables)
        };
        let back = || {
            let list = list.clone().filter(|list| self.may_go_back() && restore::can_go_back(place, list))?;
            self.went_back.store(true, Release);
            Some(Act::GoBack(list))
        };
        // A database whose manifest is damaged opens only with another one.
        let act = match manifest_is_whole {
            true => by(copy_of).or_else(back).or_else(|| by(copied_or_put_right)),
            false => back(),
        };
        let Some(act) = act else { return Rescued::Hopeless };
        if self.reopened(db, || act.run(place)) { Rescued::Restored } else { Rescued::Hopeless }
    }

    /// Whether the last list has all that was flushed, and going back to it was not tried in vain.
    pub(super) fn may_go_back(&self) -> bool {
        !self.list_is_behind.load(Acquire) && !self.went_back.load(Acquire)
    }

    /// Closes the database, restores files and opens it again. False: that failed.
    pub(super) fn reopened(&self, db: &mut Option<DB>, restore: impl FnOnce() -> Result<FilesFound>) -> bool {
        drop(db.take());
        if self.unflushed.load(Acquire) {
            self.must_repeat.store(true, Release);
        }
        let restored = restore().inspect_err(|e| log::error!("restoring a record file: {e}"));
        let opened = rocks::open(self.keeper.place(), &self.options);
        // Reading goes on in any case.
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

    /// The copies of all live files take their place, if they are whole.
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

/// How a damaged file comes back.
enum Way {
    Copy(u64),
    /// With these bytes, which are its own with single ones put right.
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

/// Whether a file is what the list has for it; one that is not listed, whether it proves itself.
fn is_sound(place: &Place, list: Option<&RecordList>, number: u64) -> bool {
    match list.and_then(|list| list.entry(number)) {
        Some(entry) => files::is_whole(&place.table(number), entry),
        None => proof::proves_itself(&place.table(number)).is_ok_and(|is_proved| is_proved),
    }
}

fn copy_of(place: &Place, list: Option<&RecordList>, number: u64) -> Option<Way> {
    let entry = list?.entry(number)?;
    files::is_whole(&place.copy(number), entry).then_some(Way::Copy(number))
}

fn copied_or_put_right(place: &Place, list: Option<&RecordList>, number: u64) -> Option<Way> {
    copy_of(place, list, number).or_else(|| put_right(place, list, number))
}

/// Seeks the wrong bytes of a file, which takes seconds.
fn put_right(place: &Place, list: Option<&RecordList>, number: u64) -> Option<Way> {
    let bytes = mend::mended(&salvage::read_what_can_be_read(&place.table(number)).ok()?)?;
    let is_it = list.and_then(|list| list.entry(number)).is_none_or(|entry| files::is_of(&bytes, entry));
    is_it.then_some(Way::PutRight(number, bytes))
}

#[cfg(test)]
mod tests;
