//! Translates errors of RocksDB.

use crate::Error;

/// Converts an error of RocksDB into one of the engine's.
pub fn failed(what: &str, error: &rocksdb::Error) -> Error {
    let text = error.to_string();
    // RocksDB passes the host's errno only as text: "No space left on device" is strerror(ENOSPC).
    if text.contains("No space left on device") {
        return Error::NoSpace;
    }
    if let Some(lock) = held_lock(&text) {
        return Error::Held(lock.to_owned());
    }
    match error.kind() {
        rocksdb::ErrorKind::Corruption => Error::corrupt("the record store", text),
        _ if is_unreadable(&text) => Error::corrupt("the record store", text),
        _ => Error::Io { what: what.to_owned(), source: std::io::Error::other(text) },
    }
}

/// How RocksDB describes the action that met an errno: reading a file, in parts or from its beginning on, or opening it
/// for reading.
const READING: [&str; 3] = ["While pread", "While reading file", "for random read"];
/// Errors of a medium that has lost data.
const LOST: [&str; 3] = ["Input/output error", "No such file or directory", "Structure needs cleaning"];

/// Whether a file of the store, or a part of it, is gone. That is damage, like a wrong checksum: a copy may have it.
fn is_unreadable(text: &str) -> bool {
    READING.iter().any(|reading| text.contains(reading)) && LOST.iter().any(|errno| text.contains(errno))
}

/// The number of the record file that an error names.
pub fn table_of(error: &Error) -> Option<u64> {
    let Error::Corrupt { detail, .. } = error else { return None };
    let (before, _) = detail.split_once(".sst")?;
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    before[before.len() - digits..].parse().ok()
}

/// The file whose lock is taken, according to RocksDB: by another process, "While lock file: PATH/LOCK: Resource
/// temporarily unavailable", or by this one, "lock hold by current process, ...".
fn held_lock(text: &str) -> Option<&str> {
    if !text.contains("While lock file: ") && !text.contains("lock hold by current process") {
        return None;
    }
    let (before, _) = text.split_once("/LOCK: ")?;
    let start = before.rfind(": ")? + 2;
    Some(&text[start..before.len() + "/LOCK".len()])
}

/// Temporary errors of a host, and missing permissions. RocksDB passes errno only as text.
const MAY_PASS: [&str; 5] = [
    "Too many open files",
    "Cannot allocate memory",
    "Permission denied",
    "Operation not permitted",
    "Resource temporarily unavailable",
];

/// Whether an error may pass by itself: it says nothing about the bytes on disk.
pub fn may_pass(error: &Error) -> bool {
    match error {
        Error::NoSpace | Error::Held(_) => true,
        Error::Io { source, .. } => {
            let text = source.to_string();
            MAY_PASS.iter().any(|errno| text.contains(errno))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_cannot_be_read_is_damage_of_the_file_that_is_named() {
        let unread = "IO error: While pread offset 8192 len 4096: /v/records/000012.sst: Input/output error";
        assert!(is_unreadable(unread));
        assert!(!is_unreadable("IO error: While appending to file: /v/records/000012.sst: Input/output error"));
        assert!(!is_unreadable("IO error: While open a file for random read: /v/000012.sst: Too many open files"));
        assert_eq!(table_of(&Error::corrupt("the record store", unread)), Some(12));
        assert_eq!(table_of(&Error::corrupt("the record store", "Corruption: bad entry")), None);
        assert_eq!(table_of(&Error::corrupt("the record store", "no digits.sst")), None);
    }

    #[test]
    fn a_lock_that_another_process_has_is_named() {
        let held = "IO error: While lock file: /srv/v/records/LOCK: Resource temporarily unavailable";
        assert_eq!(held_lock(held), Some("/srv/v/records/LOCK"));
        let ours = "IO error: lock hold by current process, acquire time 17 acquiring thread 9: /srv/v/records/LOCK: No locks available";
        assert_eq!(held_lock(ours), Some("/srv/v/records/LOCK"));
        assert_eq!(
            held_lock("IO error: While open a file for appending: /srv/v/records/LOCK: Too many open files"),
            None
        );
    }

    #[test]
    fn what_may_pass_is_no_damage() {
        let io = |text: &str| Error::Io { what: String::new(), source: std::io::Error::other(text.to_owned()) };
        for passing in ["IO error: While open: Too many open files", "IO error: Permission denied"] {
            assert!(may_pass(&io(passing)), "{passing}");
        }
        assert!(may_pass(&Error::NoSpace));
        let damage = ["IO error: MANIFEST-5: Input/output error", "Invalid argument: CURRENT: does not exist"];
        damage.iter().for_each(|text| assert!(!may_pass(&io(text)), "{text}"));
        assert!(!may_pass(&Error::corrupt("the record store", "bad block")));
    }
}
