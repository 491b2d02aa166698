//! Restores damaged files of the record store from their copies.
//!
//! A restored record file must match its checksum in the list. If that does not help, the whole store goes back to the
//! checkpoint of the list: all its files, then its manifest, then `CURRENT`, each durable before the next. So after a
//! crash in between, the next opening restores in the same way. The log repeats the changes after that checkpoint, or
//! opening refuses the volume because its parts do not belong together.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::files::{self, CURRENT};
use super::paths::Place;
use super::{manifest, table_proof};
use crate::format::record_list::{RecordFile, RecordList};
use crate::{Error, Result};

/// Findings about the files and their copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesFound {
    /// Files that were damaged and are sound again.
    pub mended: Vec<String>,
    /// Files that are still damaged.
    pub left: Vec<String>,
}

impl FilesFound {
    /// Adds the findings of another check.
    pub fn add(&mut self, other: Self) {
        self.mended.extend(other.mended);
        self.left.extend(other.left);
    }
}

/// The message about a record file that was restored from its copy.
pub fn restored(number: u64) -> String {
    format!("the record file {} was damaged: it was restored from its copy", files::table_name(number))
}

/// Whether every file of the list is intact, in its place or as a copy.
pub fn can_go_back(place: &Place, list: &RecordList) -> bool {
    let is_there = |entry: &RecordFile| {
        files::is_whole(&place.table(entry.number), entry) || files::is_whole(&place.copy(entry.number), entry)
    };
    !list.manifest.is_empty() && list.files.iter().all(is_there)
}

/// Makes a damaged `CURRENT` anew if there is only one manifest that it can have named.
pub fn current(place: &Place) -> io::Result<FilesFound> {
    let mut found = FilesFound::default();
    if let Some(number) = manifest::only_one(place) {
        write_current(place, number)?;
        found.mended.push(format!("{CURRENT} was damaged: it names the only manifest again"));
    }
    Ok(found)
}

/// Advice for a store that does not open and is left as it is. None: no list says which files belong to it.
pub fn way_out(place: &Place, may_go_back: bool) -> Option<String> {
    if manifest::only_one(place).is_some() {
        return Some(format!("{CURRENT} is damaged, and only one manifest is there: oncefs fsck -p restores it"));
    }
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

/// Restores the record files that `is_sound` refuses, and the missing ones, from intact copies.
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

/// Checks the cheap parts: the ends of the record files, the listed part of the manifest, and `CURRENT`.
pub fn cheaply(place: &Place, list: &RecordList) -> io::Result<FilesFound> {
    let is_sound = |entry: &RecordFile| {
        let path = place.table(entry.number);
        // A missing file may have been superseded since. If not, its reader reports it.
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
        write_current(place, list.manifest_number)?;
        found.mended.push(format!("{CURRENT} was damaged: it was restored"));
    }
    Ok(found)
}

/// Takes the whole store back to the checkpoint of the list. None: the list has no manifest, or a copy is damaged too.
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
    write_current(place, list.manifest_number)?;
    found.mended.push(format!("{name} or {CURRENT} was damaged: the record store is as of the last checkpoint again"));
    Ok(Some(found))
}

fn write_current(place: &Place, manifest: u64) -> io::Result<()> {
    let text = format!("{}\n", files::manifest_name(manifest));
    files::replace(&place.records.join(CURRENT), text.as_bytes())
}

/// Compares all listed live files, and their copies, with their checksums. With `mend`, a bad copy is rewritten from
/// its file. Bad files are left to [`tables`], for which the store must be closed.
///
/// Compactions continue meanwhile and remove files. Numbers are never used twice, so a file that is live before and
/// after a check existed throughout it. Files that are no longer live are not reported.
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

/// A file written after the last copies has only its own checksums.
fn look_at_unlisted(place: &Place, number: u64) -> io::Result<FilesFound> {
    let mut found = FilesFound::default();
    if !table_proof::proves_itself(&place.table(number)).unwrap_or(false) {
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
