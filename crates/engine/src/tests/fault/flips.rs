//! Flips single bits on disk, in a volume that crashed and in one that was closed. The tests of `format` flip every bit
//! of each structure alone.

use super::parts::{Verdict, copy_of, history, judge};
use super::*;
use crate::device::MemoryDevice;
use crate::kv::Kv;

/// Flips for each part and state of the volume.
const FLIPS: u64 = 200;

/// Flips a bit of a non-empty page.
fn flip_in(device: &MemoryDevice, random: &mut Random) {
    let mut pages = Vec::new();
    let mut at = 0;
    while let Some(found) = device.next_data(at).unwrap() {
        pages.push(found);
        at = found + BLOCK;
    }
    let at = pages[random.below(pages.len() as u64) as usize];
    let mut page = vec![0; BLOCK_BYTES];
    device.read_at(&mut page, at).unwrap();
    page[random.below(BLOCK) as usize] ^= 1 << random.below(8);
    device.write_at(&page, at).unwrap();
}

/// Flips a bit of a record of the engine. The file system's crate tests its own records.
fn flip_record(kv: &dyn Kv, random: &mut Random) {
    let records = kv.scan(&[0], &[0x10], 10_000).unwrap();
    let records: Vec<_> = records.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let (key, mut value) = records[random.below(records.len() as u64) as usize].clone();
    let at = random.below(value.len() as u64) as usize;
    value[at] ^= 1 << random.below(8);
    kv.write(vec![(key, Some(value))]).unwrap();
}

/// The permitted outcomes of a flipped bit in a part.
fn is_promised(part: &str, verdict: Verdict) -> bool {
    match part {
        // A read compares with the tag. Content that no file refers to any more is not missed.
        "data" => matches!(verdict, Verdict::Right | Verdict::Error),
        // One wrong bit of a record is corrected.
        "log" | "hints" | "skipped" => verdict == Verdict::Right,
        _ => matches!(verdict, Verdict::Refused | Verdict::Error | Verdict::Right | Verdict::Found),
    }
}

#[test]
fn no_flipped_bit_becomes_wrong_data_that_nobody_notices() {
    const SEED: u64 = 11;
    println!("seed {SEED}");
    let mut random = Random::new(SEED);
    let copies = history(1);
    let moments: Vec<&Model> = copies.iter().map(|copy| &copy.contents).collect();
    let mut verdicts = BTreeMap::new();
    for copy in copies.iter().filter(|copy| ["reclaimed", "closed"].contains(&copy.name)) {
        for part in ["data", "table", "log", RECORDS, "hints", "skipped"] {
            for _ in 0..FLIPS {
                let devices = copy_of(&copy.devices);
                match part {
                    "data" => flip_in(&devices.data, &mut random),
                    "table" => flip_in(&devices.table, &mut random),
                    "log" => flip_in(&devices.log, &mut random),
                    "hints" => flip_in(&devices.hints, &mut random),
                    "skipped" => flip_in(&devices.skipped, &mut random),
                    _ => flip_record(&*devices.kv, &mut random),
                }
                let verdict = judge(&devices, 1, &copy.contents, &moments);
                assert!(is_promised(part, verdict), "a bit of {part} of the volume '{}': {verdict:?}", copy.name);
                *verdicts.entry((copy.name, part, verdict)).or_insert(0) += 1;
            }
        }
    }
    for ((name, part, verdict), count) in &verdicts {
        println!("{name:10} {part:8} {verdict:?} {count}");
    }
    assert_eq!(verdicts.values().sum::<u64>(), 2 * 6 * FLIPS);
}

/// Flips every bit of an encoded structure. `is_taken` tells whether a decoder still accepts it.
fn assert_every_bit_counts(what: &str, encoded: &[u8], is_taken: impl Fn(&[u8]) -> bool) {
    assert!(is_taken(encoded), "{what}: the sample itself");
    let mut bytes = encoded.to_vec();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_taken(&bytes), "{what}: bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// `format` and the file system's crate do the same for the other structures.
#[test]
fn every_bit_of_superblock_hints_and_skipped_counts() {
    use crate::format::{backlog, hint_header, hint_page, superblock};
    let data = crate::DataPlace::File;
    let (volume_id, secret, profile) = ([1; 16], [2; 32], crate::Profile::Desktop);
    let superblock = superblock::Superblock {
        volume_id,
        secret,
        log_bytes: 16 << 20,
        data,
        profile,
        copies: None,
        has_clones: false,
        has_fragments: false,
    };
    assert_every_bit_counts("superblock", &superblock.encode().unwrap(), |bytes| {
        superblock::Superblock::decode(bytes, "a volume").is_ok()
    });
    let header =
        hint_header::HintHeader { volume_id, incarnation: 3, sample: oncefs_dedup::Sample::ALL, complete_at: 4 };
    // The rest of the page is unused zeros.
    assert_every_bit_counts("hint header", &header.encode()[..56], |bytes| {
        let mut page = [0; hint_header::BYTES];
        page[..bytes.len()].copy_from_slice(bytes);
        hint_header::HintHeader::decode(&page).is_some()
    });
    let hints = vec![oncefs_dedup::Hint::new(crate::Tag(0x77 << 56), crate::Pbn(9))];
    let page = oncefs_dedup::HintPage { prefix: oncefs_dedup::Prefix { bits: 0x77, depth: 8 }, hints };
    assert_every_bit_counts("hint page", &hint_page::encode(&page, 3, 5, 3), |bytes| {
        matches!(hint_page::decode(bytes.try_into().unwrap(), 3, 5), hint_page::Decoded::Page(_))
    });
    let records = vec![oncefs_dedup::Skipped::Owner(5), oncefs_dedup::Skipped::Everything];
    let checkpoint = backlog::Checkpoint { volume_id, number: 1, clean_at: 2, records };
    assert_every_bit_counts("skipped", &checkpoint.encode(), |bytes| backlog::Checkpoint::decode(bytes).is_some());
}
