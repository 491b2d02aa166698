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

/// What a host says for a while, or until somebody allows it. RocksDB passes errno as text only.
const MAY_PASS: [&str; 5] = [
    "Too many open files",
    "Cannot allocate memory",
    "Permission denied",
    "Operation not permitted",
    "Resource temporarily unavailable",
];

/// Whether an error may pass by itself: it says nothing of the bytes on disk.
pub fn may_pass(error: &Error) -> bool {
    match error {
        Error::NoSpace => true,
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
