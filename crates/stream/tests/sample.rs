//! A stream with a record of each kind.

use oncefs_stream::{
    Attributes, BLOCK_BYTES, Digest, Flags, Header, Key, Moment, Name, Partial, Position, Reader, Record, Result,
    Source, Totals, TreePath, Writer,
};

const BLOCK: u64 = BLOCK_BYTES as u64;

pub const KEY: Key = Key([3; 32]);

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn path(names: &[&str]) -> TreePath {
    let mut path = TreePath::default();
    names.iter().for_each(|text| path.push(name(text)));
    path
}

pub fn header() -> Header {
    Header { key: KEY, source: Digest([1; 16]), older: Some(Digest([2; 16])), resumed: None }
}

pub fn attributes(mode: u32) -> Attributes {
    Attributes {
        mode,
        user: 1000,
        group: 100,
        accessed: Moment { seconds: 1, nanoseconds: 2 },
        modified: Moment { seconds: -3, nanoseconds: 999_999_999 },
        flags: Flags::default(),
        extended: vec![(b"system.posix_acl_access".to_vec(), vec![2, 0]), (b"user.a".to_vec(), vec![])],
    }
}

pub fn file(text: &str, size: u64) -> Record {
    Record::File { name: name(text), attributes: attributes(0o100_644), size, start: 0 }
}

/// The same with flags, as version 2 has them.
pub fn flagged(mut record: Record, flags: Flags) -> Record {
    match &mut record {
        Record::File { attributes, .. }
        | Record::Leave { attributes }
        | Record::Symlink { attributes, .. }
        | Record::Special { attributes, .. } => attributes.flags = flags,
        _ => panic!("{record:?} has no attributes"),
    }
    record
}

pub fn data(at: u64, bytes: Vec<u8>) -> Record {
    let digests = bytes.chunks(BLOCK_BYTES).map(|content| KEY.digest(content)).collect();
    Record::Data { at, bytes, digests }
}

pub fn leave() -> Record {
    Record::Leave { attributes: attributes(0o040_755) }
}

/// A tree with everything in it.
pub fn records() -> Vec<Record> {
    let here = Source::Here { path: path(&["dir", "file"]) };
    let older =
        Source::Older { path: path(&["old"]), size: 5 * BLOCK, modified: Moment { seconds: 9, nanoseconds: 9 } };
    vec![
        Record::Enter { name: name("dir") },
        file("file", 4 * BLOCK + 5),
        data(0, [vec![7; BLOCK_BYTES], vec![8; BLOCK_BYTES]].concat()),
        Record::Share { at: 3 * BLOCK, length: BLOCK, source: here.clone(), source_at: BLOCK },
        data(4 * BLOCK, b"tail\n".to_vec()),
        Record::Reserve { at: 6 * BLOCK, length: 10 * BLOCK },
        Record::FileEnd,
        Record::Link { name: name("link"), target: path(&["dir", "file"]) },
        leave(),
        file("empty", 0),
        Record::FileEnd,
        file("of-old", 2 * BLOCK),
        Record::Share { at: 0, length: 2 * BLOCK, source: older, source_at: 3 * BLOCK },
        Record::FileEnd,
        Record::Special { name: name("null"), attributes: attributes(0o020_666), device: 0x103 },
        Record::Symlink { name: name("sym"), attributes: attributes(0o120_777), target: b"../dir".to_vec() },
        leave(),
    ]
}

pub fn written(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), header).unwrap();
    records.iter().for_each(|record| writer.record(record).unwrap());
    let (totals, bytes) = writer.finish().unwrap();
    assert_eq!(totals.records, records.len() as u64);
    bytes
}

/// All records before the trailer, and the totals in it.
pub fn read(bytes: &[u8]) -> Result<(Header, Vec<Record>, Totals)> {
    let (mut reader, header) = Reader::begin(bytes)?;
    let mut records = Vec::new();
    loop {
        match reader.record()? {
            Record::End { totals } => return Ok((header, records, totals)),
            record => records.push(record),
        }
    }
}

/// A header that continues another stream.
pub fn resumed() -> Header {
    let modified = Moment { seconds: 5, nanoseconds: 6 };
    let partial = Some(Partial { bytes: BLOCK, size: 3 * BLOCK, modified });
    Header { resumed: Some(Position { path: path(&["dir", "file"]), partial }), older: None, ..header() }
}
