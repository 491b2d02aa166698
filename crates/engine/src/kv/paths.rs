//! The paths of a volume's record store, its copies, and their list.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::files;
use crate::format::record_list::RecordList;

/// The volume's folder of copies.
pub const FOLDER: &str = "copies";
/// The list of record files in it.
pub(super) const LIST: &str = "list";
/// The list while it counts only for salvage.
pub(super) const LIST_ASIDE: &str = "list.aside";

/// The paths of a volume's record store and its copies.
#[derive(Clone, Debug)]
pub struct Place {
    /// The record store.
    pub records: PathBuf,
    /// The folder of copies.
    pub copies: PathBuf,
    /// The volume.
    pub volume_id: [u8; 16],
}

impl Place {
    /// The parts of a volume.
    pub fn of(volume: &Path, volume_id: [u8; 16]) -> Self {
        Self { records: volume.join("records"), copies: volume.join(FOLDER), volume_id }
    }

    /// A record file.
    pub fn table(&self, number: u64) -> PathBuf {
        self.records.join(files::table_name(number))
    }

    /// The copy of a record file.
    pub fn copy(&self, number: u64) -> PathBuf {
        self.copies.join(files::table_name(number))
    }

    /// The list of the last checkpoint, if it is valid.
    pub fn list(&self) -> Option<RecordList> {
        RecordList::decode(&fs::read(self.copies.join(LIST)).ok()?, self.volume_id)
    }

    /// The list that salvage uses. It may be one that an earlier salvage set aside.
    pub fn list_for_salvage(&self) -> Option<RecordList> {
        let aside = || RecordList::decode(&fs::read(self.copies.join(LIST_ASIDE)).ok()?, self.volume_id);
        self.list().or_else(aside)
    }

    /// Sets the list aside, durably: nothing in the folder counts for opening any more.
    pub fn set_list_aside(&self) -> io::Result<()> {
        let list = self.copies.join(LIST);
        match fs::rename(&list, self.copies.join(LIST_ASIDE)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ if self.copies.exists() => files::sync_directory_of(&list),
            _ => Ok(()),
        }
    }

    /// Makes the folder if it is missing.
    pub fn make_folder(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.copies) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            Err(_) => Ok(()),
            Ok(()) => files::sync_directory_of(&self.copies),
        }
    }
}
