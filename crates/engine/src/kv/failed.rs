//! What an error of RocksDB means here.

use crate::Error;

/// The error of RocksDB as one of ours.
pub fn failed(what: &str, error: &rocksdb::Error) -> Error {
    let text = error.to_string();
    // RocksDB passes the host's errno only as text: "No space left on device" is strerror(ENOSPC).
    if text.contains("No space left on device") {
        return Error::NoSpace;
    }
    match error.kind() {
        rocksdb::ErrorKind::Corruption => Error::corrupt("the record store", text),
        _ => Error::Io { what: what.to_owned(), source: std::io::Error::other(text) },
    }
}

/// Whether an error of opening says that bytes are wrong, cannot be read or are gone. RocksDB passes errno as text only.
pub fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        Error::Io { source, .. } => {
            let text = source.to_string();
            ["Input/output error", "No such file or directory"].iter().any(|errno| text.contains(errno))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_no_damage() {
        let io = |text: &str| Error::Io { what: String::new(), source: std::io::Error::other(text.to_owned()) };
        assert!(is_damage(&Error::corrupt("the record store", "bad block")));
        assert!(is_damage(&io("IO error: While pread offset 0: MANIFEST-5: Input/output error")));
        assert!(is_damage(&io("IO error: No such file or directory: while opening MANIFEST-5")));
        for passing in ["IO error: While open: Too many open files", "IO error: Permission denied"] {
            assert!(!is_damage(&io(passing)), "{passing}");
        }
        assert!(!is_damage(&Error::NoSpace));
    }
}
