//! A real volume is read with nothing but what the page says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use oncefs_engine::{BLOCK_BYTES, DataPlace, OpenOptions, Profile, Store, VolumeSpec};
use oncefs_words::checkout::text;
use oncefs_words::page::{Section, quoted};
use xxhash_rust::xxh3::xxh3_64_with_secret;

use super::PAGE;

fn closed_volume(path: &Path, block: &[u8]) {
    let spec = VolumeSpec {
        data_bytes: Some(64 << 20),
        data: DataPlace::File,
        profile: Profile::Lrlfs,
        log_bytes: 4 << 20,
        copies: None,
    };
    Store::format(path, &spec, [7; 64]).unwrap();
    let settings = [("fingerprints", "eager"), ("compress", "later")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = OpenOptions { settings, ..OpenOptions::new(16 << 20) };
    let store = Store::open(path, &options).unwrap();
    let map = store.new_map();
    store.write(map, 0, block, |_, _| ()).unwrap();
    store.commit().unwrap();
    store.close().unwrap();
}

#[test]
fn a_volume_on_disk_has_the_parts_that_the_page_names_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    closed_volume(&path, &[1; BLOCK_BYTES]);
    let found: BTreeSet<String> =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let rows = Section::of(PAGE, "The parts of a volume").rows();
    let mut named: BTreeSet<String> = rows.iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    assert!(named.remove("unfinished"), "only a volume whose mkfs did not end has this part");
    assert!(named.remove("history"), "the daemon alone makes it");
    assert_eq!(found, named);
}

#[test]
fn a_block_is_found_on_disk_with_nothing_but_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let block: Vec<u8> = (0..BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
    closed_volume(&path, &block);
    let page = text(PAGE);
    let context = |of: &str| {
        let contexts = quoted(&page).into_iter().filter(|quoted| quoted.contains(of));
        contexts.collect::<Vec<_>>()[0].to_owned()
    };
    let secret: [u8; 32] = fs::read(path.join("superblock")).unwrap()[40..72].try_into().unwrap();
    let mut tag_secret = [0; 192];
    let mut derivation = blake3::Hasher::new_derive_key(&context("XXH3 secret of tags"));
    derivation.update(&secret).finalize_xof().fill(&mut tag_secret);
    let key = blake3::derive_key(&context("BLAKE3 key of fingerprints"), &secret);

    let table = fs::read(path.join("table")).unwrap();
    let entry = |pbn: usize| &table[pbn / 16 * 512 + 16 + pbn % 16 * 31..][..31];
    let live: Vec<usize> = (0..table.len() / 512 * 16).filter(|pbn| entry(*pbn)[24..28] != [0; 4]).collect();
    assert_eq!(live.len(), 1, "one block was written");
    let stored = entry(live[0]);
    assert_eq!(stored[..8], xxh3_64_with_secret(&block, &tag_secret).to_le_bytes(), "its tag");
    assert_eq!(stored[8..24], blake3::keyed_hash(&key, &block).as_bytes()[..16], "its fingerprint");
    let data = fs::read(path.join("data")).unwrap();
    assert_eq!(data[live[0] * BLOCK_BYTES..][..BLOCK_BYTES], block[..], "its content");

    let log = fs::read(path.join("log")).unwrap();
    let log_id = blake3::derive_key(&context("log id"), &secret);
    assert_eq!((&log[32..48], &log[16..24]), (&log_id[..16], &1_u64.to_le_bytes()[..]), "the first group's record");
}
