//! Volumes that are named by where they lie in a cluster: `rados://POOL/NAME`. What they have on this machine is in a
//! directory, which takes the place of the name before a command looks at it. A machine that has never seen the volume
//! makes that directory first.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use oncefs_engine::{ClusterName, Error as EngineError, Localized, ObjectAccess, Store};

use crate::control::client::Connection;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::key_file;
use crate::names::shown;

/// Where these directories are, by pool and name.
const STATES: &str = "/var/lib/oncefs/rados";
/// The variable that names another place.
const STATES_VARIABLE: &str = "ONCEFS_STATE";
/// Options whose value is an address and not a volume.
const OF_ADDRESSES: [&str; 2] = ["--data", "-d"];

/// The option that names the key of a volume's secret, for all commands. mkfs and mount know it themselves.
const KEY_FILE: &str = "--key-file";

/// Commands that open a volume in their own process or start its daemon, and the helpers that do.
const OPENING: [&str; 3] = ["mount", "fsck", "grow"];
const HELPERS: [&str; 3] = ["mount.oncefs", "mount.fuse.oncefs", "fsck.oncefs"];

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

/// Puts directories in the place of names in a command line. Makes those that are missing or of another volume from the
/// superblock in the cluster.
///
/// # Errors
///
/// A name has another form, or its volume has no directory here and none can be made.
pub fn resolve(arguments: Vec<OsString>) -> Outcome<Vec<OsString>> {
    let (key_file, opens, is_mount) = (named_key_file(&arguments), opens(&arguments), is_mount(&arguments));
    let mut resolved: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut has_name = false;
    for argument in arguments {
        let is_address = resolved.last().is_some_and(|last| OF_ADDRESSES.iter().any(|option| last == option));
        let directory = if is_address { None } else { directory_of(Path::new(&argument))? };
        if let Some(directory) = directory.as_ref().filter(|directory| opens || !directory.exists()) {
            localize(directory, &argument, key_file.as_deref())?;
        }
        has_name |= directory.is_some();
        resolved.push(directory.map_or(argument, PathBuf::into_os_string));
    }
    Ok(if has_name && !is_mount { without_key_file(resolved) } else { resolved })
}

/// The arguments without `--key-file FILE`, which has done its work. A command that is given no name of a volume in a
/// cluster refuses it as unknown.
fn without_key_file(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut is_file = false;
    let mut is_other = |word: &OsString| {
        let is_its_file = std::mem::replace(&mut is_file, word == KEY_FILE);
        let is_joined =
            word.to_str().is_some_and(|word| word.strip_prefix(KEY_FILE).is_some_and(|rest| rest.starts_with('=')));
        !is_its_file && word != KEY_FILE && !is_joined
    };
    arguments.into_iter().filter(|word| is_other(word)).collect()
}

/// Whether a command line mounts. The mount uses the key once more, when it puts the superblock of an early volume into
/// the cluster.
fn is_mount(arguments: &[OsString]) -> bool {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    called_as.is_some_and(|name| name.starts_with("mount.")) || arguments.get(1).is_some_and(|word| word == "mount")
}

/// Whether a command opens volumes itself, so that a directory that is there has to agree with the cluster first.
fn opens(arguments: &[OsString]) -> bool {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name);
    let command = arguments.get(1).map(OsString::as_os_str);
    called_as.is_some_and(|name| HELPERS.iter().any(|helper| name == *helper))
        || command.is_some_and(|word| OPENING.iter().any(|command| word == *command))
}

/// The file that a command line names for a volume's key: `--key-file FILE`, or `key_file=FILE` in `-o`.
fn named_key_file(arguments: &[OsString]) -> Option<PathBuf> {
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let after = |option: &str| words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1).copied());
    let joined = || words.iter().find_map(|word| word.strip_prefix(KEY_FILE)?.strip_prefix('='));
    let in_list = || {
        let lists = words.windows(2).filter(|pair| pair[0] == "-o").map(|pair| pair[1]);
        let lists = lists.chain(words.iter().filter_map(|word| word.strip_prefix("-o")));
        lists.flat_map(|list| list.split(',')).find_map(|option| option.strip_prefix("key_file="))
    };
    after(KEY_FILE).or_else(joined).or_else(in_list).map(PathBuf::from)
}

/// Makes a directory agree with its cluster, unless a daemon has the volume open. A cluster that cannot be reached is no
/// obstacle to a directory that is there: the command that opens the volume meets it again.
fn localize(directory: &Path, argument: &OsString, key_file: Option<&Path>) -> Outcome {
    if matches!(Connection::open(directory), Ok(Some(_))) {
        return Ok(());
    }
    let text = argument.to_str().unwrap_or_default();
    let access = ObjectAccess::parse(text).or_fail(exit::FAILED)?;
    let file = key_file.map_or_else(|| key_file::of_volume(&access), Path::to_path_buf);
    let key = key_file::read(&file)?;
    let (key, is_explicit) = (key.as_ref(), text.contains('?'));
    let name = ClusterName { access: &access, is_explicit, key, key_file: &shown(&file).to_string() };
    match Store::localize(directory, name) {
        Ok(Localized::Kept) => Ok(()),
        Ok(Localized::Made) => {
            tell!("oncefs: made {} from the superblock in the cluster", shown(directory));
            Ok(())
        }
        Err(error @ EngineError::Io { .. }) if directory.join("superblock").exists() => {
            tell!("oncefs: {} may be older than its cluster says: {error}", shown(directory));
            Ok(())
        }
        Err(error @ EngineError::Io { .. }) if !is_explicit => {
            let way_out = format!("on a machine that has never seen the volume, give {text}?id=USER&conf=FILE");
            Err(Failure::new(exit::FAILED, format!("{error}; {way_out}")))
        }
        Err(error) => Err(Failure::new(exit::FAILED, error)),
    }
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
    fn a_name_without_a_directory_or_cluster_and_a_wrong_one_are_refused() {
        let name = "rados://data/no-such-volume?conf=/no-such-directory/ceph.conf";
        let text = resolved(&["oncefs", "stats", name]).unwrap_err().message;
        assert!(text.contains("using the objects rados://data/no-such-volume"), "{text}");
        let text = resolved(&["oncefs", "fsck", "rados://data"]).unwrap_err().message;
        assert!(text.contains("give rados://POOL/NAME"), "{text}");
        let text = resolved(&["oncefs", "fsck", "rados://data/.."]).unwrap_err().message;
        assert!(text.contains("not only dots"), "{text}");
    }

    #[test]
    fn a_key_file_is_found_wherever_a_command_line_may_name_it() {
        let named = |words: &[&str]| named_key_file(&words.iter().map(OsString::from).collect::<Vec<_>>());
        let key = || Some(PathBuf::from("/media/key"));
        assert_eq!(named(&["oncefs", "mount", "rados://a/b", "/mnt", "--key-file", "/media/key"]), key());
        assert_eq!(named(&["oncefs", "mount", "--key-file=/media/key", "rados://a/b", "/mnt"]), key());
        assert_eq!(named(&["mount.oncefs", "rados://a/b", "/mnt", "-o", "rw,key_file=/media/key"]), key());
        assert_eq!(named(&["oncefs", "mount", "-oro,key_file=/media/key", "rados://a/b", "/mnt"]), key());
        assert_eq!(named(&["oncefs", "mount", "rados://a/b", "/mnt", "-o", "ro", "--key-file"]), None);
    }

    #[test]
    fn a_key_file_is_taken_off_commands_on_a_name_except_mount() {
        let states = tempfile::tempdir().unwrap();
        let left = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            without_key_file(words).into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(left(&["oncefs", "fsck", "/v", "--key-file", "/k", "-y"]), "oncefs fsck /v -y");
        assert_eq!(left(&["oncefs", "--key-file=/k", "grow", "/v", "2G"]), "oncefs grow /v 2G");
        assert_eq!(left(&["oncefs", "stats", "--key-files", "/v", "--key-file"]), "oncefs stats --key-files /v");
        let local = states.path().to_str().unwrap();
        let kept = ["oncefs", "fsck", local, "--key-file", "/k"];
        assert_eq!(resolved(&kept).unwrap(), kept.map(OsString::from), "it is for names in a cluster");
        let is_mount = |words: &[&str]| is_mount(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(is_mount(&["oncefs", "mount", "rados://a/b"]) && is_mount(&["/sbin/mount.fuse.oncefs", "rados://a/b"]));
        assert!(!is_mount(&["oncefs", "umount", "mount"]));
    }

    #[test]
    fn the_commands_that_open_a_volume_are_told_from_those_that_ask_its_daemon() {
        let opens = |words: &[&str]| opens(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(opens(&["/usr/bin/oncefs", "mount"]) && opens(&["/sbin/mount.oncefs", "rados://a/b"]));
        assert!(!opens(&["oncefs", "stats", "mount"]) && !opens(&["oncefs"]));
    }
}
