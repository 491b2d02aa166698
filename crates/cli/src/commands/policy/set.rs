//! Sets a policy below a path. A directory comes before its entries, so that files created meanwhile inherit the policy
//! and none is missed.

use std::ffi::CStr;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::str::FromStr;

use oncefs_engine::{Compress, PolicyOverride};

use crate::files::held::Held;
use crate::files::walk::{Place, Step, walk};
use crate::names::shown;

/// The attributes: `oncefs_fs::POLICY_ATTRIBUTE` and `COMPRESS_ATTRIBUTE` with the NUL byte that system calls require.
pub const POLICY: &CStr = c"user.oncefs.policy";
pub const COMPRESS: &CStr = c"user.oncefs.compress";
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
    /// The volume takes no policies for compression.
    pub is_never_compressed: bool,
}

/// A new value of an attribute. None removes it.
pub type Edit = (&'static CStr, Option<String>);

/// Sets policies of `top`, and of everything below it if it is a directory. Skips other mounts, symbolic links and special
/// files.
pub fn below(path: &Path, top: Held, edits: &[Edit]) -> Done {
    let mut done = Done::default();
    walk(path, top, &mut |place, step| match step {
        Step::Found(held, about) => match edits.iter().try_for_each(|edit| set(held, edit)) {
            Ok(()) if about.is_dir() => done.directories += 1,
            Ok(()) => done.files += 1,
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => done.is_read_only = true,
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => done.is_never_compressed = true,
            Err(error) => done.refuse(place, &error),
        },
        Step::Refused(error) => done.refuse(place, &error),
    });
    done
}

fn set(held: &Held, (name, value): &Edit) -> io::Result<()> {
    let value = value.as_deref();
    held.set_attribute(name, value).or_else(|error| allowed(error, value))
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
    valid::<PolicyOverride>(held, POLICY)
}

/// The same for when it is compressed.
pub fn compress_of(held: &Held) -> Option<String> {
    valid::<Compress>(held, COMPRESS)
}

fn valid<T: FromStr + Display>(held: &Held, name: &CStr) -> Option<String> {
    let mut value = [0_u8; VALUE_BYTES_MAX];
    let len = held.attribute(name, &mut value)?;
    let parsed: T = std::str::from_utf8(&value[..len]).ok()?.parse().ok()?;
    Some(parsed.to_string())
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
            Ok(top) => super::below(path, top, &[(POLICY, value.map(str::to_owned))]),
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
    fn the_names_are_those_of_the_file_system() {
        assert_eq!(POLICY.to_bytes(), oncefs_fs::POLICY_ATTRIBUTE);
        assert_eq!(COMPRESS.to_bytes(), oncefs_fs::COMPRESS_ATTRIBUTE);
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
        // Both policies at once, each removed by itself.
        let both = [(POLICY, Some("off".to_owned())), (COMPRESS, Some("later".to_owned()))];
        assert_eq!(super::below(&at("a"), Held::at(&at("a")).unwrap(), &both).files, 2);
        super::below(&at("a"), Held::at(&at("a")).unwrap(), &[(COMPRESS, None)]);
        let one = Held::at(&at("a/one")).unwrap();
        assert_eq!((super::policy_of(&one).as_deref(), compress_of(&one)), (Some("off"), None));
        let missing = below(&at("missing"), Some("off"));
        assert!(missing.refused.len() == 1 && missing.refused[0].contains("missing"), "{missing:?}");
    }
}
