//! Inputs for `decoders` and `tables` from a real volume, as starting points of mutation.

use std::fs;
use std::path::Path;

use oncefs_compress::{Compressor, Method};
use oncefs_engine::format::damage_records::{self, BadRecord, ScrubRecord};
use oncefs_engine::format::image::ImageHeader;
use oncefs_engine::format::record_list::{RecordFile, RecordList};
use oncefs_engine::format::records_index::{self, IndexEntry};
use oncefs_engine::format::sealed_superblock::{NONCE_BYTES, SEALED_BYTES, SealedSuperblock};
use oncefs_engine::format::superblock::Superblock;
use oncefs_engine::format::{label, record};
use oncefs_engine::kv::copies::Place;
use oncefs_engine::kv::{Kv, RocksKv};
use oncefs_engine::{BLOCK_BYTES, Copies, DataPlace, Pbn, Profile, Result, ScrubState, Tag};

use crate::base::BASES;
use crate::decoders::STRUCTURES;
use crate::disk::{Image, PAGE_BYTES};
use crate::seal::{self, VOLUME_ID};

/// One or more for each structure: its name with a number, and the input.
pub fn samples() -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(&str, Vec<u8>)> = Vec::new();
    for base in BASES.iter() {
        let parts = &base.parts;
        found.extend(first_pages(&parts.table, 1).map(|page| ("table page", page)));
        found.extend(first_pages(&parts.hints, 1).map(|page| ("hint header", page)));
        found.extend(first_pages(&parts.skipped, 1).map(|page| ("skipped blocks", cut_skipped(page))));
        for page in first_pages(&parts.log, 2) {
            let length = u64::from_le_bytes(page[24..32].try_into().expect("eight bytes"));
            let end = (record::HEADER_BYTES + length as usize).min(PAGE_BYTES);
            found.push(("operations", page[record::HEADER_BYTES..end].to_vec()));
            found.push(("log record", page[..end].to_vec()));
        }
        for (key, value) in &parts.records {
            found.extend(structure_of(key).map(|name| (name, value.clone())));
            found.push(("keys", key.clone()));
        }
    }
    let volume_id = VOLUME_ID;
    let data = DataPlace::Device("/dev/loop0".into());
    let superblock = Superblock {
        volume_id,
        secret: [9; 32],
        log_bytes: 64 << 20,
        data,
        profile: Profile::Edge,
        copies: None,
        has_clones: false,
        has_fragments: false,
    };
    found.push(("superblock", superblock.encode().expect("the path is short").to_vec()));
    found.push(("label", label::encode(volume_id).to_vec()));
    found.push(("sealed superblock", sealed_superblock(superblock).encode().expect("the path is short")));
    let image = ImageHeader { volume_id, len: 1 << 40, object_bytes: 4 << 20 };
    found.push(("image header", image.encode().to_vec()));
    found
        .extend([None, Some(3)].map(|number| ("header of records", records_index::header(volume_id, number).to_vec())));
    found.push(("index of records", index()));
    found.push(("hint page", hint_page()));
    found.push(("number", vec![0xFF; 9]));
    found.push(("made operations", (0..200).collect()));
    found.push(("made leaf", (0..100).map(|n: u8| n.wrapping_mul(37)).collect()));
    found.push(("list of record files", record_list().encode(volume_id)));
    found.push(("bad block", BadRecord { replacement: Some(Pbn(77)), tag: Tag(1 << 60) }.encode()));
    found.push(("replica", damage_records::encode_replica(Pbn(78))));
    let scrub = ScrubRecord { state: ScrubState::Paused, next: Pbn(79), blocks: 80, passes: 2, ..Default::default() };
    found.push(("scrub", scrub.encode()));
    found.extend(fragments().map(|fragment| ("fragment", fragment)));
    named(found)
}

fn sealed_superblock(superblock: Superblock) -> SealedSuperblock {
    SealedSuperblock {
        superblock: Superblock { secret: [0; 32], ..superblock },
        key_id: [1; 8],
        nonce: [2; NONCE_BYTES],
        sealed: [3; SEALED_BYTES],
        machine: "head".to_owned(),
        key_file: "/etc/oncefs/keys/data/home.key".to_owned(),
    }
}

/// One fragment of each coding, after the byte that chooses it.
fn fragments() -> impl Iterator<Item = Vec<u8>> {
    let words = [&b"once "[..], b"upon ", b"a ", b"block ", b"of ", b"text ", b"\n"];
    let text = (0..BLOCK_BYTES).flat_map(|n| words[n * n % 31 % words.len()]);
    let block: Vec<u8> = text.copied().take(BLOCK_BYTES).collect();
    [(0, Method::Lz4), (1, Method::Zstd(1))].into_iter().map(move |(choice, method)| {
        let mut compressor = Compressor::new(method);
        [&[choice][..], compressor.compress(&block).expect("text shrinks")].concat()
    })
}

/// An index with an entry of each kind, because volumes in memory have their records elsewhere.
fn index() -> Vec<u8> {
    let entries = [
        IndexEntry::Next(7),
        IndexEntry::Opened(2),
        IndexEntry::Range { first: Vec::new(), number: 0, keys: 3 },
        IndexEntry::Range { first: vec![2, 0, 9], number: 0x0102, keys: 100_000 },
        IndexEntry::Moved { number: 5, from: vec![2, 1], to: vec![2, 1, 0] },
        IndexEntry::Removed(6),
    ];
    let bytes = entries.iter().flat_map(|entry| {
        let (key, value) = (entry.key(), entry.value());
        [&[key.len() as u8, value.len() as u8][..], &key, &value].concat()
    });
    bytes.collect()
}

/// Two record files with the manifest that names them, because volumes in memory have none.
fn record_list() -> RecordList {
    let file = |number| RecordFile { number, len: 70_000, sum: 11, end_sum: 12, level: 6 };
    let (manifest, checkpoint) = (b"a manifest".to_vec(), vec![9; 64]);
    RecordList { files: vec![file(12), file(9)], manifest_number: 5, manifest, manifest_len: 10, checkpoint }
}

/// A record file as RocksDB writes it, made in an empty directory. It has few entries, because the search for damage
/// takes quadratic time.
pub fn record_file(directory: &Path) -> Result<Vec<u8>> {
    let place = Place::of(directory, VOLUME_ID);
    RocksKv::create(&place.records)?;
    let kv = RocksKv::open(place.clone(), Copies::One, 4 << 20, false)?;
    let entry = |n: u8| (vec![b'k', n / 5, n % 5], (n != 9).then(|| vec![n; 3 + usize::from(n % 4)]));
    kv.write((0..20).map(entry).collect())?;
    kv.flush()?;
    let list = place.list().unwrap_or_default();
    let newest = list.files.iter().map(|file| place.table(file.number)).next();
    let bytes = newest.map_or(Ok(Vec::new()), fs::read);
    bytes.map_err(|error| oncefs_engine::Error::io("reading a record file", error))
}

fn first_pages(image: &Image, count: usize) -> impl Iterator<Item = Vec<u8>> {
    image.written().into_iter().take(count).map(|page| image.page(page).to_vec())
}

/// A page with two hints, because the hints of these small volumes all fit into memory.
fn hint_page() -> Vec<u8> {
    let (incarnation, number, prefix) = (3_u32.to_le_bytes(), 9_u32.to_le_bytes(), 0x123_u32.to_le_bytes());
    let (depth, pbn_bytes, count) = (12, 3, 2_u16.to_le_bytes());
    let hints = [0x30, 0, 0, 1, 0, 0, 7, 0x3F, 0xFF, 0xFF, 0xFF, 0xAB, 0xCD, 0xEF];
    let mut page = [&[0; 8][..], &incarnation, &number, &prefix, &[depth, pbn_bytes], &count, &hints].concat();
    page.resize(PAGE_BYTES, 0);
    seal::hint_page(&mut page);
    page
}

/// A slot without the zeros after it.
fn cut_skipped(mut page: Vec<u8>) -> Vec<u8> {
    let length = u64::from_le_bytes(page[48..56].try_into().expect("eight bytes"));
    page.truncate(64 + length as usize);
    page
}

fn structure_of(key: &[u8]) -> Option<&'static str> {
    Some(match key.first()? {
        0x01 => "checkpoint",
        0x02 => "leaf",
        0x07 => "scrub",
        0x08 => "file policy",
        b'i' => "inode",
        b'd' => "directory names",
        b's' => "symbolic link",
        b'x' if key.ends_with(b"system.posix_acl_access") => "access control list",
        b'x' => "extended attribute",
        b'o' => "orphan",
        b'n' => "lease",
        b'p' => "placement of names",
        b'q' => "place in a queue",
        b'r' => "ranking",
        _ => return None,
    })
}

/// The first two different samples of each structure, with the byte that chooses it.
fn named(found: Vec<(&str, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    const SAMPLES_MAX: usize = 2;
    let mut inputs = Vec::new();
    for (choice, structure) in STRUCTURES.iter().enumerate() {
        let mut mine: Vec<&Vec<u8>> =
            found.iter().filter(|(name, _)| *name == structure.name).map(|(_, b)| b).collect();
        mine.dedup();
        for (number, bytes) in mine.into_iter().take(SAMPLES_MAX).enumerate() {
            let name = format!("{}-{number}", structure.name.replace(' ', "-"));
            inputs.push((name, [&[choice as u8], bytes.as_slice()].concat()));
        }
    }
    inputs
}
