//! Reads any bytes as a stream of `oncefs send`: unchanged, and as records with right checks, so that reading goes
//! further.
//!
//! Asserted: (1) reading ends without a panic; (2) it takes memory only in proportion to the stream; (3) an accepted
//! stream of the present version, written again, has the same bytes; (4) it names nothing outside its tree.

use oncefs_stream::testing::sealed;
use oncefs_stream::{Digest, Header, Key, Reader, Record, TreePath, VERSION, Writer};

use crate::input::Input;
use crate::memory::bounded;

/// Longest payload of an input.
const PAYLOAD_BYTES_MAX: u64 = 1 << 16;

/// The header of records with right checks.
const HEADER: Header = Header { key: Key([5; 32]), source: Digest([6; 16]), older: None, resumed: None };

/// The target: the bytes are a stream; and records, each a kind, two bytes of length and a payload.
pub fn run(bytes: &[u8]) {
    check(bytes);
    check(&sealed(&HEADER, payloads(bytes)));
}

/// The records of an input.
fn payloads(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut input, mut records) = (Input::new(bytes), Vec::new());
    while !input.is_empty() {
        let (kind, length) = (input.byte(), input.below(PAYLOAD_BYTES_MAX));
        records.push((kind, input.bytes(length as usize).to_vec()));
    }
    records
}

/// An input that has the records of a stream. None: it is not a whole stream.
pub fn input_of(stream: &[u8]) -> Option<Vec<u8>> {
    /// Bytes before the header; kind and length before a payload; and its check.
    const BEGIN: usize = 12;
    const HEAD: usize = 5;
    const CHECK: usize = 8;
    let (mut rest, mut input, mut is_header) = (stream.get(BEGIN..)?, Vec::new(), true);
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest.get(1..HEAD)?.try_into().ok()?);
        let payload = rest.get(HEAD..HEAD + length as usize)?;
        if !is_header {
            input.push(rest[0]);
            input.extend(u16::try_from(length).ok()?.to_le_bytes());
            input.extend_from_slice(payload);
        }
        is_header = false;
        rest = rest.get(HEAD + payload.len() + CHECK..)?;
    }
    Some(input)
}

/// Whether an input's records are a stream that is accepted.
pub fn is_accepted(input: &[u8]) -> bool {
    read(&sealed(&HEADER, payloads(input))).is_some()
}

fn check(stream: &[u8]) {
    let Some((header, records)) = bounded((1 << 16) + 64 * stream.len(), || read(stream)) else { return };
    let written = Writer::begin(Vec::new(), &header).and_then(|mut writer| {
        records.iter().try_for_each(|record| writer.record(record))?;
        writer.finish()
    });
    let (_, again) = written.unwrap_or_else(|error| panic!("(3) what was read cannot be written: {error}"));
    assert!(again == stream || !is_present_version(stream), "(3) the stream has other bytes when it is written again");
    records.iter().for_each(assert_inside);
}

/// A stream of an earlier version is written again as one of this version.
fn is_present_version(stream: &[u8]) -> bool {
    stream.get(8..12) == Some(&VERSION.to_le_bytes())
}

fn read(stream: &[u8]) -> Option<(Header, Vec<Record>)> {
    let (mut reader, header) = Reader::begin(stream).ok()?;
    let mut records = Vec::new();
    loop {
        match reader.record().ok()? {
            Record::End { .. } => return Some((header, records)),
            record => records.push(record),
        }
    }
}

fn assert_inside(record: &Record) {
    let name = match record {
        Record::Enter { name }
        | Record::File { name, .. }
        | Record::Symlink { name, .. }
        | Record::Special { name, .. } => name,
        Record::Link { name, target } => {
            assert_path(target);
            name
        }
        _ => return,
    };
    assert_name(name.bytes());
}

fn assert_path(path: &TreePath) {
    assert!(!path.names().is_empty(), "(4) a link to the top");
    path.names().iter().for_each(|name| assert_name(name.bytes()));
}

fn assert_name(name: &[u8]) {
    let leads_out =
        name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| [b'/', 0].contains(byte));
    assert!(!leads_out, "(4) the name {:?} leads out of the tree", name.escape_ascii().to_string());
}
