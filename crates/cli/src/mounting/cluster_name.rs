//! Volumes that are named by where they lie in a cluster: `rados://POOL/NAME`. What they have on this machine is in a
//! directory, which takes the place of the name before a command looks at it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use oncefs_engine::ObjectAccess;

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;

/// Where these directories are, by pool and name.
const STATES: &str = "/var/lib/oncefs/rados";
/// The variable that names another place.
const STATES_VARIABLE: &str = "ONCEFS_STATE";
/// Options whose value is an address and not a volume.
const OF_ADDRESSES: [&str; 2] = ["--data", "-d"];

/// The directory of a volume with such a name. None: it is no such name.
///
/// # Errors
///
/// It begins as one, and has another form.
pub fn directory_of(volume: &Path) -> Outcome<Option<PathBuf>> {
    let Some(name) = volume.to_str().filter(|text| ObjectAccess::is_meant(text)) else { return Ok(None) };
    let access = ObjectAccess::parse(name).or_fail(exit::FAILED)?;
    let states = std::env::var_os(STATES_VARIABLE).map_or_else(|| STATES.into(), PathBuf::from);
    Ok(Some(states.join(access.pool).join(access.namespace)))
}

/// Puts directories in the place of names in a command line.
///
/// # Errors
///
/// A name has another form or parameters, or its volume has no directory here.
pub fn resolve(arguments: Vec<OsString>) -> Outcome<Vec<OsString>> {
    let mut resolved: Vec<OsString> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let is_address = resolved.last().is_some_and(|last| OF_ADDRESSES.iter().any(|option| last == option));
        let directory = if is_address { None } else { directory_of(Path::new(&argument))? };
        if directory.is_some() && argument.as_encoded_bytes().contains(&b'?') {
            let text = format!(
                "{}: only mkfs takes parameters of an address, and the volume keeps them: give rados://POOL/NAME",
                shown(Path::new(&argument))
            );
            return Err(Failure::new(exit::FAILED, text));
        }
        if let Some(directory) = directory.as_ref().filter(|directory| !directory.exists()) {
            let (name, directory) = (shown(Path::new(&argument)), shown(directory));
            let text = format!(
                "{name} has nothing on this machine: names and maps of a volume lie on the machine where mkfs made it, in \
                 {directory} (docs/beyond.md)"
            );
            return Err(Failure::new(exit::FAILED, text));
        }
        resolved.push(directory.map_or(argument, PathBuf::into_os_string));
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(arguments: &[&str]) -> Outcome<Vec<OsString>> {
        resolve(arguments.iter().map(OsString::from).collect())
    }

    #[test]
    fn a_name_stands_for_a_directory_and_other_arguments_stay() {
        let directory = directory_of(Path::new("rados://data/home")).unwrap();
        assert_eq!(directory.as_deref(), Some(Path::new("/var/lib/oncefs/rados/data/home")));
        assert_eq!(directory_of(Path::new("/srv/rados:")).unwrap(), None);
        let kept = ["oncefs", "mkfs", "/srv/volume", "--data", "rados://data/no-such-volume"];
        assert_eq!(resolved(&kept).unwrap(), kept.map(OsString::from));
    }

    #[test]
    fn a_name_without_a_directory_and_a_wrong_one_are_refused() {
        let text = resolved(&["oncefs", "fsck", "rados://data/no-such-volume"]).unwrap_err().message;
        assert!(text.contains("rados://data/no-such-volume has nothing on this machine"), "{text}");
        let text = resolved(&["oncefs", "fsck", "rados://data"]).unwrap_err().message;
        assert!(text.contains("give rados://POOL/NAME"), "{text}");
        let text = resolved(&["oncefs", "fsck", "rados://data/home?id=other"]).unwrap_err().message;
        assert!(text.contains("only mkfs takes parameters"), "{text}");
        let text = resolved(&["oncefs", "fsck", "rados://data/.."]).unwrap_err().message;
        assert!(text.contains("not only dots"), "{text}");
    }
}
