//! Samples of every structure of the engine are encoded and looked up in the tables of the page.

use std::collections::BTreeSet;

use oncefs_dedup::{Hint, HintPage, PieceCost, Prefix, Sample, Skipped, Slowdown};
use oncefs_engine::device::ALIGN_BYTES;
use oncefs_engine::format::checkpoint::Checkpoint;
use oncefs_engine::format::damage_records::{BadRecord, ScrubRecord, ScrubState};
use oncefs_engine::format::device_record::DeviceRecord;
use oncefs_engine::format::extent_leaf::{Extent, ExtentLeaf, LEAF_BLOCKS, Target};
use oncefs_engine::format::fragment::FragmentPlace;
use oncefs_engine::format::hint_header::HintHeader;
use oncefs_engine::format::keys::{self, LeafKey};
use oncefs_engine::format::ops::{Op, OpWriter};
use oncefs_engine::format::page::{Entry, PAGE_BYTES, PAGE_ENTRIES, Page, SECTOR_BYTES};
use oncefs_engine::format::pending_clone::PendingClone;
use oncefs_engine::format::record::{self, HEADER_BYTES, Header, Totals};
use oncefs_engine::format::superblock::Superblock;
use oncefs_engine::format::{VERSION, backlog, damage_records, file_policy, hint_page, label};
use oncefs_engine::{
    BLOCK_BYTES, Blocks, Copies, DataPlace, FilePolicy, Fingerprint, HistoryPoint, Lbn, MapId, Pbn, PolicyOverride,
    Profile, Rank, Tag,
};
use oncefs_words::checkout::text;
use oncefs_words::layout::{assert_key, hexadecimal};
use oncefs_words::page::Section;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::PAGE;

fn number(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn totals() -> Totals {
    Totals { data: Blocks(11), used: Blocks(12), reserved: Blocks(13), mapped: Blocks(14), next_map: MapId(15) }
}

fn totals_fields() -> [(&'static str, Vec<u8>); 5] {
    [
        ("data", number(11)),
        ("used", number(12)),
        ("reserved", number(13)),
        ("mapped", number(14)),
        ("next map", number(15)),
    ]
}

#[test]
fn the_page_states_the_version_of_the_code() {
    assert!(text(PAGE).lines().any(|line| line.starts_with(&format!("Version {VERSION}."))));
}

#[test]
fn the_sizes_in_the_page_s_sentences_are_those_of_the_code() {
    let page = text(PAGE);
    for sentence in [
        format!(
            "A page has {PAGE_BYTES} bytes and {} sectors and describes {PAGE_ENTRIES} blocks",
            PAGE_BYTES / SECTOR_BYTES
        ),
        format!("A sector has {SECTOR_BYTES} bytes"),
        format!("lie in leaves of {LEAF_BLOCKS} lbns"),
        format!("beginning at a multiple of {ALIGN_BYTES}"),
        format!("lies at byte `{BLOCK_BYTES} * p`"),
        format!("lies at byte `{} * (p + 1)`", hint_page::BYTES),
        format!("at byte {},777,216", backlog::SLOT_BYTES / 1_000_000),
        format!("up to {}, {} or {} hints", hint_page::capacity(3), hint_page::capacity(4), hint_page::capacity(5)),
    ] {
        assert!(page.contains(&sentence), "{PAGE} does not say: {sentence}");
    }
}

#[test]
fn the_superblock_is_as_the_page_says() {
    let superblock = Superblock {
        volume_id: [1; 16],
        secret: [2; 32],
        log_bytes: 0x0405_0607,
        data: DataPlace::Device("/dev/sample".into()),
        profile: Profile::Lrlfs,
        copies: Some(Copies::Two),
        has_clones: true,
        has_fragments: true,
    };
    let bytes = superblock.encode().unwrap();
    let page = Section::of(PAGE, "Superblock");
    let mut path = b"/dev/sample".to_vec();
    path.resize(4005, 0);
    page.assert_layout(
        &bytes,
        0,
        &[
            ("magic", b"oncefs volume\n\0\0".to_vec()),
            ("version", 3_u32.to_le_bytes().to_vec()),
            ("profile", 1_u32.to_le_bytes().to_vec()),
            ("volume id", vec![1; 16]),
            ("secret", vec![2; 32]),
            ("log bytes", number(0x0405_0607)),
            ("path length", 11_u16.to_le_bytes().to_vec()),
            ("device path", path),
            ("copies", vec![2]),
            ("checksum", number(page.checksum(&bytes, 0))),
        ],
    );
}

#[test]
fn the_page_numbers_every_profile() {
    let rows = Section::of(PAGE, "Superblock").rows();
    let row = rows.iter().find(|row| row[2] == "profile").unwrap();
    let profiles = Profile::ALL.map(|profile| format!("{}: {}", profile.number(), profile.name()));
    assert_eq!(row[3], profiles.join(", "));
}

#[test]
fn the_label_is_as_the_page_says() {
    let bytes = label::encode([3; 16]);
    let page = Section::of(PAGE, "Label");
    page.assert_layout(
        &bytes,
        0,
        &[
            ("magic", b"oncefs data area".to_vec()),
            ("volume id", vec![3; 16]),
            ("checksum", number(page.checksum(&bytes, 0))),
            ("rest", vec![0; 4056]),
        ],
    );
}

#[test]
fn the_block_table_is_as_the_page_says() {
    let mut table = Page::empty();
    let entry = Entry { tag: Tag(0x0102_0304), fingerprint: Some(Fingerprint([9; 16])), count: 7, flags: 5 };
    // pbn 21 of a page is entry 5 of sector 1.
    table.set(Pbn(21), &entry);
    let bytes = table.sealed(3, 6);
    let sector = &bytes[512..1024];
    let page = Section::of(PAGE, "Table sector");
    let entries = sector[16..].to_vec();
    assert!(entries.iter().enumerate().all(|(at, byte)| *byte == 0 || (5 * 31..6 * 31).contains(&at)));
    page.assert_layout(
        sector,
        0,
        &[
            ("checksum", number(xxh3_64_with_seed(&sector[8..], page.seed() ^ (8 * 3 + 1)))),
            ("sequence", number(6)),
            ("entries", entries),
        ],
    );
    let place = 16 + 5 * 31;
    Section::of(PAGE, "Table entry").assert_layout(
        &sector[place..place + 31],
        0,
        &[
            ("tag", number(0x0102_0304)),
            ("fingerprint", vec![9; 16]),
            ("count", 7_u32.to_le_bytes().to_vec()),
            ("flags", vec![5]),
            ("spare", vec![0; 2]),
        ],
    );
}

#[test]
fn a_log_record_is_as_the_page_says() {
    let ops = b"operations".to_vec();
    let mut bytes = vec![0; 4096];
    bytes[HEADER_BYTES..HEADER_BYTES + ops.len()].copy_from_slice(&ops);
    record::seal(&mut bytes, &Header { sequence: 8, body_len: ops.len() as u64, totals: totals() }, [4; 16]);
    let page = Section::of(PAGE, "Log record");
    let magic = hexadecimal(&page.rows()[1][3]);
    let mut fields = vec![
        ("checksum", number(page.checksum(&bytes, ops.len()))),
        ("magic", number(magic)),
        ("sequence", number(8)),
        ("body length", number(ops.len() as u64)),
        ("log id", vec![4; 16]),
    ];
    fields.extend(totals_fields());
    let mut without = bytes[..HEADER_BYTES + ops.len()].to_vec();
    without[88..96].fill(0);
    let is_set = |place: &usize| without[place / 8] & (1 << (place % 8)) != 0;
    let places = (8 * 8..8 * without.len()).filter(is_set).fold(0, |places, place| places ^ place as u32);
    let header_seed = hexadecimal(page.rows()[11][3].rsplit("seed ").next().unwrap());
    let header_sum = xxh3_64_with_seed(&bytes[8..92], header_seed) as u32;
    fields.extend([("places", places.to_le_bytes().to_vec()), ("header sum", header_sum.to_le_bytes().to_vec())]);
    fields.push(("operations", ops.clone()));
    page.assert_layout(&bytes[..HEADER_BYTES + ops.len()], ops.len(), &fields);
}

#[test]
fn the_checkpoint_is_as_the_page_says() {
    let bytes = Checkpoint { sequence: 3, log_at: 8192, totals: totals() }.encode([0; 16]);
    let page = Section::of(PAGE, "Checkpoint");
    let mut fields = vec![("sequence", number(3)), ("log at", number(8192))];
    fields.extend(totals_fields());
    fields.push(("checksum", number(page.checksum(&bytes, 0))));
    page.assert_layout(&bytes, 0, &fields);
}

#[test]
fn the_engine_s_keys_are_as_the_page_says() {
    assert_key("checkpoint", &keys::checkpoint(), &[], b"");
    assert_key("leaf", &keys::leaf(LeafKey { map: MapId(5), leaf: 6 }), &[5, 6], b"");
    assert_key("detached map", &keys::detached(MapId(7)), &[7], b"");
    let advice = keys::advice(&[0x0102; 513]);
    assert_key("free counts", &advice[0].0, &[0], b"");
    assert_key("free counts", &advice[1].0, &[1], b"");
    assert_eq!(advice[0].1.as_deref(), Some([0x02, 0x01].repeat(512).as_slice()), "2 bytes for each of 512 regions");
    let kinds: Vec<u64> = Section::of(PAGE, "Keys").rows().iter().map(|row| hexadecimal(&row[1])).collect();
    let engine = kinds.iter().filter(|kind| **kind < u64::from(keys::CALLER_FIRST_BYTE)).count();
    assert_key("bad block", &keys::bad(Pbn(7)), &[7], b"");
    assert_key("replica", &keys::copy(Pbn(7)), &[7], b"");
    assert_key("scrub", &keys::scrub(), &[], b"");
    assert_key("file policy", &keys::file_policy(MapId(7)), &[7], b"");
    assert_key("device", &keys::device(), &[], b"");
    assert_key("pending clone", &keys::pending_clone(MapId(7)), &[7], b"");
    assert_key("taken leaf", &keys::taken_leaf(LeafKey { map: MapId(7), leaf: 8 }), &[7, 8], b"");
    assert_key("fragment totals", &keys::fragment_totals(), &[], b"");
    assert_eq!((engine, kinds.len()), (12, 21), "keys on the page that no test looks at");
}

#[test]
fn a_pending_clone_is_as_the_page_says() {
    let bytes = PendingClone { source: MapId(5), next: 6, end: 7 }.encode(MapId(8));
    let page = Section::of(PAGE, "Pending clone");
    let sum = xxh3_64_with_seed(&bytes[..24], page.seed() ^ 8);
    page.assert_layout(
        &bytes,
        0,
        &[("source", number(5)), ("next", number(6)), ("end", number(7)), ("checksum", number(sum))],
    );
}

#[test]
fn what_is_kept_of_bad_blocks_is_as_the_page_says() {
    let bytes = BadRecord { replacement: Some(Pbn(5)), tag: Tag(6) }.encode();
    let page = Section::of(PAGE, "Bad block");
    let fields = [("replacement", number(5)), ("tag", number(6)), ("checksum", number(page.checksum(&bytes, 0)))];
    page.assert_layout(&bytes, 0, &fields);
    let bytes = damage_records::encode_replica(Pbn(5));
    let page = Section::of(PAGE, "Replica");
    page.assert_layout(&bytes, 0, &[("replica", number(5)), ("checksum", number(page.checksum(&bytes, 0)))]);
}

#[test]
fn the_policy_of_a_file_is_as_the_page_says() {
    let page = Section::of(PAGE, "File policy");
    let overrides = [
        PolicyOverride::Off,
        PolicyOverride::Inline,
        PolicyOverride::Later,
        PolicyOverride::Selective,
        PolicyOverride::Run(8),
    ]
    .map(Some);
    let names = ["none", "off", "inline", "later", "selective", "run", "slowdown without limit"];
    let numbered: Vec<String> = names.iter().zip(0..).map(|(name, number)| format!("{number}: {name}")).collect();
    assert_eq!(page.rows()[0][3], format!("{}; from 7 on: slowdown", numbered.join("; ")));
    for (policy_override, number) in [None].into_iter().chain(overrides).zip(0..) {
        let policy = FilePolicy { policy_override, rank: Rank::Cold, is_update_heavy: true, compress: None };
        let bytes = file_policy::encode(MapId(5), &policy);
        let sum = xxh3_64_with_seed(&bytes[..4], page.seed() ^ (5 << 32)) as u32;
        let run = if policy_override == Some(PolicyOverride::Run(8)) { 7 } else { 0 };
        let fields = [("override", number), ("run", run), ("rank", 3), ("flags", 1)];
        let mut fields: Vec<(&str, Vec<u8>)> = fields.map(|(name, value)| (name, vec![value])).into();
        fields.push(("checksum", sum.to_le_bytes().to_vec()));
        page.assert_layout(&bytes, 0, &fields);
    }
    let policy_override = Some(PolicyOverride::Slowdown(Some(Slowdown(0x0203))));
    let bytes = file_policy::encode(MapId(5), &FilePolicy { policy_override, ..FilePolicy::default() });
    assert_eq!(bytes[..2], [7 + 2, 3], "256 percent are counted by the override");
}

#[test]
fn what_is_kept_of_the_device_is_as_the_page_says() {
    let bytes = DeviceRecord { piece_cost: PieceCost::of_blocks(5.25) }.encode();
    let page = Section::of(PAGE, "Device");
    let fields = [("piece cost", 5.25_f64.to_le_bytes().to_vec()), ("checksum", number(page.checksum(&bytes, 0)))];
    page.assert_layout(&bytes, 0, &fields);
}

#[test]
fn how_far_the_scrub_is_is_as_the_page_says() {
    let state = ScrubState::Finished;
    let bytes =
        ScrubRecord { state, next: Pbn(1), blocks: 2, found: 3, rate: 5, spent: 6, passes: 7, unknown: 8 }.encode();
    let page = Section::of(PAGE, "Scrub");
    let values = [
        ("state", 4),
        ("next", 1),
        ("blocks", 2),
        ("found", 3),
        ("rate", 5),
        ("spent", 6),
        ("passes", 7),
        ("unknown", 8),
    ];
    let mut fields: Vec<(&str, Vec<u8>)> = values.iter().map(|(name, value)| (*name, number(*value))).collect();
    fields.push(("checksum", number(page.checksum(&bytes, 0))));
    page.assert_layout(&bytes, 0, &fields);
}

/// Takes values off bytes by the page's rules for numbers and steps.
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.bytes(1)[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn step(&mut self) -> i64 {
        let number = self.number();
        if number.is_multiple_of(2) { (number / 2) as i64 } else { -(number.div_ceil(2) as i64) }
    }
}

/// An operation read by the page's table: its name and its fields as text.
fn read_by_the_page(values: &mut Values, before: &mut [u64; 3]) -> (String, Vec<(String, String)>) {
    let code = values.number().to_string();
    let rows = Section::of(PAGE, "Operations").rows();
    let row = rows.iter().find(|row| row[0] == code).unwrap_or_else(|| panic!("code {code} is not on the page"));
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut numbers = [None; 3];
    for field in row[2].split(", ") {
        let (name, kind) = field.split_once(" `").expect("a name and a kind");
        let value = match kind.trim_end_matches('`') {
            "number" => values.number().to_string(),
            "step" => {
                let place = ["map", "lbn", "pbn"].iter().position(|step| *step == name).expect("a step");
                let value = before[place].wrapping_add_signed(values.step());
                numbers[place] = Some(value);
                value.to_string()
            }
            "bytes" => {
                let len = values.number() as usize;
                format!("{:?}", values.bytes(len))
            }
            fixed => {
                let (len, _) = fixed.split_once(" byte").expect("a number of bytes");
                let len = len.parse().expect("a number of bytes");
                format!("{:?}", values.bytes(len))
            }
        };
        fields.push((name.to_owned(), value));
    }
    let named = fields.iter().find(|(name, _)| name == "blocks").map(|(_, blocks)| blocks.parse().unwrap());
    let blocks = named.unwrap_or(if row[1] == "drop leaf" { LEAF_BLOCKS } else { 1 });
    for ((number, advance), before) in numbers.iter().zip([0, blocks, blocks]).zip(before) {
        *before = number.map_or(*before, |number| number + advance);
    }
    (row[1].clone(), fields)
}

/// What the page should say of an operation. A new one does not compile until it is here.
fn expected(op: &Op<'_>) -> (&'static str, Vec<(&'static str, String)>) {
    let list = |bytes: &[u8]| format!("{bytes:?}");
    let tag_bytes = |tag: &Tag| list(&tag.0.to_le_bytes());
    match op {
        Op::Put { key, value } => ("put", vec![("key", list(key)), ("value", list(value))]),
        Op::Delete { key } => ("delete", vec![("key", list(key))]),
        Op::Store { pbn, tag, fingerprint: None } => ("store", vec![("pbn", pbn.to_string()), ("tag", tag_bytes(tag))]),
        Op::Store { pbn, tag, fingerprint: Some(fingerprint) } => (
            "store, fingerprinted",
            vec![("pbn", pbn.to_string()), ("tag", tag_bytes(tag)), ("fingerprint", list(&fingerprint.0))],
        ),
        Op::Count { pbn, blocks, count } => {
            ("count", vec![("pbn", pbn.to_string()), ("blocks", blocks.to_string()), ("count", count.to_string())])
        }
        Op::Map { map, lbn, blocks, target } => {
            let mut fields = vec![("map", map.0.to_string()), ("lbn", lbn.to_string()), ("blocks", blocks.to_string())];
            match target {
                Target::Hole => ("map to hole", fields),
                Target::Reserved => ("map to reserved", fields),
                Target::Data(pbn) => {
                    fields.push(("pbn", pbn.to_string()));
                    ("map to data", fields)
                }
            }
        }
        Op::DropLeaf { key } => {
            ("drop leaf", vec![("map", key.map.0.to_string()), ("lbn", (key.leaf * LEAF_BLOCKS).to_string())])
        }
        Op::Fingerprint { pbn, fingerprint } => {
            ("fingerprint", vec![("pbn", pbn.to_string()), ("fingerprint", list(&fingerprint.0))])
        }
        Op::Flags { pbn, flags } => ("flags", vec![("pbn", pbn.to_string()), ("flags", list(&[*flags]))]),
        Op::Fragment { pbn, place, tag, fingerprint } => {
            let place = list(&place.encode());
            let mut fields = vec![("pbn", pbn.to_string()), ("place", place), ("tag", tag_bytes(tag))];
            fields.extend(fingerprint.iter().map(|fingerprint| ("fingerprint", list(&fingerprint.0))));
            (if fingerprint.is_some() { "fragment, fingerprinted" } else { "fragment" }, fields)
        }
        Op::Pack { pbn, blocks } => ("pack", vec![("pbn", pbn.to_string()), ("blocks", blocks.to_string())]),
        Op::Place { pbn, place } => ("place", vec![("pbn", pbn.to_string()), ("place", list(&place.encode()))]),
        Op::PackBytes { pbn, bytes } => ("pack bytes", vec![("pbn", pbn.to_string()), ("bytes", bytes.to_string())]),
        Op::Data { pbn, bytes } => ("data", vec![("pbn", pbn.to_string()), ("content", list(bytes))]),
    }
}

fn place() -> FragmentPlace {
    FragmentPlace { at: 4097, bytes: 300, coding: oncefs_compress::Coding::Zstd, blocks_after: 4 }
}

#[test]
fn operations_are_as_the_page_says() {
    let content = [0xAB; BLOCK_BYTES];
    let map = |map, lbn, blocks, target| Op::Map { map: MapId(map), lbn: Lbn(lbn), blocks, target };
    let samples = [
        Op::Put { key: b"key", value: &[5; 200] },
        Op::Delete { key: b"key" },
        Op::Store { pbn: Pbn(1000), tag: Tag(7), fingerprint: None },
        Op::Store { pbn: Pbn(1001), tag: Tag(8), fingerprint: Some(Fingerprint([3; 16])) },
        Op::Count { pbn: Pbn(12), blocks: 300, count: 0 },
        map(5, 300, 2, Target::Data(Pbn(1000))),
        map(5, 302, 1, Target::Hole),
        map(4, 0, 256, Target::Reserved),
        Op::DropLeaf { key: LeafKey { map: MapId(4), leaf: 9 } },
        map(4, 10 * 256, 3, Target::Data(Pbn(1002))),
        Op::Fragment { pbn: Pbn(1 << 38), place: place(), tag: Tag(9), fingerprint: None },
        Op::Fragment { pbn: Pbn((1 << 38) + 1), place: place(), tag: Tag(9), fingerprint: Some(Fingerprint([6; 16])) },
        Op::Pack { pbn: Pbn(77), blocks: 3 },
        Op::Place { pbn: Pbn((1 << 38) + 2), place: place() },
        Op::PackBytes { pbn: Pbn(79), bytes: 60_000 },
        Op::Fingerprint { pbn: Pbn(1 << 39), fingerprint: Fingerprint([4; 16]) },
        Op::Data { pbn: Pbn(1001), bytes: &content },
        Op::Flags { pbn: Pbn(1003), flags: 5 },
    ];
    let mut writer = OpWriter::default();
    samples.iter().for_each(|op| writer.push(op));
    let mut values = Values(writer.bytes());
    let mut before = [0; 3];
    let mut seen = BTreeSet::new();
    for op in &samples {
        let (name, fields) = expected(op);
        let fields: Vec<(String, String)> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(read_by_the_page(&mut values, &mut before), (name.to_owned(), fields));
        seen.insert(name);
    }
    assert!(values.0.is_empty(), "bytes are left that the page does not speak of");
    assert_eq!(seen.len(), Section::of(PAGE, "Operations").rows().len(), "operations on the page that no sample has");
}

#[test]
fn a_leaf_is_as_the_page_says() {
    let extents = [
        Extent { first: 2, blocks: 3, target: Target::Data(Pbn(100_000)) },
        Extent { first: 10, blocks: 200, target: Target::Reserved },
        Extent { first: 210, blocks: 46, target: Target::Data(Pbn(17)) },
    ];
    let mut leaf = ExtentLeaf::default();
    extents.iter().for_each(|extent| leaf.set(*extent));
    let key = LeafKey { map: MapId(0x0102), leaf: 9 };
    let bytes = leaf.encode(key);
    let page = Section::of(PAGE, "Leaf");
    let kinds: Vec<String> = page.rows().iter().map(|row| row[1].clone()).collect();
    assert_eq!(kinds, ["`number`", "`number`", "`step`"]);
    let (body, sum) = bytes.split_at(bytes.len() - 4);
    let mut values = Values(body);
    let (mut block, mut pbn) = (0, 0u64);
    for extent in extents {
        let first = block + values.number();
        let length = values.number();
        block = first + length / 2;
        assert_eq!((first, length / 2), (u64::from(extent.first), u64::from(extent.blocks)));
        match extent.target {
            Target::Data(expected) => {
                let start = pbn.wrapping_add_signed(values.step());
                assert_eq!((length % 2, start), (1, expected.0));
                pbn = start + length / 2;
            }
            _ => assert_eq!(length % 2, 0),
        }
    }
    assert!(values.0.is_empty());
    assert_eq!(sum, (xxh3_64_with_seed(body, page.seed() ^ 0x0102_0000_0000 ^ 9) as u32).to_le_bytes());
}

#[test]
fn the_hint_header_is_as_the_page_says() {
    let sample = Sample::one_of(0x0203);
    let bytes = HintHeader { volume_id: [3; 16], incarnation: 0x0102, sample, complete_at: 0x0304 }.encode();
    let page = Section::of(PAGE, "Hint header");
    page.assert_layout(
        &bytes,
        0,
        &[
            ("magic", b"oncefs hints\n\0\0\0".to_vec()),
            ("volume id", vec![3; 16]),
            ("incarnation", 0x0102_u32.to_le_bytes().to_vec()),
            ("sample", 0x0203_u32.to_le_bytes().to_vec()),
            ("complete at", number(0x0304)),
            ("checksum", number(page.checksum(&bytes, 0))),
            ("rest", vec![0; 4040]),
        ],
    );
}

#[test]
fn a_hint_page_is_as_the_page_says() {
    let hint = |tag: u64, pbn| Hint::new(Tag(tag), Pbn(pbn));
    let hints = vec![hint(0x1230_4567_89FF_FFFF, 0x0A0B_0C0D), hint(0x123F_EDCB_A900_0000, 7)];
    let content = HintPage { prefix: Prefix { bits: 0x123, depth: 12 }, hints };
    let bytes = hint_page::encode(&content, 0x0102, 0x0304, 4);
    let entries = [[0x30, 0x45, 0x67, 0x89, 0x0A, 0x0B, 0x0C, 0x0D], [0x3F, 0xED, 0xCB, 0xA9, 0, 0, 0, 7]];
    let mut all = entries.concat();
    all.resize(4072, 0);
    let page = Section::of(PAGE, "Hint page");
    page.assert_layout(
        &bytes,
        0,
        &[
            ("checksum", number(page.checksum(&bytes, 0))),
            ("incarnation", 0x0102_u32.to_le_bytes().to_vec()),
            ("number", 0x0304_u32.to_le_bytes().to_vec()),
            ("prefix", 0x123_u32.to_le_bytes().to_vec()),
            ("depth", vec![12]),
            ("pbn bytes", vec![4]),
            ("count", 2_u16.to_le_bytes().to_vec()),
            ("entries", all),
        ],
    );
    let fields = [("tag", vec![0x30, 0x45, 0x67, 0x89]), ("pbn", vec![0x0A, 0x0B, 0x0C, 0x0D])];
    Section::of(PAGE, "Hint").assert_layout(&bytes[24..32], 4, &fields);
}

#[test]
fn a_point_of_the_history_is_as_the_page_says() {
    let point = HistoryPoint { seconds: 1, held: 2, stored: 3, free: 4, backlog: 5, read: 6, written: 7 };
    let bytes = point.encode();
    let page = Section::of(PAGE, "Point of the history");
    let names = ["seconds", "held", "stored", "free", "backlog", "read", "written"];
    let mut fields: Vec<(&str, Vec<u8>)> = names.into_iter().zip((1..).map(number)).collect();
    fields.push(("checksum", number(page.checksum(&bytes, 0))));
    page.assert_layout(&bytes, 0, &fields);
}

#[test]
fn a_checkpoint_of_skipped_blocks_is_as_the_page_says() {
    let samples =
        [Skipped::Chunk { owner: 5, chunk: 300, mask: 0x8000_0001 }, Skipped::Owner(1 << 40), Skipped::Everything];
    let checkpoint = backlog::Checkpoint { volume_id: [3; 16], number: 6, clean_at: 0x0708, records: samples.to_vec() };
    let bytes = checkpoint.encode();
    let (head, records) = bytes.split_at(backlog::HEADER_BYTES);
    let page = Section::of(PAGE, "Skipped blocks");
    let sum = xxh3_64_with_seed(records, xxh3_64_with_seed(&head[..56], page.seed()));
    page.assert_layout(
        &bytes,
        records.len(),
        &[
            ("magic", b"oncefs skipped\n\0".to_vec()),
            ("volume id", vec![3; 16]),
            ("number", number(6)),
            ("clean at", number(0x0708)),
            ("length", number(records.len() as u64)),
            ("checksum", number(sum)),
            ("records", records.to_vec()),
        ],
    );
    let rows = Section::of(PAGE, "Skipped records").rows();
    let mut values = Values(records);
    for sample in samples {
        let code = values.number().to_string();
        let row = rows.iter().find(|row| row[0] == code).unwrap_or_else(|| panic!("code {code} is not on the page"));
        let fields: Vec<&str> = row[2].split(", ").filter(|field| !field.is_empty()).collect();
        let numbers: Vec<u64> = fields
            .iter()
            .map(|field| match field.split_once(' ').unwrap().1 {
                "`number`" => values.number(),
                "`8 bytes`" => u64::from_le_bytes(values.bytes(8).try_into().unwrap()),
                other => panic!("{other} is no kind of field"),
            })
            .collect();
        let expected = match sample {
            Skipped::Chunk { owner, chunk, mask } => ("blocks", vec![owner, chunk, mask]),
            Skipped::Owner(owner) => ("file", vec![owner]),
            Skipped::Everything => ("everything", vec![]),
        };
        assert_eq!((row[1].as_str(), numbers), expected);
    }
    assert!(values.0.is_empty(), "bytes are left that the page does not speak of");
    assert_eq!(rows.len(), samples.len(), "records on the page that no sample has");
}
