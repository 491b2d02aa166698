//! The superblock of a volume whose records lie in objects: it lies there too, and the volume's directory on a machine
//! is made from it. What else is in that directory is advice.
//!
//! The directory is believed only as far as the cluster agrees. A missing one is made. One of another volume, which had
//! the same name before, is made anew. A crash while one is made leaves a directory without a superblock, which is made
//! again.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use oncefs_rados::Objects;

use crate::format::sealed_superblock::{NONCE_BYTES, SealedSuperblock};
use crate::format::superblock::Superblock;
use crate::kv::copies::FOLDER;
use crate::space::ballast::Ballast;
use crate::volume::exclusive_lock::ExclusiveLock;
use crate::volume::seal::{self, SealingKey};
use crate::volume::unfinished::Unfinished;
use crate::volume::{object_parts, ownership, superblock_file, unfinished};
use crate::{DataPlace, Error, ObjectAccess, Result, WhenHeld};

/// What another volume's directory has that is not for the next one: advice, and the superblock, which goes first.
const OF_VOLUME: [&str; 7] = ["superblock", FOLDER, "hints", "skipped", "history", "history.new", "000000.dbtmp"];
/// What it may keep.
const OF_DIRECTORY: [&str; 3] = ["ballast", "lock", "control"];

/// What became of a volume's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Localized {
    /// It stays as it is.
    Kept,
    /// It was made, or made anew.
    Made,
}

/// A name in a cluster, as a command got it.
#[derive(Clone, Copy, Debug)]
pub struct ClusterName<'a> {
    /// The way to the objects.
    pub access: &'a ObjectAccess,
    /// Whether the command says by which user and configuration. Otherwise the directory decides, if there is one.
    pub is_explicit: bool,
    /// The key of this machine for the volume's secret, if there is one.
    pub key: Option<&'a SealingKey>,
    /// The file in which it is or would be.
    pub key_file: &'a str,
}

/// Makes the directory of a volume agree with its cluster.
///
/// # Errors
///
/// [`Error::NotAVolume`], [`Error::InTheWay`], and what reading, unsealing and writing fail with.
pub fn localize(directory: &Path, name: ClusterName<'_>) -> Result<Localized> {
    if unfinished::is_marked(directory) {
        // Whoever opens it says so.
        return Ok(Localized::Kept);
    }
    let here = match superblock_file::read(directory) {
        Err(Error::NotAVolume(_) | Error::Corrupt { .. }) => None,
        found => Some(found?),
    };
    let access = match here.as_ref().map(|here| &here.data) {
        Some(DataPlace::Objects(own)) if own.record_keys_max.is_some() && !name.is_explicit => own,
        Some(DataPlace::Objects(own)) if own.record_keys_max.is_some() => name.access,
        Some(_) if name.is_explicit => {
            let text = "the volume's directory keeps its user and configuration: give its name without parameters";
            return Err(Error::Invalid(text.to_owned()));
        }
        Some(_) => return Ok(Localized::Kept),
        None => name.access,
    };
    agree(directory, here.as_ref(), &object_parts::connect(access)?, ClusterName { access, ..name })
}

/// The same for these objects. `here`: the superblock in the directory.
fn agree(
    directory: &Path,
    here: Option<&Superblock>,
    objects: &dyn Objects,
    name: ClusterName<'_>,
) -> Result<Localized> {
    let shown = format!("rados://{}/{}", name.access.pool, name.access.namespace);
    let Some(found) = object_parts::read_superblock(objects, &shown)? else {
        // A superblock that is damaged is named by whoever opens it.
        let is_here = here.is_some() || directory.join("superblock").exists();
        return if is_here { Ok(Localized::Kept) } else { Err(nothing_there(objects, &shown)?) };
    };
    let data = place_of(&found.superblock, name.access);
    match here.filter(|here| here.volume_id == found.superblock.volume_id) {
        Some(here) => {
            let agreed = Superblock { secret: here.secret, data, ..found.superblock };
            if agreed == *here {
                return Ok(Localized::Kept);
            }
            superblock_file::replace_both(directory, &agreed)?;
        }
        None => {
            let whole = seal::unseal(&found, name.key, name.key_file, &shown)?;
            make(directory, &Superblock { data, ..whole })?;
        }
    }
    Ok(Localized::Made)
}

/// Where the objects are: what belongs to the volume is in its superblock, and the way there in the name.
fn place_of(superblock: &Superblock, name: &ObjectAccess) -> DataPlace {
    let (record_keys_max, data_pool) = match &superblock.data {
        DataPlace::Objects(access) => (access.record_keys_max, access.data_pool.clone()),
        DataPlace::File | DataPlace::Device(_) => (None, None),
    };
    DataPlace::Objects(ObjectAccess { record_keys_max, data_pool, ..name.clone() })
}

/// Why a machine without the volume's directory cannot use it.
fn nothing_there(objects: &dyn Objects, shown: &str) -> Result<Error> {
    Ok(Error::Invalid(match object_parts::has_volume(objects)? {
        false => format!("there is no volume {shown} (create one with: oncefs mkfs {shown})"),
        true => format!(
            "{shown} has no superblock in its cluster, so only the machine where mkfs made it can open it: names and \
             maps lie there, unless mkfs put them into objects (--records rados); a volume with such records that is of \
             an early version is moved by its next mount there (docs/beyond.md)"
        ),
    }))
}

/// Makes the directory, or makes it anew if it was that of another volume. The superblock goes first and comes last.
fn make(directory: &Path, superblock: &Superblock) -> Result<()> {
    let failed = |e| Error::io(format!("making {}", directory.display()), e);
    DirBuilder::new().recursive(true).mode(ownership::DIRECTORY_MODE).create(directory).map_err(failed)?;
    refuse_what_is_no_advice(directory)?;
    ownership::claim(directory)?;
    let _alone = ExclusiveLock::of_volume(&directory.join("lock"), &directory.display().to_string())?;
    for name in OF_VOLUME {
        let path = directory.join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ if name == FOLDER => unfinished::sync_directory(directory)?,
            _ => {}
        }
    }
    Ballast::at(directory.join("ballast")).fill().map_err(failed)?;
    superblock_file::replace_both(directory, superblock)?;
    unfinished::sync_directory(directory)?;
    log::info!("made {} from the superblock in the cluster: hints follow from the block table", directory.display());
    Ok(())
}

/// A directory with names and maps, or with anything that is not of a volume, stays as it is.
fn refuse_what_is_no_advice(directory: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("looking at {}", directory.display()), e);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !OF_VOLUME.iter().chain(&OF_DIRECTORY).any(|known| name == *known) {
            let path = directory.join(name);
            return Err(Error::InTheWay(format!(
                "{} is to be made from the superblock in the cluster, and {} is in the way: move it elsewhere",
                directory.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// Whether a volume has its records in objects, and no superblock there: an early version made it. Asks the cluster.
pub fn is_wanted(volume: &Path) -> Result<bool> {
    let superblock = superblock_file::read(volume)?;
    match &superblock.data {
        DataPlace::Objects(access) if access.record_keys_max.is_some() => {
            let shown = format!("rados://{}/{}", access.pool, access.namespace);
            object_parts::read_superblock(&object_parts::connect(access)?, &shown).map(|found| found.is_none())
        }
        _ => Ok(false),
    }
}

/// Puts the superblock of a closed volume into its cluster, as its head. Nothing for a volume whose records are in its
/// directory. A crash leaves the cluster without a superblock, or with this one, which is durable on return.
pub fn publish(volume: &Path, key: &SealingKey, nonce: [u8; NONCE_BYTES]) -> Result<()> {
    let superblock = superblock_file::read(volume)?;
    let DataPlace::Objects(access) = &superblock.data else { return Ok(()) };
    if access.record_keys_max.is_none() {
        return Ok(());
    }
    let sealed: SealedSuperblock = seal::seal(&superblock, key, nonce, oncefs_rados::host_name());
    let _alone = ExclusiveLock::of_volume(&volume.join("lock"), &volume.display().to_string())?;
    let parts = object_parts::open(access, volume, superblock.volume_id, &WhenHeld::Refused)?;
    parts.write_superblock(&sealed.encode()?)
}

/// Everything of a new volume is in place and durable: it is valid from now on, and lies in its cluster, if its records
/// do. A crash in between leaves a valid volume that only this directory knows, until a mount publishes it.
pub fn finish(unfinished: Unfinished, key: &SealingKey, nonce: [u8; NONCE_BYTES]) -> Result<()> {
    unfinished.remove_mark()?;
    // A confined process has no other connection than that of `unfinished`.
    publish(unfinished.volume(), key, nonce)
}

#[cfg(test)]
pub use tests::sample;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    use oncefs_rados::{Change, MemoryObjects};

    use super::*;
    use crate::Profile;
    use crate::format::image::ImageHeader;
    use crate::objects::device::ObjectDevice;
    use crate::volume::object_parts::SUPERBLOCK;

    fn access() -> ObjectAccess {
        ObjectAccess::parse("rados://data/home?id=oncefs&records=1000").unwrap()
    }

    fn superblock(volume: u8) -> Superblock {
        Superblock {
            volume_id: [volume; 16],
            secret: [volume + 100; 32],
            log_bytes: 64 << 20,
            data: DataPlace::Objects(access()),
            profile: Profile::Desktop,
            copies: None,
            has_clones: true,
            has_fragments: true,
        }
    }

    fn key() -> SealingKey {
        SealingKey::new([5; 32], "/keys/home.key")
    }

    /// That of a volume, sealed.
    pub fn sample(volume: u8) -> SealedSuperblock {
        seal::seal(&superblock(volume), &key(), [volume; NONCE_BYTES], "head".to_owned())
    }

    /// A cluster with the volume of this number.
    fn cluster(volume: u8) -> MemoryObjects {
        let objects = MemoryObjects::default();
        let header = ImageHeader { volume_id: [volume; 16], len: 16 << 20, object_bytes: 4 << 20 };
        ObjectDevice::create(&objects, "data", header).unwrap();
        objects.change(SUPERBLOCK, Change::WriteFull { bytes: &sample(volume).encode().unwrap() }).unwrap();
        objects
    }

    struct Machine {
        _scratch: tempfile::TempDir,
        directory: PathBuf,
    }

    impl Machine {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let directory = scratch.path().join("data/home");
            Self { _scratch: scratch, directory }
        }

        fn agree_with(
            &self,
            objects: &MemoryObjects,
            access: &ObjectAccess,
            key: Option<&SealingKey>,
        ) -> Result<Localized> {
            let name = ClusterName { access, is_explicit: true, key, key_file: "/here/home.key" };
            agree(&self.directory, self.here().as_ref(), objects, name)
        }

        fn agree(&self, objects: &MemoryObjects) -> Result<Localized> {
            self.agree_with(objects, &access(), Some(&key()))
        }

        fn here(&self) -> Option<Superblock> {
            superblock_file::read(&self.directory).ok()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.directory).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn has(&self, name: &str) -> bool {
            self.directory.join(name).exists()
        }
    }

    #[test]
    fn a_machine_that_has_never_seen_a_volume_gets_its_directory() {
        let machine = Machine::new();
        assert_eq!(machine.agree(&cluster(1)).unwrap(), Localized::Made);
        assert_eq!(machine.here(), Some(superblock(1)));
        assert_eq!(machine.names(), ["ballast", "copies", "lock", "superblock"]);
        for path in machine.names().iter().map(|name| machine.directory.join(name)) {
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0, "{}", path.display());
        }
        fs::write(machine.directory.join("hints"), "advice").unwrap();
        assert_eq!(machine.agree(&cluster(1)).unwrap(), Localized::Kept);
        assert!(machine.has("hints"));
    }

    #[test]
    fn a_directory_of_another_volume_is_made_anew_with_its_advice() {
        let machine = Machine::new();
        machine.agree(&cluster(1)).unwrap();
        for name in ["hints", "skipped", "history"] {
            fs::write(machine.directory.join(name), "of the first volume").unwrap();
        }
        assert_eq!(machine.agree(&cluster(2)).unwrap(), Localized::Made);
        assert_eq!(machine.here(), Some(superblock(2)));
        assert_eq!(machine.names(), ["ballast", "copies", "lock", "superblock"]);
    }

    #[test]
    fn a_directory_in_use_is_not_made_anew() {
        let machine = Machine::new();
        machine.agree(&cluster(1)).unwrap();
        let _open = ExclusiveLock::of_volume(&machine.directory.join("lock"), "v").unwrap();
        assert!(matches!(machine.agree(&cluster(2)), Err(Error::InUse(_))));
        assert_eq!(machine.here(), Some(superblock(1)));
        assert_eq!(machine.agree(&cluster(1)).unwrap(), Localized::Kept);
    }

    #[test]
    fn an_older_superblock_of_the_same_volume_follows_the_cluster_and_keeps_its_advice() {
        let machine = Machine::new();
        machine.agree(&cluster(1)).unwrap();
        let older = Superblock { profile: Profile::Server, ..superblock(1) };
        superblock_file::replace_both(&machine.directory, &older).unwrap();
        fs::write(machine.directory.join("hints"), "advice").unwrap();
        assert_eq!(machine.agree(&cluster(1)).unwrap(), Localized::Made);
        assert_eq!(machine.here(), Some(superblock(1)));
        let other = ObjectAccess { id: "second".to_owned(), ..access() };
        machine.agree_with(&cluster(1), &other, None).expect("it needs no key");
        assert_eq!(machine.here().unwrap().data, DataPlace::Objects(other));
        assert!(machine.has("hints"));
    }

    #[test]
    fn without_the_key_nothing_is_made_and_the_error_says_what_to_copy() {
        let machine = Machine::new();
        let refused = machine.agree_with(&cluster(1), &access(), None).unwrap_err().to_string();
        assert!(refused.contains("copy /keys/home.key of the machine head to /here/home.key"), "{refused}");
        assert!(!machine.directory.exists());
    }

    #[test]
    fn a_crash_while_a_directory_is_made_leaves_one_that_is_made_again() {
        for made in [&[][..], &["lock"], &["lock", "ballast"], &["lock", "ballast", "copies"]] {
            let machine = Machine::new();
            fs::create_dir_all(&machine.directory).unwrap();
            for name in made {
                match *name {
                    "copies" => fs::create_dir(machine.directory.join(name)).unwrap(),
                    name => fs::write(machine.directory.join(name), "").unwrap(),
                }
            }
            assert_eq!(machine.agree(&cluster(1)).unwrap(), Localized::Made, "{made:?}");
            assert_eq!(machine.here(), Some(superblock(1)), "{made:?}");
        }
    }

    #[test]
    fn names_and_maps_and_foreign_files_stay_where_they_are() {
        for name in ["records", "log", "letter"] {
            let machine = Machine::new();
            fs::create_dir_all(&machine.directory).unwrap();
            fs::write(machine.directory.join(name), "dear").unwrap();
            let refused = machine.agree(&cluster(1)).unwrap_err().to_string();
            assert!(refused.contains(&format!("{name} is in the way")), "{refused}");
            assert_eq!(fs::read(machine.directory.join(name)).unwrap(), b"dear");
        }
    }

    #[test]
    fn a_cluster_without_a_superblock_keeps_what_is_here_and_gives_nothing_to_others() {
        let (here, elsewhere) = (Machine::new(), Machine::new());
        let objects = cluster(1);
        here.agree(&objects).unwrap();
        objects.change(SUPERBLOCK, Change::Remove).unwrap();
        assert_eq!(here.agree(&objects).unwrap(), Localized::Kept);
        let refused = elsewhere.agree(&objects).unwrap_err().to_string();
        assert!(refused.contains("only the machine where mkfs made it"), "{refused}");
        let refused = elsewhere.agree(&MemoryObjects::default()).unwrap_err().to_string();
        assert!(refused.contains("there is no volume rados://data/home"), "{refused}");
    }
}
