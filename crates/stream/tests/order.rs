//! Records that are intact and make no sense are refused: by the writer, and in the same way by the reader.

use std::io;

use oncefs_stream::{
    Asked, Attributes, BLOCK_BYTES, Contents, DATA_BYTES_MAX, DEPTH_MAX, FILE_BYTES_MAX, Flags, Record, Source, Writer,
};

use crate::sample::{KEY, attributes, data, file, flagged, header, leave, name, path};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn outcome(records: &[Record]) -> io::Result<()> {
    let mut writer = Writer::begin(io::sink(), &header()).unwrap();
    records.iter().try_for_each(|record| writer.record(record))?;
    writer.finish().map(drop)
}

#[test]
fn records_at_a_wrong_place_are_refused() {
    let share =
        |at, length, source_at| Record::Share { at, length, source: Source::Here { path: path(&["a"]) }, source_at };
    let reserve = |at, length| Record::Reserve { at, length };
    let special = |mode| Record::Special { name: name("a"), attributes: attributes(mode), device: 0 };
    let ask = || Record::Ask { contents: vec![Asked { tag: 1, digest: KEY.strong_digest(&[1; BLOCK_BYTES]) }] };
    let wrong: [&[Record]; 22] = [
        &[],
        &[leave(), leave()],
        &[leave(), file("a", 0)],
        &[Record::Enter { name: name("a") }, leave()],
        &[file("a", 0), leave()],
        &[file("a", 0), file("b", 0)],
        &[data(0, vec![1])],
        &[Record::FileEnd],
        &[ask(), leave()],
        &[file("a", 4), data(0, vec![1; 5])],
        &[file("a", 3 * BLOCK), data(0, vec![1; 5])],
        &[file("a", 3 * BLOCK), data(1, vec![1; BLOCK_BYTES])],
        &[file("a", 3 * BLOCK), data(BLOCK, vec![1; BLOCK_BYTES]), data(0, vec![1; BLOCK_BYTES])],
        &[file("a", 3 * BLOCK), share(0, BLOCK, 1)],
        &[file("a", 3 * BLOCK), share(0, 4 * BLOCK, 0)],
        &[file("a", 3 * BLOCK), share(0, BLOCK, u64::MAX - 4095)],
        &[file("a", 3 * BLOCK), share(0, 0, 0)],
        &[file("a", 3 * BLOCK), reserve(0, 1)],
        &[file("a", 3 * BLOCK), reserve(u64::MAX - 4095, BLOCK)],
        &[file("a", FILE_BYTES_MAX + 1)],
        &[special(0o100_644)],
        &[flagged(special(0o010_644), Flags::IMMUTABLE)],
    ];
    for (n, records) in wrong.iter().enumerate() {
        assert_eq!(outcome(records).unwrap_err().kind(), io::ErrorKind::InvalidData, "{n}: {records:?}");
    }
    outcome(&[file("a", 3 * BLOCK), share(0, BLOCK, 0), reserve(BLOCK, 9 * BLOCK), Record::FileEnd, leave()]).unwrap();
}

#[test]
fn a_tree_that_is_too_deep_and_attributes_that_are_too_long_are_refused() {
    let mut deep = vec![Record::Enter { name: name("d") }; DEPTH_MAX];
    assert!(outcome(&deep).unwrap_err().to_string().contains("4096 levels"));
    deep.pop();
    deep.extend(vec![leave(); DEPTH_MAX]);
    outcome(&deep).unwrap();
    let with = |extended: Vec<(Vec<u8>, Vec<u8>)>| {
        outcome(&[Record::Leave { attributes: Attributes { extended, ..attributes(0o040_700) } }])
    };
    with(vec![(b"user.a".to_vec(), vec![0; 65536])]).unwrap();
    assert!(with(vec![(b"user.a".to_vec(), vec![0; 65537])]).is_err());
    assert!(with(vec![(vec![b'x'; 256], vec![])]).is_err());
    assert!(with(vec![(b"user.b".to_vec(), vec![]), (b"user.a".to_vec(), vec![])]).is_err(), "not sorted");
    let many = (0..17).map(|n| (vec![b'a' + n], vec![0; 65536])).collect();
    assert!(with(many).unwrap_err().to_string().contains("more than 1 MiB"));
}

#[test]
fn a_content_is_found_where_it_came_first_as_far_as_memory_goes() {
    let mut contents = Contents::with_room_for(2);
    let digests = [b"a", b"b", b"c"].map(|content| KEY.digest(content));
    let (one, other) =
        (contents.add_file(&path(&["d", "one"])).unwrap(), contents.add_file(&path(&["other"])).unwrap());
    contents.remember(digests[0], one, 0);
    contents.remember(digests[1], one, BLOCK);
    contents.remember(digests[0], other, 7 * BLOCK);
    contents.remember(digests[2], other, 8 * BLOCK);
    let places = digests.map(|digest| contents.find(&digest));
    assert_eq!(places[2], None, "there is no room for a third content");
    let (first, second) = (places[0].unwrap(), places[1].unwrap());
    let here = Source::Here { path: path(&["d", "one"]) };
    assert_eq!((first.at(), second.at(), contents.source(first)), (0, BLOCK, here));
    assert!(second.is_after(first, 1) && !second.is_after(first, 2));
    let mut contents = Contents::default();
    contents.remember_known(digests[0], 5);
    contents.remember_known(digests[1], 6);
    let [known, next] = [0, 1].map(|n| contents.find(&digests[n]).unwrap());
    assert_eq!((known.at(), contents.source(known), next.is_after(known, 1)), (5 * BLOCK, Source::Known, true));
    assert_eq!(DATA_BYTES_MAX % BLOCK_BYTES, 0);
}
