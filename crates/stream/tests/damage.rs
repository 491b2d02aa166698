//! No damage goes unnoticed: wrong bytes, cut streams, and records that are missing, doubled or in another order.

use oncefs_stream::testing::reencoded;
use oncefs_stream::{Error, VERSION};

use crate::sample::{header, read, records, written};

/// Bytes of the beginning, and of kind, length and check around each payload.
const BEGIN_BYTES: usize = 12;
const HEAD_BYTES: usize = 5;
const CHECK_BYTES: usize = 8;

/// The frames behind the beginning, the header first.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut rest) = (Vec::new(), &bytes[BEGIN_BYTES..]);
    while !rest.is_empty() {
        let payload = u32::from_le_bytes(rest[1..HEAD_BYTES].try_into().unwrap()) as usize;
        let (frame, after) = rest.split_at(HEAD_BYTES + payload + CHECK_BYTES);
        frames.push(frame);
        rest = after;
    }
    frames
}

#[test]
fn each_wrong_byte_is_noticed() {
    let bytes = written(&header(), &records());
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << (at % 8);
        assert!(read(&wrong).is_err(), "byte {at}");
    }
}

#[test]
fn a_cut_stream_ends_early_and_says_after_which_record() {
    let bytes = written(&header(), &records());
    let ends = |cut: &[u8]| match read(cut) {
        Err(Error::EndsEarly { records }) => records,
        other => panic!("{} bytes: {other:?}", cut.len()),
    };
    for cut in 1..bytes.len() {
        ends(&bytes[..cut]);
    }
    let whole: usize = BEGIN_BYTES + frames(&bytes)[..4].iter().map(|frame| frame.len()).sum::<usize>();
    assert_eq!((ends(&bytes[..whole]), ends(&bytes[..whole - 1])), (4, 3));
    assert!(matches!(read(&[]), Err(Error::NotAStream)));
    assert!(matches!(read(&[bytes, vec![0]].concat()), Err(Error::GoesOn)));
}

#[test]
fn a_record_that_is_missing_doubled_or_elsewhere_is_noticed() {
    let bytes = written(&header(), &records());
    let (begin, frames) = (&bytes[..BEGIN_BYTES], frames(&bytes));
    for at in 1..frames.len() {
        let joined = |frames: &[&[u8]]| [begin, &frames.concat()].concat();
        let mut missing = frames.clone();
        missing.remove(at);
        assert!(read(&joined(&missing)).is_err(), "record {at} is missing");
        let mut doubled = frames.clone();
        doubled.insert(at, frames[at]);
        assert!(read(&joined(&doubled)).is_err(), "record {at} is doubled");
        let mut swapped = frames.clone();
        swapped.swap(at - 1, at);
        assert!(read(&joined(&swapped)).is_err(), "record {at} is before the one before it");
    }
    let other = written(&oncefs_stream::Header { key: oncefs_stream::Key([4; 32]), ..header() }, &records());
    assert!(read(&[&bytes[..bytes.len() / 2], &other[bytes.len() / 2..]].concat()).is_err(), "half of another stream");
}

#[test]
fn other_versions_and_other_files_are_refused_with_the_reason() {
    let bytes = written(&header(), &records());
    let mut newer = bytes.clone();
    newer[8] = VERSION as u8 + 1;
    assert!(read(&newer).unwrap_err().to_string().contains(&format!("has version {}", VERSION + 1)));
    newer[8] = 0;
    assert!(matches!(read(&newer), Err(Error::Version(0))));
    assert!(matches!(read(b"PK\x03\x04 and more bytes"), Err(Error::NotAStream)));
    let mut long = bytes[..BEGIN_BYTES].to_vec();
    long.extend_from_slice(&[0, 0xff, 0xff, 0xff, 0xff]);
    assert!(read(&long).unwrap_err().to_string().contains("longer than any record"));
}

#[test]
fn a_payload_of_any_bytes_is_refused_or_comes_back() {
    let (bytes, mut accepted) = (written(&header(), &records()), 0);
    for frame in &frames(&bytes)[1..] {
        let payload = &frame[HEAD_BYTES..frame.len() - CHECK_BYTES];
        assert_eq!(reencoded(frame[0], payload).as_deref(), Some(payload));
        for at in 0..payload.len().min(300) {
            let mut other = payload.to_vec();
            other[at] = other[at].wrapping_add(1);
            if let Some(again) = reencoded(frame[0], &other) {
                assert_eq!(again, other);
                accepted += 1;
            }
            assert_eq!(reencoded(frame[0], &payload[..at]), None, "a record cut at {at}");
        }
    }
    assert!(accepted > 0, "most numbers may be others");
}
