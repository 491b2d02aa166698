//! Setting a policy below a path: directories before what is in them, so that what is made meanwhile inherits it and
//! nothing is missed.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::text::shown;

/// The attribute. `oncefs_fs::POLICY_ATTRIBUTE` with the zero that system calls want.
const NAME: &std::ffi::CStr = c"user.oncefs.policy";
/// Longest policy: `selective`.
const VALUE_BYTES_MAX: usize = 16;

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Regular files, by name.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// What could not be changed or read, and why.
    pub refused: Vec<String>,
}

/// Sets the policy of a file, or of a directory and everything below it; None removes it. Skips other mounts, symbolic
/// links and special files.
pub fn below(top: &Path, value: Option<&str>) -> Done {
    let mut done = Done::default();
    let device = match top.symlink_metadata() {
        Ok(about) => about.dev(),
        Err(error) => {
            done.refuse(top, &error);
            return done;
        }
    };
    let mut left = vec![top.to_owned()];
    while let Some(path) = left.pop() {
        match done.set_one(&path, device, value) {
            Ok(true) => done.add_below(&path, &mut left),
            Ok(false) => {}
            // Deleted since.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path != top => {}
            Err(error) => done.refuse(&path, &error),
        }
    }
    done
}

/// The policy of a file or directory, if it can be read and is one.
pub fn policy_of(path: &Path) -> Option<String> {
    let mut value = [0_u8; VALUE_BYTES_MAX];
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: both strings end with a zero, and the length is that of `value`.
    let len = unsafe { libc::lgetxattr(path.as_ptr(), NAME.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    String::from_utf8(value.get(..usize::try_from(len).ok()?)?.to_vec()).ok()
}

impl Done {
    /// True: it is a directory. Work continues below it even if it could not be changed itself.
    fn set_one(&mut self, path: &Path, device: u64, value: Option<&str>) -> io::Result<bool> {
        let about = path.symlink_metadata()?;
        if about.dev() != device || !(about.is_dir() || about.is_file()) {
            return Ok(false);
        }
        match set(path, value) {
            Ok(()) if about.is_dir() => self.directories += 1,
            Ok(()) => self.files += 1,
            Err(error) if about.is_dir() && error.kind() != io::ErrorKind::NotFound => self.refuse(path, &error),
            Err(error) => return Err(error),
        }
        Ok(about.is_dir())
    }

    fn add_below(&mut self, directory: &Path, left: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(directory).and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<PathBuf>>>()
        });
        match entries {
            Ok(entries) => left.extend(entries),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.refuse(directory, &error),
        }
    }

    fn refuse(&mut self, path: &Path, error: &io::Error) {
        self.refused.push(format!("{}: {error}", shown(path)));
    }
}

fn set(path: &Path, value: Option<&str>) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let result = match value {
        // SAFETY: both strings end with a zero, and the length is that of `value`.
        Some(value) => unsafe { libc::lsetxattr(path.as_ptr(), NAME.as_ptr(), value.as_ptr().cast(), value.len(), 0) },
        // SAFETY: both strings end with a zero.
        None => unsafe { libc::lremovexattr(path.as_ptr(), NAME.as_ptr()) },
    };
    match result {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // There was no policy.
            error if value.is_none() && error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Tests need a file system with attributes of users.
    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn the_name_is_that_of_the_file_system() {
        assert_eq!(NAME.to_bytes(), oncefs_fs::POLICY_ATTRIBUTE);
    }

    #[test]
    fn everything_below_is_set_and_nothing_beside_it() {
        let top = directory();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        for name in ["outside", "a/one", "a/b/two"] {
            fs::write(at(name), name).unwrap();
        }
        symlink(at("outside"), at("a/link")).unwrap();
        symlink(top.path(), at("a/round")).unwrap();
        let done = below(&at("a"), Some("run=8"));
        assert_eq!(done, Done { files: 2, directories: 2, refused: Vec::new() });
        for name in ["a", "a/b", "a/one", "a/b/two"] {
            assert_eq!(policy_of(&at(name)).as_deref(), Some("run=8"), "{name}");
        }
        assert_eq!((policy_of(&at("outside")), policy_of(top.path())), (None, None));
        assert_eq!(below(&at("a"), None), Done { files: 2, directories: 2, refused: Vec::new() });
        assert_eq!((policy_of(&at("a")), policy_of(&at("a/b/two"))), (None, None));
        assert_eq!(below(&at("a/one"), Some("off")).files, 1);
        let missing = below(&at("missing"), Some("off"));
        assert!(missing.refused.len() == 1 && missing.refused[0].contains("missing"), "{missing:?}");
    }
}
