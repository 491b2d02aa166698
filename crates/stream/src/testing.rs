//! Streams of payloads that no writer would write, for tests and the fuzzer.

use crate::digest::Chain;
use crate::record::{DATA_FIELDS_BYTES, checked_part, kind};
use crate::writer::{HEADER_KIND, MAGIC};
use crate::{BLOCK_BYTES, Header, Key, Record, VERSION};

/// A record decoded from the bytes after its head, and encoded again. None: it is refused.
pub fn reencoded(kind: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let record = Record::decode(VERSION, kind, payload).ok()?;
    let mut again = Vec::new();
    record.encode(&mut again);
    Some(again)
}

/// A stream of records of any kinds and payloads, with right checks, and right hashes as far as contents have room for
/// them.
pub fn sealed(header: &Header, records: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Vec<u8> {
    let (mut out, mut chain) = ([&MAGIC[..], &VERSION.to_le_bytes()].concat(), Chain::new(&header.key));
    let records = records.into_iter().map(|(kind, payload)| (kind, with_digests(&header.key, kind, payload)));
    for (kind, payload) in std::iter::once((HEADER_KIND, header.encode())).chain(records) {
        let head = [&[kind][..], &(payload.len() as u32).to_le_bytes()].concat();
        let check = chain.next(&head, checked_part(kind, &payload));
        out.extend([&head[..], &payload, &check].concat());
    }
    out
}

fn with_digests(key: &Key, kind: u8, mut payload: Vec<u8>) -> Vec<u8> {
    if kind == kind::DATA && payload.len() > DATA_FIELDS_BYTES {
        let checked = checked_part(kind, &payload).len();
        let (fields, contents) = payload.split_at_mut(checked);
        let places = fields[DATA_FIELDS_BYTES..].chunks_exact_mut(16);
        for (place, content) in places.zip(contents.chunks(BLOCK_BYTES)) {
            place.copy_from_slice(&key.digest(content).0);
        }
    }
    payload
}
