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
