//! Damaged files of the record store are restored from their copies.
//!
//! A record file comes back under the checksum that the list has for it. If that does not help, the whole store goes back
//! to the checkpoint of the list: all its files, then its manifest, then `CURRENT`, each durable before the next, so
//! that a crash in between leaves something that the next opening restores in the same way. The log repeats what came
//! after that checkpoint, or opening refuses the volume as one whose parts do not belong together.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::files::{self, CURRENT};
use super::place::Place;
use super::proof;
use crate::format::record_list::{RecordFile, RecordList};
use crate::{Error, Result};

/// What was found of the files and their copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesFound {
    /// What was damaged and is sound again.
    pub mended: Vec<String>,
    /// What is damaged still.
    pub left: Vec<String>,
}

impl FilesFound {
    /// Adds what another look found.
    pub fn add(&mut self, other: Self) {
        self.mended.extend(other.mended);
        self.left.extend(other.left);
    }
}

/// What is said of a record file that came back from its copy.
pub fn restored(number: u64) -> String {
    format!("the record file {} was damaged: it was restored from its copy", files::table_name(number))
}

/// Whether every file of the list is there as a whole, in its place or as a copy.
pub fn can_go_back(place: &Place, list: &RecordList) -> bool {
    let is_there = |entry: &RecordFile| {
        files::is_whole(&place.table(entry.number), entry) || files::is_whole(&place.copy(entry.number), entry)
    };
    !list.manifest.is_empty() && list.files.iter().all(is_there)
}

/// What helps a store that does not open and is left as it is. None: no list says what belongs to it.
pub fn way_out(place: &Place, may_go_back: bool) -> Option<String> {
    let list = place.list()?;
    if can_go_back(place, &list) {
        return may_go_back.then(|| "there are copies: oncefs fsck -p restores it".to_owned());
    }
    let is_gone = |number: u64| !place.table(number).exists() && !place.copy(number).exists();
    let gone = list.files.iter().map(|entry| entry.number).filter(|number| is_gone(*number)).map(files::table_name);
    let why = match gone.collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => "no copy restores it".to_owned(),
        names => format!("{names}: neither the record file nor a copy is there"),
    };
    Some(format!("{why}; oncefs fsck --salvage saves the records that are left"))
}

/// Restores the record files that `is_sound` refuses, and those that are missing, from copies that are whole.
pub fn tables(place: &Place, list: &RecordList, is_sound: impl Fn(&RecordFile) -> bool) -> io::Result<FilesFound> {
    let mut found = FilesFound::default();
    for entry in list.files.iter().filter(|entry| !is_sound(entry)) {
        let name = files::table_name(entry.number);
        if files::is_whole(&place.copy(entry.number), entry) {
            files::replace_by_copy(&place.table(entry.number), &place.copy(entry.number))?;
            found.mended.push(restored(entry.number));
        } else {
            found.left.push(format!("the record file {name} is damaged, and there is no sound copy of it"));
        }
    }
    Ok(found)
}

/// Looks at what costs little: the ends of the record files, the manifest as far as it is listed, and `CURRENT`.
pub fn cheaply(place: &Place, list: &RecordList) -> io::Result<FilesFound> {
    let is_sound = |entry: &RecordFile| {
        let path = place.table(entry.number);
        // A file that is gone may have been superseded since; what misses it will say so.
        !path.exists() || files::has_its_end(&path, entry)
    };
    let mut found = tables(place, list, is_sound)?;
    if list.manifest.is_empty() {
        return Ok(found);
    }
    let name = files::manifest_name(list.manifest_number);
    let (path, current) = (place.records.join(&name), files::current_manifest(&place.records));
    let Ok(there) = fs::read(&path) else { return Ok(found) };
    if there.get(..list.manifest.len()) != Some(&list.manifest[..]) {
        let rest = there.get(list.manifest.len()..).unwrap_or_default();
        files::replace(&path, &[&list.manifest[..], rest].concat())?;
        found.mended.push(format!("{name} was damaged: it was restored from its copy"));
    }
    let names_a_manifest = current.is_some_and(|number| place.records.join(files::manifest_name(number)).exists());
    if !names_a_manifest {
        write_current(place, list)?;
        found.mended.push(format!("{CURRENT} was damaged: it was restored"));
    }
    Ok(found)
}

/// Brings the whole store back to the checkpoint of the list. None: the list has no manifest, or a copy is damaged too.
pub fn state(place: &Place, list: &RecordList) -> io::Result<Option<FilesFound>> {
    if list.manifest.is_empty() {
        return Ok(None);
    }
    let mut found = tables(place, list, |entry| files::is_whole(&place.table(entry.number), entry))?;
    if !found.left.is_empty() {
        return Ok(None);
    }
    let name = files::manifest_name(list.manifest_number);
    files::replace(&place.records.join(&name), &list.manifest)?;
    write_current(place, list)?;
    found.mended.push(format!("{name} or {CURRENT} was damaged: the record store is as of the last checkpoint again"));
    Ok(Some(found))
}

fn write_current(place: &Place, list: &RecordList) -> io::Result<()> {
    let text = format!("{}\n", files::manifest_name(list.manifest_number));
    files::replace(&place.records.join(CURRENT), text.as_bytes())
}

/// Compares all listed files that are live, and their copies, with their checksums. With `mend`, a bad copy is made anew
/// from its file; bad files are left to [`tables`], for which the store must be closed.
///
/// Compactions go on meanwhile and take files away. Numbers are never used twice, so what is live before and after a look
/// was there throughout it; what is not live any more is not told.
pub fn compare(
    place: &Place,
    list: &RecordList,
    live: impl Fn() -> Result<Vec<u64>>,
    mend: bool,
) -> Result<FilesFound> {
    let mut found = FilesFound::default();
    for number in live()? {
        let looked = match list.files.iter().find(|entry| entry.number == number) {
            Some(entry) => look_at_listed(place, entry, !list.manifest.is_empty(), mend),
            None => look_at_unlisted(place, number),
        };
        let is_well = looked.as_ref().is_ok_and(|looked| *looked == FilesFound::default());
        if !is_well && live()?.contains(&number) {
            found.add(looked.map_err(|e| Error::io("comparing the record files with their copies", e))?);
        }
    }
    Ok(found)
}

/// A file that was made after the last copies has only its own checksums.
fn look_at_unlisted(place: &Place, number: u64) -> io::Result<FilesFound> {
    let mut found = FilesFound::default();
    if !proof::proves_itself(&place.table(number)).unwrap_or(false) {
        let name = files::table_name(number);
        found.left.push(format!("the record file {name} is damaged, and it was made after the last copies"));
    }
    Ok(found)
}

fn look_at_listed(place: &Place, entry: &RecordFile, has_copy: bool, mend: bool) -> io::Result<FilesFound> {
    let mut found = FilesFound::default();
    let (file, copy, name) = (place.table(entry.number), place.copy(entry.number), files::table_name(entry.number));
    match (files::is_whole(&file, entry), !has_copy || files::is_whole(&copy, entry)) {
        (true, true) => {}
        (true, false) if mend => {
            files::replace_by_copy(&copy, &file)?;
            found.mended.push(format!("the copy of the record file {name} was damaged: it was made anew"));
        }
        (true, false) => found.left.push(format!("the copy of the record file {name} is damaged")),
        (false, true) if has_copy => {
            found.left.push(format!("the record file {name} is damaged, its copy is sound: fsck -p restores it"));
        }
        (false, _) => found.left.push(format!(
            "the record file {name} is damaged, and there is no sound copy of it: fsck --salvage saves what is left"
        )),
    }
    Ok(found)
}
