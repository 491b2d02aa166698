//! A request that begins and ends within a block and is compressed as it is written, while others change these blocks:
//! their bytes stay, and the map is not locked meanwhile.

use oncefs_compress::Method;
use oncefs_dedup::Compress;

use super::*;
use crate::tests::compress::{assert_content, pbns_of, text};

const BLOCK: u64 = BLOCK_BYTES as u64;
const FILE_BLOCKS: u64 = 60;
/// The request: it begins in the first block and ends in this one.
const FROM: u64 = 100;
const LAST: u64 = 57;
const TO: u64 = LAST * BLOCK + 2_000;

/// Bytes that others write, by their place.
type Changes = &'static [(u64, u8)];

/// Writes the request, and `changes` while its packs are written.
fn write_beside(changes: Changes) -> (Devices, Arc<Volume>, Vec<u8>) {
    let settings = Settings { compress: Compress::Inline, compress_method: Method::Zstd(1), ..one_level() };
    let devices = Devices::new(Blocks(700), settings);
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    let mut content = text(FILE_BLOCKS as usize, 1);
    volume.write(MapId(1), 0, &content, |_, _| ()).unwrap();
    let request = text(FILE_BLOCKS as usize, 2)[..(TO - FROM) as usize].to_vec();
    let others = volume.clone();
    *data.before_write.lock() = Some(Box::new(move || {
        assert!(others.base.maps.lock(MapId(1)).try_write().is_some(), "the map is locked while others could use it");
        changes.iter().for_each(|(at, byte)| others.write(MapId(1), *at, &[*byte; 20], |_, _| ()).unwrap());
        Ok(())
    }));
    volume.write(MapId(1), FROM, &request, |_, _| ()).unwrap();
    assert!(data.before_write.lock().is_none(), "packs are written");
    for (at, byte) in changes {
        content[*at as usize..*at as usize + 20].fill(*byte);
    }
    content[FROM as usize..TO as usize].copy_from_slice(&request);
    (devices, volume, content)
}

/// Every block that is not in use can be handed out, and nothing is claimed any more.
pub fn assert_nothing_is_lost(volume: &Volume) {
    volume.commits.checkpoint().unwrap();
    volume.groups.release_waiting();
    assert_eq!(volume.base.state.lock().claims.blocks(), Blocks(0));
    let totals = volume.free_blocks.totals();
    let mut free = 0;
    while volume.free_blocks.allocate(1, Claim::KeptBack).is_ok() {
        free += 1;
    }
    assert_eq!(free, (totals.data - totals.used).0, "free blocks");
}

#[test]
fn bytes_around_a_request_that_change_while_it_is_compressed_stay_as_they_are_then() {
    const FIRST: (u64, u8) = (10, b'A');
    const MIDDLE: (u64, u8) = (20 * BLOCK, b'B');
    const LAST_ONE: (u64, u8) = (TO + 100, b'C');
    let cases: [Changes; 5] = [&[], &[FIRST], &[MIDDLE], &[LAST_ONE], &[FIRST, MIDDLE, LAST_ONE]];
    for changes in cases {
        println!("{changes:?}");
        let (devices, volume, content) = write_beside(changes);
        let inner = &pbns_of(&volume, MapId(1))[1..LAST as usize];
        assert!(inner.iter().all(|pbn| crate::format::fragment::is_fragment(*pbn)), "the request is compressed");
        let requests = volume.base.stats.counters.write_requests.load(Relaxed);
        assert_eq!(requests, 2 + changes.len() as u64, "each request counts once");
        let files = [(MapId(1), content)];
        assert_content(&volume, &files);
        assert_nothing_is_lost(&volume);
        assert_content(&devices.after_power_cut_of_all().open(), &files);
    }
}

#[test]
fn a_file_that_is_cut_while_a_request_at_its_end_is_compressed_has_zeros_behind_the_cut() {
    let settings = Settings { compress: Compress::Inline, compress_method: Method::Zstd(1), ..one_level() };
    let devices = Devices::new(Blocks(700), settings);
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    volume.write(MapId(1), 0, &text(FILE_BLOCKS as usize, 1), |_, _| ()).unwrap();
    let request = text(FILE_BLOCKS as usize, 2)[..(TO - FROM) as usize].to_vec();
    let others = volume.clone();
    *data.before_write.lock() = Some(Box::new(move || {
        others.range_changes.truncate(MapId(1), 50, |_, _| ()).unwrap();
        Ok(())
    }));
    volume.write(MapId(1), FROM, &request, |_, _| ()).unwrap();
    let mut content = vec![0; (FILE_BLOCKS * BLOCK) as usize];
    content[..50].copy_from_slice(&text(1, 1)[..50]);
    content[FROM as usize..TO as usize].copy_from_slice(&request);
    assert_content(&volume, &[(MapId(1), content)]);
    assert_nothing_is_lost(&volume);
}
