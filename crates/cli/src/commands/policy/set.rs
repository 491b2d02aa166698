//! Sets a policy below a path. A directory comes before its entries, so that files created meanwhile inherit the policy
//! and none is missed.

use std::io;
use std::path::Path;

use oncefs_engine::PolicyOverride;

use crate::files::held::Held;
use crate::files::walk::{Place, Step, walk};
use crate::names::shown;

/// The attribute: `oncefs_fs::POLICY_ATTRIBUTE` with the NUL byte that system calls require.
const NAME: &std::ffi::CStr = c"user.oncefs.policy";
/// Longest policy: `selective`.
const VALUE_BYTES_MAX: usize = 16;

/// The result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Regular files, by name.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Paths that could not be changed or read, with reasons.
    pub refused: Vec<String>,
    /// The mount is read-only.
    pub is_read_only: bool,
}

/// Sets the policy of `top`, and of everything below it if it is a directory. None removes the policy. Skips other
/// mounts, symbolic links and special files.
pub fn below(path: &Path, top: Held, value: Option<&str>) -> Done {
    let mut done = Done::default();
    walk(path, top, &mut |place, step| match step {
        Step::Found(held, about) => match held.set_attribute(NAME, value).or_else(|error| allowed(error, value)) {
            Ok(()) if about.is_dir() => done.directories += 1,
            Ok(()) => done.files += 1,
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => done.is_read_only = true,
            Err(error) => done.refuse(place, &error),
        },
        Step::Refused(error) => done.refuse(place, &error),
    });
    done
}

/// Ignores the error that there was no policy to remove.
fn allowed(error: io::Error, value: Option<&str>) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENODATA) if value.is_none() => Ok(()),
        _ => Err(error),
    }
}

/// The policy of a file or directory, if the attribute can be read and is valid.
pub fn policy_of(held: &Held) -> Option<String> {
    let mut value = [0_u8; VALUE_BYTES_MAX];
    let len = held.attribute(NAME, &mut value)?;
    let policy: PolicyOverride = std::str::from_utf8(&value[..len]).ok()?.parse().ok()?;
    Some(policy.to_string())
}

impl Done {
    fn refuse(&mut self, place: &Place, error: &io::Error) {
        self.refused.push(format!("{}: {error}", shown(&place.path())));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn below(path: &Path, value: Option<&str>) -> Done {
        match Held::at(path) {
            Ok(top) => super::below(path, top, value),
            Err(error) => Done { refused: vec![format!("{}: {error}", path.display())], ..Done::default() },
        }
    }

    fn policy_of(path: &Path) -> Option<String> {
        super::policy_of(&Held::at(path).unwrap())
    }

    /// A directory for tests. They need a file system with user attributes.
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
        assert_eq!(done, Done { files: 2, directories: 2, ..Done::default() });
        for name in ["a", "a/b", "a/one", "a/b/two"] {
            assert_eq!(policy_of(&at(name)).as_deref(), Some("run=8"), "{name}");
        }
        assert_eq!((policy_of(&at("outside")), policy_of(top.path())), (None, None));
        assert_eq!(below(&at("a"), None), Done { files: 2, directories: 2, ..Done::default() });
        assert_eq!((policy_of(&at("a")), policy_of(&at("a/b/two"))), (None, None));
        assert_eq!(below(&at("a/one"), Some("off")).files, 1);
        let missing = below(&at("missing"), Some("off"));
        assert!(missing.refused.len() == 1 && missing.refused[0].contains("missing"), "{missing:?}");
    }
}
