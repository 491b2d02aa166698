//! Builds a new record store from the readable parts of a damaged one.
//!
//! It reads only files that the manifest names, or those of the last list if the manifest is lost. Other files there
//! were superseded or made of these, and an old map in one names blocks that belong to other files by now. Files are read from the
//! oldest to the newest, so that a newer value replaces an older one. If a file has a gap, the older values of all keys
//! that the gap may have held, those between its neighbours, may be superseded and are dropped: none is revived. A
//! record that can still be read in a gap counts only if its own checksum proves it under its own key, so it replaces
//! nothing.
//!
//! A file that is gone together with its copy is one gap from its first to its last key. That may be the whole store,
//! because a new file often has the first and the last keys of all. So it is refused until the caller names the file.
//!
//! The new store is built beside the old one and takes its place in one exchange of names. Before that the list of
//! copies, which describes the old files, is set aside durably. A crash before the exchange leaves the old store, and
//! salvage starts over with the list that was set aside. A crash after it leaves the new store, whose first list
//! removes that one.

use std::ffi::CString;
use std::fs;
use std::io;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rocksdb::{DB, FlushOptions, IteratorMode, Options, WriteBatch, WriteOptions};

use super::paths::Place;
use super::table_file::{self, Found};
use super::{files, manifest};
use crate::format::checkpoint::Checkpoint;
use crate::format::extent_leaf::ExtentLeaf;
use crate::format::pending_clone::PendingClone;
use crate::format::record_list::{RecordFile, RecordList};
use crate::format::{file_policy, keys};
use crate::{Error, Result};

/// Entries written in one batch.
const BATCH_ENTRIES: usize = 4_096;
const NEW: &str = "records.new";
/// The folder that keeps the damaged files until the user removes it.
pub const DAMAGED: &str = "records.damaged";

/// The saved records, and the files that they came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Record files read.
    pub files: u64,
    /// Damaged files among them.
    pub damaged_files: u64,
    /// The names of missing files whose copies are missing too. Each is one gap.
    pub gone: Vec<String>,
    /// Gaps in them.
    pub gaps: u64,
    /// Older records in gaps, which may be superseded and were dropped.
    pub given_up: u64,
    /// Records in the new store.
    pub records: u64,
}

/// Whether a record's own checksum proves its value under its key. Asked about the callers' records.
pub type IsRecord<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

/// The limits of a salvage: the records that it trusts, and the losses that the user allows.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// See [`IsRecord`].
    pub is_record: IsRecord<'a>,
    /// Files that are gone together with their copies and may be given up.
    pub without: &'a [String],
    /// Whether the log goes back to the checkpoint with this record.
    pub reaches_back: &'a dyn Fn(&[u8]) -> bool,
}

/// One step of putting the new store into the old one's place.
pub type Step = fn(&Place) -> io::Result<()>;

/// The steps after a new store is complete, each durable before the next. A crash within one leaves the state before it
/// or after it.
pub const STEPS: [Step; 3] = [Place::set_list_aside, exchange, keep_damaged];

/// Builds the new store and puts it into the old one's place.
pub fn salvage(place: &Place, options: &Options, terms: Terms<'_>) -> Result<Salvaged> {
    let salvaged = build(place, options, terms)?;
    STEPS.iter().try_for_each(|step| step(place)).map_err(failed)?;
    Ok(salvaged)
}

/// Completes an earlier salvage that a crash cut short after the new store had its place.
pub fn finish(place: &Place) -> Result<()> {
    if new_path(place).exists() { keep_damaged(place).map_err(failed) } else { Ok(()) }
}

fn failed(error: io::Error) -> Error {
    Error::io("salvaging the record store", error)
}

/// The path of the new store, and of the old one after the exchange.
fn new_path(place: &Place) -> PathBuf {
    place.records.with_file_name(NEW)
}

/// Builds the new store beside the old one, durably. Removes the remains of an earlier attempt.
pub fn build(place: &Place, options: &Options, terms: Terms<'_>) -> Result<Salvaged> {
    let sources = sources(place, options, terms)?;
    let gone: Vec<String> = sources.iter().filter_map(Source::gone).collect();
    refuse_unasked(&gone, terms.without)?;
    let new_path = new_path(place);
    remove_dir(&new_path).map_err(failed)?;
    let mut own = options.clone();
    own.create_if_missing(true);
    own.set_error_if_exists(true);
    let new = DB::open(&own, &new_path).map_err(rocks_failed)?;
    let mut salvaged = Salvaged { gone, ..Salvaged::default() };
    let mut above = None;
    for (at, source) in sources.iter().enumerate() {
        let found = source.read()?;
        let below = sources.get(at + 1).filter(|below| below.is_beside(source));
        // Files of one level have no keys in common, except on level 0.
        let beside = above.take().filter(|(level, _)| *level > 0 && *level == source.level).map(|(_, key)| key);
        let bounds = source.bounds(&found, beside, below)?;
        above = first_key(&found).map(|key| (source.level, key));
        add(&new, &found, &bounds, terms.is_record, &mut salvaged)?;
    }
    pin_checkpoint(place, &new)?;
    salvaged.records = new.iterator(IteratorMode::Start).filter(|pair| pair.is_ok()).count() as u64;
    let mut flush = FlushOptions::default();
    flush.set_wait(true);
    new.flush_opt(&flush).map_err(rocks_failed)?;
    new.cancel_all_background_work(true);
    drop(new);
    files::sync_directory_of(&new_path.join(files::CURRENT)).map_err(failed)?;
    Ok(salvaged)
}

/// Refuses missing files that the caller does not name.
fn refuse_unasked(gone: &[String], without: &[String]) -> Result<()> {
    if gone.iter().all(|name| without.contains(name)) {
        return Ok(());
    }
    let (names, options) = (gone.join(", "), gone.join(" --without "));
    Err(refused(&format!(
        "{names}: neither the record file nor a copy is there. Restore it from a backup, or give up all that it says, and \
         older records of all keys from its first to its last, which may be nearly all: --salvage --without {options}"
    )))
}

/// A live file.
struct Source {
    path: PathBuf,
    level: i64,
    /// Its first and last key, according to the manifest.
    keys: Option<(Vec<u8>, Vec<u8>)>,
}

/// The keys that a file may have: from the first to the last, if they are known.
struct Bounds {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

impl Source {
    /// The file's content. A missing file is a gap, if its keys are known.
    fn read(&self) -> Result<Vec<Found>> {
        match read_what_can_be_read(&self.path) {
            Ok(bytes) => Ok(table_file::read(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.keys.is_some() => Ok(vec![Found::Gap]),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(refused(&format!("{} is missing, and so is its copy", self.path.display())))
            }
            Err(e) => Err(failed(e)),
        }
    }

    /// Its name, if both the file and its copy are gone.
    fn gone(&self) -> Option<String> {
        let name = || self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        if self.path.exists() { None } else { name() }
    }

    /// Whether the two files share no key, because they are of one level that is not the newest.
    fn is_beside(&self, other: &Self) -> bool {
        self.level > 0 && self.level == other.level
    }

    /// The keys that the file may have. Without the manifest they are those between its neighbours': the first key of
    /// the file above, and the last key of the file below, which is read only if it matters.
    fn bounds(&self, found: &[Found], above: Option<Vec<u8>>, below: Option<&Self>) -> Result<Bounds> {
        if let Some((first, last)) = self.keys.clone() {
            return Ok(Bounds { from: Bound::Included(first), to: Bound::Included(last) });
        }
        let begins_with_a_gap = !matches!(found.first(), Some(Found::Entry(..)));
        let below = below.filter(|_| begins_with_a_gap).map(Self::read).transpose()?;
        let last = below.as_ref().and_then(|found| found.iter().rev().find_map(proved_key));
        Ok(Bounds {
            from: last.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec())),
            to: above.map_or(Bound::Unbounded, Bound::Excluded),
        })
    }
}

fn proved_key(found: &Found) -> Option<&[u8]> {
    match found {
        Found::Entry(key, _) => Some(key),
        Found::Gap | Found::Unproved(..) => None,
    }
}

fn first_key(found: &[Found]) -> Option<Vec<u8>> {
    found.iter().find_map(proved_key).map(<[u8]>::to_vec)
}

/// The live files, oldest first.
///
/// Without the manifest these are the files of the last list. RocksDB may have merged some of them since, which changes
/// no record. If it also wrote files of a later checkpoint, the log has to repeat it.
fn sources(place: &Place, options: &Options, terms: Terms<'_>) -> Result<Vec<Source>> {
    let mut lenient = options.clone();
    lenient.set_paranoid_checks(false);
    let open = || DB::open_for_read_only(&lenient, &place.records, false).map_err(rocks_failed);
    let opened = manifest::check(place).and_then(|()| open());
    let by_manifest = opened.and_then(|db| db.live_files().map_err(rocks_failed)).map(|live| {
        let source = |file: rocksdb::LiveFile| {
            let number = files::table_number(&file.name)?;
            let keys = file.start_key.zip(file.end_key);
            Some(Source { path: readable(place, number), level: file.level.into(), keys })
        };
        live.into_iter().rev().filter_map(source).collect()
    });
    match (by_manifest, place.list_for_salvage()) {
        (Ok(sources), _) => Ok(sources),
        (Err(_), Some(list)) => {
            let source = |file: &RecordFile| {
                let path = readable(place, file.number);
                Source { path, level: file.level.into(), keys: None }
            };
            let sources: Vec<Source> = list.files.iter().rev().map(source).collect();
            let all_there = sources.iter().all(|source| source.path.exists());
            let reaches_back = || !has_others(place, &list) || (terms.reaches_back)(&list.checkpoint);
            if all_there && (!list.manifest.is_empty() || reaches_back()) {
                return Ok(sources);
            }
            Err(refused("the manifest is lost, and the record files changed after they were last listed"))
        }
        (Err(error), None) => {
            Err(refused(&format!("the manifest is lost ({error}), and no list says which files are live")))
        }
    }
}

/// Whether record files exist that the list does not name. Files that end early were unfinished when RocksDB was
/// closed, so they were never live.
fn has_others(place: &Place, list: &RecordList) -> bool {
    let is_listed = |number: u64| list.files.iter().any(|file| file.number == number);
    let is_complete =
        |path: &Path| read_what_can_be_read(path).is_ok_and(|bytes| table_file::data_end(&bytes).is_some());
    files::tables_in(&place.records).iter().any(|(number, path)| !is_listed(*number) && is_complete(path))
}

fn refused(why: &str) -> Error {
    Error::corrupt(
        "the record store",
        format!("{why}: what is superseded could be revived. Restore a copy of the volume"),
    )
}

/// The file, or its copy if the file is gone.
fn readable(place: &Place, number: u64) -> PathBuf {
    let path = place.table(number);
    if path.exists() { path } else { place.copy(number) }
}

/// A sector that the disk cannot read counts as zeros: its block is damaged, the others are not.
pub(super) fn read_what_can_be_read(path: &Path) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    if let Ok(bytes) = fs::read(path) {
        return Ok(bytes);
    }
    let file = fs::File::open(path)?;
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?];
    for (index, sector) in bytes.chunks_mut(512).enumerate() {
        if file.read_exact_at(sector, 512 * index as u64).is_err() {
            sector.fill(0);
        }
    }
    Ok(bytes)
}

/// Adds a file's content over that of older files.
fn add(new: &DB, found: &[Found], bounds: &Bounds, is_record: IsRecord<'_>, salvaged: &mut Salvaged) -> Result<()> {
    salvaged.files += 1;
    let gaps = found.iter().filter(|item| **item == Found::Gap).count() as u64;
    (salvaged.gaps, salvaged.damaged_files) = (salvaged.gaps + gaps, salvaged.damaged_files + u64::from(gaps > 0));
    for (at, _) in found.iter().enumerate().filter(|(_, item)| **item == Found::Gap) {
        let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
        let before = found[..at].iter().rev().find_map(proved_key).map_or_else(|| bounds.from.clone(), excluded);
        let after = found[at..].iter().find_map(proved_key).map_or_else(|| bounds.to.clone(), excluded);
        salvaged.given_up += give_up(new, &(before, after))?;
    }
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    for part in found.chunks(BATCH_ENTRIES) {
        let mut batch = WriteBatch::default();
        for item in part {
            match item {
                Found::Entry(key, Some(value)) => batch.put(key, value),
                Found::Entry(key, None) => batch.delete(key),
                Found::Unproved(key, value) if proves_itself(key, value, is_record) => batch.put(key, value),
                Found::Gap | Found::Unproved(..) => {}
            }
        }
        new.write_opt(batch, &options).map_err(rocks_failed)?;
    }
    Ok(())
}

/// Whether a value has a valid checksum of its own that also covers the numbers in its key.
fn proves_itself(key: &[u8], value: &[u8], is_record: IsRecord<'_>) -> bool {
    if let Some(leaf) = keys::parse_leaf(key) {
        return ExtentLeaf::decode(leaf, value).is_some();
    }
    if let Some(map) = keys::parse_file_policy(key) {
        return file_policy::decode(map, value).is_some();
    }
    if let Some(target) = keys::parse_pending_clone(key) {
        return PendingClone::decode(target, value).is_some();
    }
    !keys::is_known(key) && is_record(key, value)
}

/// Removes the older values of all keys within bounds.
fn give_up(new: &DB, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Result<u64> {
    let mode = match &bounds.0 {
        Bound::Unbounded => IteratorMode::Start,
        Bound::Included(key) | Bound::Excluded(key) => IteratorMode::From(key, rocksdb::Direction::Forward),
    };
    let is_behind = |key: &[u8]| match &bounds.1 {
        Bound::Unbounded => false,
        Bound::Included(last) => key > &last[..],
        Bound::Excluded(end) => key >= &end[..],
    };
    let mut batch = WriteBatch::default();
    for pair in new.iterator(mode) {
        let (key, _) = pair.map_err(rocks_failed)?;
        if is_behind(&key) {
            break;
        }
        if !matches!(&bounds.0, Bound::Excluded(before) if before[..] == key[..]) {
            batch.delete(&key);
        }
    }
    let count = batch.len() as u64;
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    new.write_opt(batch, &options).map_err(rocks_failed)?;
    Ok(count)
}

/// Restores the checkpoint record from the list, because without it the store does not open.
fn pin_checkpoint(place: &Place, new: &DB) -> Result<()> {
    let key = keys::checkpoint();
    let is_valid = |bytes: &[u8]| Checkpoint::decode(bytes, place.volume_id).is_some();
    if new.get(&key).map_err(rocks_failed)?.is_some_and(|bytes| is_valid(&bytes)) {
        return Ok(());
    }
    let listed = place.list_for_salvage().map(|list| list.checkpoint).filter(|bytes| is_valid(bytes));
    let listed = listed.ok_or_else(|| {
        Error::corrupt("the checkpoint record", "it is lost, and no list has it: restore a copy of the volume")
    })?;
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    new.put_opt(&key, listed, &options).map_err(rocks_failed)
}

/// Exchanges the names of the two stores.
fn exchange(place: &Place) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let (from, to) = (name(&new_path(place))?, name(&place.records)?);
    // SAFETY: both paths end with NUL and live during the call.
    let result =
        unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_EXCHANGE) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    files::sync_directory_of(&place.records)
}

/// Keeps the damaged files of the old store under another name.
fn keep_damaged(place: &Place) -> io::Result<()> {
    let damaged = place.records.with_file_name(DAMAGED);
    remove_dir(&damaged)?;
    fs::rename(new_path(place), &damaged)?;
    files::sync_directory_of(&damaged)
}

fn remove_dir(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn rocks_failed(error: rocksdb::Error) -> Error {
    super::rocks_errors::failed("salvaging the record store", &error)
}

#[cfg(test)]
mod tests;
