//! The bytes of each version. They never change: a change of the format is another version with a file of its own.

use std::path::PathBuf;

use oncefs_stream::{Asked, Flags, Header, Record, Source};

use crate::sample::{KEY, file, flagged, header, read, records, resumed, written};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The records of version 2: a file and a directory have flags, and the receiver is asked for two contents.
fn of_version_2() -> Vec<Record> {
    let mut records = records();
    for (at, flags) in [(1, Flags::IMMUTABLE), (8, Flags::carried(0xE0))] {
        records[at] = flagged(records[at].clone(), flags);
    }
    let known = Record::Share { at: 0, length: 4096 + 5, source: Source::Known, source_at: 4096 };
    let asked = |tag, byte| Asked { tag, digest: KEY.strong_digest(&[byte; 4096]) };
    let ask = Record::Ask { contents: vec![asked(u64::MAX - 1, 1), asked(7, 2)] };
    records.splice(9..9, [file("known", 4096 + 5), ask, known, Record::FileEnd]);
    records
}

fn assert_read(name: &str, bytes: &[u8], header: Header, records: &[Record]) {
    let (read_header, read_records, totals) = read(bytes).unwrap();
    assert_eq!((read_header, &read_records[..]), (header, records), "{name}");
    assert_eq!(totals.records, records.len() as u64);
}

#[test]
fn a_stream_has_its_golden_bytes_and_comes_back() {
    for (name, header, records) in
        [("version-2", header(), of_version_2()), ("version-2-resumed", resumed(), of_version_2().split_off(20))]
    {
        let bytes = written(&header, &records);
        if std::env::var_os("ONCEFS_WRITE_GOLDEN").is_some() {
            std::fs::write(golden(name), &bytes).unwrap();
        }
        assert!(std::fs::read(golden(name)).unwrap() == bytes, "{name}: the stream has other bytes than before");
        assert_read(name, &bytes, header, &records);
    }
}

#[test]
fn a_stream_of_version_1_is_read_and_has_no_flags() {
    for (name, header, records) in
        [("version-1", header(), records()), ("version-1-resumed", resumed(), records().split_off(16))]
    {
        assert_read(name, &std::fs::read(golden(name)).unwrap(), header, &records);
    }
}

#[test]
fn the_totals_say_what_a_stream_holds() {
    let (_, _, totals) = read(&written(&header(), &records())).unwrap();
    assert_eq!((totals.records, totals.entries), (17, 7));
    assert_eq!((totals.data_bytes, totals.shared_bytes), (2 * 4096 + 5, 3 * 4096));
}
