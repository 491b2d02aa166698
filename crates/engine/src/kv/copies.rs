//! The second copies of the record store's files, in the folder `copies` of the volume.
//!
//! A record file never changes, and its number is not used again once the manifest names it. So a new file is copied
//! once: at the end of the checkpoint that flushed it, or by the merge that wrote it, before the merge counts
//! (`merge.rs`). Then a list names all live files, each with its checksum, and holds the manifest of that moment. A copy counts only after it has proved itself: every block in it matches its
//! checksum. A file that does not prove itself gets no list, so that the list and the copies that can repair its damage
//! are kept.
//!
//! The list comes last and replaces the old one as a whole. A crash before that leaves the old list, with every file
//! that it names. Copies that it does not name do not count and are written again. Copies that only the old list names
//! are removed after the new list is durable. A copy must match its checksum in the list, so a stale copy is never
//! used.
//!
//! With one copy, the folder has other names of the live files instead (hard links), which take no space. So a file that
//! RocksDB merges and deletes is there until the next list, and the list leads to all records at any time, also where the
//! manifest is lost. On a host without hard links that gap stays.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rocksdb::{DB, ReadOptions, ReadTier};

pub use super::paths::{FOLDER, Place};
use super::paths::{LIST, LIST_ASIDE};
use super::rocks_errors::may_pass;
use super::unlisted_copies::Ahead;
use super::{files, manifest, table_proof};
use crate::format::record_list::{RecordFile, RecordList};
use crate::{Copies, Error};

/// Attempts at a list while live files change during the copying. Then the next checkpoint tries again.
const TRIES: usize = 5;

/// Keeps the copies of an open record store.
pub struct Keeper {
    place: Place,
    copies: Copies,
    /// The key whose record is kept in the list.
    pinned: Vec<u8>,
    last: Mutex<Option<RecordList>>,
    ahead: Arc<Ahead>,
}

/// The result of bringing copies and list up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updated {
    /// They match the live files.
    Done,
    /// This new file does not prove itself. None: the manifest does not. List and copies are unchanged.
    Unproved(Option<u64>),
    /// Files came and went all the time, or the host failed. List and copies are unchanged.
    Left,
}

/// The live files, and the manifest that names them.
struct Live {
    /// The files' checkpoint record, read before anything else. Another one may be flushed while files are copied, and
    /// the list would be wrong with a checkpoint newer than its files.
    checkpoint: Vec<u8>,
    files: Vec<(u64, u32)>,
    manifest_number: u64,
    manifest: Vec<u8>,
    manifest_len: u32,
}

impl Keeper {
    /// Continues with the existing copies, and those that merges make. The list also keeps the record of the key
    /// `pinned`.
    pub fn new(place: Place, copies: Copies, pinned: Vec<u8>, ahead: Arc<Ahead>) -> Self {
        let last = Mutex::new(place.list());
        Self { place, copies, pinned, last, ahead }
    }

    /// The copies that no list names yet.
    pub fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    /// The paths of the store and its copies.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Brings copies and list to the present live files. A failure costs only the copies, and the existing list stays
    /// right.
    pub fn update(&self, db: &DB) -> Updated {
        let mut last = self.last.lock();
        match self.write(db, last.as_ref()) {
            Ok((updated, list)) => {
                *last = list.or(last.take());
                updated
            }
            Err(error) => {
                let folder = self.place.copies.display();
                log::warn!("the record files have no new copies in {folder}: {error}; the next checkpoint tries again");
                // Frees the space of the failed attempt, in case the host is full, and of merged files.
                let is_live = |number: u64| self.copies == Copies::Two || self.place.table(number).exists();
                self.ahead.retain(|_| false);
                self.remove_others(|number| lists(last.as_ref(), number) && is_live(number));
                Updated::Left
            }
        }
    }

    /// Like `update`, if other files are live than the list says.
    pub fn update_if_changed(&self, db: &DB) -> Updated {
        let live = live_files(db).ok();
        let listed = |list: &RecordList| list.files.iter().map(|file| (file.number, file.level)).collect::<Vec<_>>();
        if live.is_some_and(|live| self.last.lock().as_ref().map(listed) != Some(live)) {
            self.update(db)
        } else {
            Updated::Done
        }
    }

    /// Like `update_if_changed`, after RocksDB's last work. Also removes the copies of a merge that was cut short.
    pub fn settle(&self, db: &DB) -> Updated {
        if self.ahead.is_empty() { self.update_if_changed(db) } else { self.update(db) }
    }

    /// Whether the list belongs to the checkpoint that the store has on disk.
    pub fn is_of_now(&self, db: &DB) -> bool {
        let listed = self.last.lock().as_ref().map(|list| list.checkpoint.clone());
        listed.is_some() && self.checkpoint(db).ok() == listed
    }

    /// Learns that the list matches the store on disk again.
    pub fn list_was_kept(&self) {
        *self.last.lock() = self.place.list();
    }

    fn write(&self, db: &DB, last: Option<&RecordList>) -> io::Result<(Updated, Option<RecordList>)> {
        self.place.make_folder()?;
        for _ in 0..TRIES {
            let Some(live) = self.look(db)? else { return Ok((Updated::Unproved(None), None)) };
            let Some(opened) = self.open_new(&live, last)? else { continue };
            // No file came or went while the manifest was read, so it names exactly these files.
            if live_files(db)? != live.files
                || files::current_manifest(&self.place.records) != Some(live.manifest_number)
            {
                continue;
            }
            let mut entries = Vec::with_capacity(opened.len());
            for source in opened {
                let number = source.number();
                let Some(entry) = self.take_in(source)? else {
                    self.remove_others(|number| lists(last, number));
                    return Ok((Updated::Unproved(Some(number)), None));
                };
                entries.push(entry);
            }
            let list = self.list_of(live, entries)?;
            files::replace(&self.place.copies.join(LIST), &list.encode(self.place.volume_id))?;
            // What is left of them: the files of a merge that does not count yet.
            self.ahead.retain(|number| !lists(Some(&list), number) && self.place.table(number).exists());
            self.remove_others(|number| lists(Some(&list), number));
            return Ok((Updated::Done, Some(list)));
        }
        Ok((Updated::Left, None))
    }

    /// None: the manifest is damaged.
    fn look(&self, db: &DB) -> io::Result<Option<Live>> {
        let checkpoint = self.checkpoint(db).map_err(io::Error::other)?;
        let files = live_files(db)?;
        let number = files::current_manifest(&self.place.records);
        let manifest_number = number.ok_or_else(|| io::Error::other("CURRENT names no manifest"))?;
        let Some(manifest) = manifest::read_whole(&self.place, manifest_number) else { return Ok(None) };
        let manifest_len = u32::try_from(manifest.len()).map_err(io::Error::other)?;
        let manifest = if self.copies == Copies::Two { manifest } else { Vec::new() };
        Ok(Some(Live { checkpoint, files, manifest_number, manifest, manifest_len }))
    }

    /// Opens the files that are not listed yet. None: one is already gone.
    fn open_new(&self, live: &Live, last: Option<&RecordList>) -> io::Result<Option<Vec<Source>>> {
        let mut sources = Vec::with_capacity(live.files.len());
        for &(number, level) in &live.files {
            let listed = last.and_then(|list| list.files.iter().find(|file| file.number == number));
            let known = listed.copied().or_else(|| self.ahead.entry(number));
            if self.copies == Copies::One && !self.has_second_name(number) {
                return Ok(None);
            }
            match known.filter(|file| self.has_copy(file)) {
                Some(file) => sources.push(Source::Kept(RecordFile { level, ..file })),
                None => match File::open(self.place.table(number)) {
                    Ok(file) => sources.push(Source::New(number, level, file)),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                    Err(e) => return Err(e),
                },
            }
        }
        Ok(Some(sources))
    }

    /// Gives a live file its second name. False: it is already gone. A host that has no such names keeps none.
    fn has_second_name(&self, number: u64) -> bool {
        let (table, name) = (self.place.table(number), self.place.copy(number));
        match files::give_name(&table, &name) {
            Err(_) if !table.exists() => false,
            Err(e) => {
                log::debug!("{} gets no second name: {e}", table.display());
                true
            }
            Ok(()) => true,
        }
    }

    /// Whether a file of this length is there as a copy, and not as a second name. With one copy there need not be any.
    fn has_copy(&self, entry: &RecordFile) -> bool {
        let copy = self.place.copy(entry.number);
        let is_copy = || {
            fs::metadata(&copy).is_ok_and(|found| found.len() == entry.len)
                && !files::is_one_file(&self.place.table(entry.number), &copy)
        };
        self.copies == Copies::One || is_copy()
    }

    fn list_of(&self, live: Live, entries: Vec<RecordFile>) -> io::Result<RecordList> {
        let Live { checkpoint, manifest_number, manifest, manifest_len, .. } = live;
        // Makes the names of the copies and the counted part of the manifest durable before the list that relies on
        // them.
        files::sync_directory_of(&self.place.copies.join(LIST))?;
        manifest::sync(&self.place, manifest_number)?;
        Ok(RecordList { files: entries, manifest_number, manifest, manifest_len, checkpoint })
    }

    /// The files' checkpoint record. Records written since the last flush are not in the files.
    fn checkpoint(&self, db: &DB) -> std::result::Result<Vec<u8>, rocksdb::Error> {
        let mut read = ReadOptions::default();
        read.set_read_tier(ReadTier::Persisted);
        Ok(db.get_opt(&self.pinned, &read)?.unwrap_or_default())
    }

    /// The entry of a file. A file that is not listed yet is copied, and the written copy has to prove itself. None: it
    /// does not.
    fn take_in(&self, source: Source) -> io::Result<Option<RecordFile>> {
        let (number, level, file) = match source {
            Source::Kept(entry) => return Ok(Some(entry)),
            Source::New(number, level, file) => (number, level, file),
        };
        let claim = match self.ahead.claim(number, |entry| self.has_copy(entry)) {
            Ok(entry) => return Ok(Some(RecordFile { level, ..entry })),
            Err(claim) => claim,
        };
        let copy = (self.copies == Copies::Two).then(|| self.place.copy(number));
        let table = self.place.table(number);
        match files::take_in(file, number, level, copy.as_deref()) {
            Ok(entry) if table_proof::proves_itself(copy.as_ref().unwrap_or(&table))? => {
                claim.done(entry);
                Ok(Some(entry))
            }
            Ok(_) => Ok(None),
            Err(error) => match table_proof::proves_itself(&table) {
                // The host refused the copy, and the file is not at fault.
                Ok(true) => Err(error),
                Ok(false) => Ok(None),
                // It was merged away meanwhile, or cannot be opened just now. Its state is unknown.
                Err(e) if e.kind() == io::ErrorKind::NotFound => Err(error),
                Err(e) => {
                    if may_pass(&Error::io("reading a record file", e)) {
                        Err(error)
                    } else {
                        Ok(None)
                    }
                }
            },
        }
    }

    /// Removes what neither `is_kept` nor a merge keeps.
    fn remove_others(&self, is_kept: impl Fn(u64) -> bool) {
        drop(fs::remove_file(self.place.copies.join(LIST_ASIDE)));
        let unfinished = files::unfinished_in(&self.place.copies);
        let found = files::tables_in(&self.place.copies).into_iter().chain(unfinished);
        for (_, path) in found.filter(|(number, _)| !is_kept(*number) && !self.ahead.is_taken(*number)) {
            // A file that stays behind takes space until the next checkpoint.
            drop(fs::remove_file(path));
        }
    }
}

/// Where a file's entry comes from.
enum Source {
    Kept(RecordFile),
    New(u64, u32, File),
}

impl Source {
    fn number(&self) -> u64 {
        match self {
            Source::Kept(entry) => entry.number,
            Source::New(number, ..) => *number,
        }
    }
}

fn lists(list: Option<&RecordList>, number: u64) -> bool {
    list.is_some_and(|list| list.entry(number).is_some())
}

/// Number and level of the live files, newer ones before older ones of the same keys.
fn live_files(db: &DB) -> io::Result<Vec<(u64, u32)>> {
    let live = db.live_files().map_err(io::Error::other)?;
    let numbered = live.iter().map(|file| Some((files::table_number(&file.name)?, u32::try_from(file.level).ok()?)));
    numbered.collect::<Option<Vec<_>>>().ok_or_else(|| io::Error::other("a live file has a name of no known form"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A store with one file, and a keeper of its copies.
    fn keeper(dir: &Path) -> (DB, Keeper) {
        let place = Place::of(dir, [1; 16]);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        let db = DB::open(&options, &place.records).unwrap();
        db.put([1], [5]).unwrap();
        db.flush().unwrap();
        place.make_folder().unwrap();
        let ahead = Arc::new(Ahead::new(place.clone(), Copies::Two));
        (db, Keeper::new(place, Copies::Two, vec![1], ahead))
    }

    #[test]
    fn a_checkpoint_that_is_flushed_while_files_are_copied_is_not_listed_without_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (db, keeper) = keeper(dir.path());
        let live = keeper.look(&db).unwrap().unwrap();
        db.put([1], [6]).unwrap();
        db.flush().unwrap();
        let list = keeper.list_of(live, Vec::new()).unwrap();
        assert_eq!(list.checkpoint, [5]);
    }

    /// Fewer files than RocksDB merges by itself.
    #[test]
    fn a_new_file_is_listed_with_its_own_checksum_beside_those_that_are_known() {
        for copies in [Copies::One, Copies::Two] {
            let dir = tempfile::tempdir().unwrap();
            let (db, keeper) = keeper(dir.path());
            let keeper = Keeper { copies, ..keeper };
            for round in [6, 7] {
                assert_eq!(keeper.update(&db), Updated::Done);
                db.put([1], [round]).unwrap();
                db.flush().unwrap();
            }
            assert_eq!(keeper.update(&db), Updated::Done);
            let list = keeper.place.list().unwrap();
            let listed: Vec<_> = list.files.iter().map(|file| (file.number, file.level)).collect();
            assert_eq!(listed, live_files(&db).unwrap());
            for entry in &list.files {
                assert!(files::is_whole(&keeper.place.table(entry.number), entry), "{entry:?}");
                assert!(files::is_whole(&keeper.place.copy(entry.number), entry), "{entry:?}");
                let is_name = files::is_one_file(&keeper.place.table(entry.number), &keeper.place.copy(entry.number));
                assert_eq!(is_name, copies == Copies::One, "{entry:?}");
            }
        }
    }

    /// RocksDB merges files while they are copied, and the host may refuse the copy at the same time.
    #[test]
    fn a_file_that_goes_while_the_host_refuses_its_copy_does_not_pass_for_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let (db, keeper) = keeper(dir.path());
        let (number, level) = live_files(&db).unwrap()[0];
        let (table, copy) = (keeper.place.table(number), keeper.place.copy(number));
        let source = || Source::New(number, level, File::open(&table).unwrap());
        fs::create_dir(&copy).unwrap();
        assert!(keeper.take_in(source()).is_err(), "the file proves itself");
        let opened = source();
        fs::remove_file(&table).unwrap();
        assert!(keeper.take_in(opened).is_err(), "nothing is known of the file");
        fs::write(&table, [7; 5_000]).unwrap();
        assert_eq!(keeper.take_in(source()).unwrap(), None, "it is damaged");
    }
}
