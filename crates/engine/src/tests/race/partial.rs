//! A request that begins and ends within a block and is compressed as it is written, while others change these blocks:
//! their bytes stay, and the map is not locked meanwhile.

use oncefs_compress::Method;
use oncefs_dedup::{Compress, FilePieces, PieceCost, Skipped, Slowdown};

use super::*;
use crate::policy::accounts::Counted;
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

/// Writes a request that is compressed, and changes a byte in its last block meanwhile if it is to be done again.
fn write_again(data: &HookedDevice, volume: &Arc<Volume>, at: u64, request: &[u8], is_again: bool) {
    let (others, end) = (volume.clone(), at + request.len() as u64);
    *data.before_write.lock() = Some(Box::new(move || {
        if is_again {
            others.write(MapId(1), end + 100, &[b'A'; 20], |_, _| ()).unwrap();
        }
        Ok(())
    }));
    volume.write(MapId(1), at, request, |_, _| ()).unwrap();
    assert!(data.before_write.lock().is_none(), "packs are written");
}

#[test]
fn a_request_that_is_done_again_counts_once_in_its_file_s_account() {
    let account = |is_again: bool| {
        let slowdown = Some(Slowdown(100));
        let settings =
            Settings { compress: Compress::Inline, compress_method: Method::Zstd(1), slowdown, ..one_level() };
        let devices = Devices::new(Blocks(2_000), settings);
        let data = Watched::new(&devices.data, Hooks::default());
        let volume = Arc::new(devices.open_with(data.clone()));
        volume.base.policy.device_reads().start_from(PieceCost::of_blocks(1.0));
        let source = unique(40, 3);
        volume.write(MapId(2), 0, &source, |_, _| ()).unwrap();
        volume.write(MapId(1), 0, &text(10, 1), |_, _| ()).unwrap();
        let accounts = volume.base.policy.accounts();
        accounts.set(MapId(1), FilePieces { blocks: 1_000, pieces: 7 }, Counted::Whole);
        let shared = [&source[..BLOCK_BYTES], &text(1, 4), &source[9 * BLOCK_BYTES..12 * BLOCK_BYTES]].concat();
        let request = [&text(5, 2)[100..], &shared, &text(50, 5)[..49 * BLOCK_BYTES + 50]].concat();
        write_again(&data, &volume, 5 * BLOCK + 100, &request, is_again);
        accounts.get(MapId(1))
    };
    let once = account(false);
    assert!(once.is_some_and(|pieces| pieces.blocks > 1_040 && pieces.pieces > 7), "{once:?}");
    assert_eq!(account(true), once);
}

#[test]
fn blocks_that_a_request_would_have_gone_on_with_are_left_to_the_worker_when_it_is_done_again() {
    let settings = Settings {
        compress: Compress::Inline,
        compress_method: Method::Zstd(1),
        inline: Inline::All,
        run_blocks_min: Some(8),
        ..two_levels()
    };
    let devices = Devices::new(Blocks(2_000), settings);
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    let source = unique(40, 3);
    let part = |first: usize, end: usize| &source[first * BLOCK_BYTES..end * BLOCK_BYTES];
    volume.write(MapId(2), 0, &source, |_, _| ()).unwrap();
    while volume.revisits.revisit(256).unwrap().is_some() {}
    // The block in which the request begins has the first bytes of what the run goes on with.
    volume.write(MapId(1), 0, &text(10, 1), |_, _| ()).unwrap();
    volume.write(MapId(1), 16 * BLOCK, &[&part(6, 7)[..100], &text(2, 7)[100..]].concat(), |_, _| ()).unwrap();
    volume.write(MapId(1), 10 * BLOCK, part(0, 6), |_, _| ()).unwrap();
    let has = |skipped: &Skipped| matches!(skipped, Skipped::Chunk { owner: 1, chunk: 0, mask } if mask >> 12 & 1 == 1);
    let waits = || volume.base.backlog.contents().iter().any(has);
    assert!(!waits(), "they are open");
    let request = [&part(6, 12)[100..], &text(50, 5)[..49 * BLOCK_BYTES + 50]].concat();
    write_again(&data, &volume, 16 * BLOCK + 100, &request, true);
    assert!(waits(), "{:?}", volume.base.backlog.contents());
    while volume.revisits.revisit(256).unwrap().is_some() {}
    let pbns = |map, first: usize| pbns_of(&volume, MapId(map))[first..first + 6].to_vec();
    assert_eq!(pbns(1, 10), pbns(2, 0));
}
