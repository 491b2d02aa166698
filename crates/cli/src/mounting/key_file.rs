//! The key with which a volume's secret is sealed in its cluster: a file of root's with 64 hexadecimal digits. It stays on
//! machines that may open the volume, and never goes to the cluster.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use oncefs_engine::{ObjectAccess, SealingKey};

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;
use crate::{hex, random};

/// Where the keys are, by pool and name.
const KEYS: &str = "/etc/oncefs/keys";
/// The variable that names another place.
const KEYS_VARIABLE: &str = "ONCEFS_KEYS";
/// The longest file that is read.
const TEXT_BYTES_MAX: u64 = 1024;
/// Mode bits of others than the owner.
const OTHERS: u32 = 0o077;

/// Where this machine has the key of a volume, unless a command names another file.
pub fn of_volume(access: &ObjectAccess) -> PathBuf {
    let keys = std::env::var_os(KEYS_VARIABLE).map_or_else(|| KEYS.into(), PathBuf::from);
    keys.join(&access.pool).join(format!("{}.key", access.namespace))
}

/// Reads a key. None: there is no such file.
///
/// # Errors
///
/// Others can read it, or it has no key.
pub fn read(path: &Path) -> Outcome<Option<SealingKey>> {
    let failed = |e: io::Error| Failure::new(exit::FAILED, format!("cannot read the key {}: {e}", shown(path)));
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let about = file.metadata().map_err(failed)?;
    // SAFETY: geteuid has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    let refused = |why: &str| Err(Failure::new(exit::FAILED, format!("the key {} {why}", shown(path))));
    if ![0, own].contains(&about.uid()) {
        return refused("belongs to another user, who knows it: make a new one, with another volume");
    }
    if about.mode() & OTHERS != 0 {
        return refused("can be read by others: chmod 600, and take it for known if they could read it for long");
    }
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    match hex::decode(text.trim()).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => Ok(Some(SealingKey::new(bytes, shown(path).to_string()))),
        None => refused("is none: it must have 64 hexadecimal digits"),
    }
}

/// Reads a key, after making one if there is none. A new one is durable on return.
///
/// # Errors
///
/// As [`read`], or it cannot be made.
pub fn read_or_make(path: &Path) -> Outcome<SealingKey> {
    if read(path)?.is_none() {
        make(path).or_fail_doing(exit::FAILED, format!("cannot make the key {}", shown(path)))?;
    }
    let gone = || Failure::new(exit::FAILED, format!("the key {} was removed while it was made", shown(path)));
    read(path)?.ok_or_else(gone)
}

/// Makes a key beside the path first, so that no reader finds a part of one. One that another process made meanwhile
/// stays.
fn make(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or_else(|| io::Error::other("it has no directory"))?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let beside = path.with_extension(format!("new.{}", std::process::id()));
    // A process with the same number may have been killed.
    let _ = fs::remove_file(&beside);
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
        writeln!(file, "{}", hex::encode(random::bytes::<32>()?))?;
        file.sync_all()?;
        fs::hard_link(&beside, path)
    };
    let written = write();
    let _ = fs::remove_file(&beside);
    match written {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => File::open(directory)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys/data/home.key");
        assert!(read(&path).unwrap().is_none());
        read_or_make(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 64, "{text}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        make(&path).unwrap();
        read_or_make(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "one that exists stays");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing stays beside it");
    }

    #[test]
    fn a_key_that_others_can_read_and_what_is_no_key_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("home.key");
        for (text, mode, why) in [
            ("00".repeat(32), 0o640, "chmod 600"),
            ("00".repeat(31), 0o600, "64 hexadecimal digits"),
            ("0g".repeat(32), 0o600, "64 hexadecimal digits"),
            (String::new(), 0o600, "64 hexadecimal digits"),
        ] {
            fs::write(&path, &text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let refused = read(&path).unwrap_err().message;
            assert!(refused.contains(why), "{text} {mode:o}: {refused}");
        }
    }

    #[test]
    fn a_volume_has_its_key_by_pool_and_name() {
        let access = ObjectAccess::parse("rados://data/home?id=oncefs").unwrap();
        assert_eq!(of_volume(&access), Path::new("/etc/oncefs/keys/data/home.key"));
    }
}
