//! Makes a new record store from what can still be read of a damaged one.
//!
//! Only files that the manifest names are read, or those of the last list where the manifest is lost: what lies there
//! beside them was superseded, and an old map in it names blocks that are others' by now. They are read from the oldest
//! to the newest, so a newer value takes an older one's place. Where a file has a gap, the older values of the keys in
//! it may be superseded, and go: none is revived.
//!
//! The new store is made beside the old one and takes its place in one exchange of names. Before that the list of copies
//! is set aside, durably: it speaks of the old files. A crash before the exchange leaves the old store, and salvage
//! begins anew with the list that was set aside; one after it leaves the new store, whose first list removes that one.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rocksdb::{DB, FlushOptions, IteratorMode, Options, WriteBatch, WriteOptions};

use super::copies::Place;
use super::table_file::{self, Found};
use super::{files, manifest};
use crate::format::checkpoint::Checkpoint;
use crate::format::keys;
use crate::format::record_list::RecordList;
use crate::{Error, Result};

/// Entries written in one batch.
const BATCH_ENTRIES: usize = 4_096;
const NEW: &str = "records.new";
/// The folder that keeps the damaged files until somebody removes it.
pub const DAMAGED: &str = "records.damaged";

/// What salvage saved, and from what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Record files read.
    pub files: u64,
    /// Those with damage.
    pub damaged_files: u64,
    /// Gaps in them.
    pub gaps: u64,
    /// Older records in gaps, which may be superseded and were given up.
    pub given_up: u64,
    /// Records in the new store.
    pub records: u64,
}

/// One step of putting the new store into the old one's place.
pub type Step = fn(&Place) -> io::Result<()>;

/// They follow a new store that is complete, each durable before the next. A crash within one leaves what was before it
/// or what is after it.
pub const STEPS: [Step; 3] = [Place::set_list_aside, exchange, keep_damaged];

/// Makes the new store and puts it into the old one's place.
pub fn salvage(place: &Place, options: &Options) -> Result<Salvaged> {
    let salvaged = build(place, options)?;
    STEPS.iter().try_for_each(|step| step(place)).map_err(failed)?;
    Ok(salvaged)
}

/// Ends an earlier salvage that a crash cut short after the new store had its place.
pub fn finish(place: &Place) -> Result<()> {
    if new_path(place).exists() { keep_damaged(place).map_err(failed) } else { Ok(()) }
}

fn failed(error: io::Error) -> Error {
    Error::io("salvaging the record store", error)
}

/// Where the new store is made, and where the old one is once they have changed places.
fn new_path(place: &Place) -> PathBuf {
    place.records.with_file_name(NEW)
}

/// Makes the new store beside the old one, durably. What an earlier attempt left of one goes.
pub fn build(place: &Place, options: &Options) -> Result<Salvaged> {
    let sources = sources(place, options)?;
    let new_path = new_path(place);
    remove_dir(&new_path).map_err(failed)?;
    let mut own = options.clone();
    own.create_if_missing(true);
    own.set_error_if_exists(true);
    let new = DB::open(&own, &new_path).map_err(rocks_failed)?;
    let mut salvaged = Salvaged::default();
    for path in &sources {
        let bytes = read_what_can_be_read(path).map_err(failed)?;
        add(&new, table_file::read(&bytes), &mut salvaged)?;
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

/// The live files, oldest first.
fn sources(place: &Place, options: &Options) -> Result<Vec<PathBuf>> {
    let mut lenient = options.clone();
    lenient.set_paranoid_checks(false);
    let open = || DB::open_for_read_only(&lenient, &place.records, false).map_err(rocks_failed);
    let opened = manifest::check(&place.records).and_then(|()| open());
    let by_manifest = opened.and_then(|db| db.live_files().map_err(rocks_failed)).map(|live| {
        live.iter().rev().filter_map(|file| files::table_number(&file.name)).map(|number| place.table(number)).collect()
    });
    match (by_manifest, place.list_for_salvage()) {
        (Ok(sources), _) => Ok(sources),
        (Err(_), Some(list)) => {
            let paths: Vec<PathBuf> = list.files.iter().rev().map(|file| readable(place, file.number)).collect();
            let all_there = paths.iter().all(|path| path.exists());
            if all_there && (!list.manifest.is_empty() || !has_others(place, &list)) {
                return Ok(paths);
            }
            Err(refused("the manifest is lost, and the record files changed after they were last listed"))
        }
        (Err(error), None) => {
            Err(refused(&format!("the manifest is lost ({error}), and no list says which files are live")))
        }
    }
}

/// Whether there are record files that the list does not name. Those that end early are what RocksDB had not finished when
/// it was closed, so they were never live.
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

/// The file, or its copy where it is gone.
fn readable(place: &Place, number: u64) -> PathBuf {
    let path = place.table(number);
    if path.exists() { path } else { place.copy(number) }
}

/// A sector that the disk cannot read counts as zeros: its block is damaged, the others are not.
fn read_what_can_be_read(path: &Path) -> io::Result<Vec<u8>> {
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

/// Puts what a file says over what older ones said.
fn add(new: &DB, found: Vec<Found>, salvaged: &mut Salvaged) -> Result<()> {
    salvaged.files += 1;
    let gaps = found.iter().filter(|item| **item == Found::Gap).count() as u64;
    (salvaged.gaps, salvaged.damaged_files) = (salvaged.gaps + gaps, salvaged.damaged_files + u64::from(gaps > 0));
    let key_at = |at: usize| match found.get(at) {
        Some(Found::Entry(key, _)) => Some(key.clone()),
        _ => None,
    };
    for (at, _) in found.iter().enumerate().filter(|(_, item)| **item == Found::Gap) {
        let (before, after) = (at.checked_sub(1).and_then(key_at), key_at(at + 1));
        salvaged.given_up += give_up(new, before.as_deref(), after.as_deref())?;
    }
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    for part in found.chunks(BATCH_ENTRIES) {
        let mut batch = WriteBatch::default();
        for item in part {
            match item {
                Found::Entry(key, Some(value)) => batch.put(key, value),
                Found::Entry(key, None) => batch.delete(key),
                Found::Gap => {}
            }
        }
        new.write_opt(batch, &options).map_err(rocks_failed)?;
    }
    Ok(())
}

/// Removes the older values of all keys between two.
fn give_up(new: &DB, before: Option<&[u8]>, after: Option<&[u8]>) -> Result<u64> {
    let mode = before.map_or(IteratorMode::Start, |key| IteratorMode::From(key, rocksdb::Direction::Forward));
    let mut batch = WriteBatch::default();
    for pair in new.iterator(mode) {
        let (key, _) = pair.map_err(rocks_failed)?;
        if after.is_some_and(|after| &key[..] >= after) {
            break;
        }
        if before != Some(&key[..]) {
            batch.delete(&key);
        }
    }
    let count = batch.len() as u64;
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    new.write_opt(batch, &options).map_err(rocks_failed)?;
    Ok(count)
}

/// The checkpoint record, without which nothing opens, stands in the list too.
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

/// The two stores change places.
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

/// The old store keeps its damaged files under another name.
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
    super::failed::failed("salvaging the record store", &error)
}
