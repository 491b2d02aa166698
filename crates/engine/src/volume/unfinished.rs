//! A volume that is being made. Its directory has a mark until everything is in place, so that it cannot be opened
//! before, and so that the remains of a killed mkfs are known to be its own.
//!
//! The mark is the file `unfinished`: the labels of all attempts, one after the other. The last attempt holds a lock on
//! it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncefs_rados::Cluster;

use crate::format::label;
use crate::volume::ownership;
use crate::{BLOCK_BYTES, Error, Result};

const NAME: &str = "unfinished";

/// The names that making a volume creates in its directory beside the mark.
const PARTS: [&str; 11] =
    ["superblock", "data", "table", "log", "records", "copies", "ballast", "lock", "hints", "skipped", "fragments"];

/// A volume that is being made. [`crate::Store::open_unfinished`] opens it. After [`Unfinished::finish`] any caller may
/// open it. Without that call the volume stays unfinished, and has to be made again.
#[derive(Debug)]
pub struct Unfinished {
    volume: PathBuf,
    /// Locked.
    _mark: File,
    /// The labels of this attempt and earlier ones.
    identities: Vec<[u8; 16]>,
    /// The connection to the volume's objects.
    cluster: Option<Arc<Cluster>>,
}

/// The treatment of what a new volume's data area would destroy: signatures of a device, objects of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSignature {
    /// It stays as it is, and no volume is made.
    Refused,
    /// It is erased.
    Erased,
}

/// Whether a directory holds a volume whose creation did not finish.
pub fn is_marked(volume: &Path) -> bool {
    volume.join(NAME).symlink_metadata().is_ok()
}

impl Unfinished {
    /// Takes a directory that is missing, empty, or left by a killed attempt, and marks it. Removes the files of that
    /// attempt.
    pub(super) fn begin(volume: &Path, volume_id: [u8; 16]) -> Result<Self> {
        let failed = |e| Error::io(format!("making {}", volume.display()), e);
        let names = names_in(volume).map_err(failed)?;
        if !names.is_empty() && !is_marked(volume) {
            let what =
                if names.iter().any(|name| name == "superblock") { "is a volume already" } else { "is not empty" };
            return Err(in_the_way(volume, &format!("{what}: choose another path or remove it first")));
        }
        ownership::claim(volume)?;
        let mut mark = lock_mark(volume)?;
        let mut identities = identities(&mut mark).map_err(failed)?;
        clear(volume, &names, identities.is_empty())?;
        identities.push(volume_id);
        mark.set_len((identities.len() as u64 - 1) * BLOCK_BYTES as u64)
            .and_then(|()| mark.write_all(&label::encode(volume_id)))
            .and_then(|()| mark.sync_all())
            .map_err(failed)?;
        sync_directory(volume)?;
        Ok(Self { volume: volume.to_owned(), _mark: mark, identities, cluster: None })
    }

    /// Its directory.
    pub(crate) fn volume(&self) -> &Path {
        &self.volume
    }

    /// Whether a label was written by this attempt or an earlier one.
    pub(super) fn is_own(&self, block: &[u8]) -> bool {
        label::id_of(block).is_some_and(|id| self.is_own_id(id))
    }

    /// Whether this is the identity of this attempt's volume or of an earlier one's.
    pub(super) fn is_own_id(&self, volume_id: [u8; 16]) -> bool {
        self.identities.contains(&volume_id)
    }

    /// Keeps the connection to a cluster until the volume is finished, because a confined process cannot make another.
    pub(super) fn keep_connected(&mut self, cluster: Arc<Cluster>) {
        self.cluster = Some(cluster);
    }

    /// Everything is in place and durable: the volume is valid from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: the mark cannot be removed, or its removal cannot be made durable.
    pub fn finish(self) -> Result<()> {
        self.remove_mark()
    }

    /// The same, and keeps the connection to the cluster.
    pub(super) fn remove_mark(&self) -> Result<()> {
        let mark = self.volume.join(NAME);
        fs::remove_file(&mark).map_err(|e| Error::io(format!("removing {}", mark.display()), e))?;
        sync_directory(&self.volume)
    }
}

/// The names in a directory. Creates it if it is missing.
fn names_in(volume: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(volume) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(ownership::DIRECTORY_MODE).create(volume).map(|()| Vec::new())
        }
        entries => entries?.map(|entry| entry.map(|entry| entry.file_name())).collect(),
    }
}

/// A mark that another user made proves nothing about mkfs.
fn lock_mark(volume: &Path) -> Result<File> {
    let path = volume.join(NAME);
    let failed = |e| Error::io(format!("opening {}", path.display()), e);
    if let Ok(found) = path.symlink_metadata() {
        ownership::refuse_owner(&path, &found)?;
    }
    let mut options = File::options();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mark = options.open(&path).map_err(failed)?;
    match mark.try_lock() {
        Ok(()) => Ok(mark),
        Err(TryLockError::WouldBlock) => Err(in_the_way(volume, "is being made by another mkfs: wait until that ends")),
        Err(TryLockError::Error(e)) => Err(failed(e)),
    }
}

/// The volumes that were begun here. A crash may have torn the last label, but then nothing was made after it.
fn identities(mark: &mut File) -> io::Result<Vec<[u8; 16]>> {
    let mut bytes = Vec::new();
    mark.read_to_end(&mut bytes)?;
    Ok(bytes.chunks_exact(BLOCK_BYTES).map_while(label::id_of).collect())
}

/// Removes the files of an attempt, but nothing if the directory has other files too. No label: the attempt made
/// nothing.
fn clear(volume: &Path, names: &[OsString], has_made_nothing: bool) -> Result<()> {
    let others = || names.iter().filter(|name| *name != NAME);
    let is_part = |name: &OsString| !has_made_nothing && PARTS.iter().any(|part| name == part);
    if let Some(foreign) = others().find(|name| !is_part(name)) {
        let foreign = volume.join(foreign);
        let text =
            format!("was left by a mkfs that did not end, and {} is not of it: move that away", foreign.display());
        return Err(in_the_way(volume, &text));
    }
    for path in others().map(|name| volume.join(name)) {
        let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|e| Error::io(format!("removing {}", path.display()), e))?;
    }
    Ok(())
}

fn in_the_way(volume: &Path, why: &str) -> Error {
    Error::InTheWay(format!("{} {why}", volume.display()))
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Error::io(format!("flushing {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Copies, DataPlace, OpenOptions, Profile, Store, VolumeSpec};

    fn options() -> OpenOptions {
        OpenOptions::new(32 << 20)
    }

    fn begin(volume: &Path, seed: u8) -> Result<Unfinished> {
        let spec = VolumeSpec {
            data_bytes: Some(16 << 20),
            data: DataPlace::File,
            profile: Profile::default(),
            log_bytes: 8 << 20,
            copies: Some(Copies::Two),
        };
        Store::begin_format(volume, &spec, [seed; 64], false)
    }

    fn refusal(volume: &Path) -> String {
        Store::open(volume, &options()).err().expect("it is not finished").to_string()
    }

    /// Removes parts in the reverse order of their creation.
    #[test]
    fn a_volume_that_was_not_made_to_its_end_says_so_and_is_made_again_wherever_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        let made = ["copies", "superblock", "lock", "ballast", "records", "log", "table", "data"];
        for ended in 0..=made.len() {
            drop(begin(&volume, 1).unwrap());
            for part in &made[..ended] {
                let path = volume.join(part);
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
            }
            assert!(refusal(&volume).contains("run oncefs mkfs"), "{ended} parts are missing");
        }
        let unfinished = begin(&volume, 2).unwrap();
        Store::open_unfinished(&unfinished, &options()).unwrap().close().unwrap();
        assert!(refusal(&volume).contains("run oncefs mkfs"), "until it is finished");
        unfinished.finish().unwrap();
        Store::open(&volume, &options()).unwrap().close().unwrap();
        assert!(matches!(begin(&volume, 3), Err(Error::InTheWay(text)) if text.contains("is a volume already")));
    }

    #[test]
    fn what_mkfs_did_not_make_is_neither_removed_nor_built_upon() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        drop(begin(&volume, 1).unwrap());
        let letter = volume.join("letter");
        fs::write(&letter, "dear").unwrap();
        let refused = begin(&volume, 2).unwrap_err().to_string();
        assert!(refused.contains(letter.to_str().unwrap()), "{refused}");
        assert!(letter.exists() && volume.join("data").exists());
        fs::remove_file(&letter).unwrap();
        // Without a label the mark is no proof that the parts are mkfs's.
        fs::write(volume.join(NAME), "").unwrap();
        assert!(matches!(begin(&volume, 2), Err(Error::InTheWay(_))));
        assert!(volume.join("data").exists());
    }

    #[test]
    fn of_two_at_a_time_one_makes_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let first = begin(dir.path(), 1).unwrap();
        assert!(begin(dir.path(), 2).unwrap_err().to_string().contains("another mkfs"));
        first.finish().unwrap();
        Store::open(dir.path(), &options()).unwrap().close().unwrap();
    }

    #[test]
    fn labels_of_all_attempts_are_its_own_and_a_torn_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        drop(begin(dir.path(), 1).unwrap());
        let mut mark = File::options().append(true).open(dir.path().join(NAME)).unwrap();
        mark.write_all(b"torn").unwrap();
        drop(mark);
        drop(begin(dir.path(), 2).unwrap());
        let last = begin(dir.path(), 3).unwrap();
        let is_own = |id| last.is_own(&label::encode([id; 16]));
        assert!(is_own(1) && is_own(2) && is_own(3) && !is_own(4));
    }
}
