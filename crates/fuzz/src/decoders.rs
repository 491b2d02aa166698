//! Runs every decoder of bytes on disk on any bytes: unchanged, and with a corrected checksum, so that decoding goes
//! further.
//!
//! Asserted for each: (1) it ends without a panic; (2) it takes memory only in proportion to its input; (3) an accepted
//! value is the same after encoding and decoding; (4) if the format leaves no choice, so are its bytes.

use std::cell::RefCell;
use std::fmt::Debug;

use oncefs_compress::{Compressor, Expander, FRAGMENT_BYTES_MAX, Method};
use oncefs_engine::format::checkpoint::Checkpoint;
use oncefs_engine::format::damage_records::{self, BadRecord, ScrubRecord};
use oncefs_engine::format::extent_leaf::{Extent, ExtentLeaf, LEAF_BLOCKS, Target};
use oncefs_engine::format::hint_header::{self, HintHeader};
use oncefs_engine::format::hint_page::{self, Decoded};
use oncefs_engine::format::image::ImageHeader;
use oncefs_engine::format::keys::LeafKey;
use oncefs_engine::format::ops::{Op, OpReader, OpWriter};
use oncefs_engine::format::page::{Entry, FLAGS_KNOWN, PAGE_BYTES, PAGE_ENTRIES, Page};
use oncefs_engine::format::record_list::RecordList;
use oncefs_engine::format::records_index::{self, IndexEntry};
use oncefs_engine::format::sealed_superblock::SealedSuperblock;
use oncefs_engine::format::superblock::Superblock;
use oncefs_engine::format::{at, backlog, file_policy, keys, label, record, varint};
use oncefs_engine::{BLOCK_BYTES, Fingerprint, Lbn, MapId, Pbn, Tag};

use crate::input::Input;
use crate::memory::bounded;
use crate::seal::{self, VOLUME_ID};

/// A structure: its name, the correction of its checksum, and the check for any bytes of it.
pub struct Structure {
    /// The name in docs/format.md.
    pub name: &'static str,
    /// Corrects the checksum.
    pub seal: fn(&mut [u8]),
    check: fn(&[u8]),
}

/// Number in the keys of records, which seeds their checksums.
const NUMBER: u64 = 7;
/// The key of leaves, for the same reason.
const LEAF: LeafKey = LeafKey { map: MapId(NUMBER), leaf: 0 };

/// All structures. An input's first byte chooses one, so new ones come last.
pub const STRUCTURES: [Structure; 34] = [
    Structure { name: "superblock", seal: seal::superblock, check: check_superblock },
    Structure { name: "label", seal: seal::label, check: check_label },
    Structure { name: "table page", seal: |bytes| seal::table_page(bytes, 0), check: check_table_page },
    Structure { name: "log record", seal: seal::log_record, check: check_log_record },
    Structure { name: "operations", seal: unsealed, check: check_operations },
    Structure { name: "checkpoint", seal: seal::checkpoint, check: check_checkpoint },
    Structure { name: "leaf", seal: |bytes| seal::leaf(bytes, LEAF), check: check_leaf },
    Structure { name: "keys", seal: unsealed, check: check_keys },
    Structure { name: "hint header", seal: seal::hint_header, check: check_hint_header },
    Structure { name: "hint page", seal: seal::hint_page, check: check_hint_page },
    Structure { name: "skipped blocks", seal: seal::skipped, check: check_skipped },
    Structure { name: "number", seal: unsealed, check: check_number },
    Structure { name: "made operations", seal: unsealed, check: check_made_operations },
    Structure { name: "made leaf", seal: unsealed, check: check_made_leaf },
    Structure { name: "inode", seal: name_record, check: |bytes| check_record(b"i", b"", bytes) },
    Structure { name: "directory names", seal: name_record, check: |bytes| check_record(b"d", &[1; 8], bytes) },
    Structure { name: "symbolic link", seal: name_record, check: |bytes| check_exact_record(b"s", b"", bytes) },
    Structure {
        name: "extended attribute",
        seal: name_record,
        check: |bytes| check_exact_record(b"x", b"user.a", bytes),
    },
    Structure { name: "orphan", seal: name_record, check: |bytes| check_exact_record(b"o", b"", bytes) },
    Structure {
        name: "lease",
        seal: |bytes| seal::name_record(bytes, 0),
        check: |bytes| check_recoded(b"n", bytes, true),
    },
    Structure { name: "access control list", seal: name_record, check: check_acl },
    Structure { name: "file policy", seal: |bytes| seal::file_policy(bytes, MapId(NUMBER)), check: check_file_policy },
    Structure { name: "place in a queue", seal: name_record, check: check_place },
    Structure {
        name: "ranking",
        seal: |bytes| seal::name_record(bytes, 0),
        check: |bytes| check_recoded(b"r", bytes, true),
    },
    Structure {
        name: "placement of names",
        seal: |bytes| seal::name_record(bytes, 0),
        check: |bytes| check_recoded(b"p", bytes, true),
    },
    Structure { name: "list of record files", seal: seal::record_list, check: check_record_list },
    Structure { name: "bad block", seal: seal::bad_block, check: check_bad_block },
    Structure { name: "replica", seal: seal::replica, check: check_replica },
    Structure { name: "scrub", seal: seal::scrub, check: check_scrub },
    Structure { name: "fragment", seal: unsealed, check: check_fragment },
    Structure { name: "image header", seal: seal::image_header, check: check_image_header },
    Structure { name: "header of records", seal: seal::records_header, check: check_records_header },
    Structure { name: "index of records", seal: seal_index, check: check_index },
    Structure { name: "sealed superblock", seal: seal::sealed_superblock, check: check_sealed_superblock },
];

/// The target: the first byte chooses the structure, the rest is its bytes.
pub fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let structure = &STRUCTURES[usize::from(choice) % STRUCTURES.len()];
    (structure.check)(bytes);
    let mut sealed = bytes.to_vec();
    (structure.seal)(&mut sealed);
    (structure.check)(&sealed);
}

fn unsealed(_: &mut [u8]) {}

fn name_record(bytes: &mut [u8]) {
    seal::name_record(bytes, NUMBER);
}

/// Decodes `bytes` within the memory that they justify: a decoded element takes at most 64 times its bytes.
fn decoded<T>(bytes: &[u8], decode: impl FnOnce() -> T) -> T {
    bounded(8192 + 64 * bytes.len(), decode)
}

fn assert_same<T: PartialEq + Debug>(before: &T, after: &T) {
    assert_eq!(before, after, "left: as it was accepted; right: after encoding and decoding");
}

fn check_superblock(bytes: &[u8]) {
    if let Ok(found) = decoded(bytes, || Superblock::decode(bytes, "a volume")) {
        let encoded = found.encode().expect("a path that was read can be written");
        assert_same(&found, &Superblock::decode(&encoded, "a volume").expect("its own bytes are accepted"));
    }
}

fn check_label(bytes: &[u8]) {
    let id = bytes.get(16..32).map_or([0; 16], |id| id.try_into().expect("sixteen bytes"));
    if decoded(bytes, || label::check(bytes, id)).is_ok() {
        assert_eq!(label::encode(id)[..40], bytes[..40]);
    }
}

fn check_image_header(bytes: &[u8]) {
    if let Ok(found) = decoded(bytes, || ImageHeader::decode(bytes, "data")) {
        assert_eq!(found.encode()[..], *bytes);
    }
}

/// The header says which volume and which object it is of.
fn check_records_header(bytes: &[u8]) {
    let id = bytes.get(16..32).map_or([0; 16], |id| id.try_into().expect("sixteen bytes"));
    for number in [None, bytes.get(32..40).map(|number| u64::from_le_bytes(number.try_into().expect("eight bytes")))] {
        if decoded(bytes, || records_index::check_header(bytes, id, number)).is_ok() {
            assert_eq!(records_index::header(id, number)[..], *bytes);
        }
    }
}

/// The entries of an index: before each key and value, the length of either in a byte.
fn index_entries(bytes: &mut [u8]) -> Vec<(&[u8], &mut [u8])> {
    let (mut entries, mut rest) = (Vec::new(), bytes);
    while let Some(([key_len, value_len], entry)) = rest.split_first_chunk_mut::<2>() {
        let Some((key, behind)) = entry.split_at_mut_checked(usize::from(*key_len)) else { break };
        let Some((value, behind)) = behind.split_at_mut_checked(usize::from(*value_len)) else { break };
        entries.push((&*key, value));
        rest = behind;
    }
    entries
}

fn seal_index(bytes: &mut [u8]) {
    index_entries(bytes).into_iter().for_each(|(key, value)| seal::records_entry(key, value));
}

fn check_index(bytes: &[u8]) {
    for (key, value) in index_entries(&mut bytes.to_vec()) {
        if let Ok(entry) = decoded(value, || IndexEntry::decode(key, value)) {
            assert_eq!((entry.key().as_slice(), entry.value().as_slice()), (key, &*value));
        }
    }
}

/// Texts that are not UTF-8 come back with other characters.
fn check_sealed_superblock(bytes: &[u8]) {
    if let Ok(Some(found)) = decoded(bytes, || SealedSuperblock::decode(bytes, "a volume")) {
        let plain = SealedSuperblock { machine: String::new(), key_file: String::new(), ..found };
        let encoded = plain.encode().expect("a path that was read can be written");
        let again = SealedSuperblock::decode(&encoded, "a volume").expect("its own bytes are accepted");
        assert_same(&Some(plain), &again);
    }
}

fn check_table_page(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<PAGE_BYTES>() else { return };
    let Ok(page) = decoded(bytes, || Page::from_disk(0, bytes)) else { return };
    let known = |pbn| {
        let entry = page.entry(pbn);
        Entry { flags: entry.flags & FLAGS_KNOWN, ..entry }
    };
    let mut copy = Page::empty();
    for pbn in (0..PAGE_ENTRIES).map(Pbn) {
        assert_eq!(page.entry(pbn).count, page.count(pbn));
        assert!(page.sequence_of(pbn) <= page.newest_sequence());
        copy.set(pbn, &known(pbn));
    }
    let copy = Page::from_disk(0, &copy.sealed(0, page.newest_sequence())).expect("its own bytes are accepted");
    (0..PAGE_ENTRIES).map(Pbn).for_each(|pbn| assert_same(&known(pbn), &copy.entry(pbn)));
}

fn check_log_record(bytes: &[u8]) {
    let Some(log_id) = bytes.get(32..48).map(|id| id.try_into().expect("sixteen bytes")) else { return };
    let Some((header, ops)) = decoded(bytes, || record::open(bytes, log_id)) else { return };
    check_operations(ops);
    let mut copy = bytes.to_vec();
    record::seal(&mut copy, &header, log_id);
    let (again, ops_again) = record::open(&copy, log_id).expect("its own bytes are accepted");
    assert_same(&(header, ops), &(again, ops_again));
}

fn check_operations(bytes: &[u8]) {
    let mut reader = OpReader::new(bytes);
    let ops: Vec<Op<'_>> = decoded(bytes, || reader.by_ref().collect());
    if !reader.is_damaged() {
        check_written(&ops);
    }
}

fn check_written(ops: &[Op<'_>]) {
    let mut writer = OpWriter::default();
    ops.iter().for_each(|op| writer.push(op));
    let mut reader = OpReader::new(writer.bytes());
    let again: Vec<Op<'_>> = reader.by_ref().collect();
    assert!(!reader.is_damaged(), "its own bytes are accepted");
    assert_eq!(ops, again, "left: as accepted; right: after encoding and decoding");
}

fn check_checkpoint(bytes: &[u8]) {
    if let Some(found) = decoded(bytes, || Checkpoint::decode(bytes, VOLUME_ID)) {
        assert_eq!(found.encode(VOLUME_ID), bytes);
    }
}

fn check_leaf(bytes: &[u8]) {
    let Some(leaf) = decoded(bytes, || ExtentLeaf::decode(LEAF, bytes)) else { return };
    assert_same(&leaf, &ExtentLeaf::decode(LEAF, &leaf.encode(LEAF)).expect("its own bytes are accepted"));
    let end = LEAF_BLOCKS as u16;
    assert_eq!(leaf.slice(0, end).map(|extent| u64::from(extent.blocks)).sum::<u64>(), LEAF_BLOCKS);
    assert!(leaf.mapped_blocks() <= LEAF_BLOCKS);
    let mut emptied = leaf.clone();
    emptied.set(Extent { first: 0, blocks: end, target: Target::Hole });
    assert!(emptied.is_empty());
}

fn check_keys(bytes: &[u8]) {
    if let Some(key) = keys::parse_leaf(bytes) {
        assert_eq!(keys::leaf(key), bytes);
    }
    if let Some(map) = keys::parse_detached(bytes) {
        assert_eq!(keys::detached(map), bytes);
    }
    if let Some(map) = keys::parse_file_policy(bytes) {
        assert_eq!(keys::file_policy(map), bytes);
    }
    if let Some(pbn) = keys::parse_bad(bytes) {
        assert_eq!(keys::bad(pbn), bytes);
    }
    if let Some(pbn) = keys::parse_replica(bytes) {
        assert_eq!(keys::copy(pbn), bytes);
    }
    assert_eq!(keys::parse_advice(bytes).count(), bytes.len() / 2);
}

fn check_file_policy(bytes: &[u8]) {
    if let Some(found) = decoded(bytes, || file_policy::decode(MapId(NUMBER), bytes)) {
        assert_eq!(file_policy::encode(MapId(NUMBER), &found), bytes);
    }
}

fn check_record_list(bytes: &[u8]) {
    if let Some(found) = decoded(bytes, || RecordList::decode(bytes, VOLUME_ID)) {
        assert_eq!(found.encode(VOLUME_ID), bytes);
    }
}

fn check_bad_block(bytes: &[u8]) {
    if let Some(found) = decoded(bytes, || BadRecord::decode(bytes)) {
        assert_eq!(found.encode(), bytes);
    }
}

fn check_replica(bytes: &[u8]) {
    if let Some(found) = decoded(bytes, || damage_records::decode_replica(bytes)) {
        assert_eq!(damage_records::encode_replica(found), bytes);
    }
}

/// A record from a version without the last number is accepted and gets it.
fn check_scrub(bytes: &[u8]) {
    if let Some(found) = decoded(bytes, || ScrubRecord::decode(bytes)) {
        let encoded = found.encode();
        assert_eq!(ScrubRecord::decode(&encoded), Some(found));
        assert!(encoded.len() > bytes.len() || encoded == bytes);
    }
}

fn check_hint_header(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<{ hint_header::BYTES }>() else { return };
    if let Some(found) = decoded(bytes, || HintHeader::decode(bytes)) {
        assert_same(&Some(found), &HintHeader::decode(&found.encode()));
    }
}

fn check_hint_page(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<{ hint_page::BYTES }>() else { return };
    let (incarnation, number) = (at::u32(bytes, 8), at::u32(bytes, 12));
    let Decoded::Page(page) = decoded(bytes, || hint_page::decode(bytes, incarnation, number)) else { return };
    let copy = hint_page::encode(&page, incarnation, number, usize::from(bytes[21]));
    assert_same(&Decoded::Page(page), &hint_page::decode(&copy, incarnation, number));
}

fn check_skipped(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk() {
        assert!(backlog::Checkpoint::length(header).is_none_or(|length| length as u64 <= backlog::SLOT_BYTES));
    }
    if let Some(found) = decoded(bytes, || backlog::Checkpoint::decode(bytes)) {
        assert_same(&Some(found.clone()), &backlog::Checkpoint::decode(&found.encode()));
    }
}

fn check_number(bytes: &[u8]) {
    let mut out = Vec::new();
    if let Some(number) = varint::take(&mut &bytes[..]) {
        varint::put(&mut out, number);
        assert_eq!(varint::take(&mut out.as_slice()), Some(number));
        assert!(out.len() <= 10 && out.len() <= bytes.len());
    }
    out.clear();
    if let Some(number) = varint::take_signed(&mut &bytes[..]) {
        varint::put_signed(&mut out, number);
        assert_eq!(varint::take_signed(&mut out.as_slice()), Some(number));
    }
}

/// The data that rides in the log in generated operations.
static DATA: [u8; BLOCK_BYTES] = [0xA5; BLOCK_BYTES];

/// Operations as the engine could write them, with numbers up to the largest.
fn made_operations<'a>(input: &mut Input<'a>) -> Vec<Op<'a>> {
    let mut ops = Vec::new();
    while !input.is_empty() && ops.len() < 64 {
        ops.push(made_operation(input));
    }
    ops
}

/// One operation.
pub fn made_operation<'a>(input: &mut Input<'a>) -> Op<'a> {
    let pbn = Pbn(input.edge() >> 17);
    let blocks = 1 + input.below(LEAF_BLOCKS);
    let map = MapId(input.edge());
    match input.byte() % 9 {
        0 => {
            let (key, value) = (input.below(20) as usize, input.below(64) as usize);
            Op::Put { key: input.bytes(key), value: input.bytes(value) }
        }
        1 => {
            let key = input.below(20) as usize;
            Op::Delete { key: input.bytes(key) }
        }
        2 => {
            let fingerprint = input.one_in(2).then(|| Fingerprint([input.byte(); 16]));
            Op::Store { pbn, tag: Tag(input.u64()), fingerprint }
        }
        3 => Op::Count { pbn, blocks, count: input.edge() as u32 },
        4 => Op::Fingerprint { pbn, fingerprint: Fingerprint([input.byte(); 16]) },
        5 => Op::Data { pbn, bytes: &DATA },
        6 => Op::DropLeaf { key: keys::LeafKey { map, leaf: input.edge() >> 9 } },
        _ => {
            let first = input.below(LEAF_BLOCKS - blocks + 1);
            let lbn = Lbn((input.edge() >> 9) * LEAF_BLOCKS + first);
            let target = input.pick(&[Target::Hole, Target::Reserved, Target::Data(pbn)]);
            Op::Map { map, lbn, blocks: blocks as u16, target }
        }
    }
}

fn check_made_operations(bytes: &[u8]) {
    check_written(&made_operations(&mut Input::new(bytes)));
}

/// Sets extents at random places, and compares with an array of the expected blocks.
fn check_made_leaf(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (mut leaf, mut model) = (ExtentLeaf::default(), [Target::Hole; LEAF_BLOCKS as usize]);
    while !input.is_empty() {
        let first = input.below(LEAF_BLOCKS);
        let blocks = 1 + input.below(LEAF_BLOCKS - first);
        let target = match input.byte() % 4 {
            0 => Target::Hole,
            1 => Target::Reserved,
            _ => Target::Data(Pbn(input.edge() >> 17)),
        };
        leaf.set(Extent { first: first as u16, blocks: blocks as u16, target });
        (0..blocks).for_each(|n| model[(first + n) as usize] = target.plus(n));
    }
    let again = ExtentLeaf::decode(LEAF, &leaf.encode(LEAF)).expect("its own bytes are accepted");
    assert_same(&leaf, &again);
    let blocks = again.slice(0, LEAF_BLOCKS as u16);
    let blocks = blocks.flat_map(|extent| (0..u64::from(extent.blocks)).map(move |n| extent.target.plus(n)));
    assert!(blocks.eq(model), "the leaf differs from the array: {leaf:?}");
}

/// Checks a record of the `fs` crate: it is accepted twice or not at all.
fn check_recoded(key: &[u8], bytes: &[u8], is_exact: bool) {
    let Ok(again) = decoded(bytes, || oncefs_fs::format::recode(key, bytes)) else { return };
    assert_eq!(oncefs_fs::format::recode(key, &again).ok().as_ref(), Some(&again));
    assert!(!is_exact || again == bytes, "accepted {bytes:02x?}, encoded again {again:02x?}");
}

fn numbered(letter: &[u8], rest: &[u8]) -> Vec<u8> {
    [letter, &NUMBER.to_be_bytes(), rest].concat()
}

fn check_record(letter: &[u8], rest: &[u8], bytes: &[u8]) {
    check_recoded(&numbered(letter, rest), bytes, false);
}

fn check_exact_record(letter: &[u8], rest: &[u8], bytes: &[u8]) {
    check_recoded(&numbered(letter, rest), bytes, true);
}

/// A place in queue 1, taken at some moment.
fn check_place(bytes: &[u8]) {
    let key = [&b"q\0\0\0\x01\x01\x02\x03\x04"[..], &NUMBER.to_be_bytes()].concat();
    check_recoded(&key, bytes, true);
}

fn check_acl(bytes: &[u8]) {
    check_exact_record(b"x", b"system.posix_acl_access", bytes);
}

/// The first byte chooses the coding, the rest is the fragment.
fn check_fragment(bytes: &[u8]) {
    thread_local! {
        static EXPANDER: RefCell<Expander> = RefCell::default();
    }
    let Some((choice, fragment)) = bytes.split_first() else { return };
    let method = if choice % 2 == 0 { Method::Lz4 } else { Method::Zstd(1) };
    let expand = |fragment: &[u8]| {
        let mut block = vec![0; BLOCK_BYTES];
        let coding = method.coding();
        let expanded =
            EXPANDER.with_borrow_mut(|expander| decoded(fragment, || expander.expand(coding, fragment, &mut block)));
        expanded.map(|()| block)
    };
    let Ok(block) = expand(fragment) else { return };
    assert!((1..=FRAGMENT_BYTES_MAX).contains(&fragment.len()), "{} bytes are a fragment", fragment.len());
    if let Some(again) = Compressor::new(method).compress(&block) {
        assert!(expand(again).is_ok_and(|again| again == block), "another block after {method}");
    }
}
