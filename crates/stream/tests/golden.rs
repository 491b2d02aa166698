//! The bytes of version 1. They never change: a change of the format is another version with a file of its own.

use std::path::PathBuf;

use crate::sample::{header, read, records, resumed, written};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn a_stream_has_its_golden_bytes_and_comes_back() {
    for (name, header, records) in
        [("version-1", header(), records()), ("version-1-resumed", resumed(), records().split_off(16))]
    {
        let bytes = written(&header, &records);
        if std::env::var_os("ONCEFS_WRITE_GOLDEN").is_some() {
            std::fs::write(golden(name), &bytes).unwrap();
        }
        assert!(std::fs::read(golden(name)).unwrap() == bytes, "{name}: the stream has other bytes than before");
        let (read_header, read_records, totals) = read(&bytes).unwrap();
        assert_eq!((read_header, &read_records), (header, &records), "{name}");
        assert_eq!(totals.records, records.len() as u64);
    }
}

#[test]
fn the_totals_say_what_a_stream_holds() {
    let (_, _, totals) = read(&written(&header(), &records())).unwrap();
    assert_eq!((totals.records, totals.entries), (17, 7));
    assert_eq!((totals.data_bytes, totals.shared_bytes), (2 * 4096 + 5, 3 * 4096));
}
