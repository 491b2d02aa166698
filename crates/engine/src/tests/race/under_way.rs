//! Two requests write the same content at the same time.

use oncefs_compress::Method;
use oncefs_dedup::Compress;

use super::*;
use crate::tests::compress::{assert_content, pbns_of, text};
use crate::{Error, WriteMode};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks that both requests write.
const SAME: usize = 64;
/// Blocks of the second request alone: enough to be written to the device at once.
const OWN: usize = 40;

fn write(volume: &Volume, map: u64, data: &[u8]) -> crate::Result<()> {
    volume.write(MapId(map), 0, data, |_, _| ())
}

/// Starts a second request from the first one's write to the device, whose answer is `answer`, and returns the outcomes
/// of both. The first one goes on once the second one writes its own blocks, so after it has looked up the first one's.
fn write_at_once(
    data: &Arc<HookedDevice>,
    volume: &Arc<Volume>,
    (same, both): (&[u8], &[u8]),
    answer: fn() -> io::Result<()>,
) -> [crate::Result<()>; 2] {
    let (looked_up, is_looked_up) = mpsc::channel();
    let (outcome, second) = mpsc::channel();
    let start = {
        let (data, volume, both) = (data.clone(), volume.clone(), both.to_vec());
        move || {
            *data.before_write.lock() = Some(Box::new(move || {
                looked_up.send(()).unwrap();
                Ok(())
            }));
            thread::spawn(move || outcome.send(write(&volume, 2, &both)).unwrap());
            is_looked_up.recv().unwrap();
            answer()
        }
    };
    *data.before_write.lock() = Some(Box::new(start));
    [write(volume, 1, same), second.recv().unwrap()]
}

fn contents() -> (Vec<u8>, Vec<u8>) {
    let same = unique(SAME, 1);
    let both = [unique(OWN, 2), same.clone()].concat();
    (same, both)
}

fn used(volume: &Volume) -> u64 {
    volume.base.state.lock().totals.used.0
}

#[test]
fn equal_blocks_that_two_requests_write_at_once_are_stored_once() {
    let (devices, data, volume) = volume();
    let (same, both) = contents();
    let before = used(&volume);
    for outcome in write_at_once(&data, &volume, (&same, &both), || Ok(())) {
        outcome.unwrap();
    }
    assert_eq!(used(&volume) - before, (SAME + OWN) as u64, "each content once");
    assert!(*volume.reader.read(MapId(1), 0, same.len()).unwrap() == *same);
    assert!(*volume.reader.read(MapId(2), 0, both.len()).unwrap() == *both);
    assert_closes_clean(&devices, volume);
}

#[test]
fn equal_blocks_that_two_requests_compress_at_once_are_stored_once() {
    let settings = Settings { compress: Compress::Inline, compress_method: Method::Zstd(1), ..one_level() };
    let (devices, data, volume) = volume_with(settings);
    let same = text(SAME, 1);
    let both = [text(OWN, 2), same.clone()].concat();
    for outcome in write_at_once(&data, &volume, (&same, &both), || Ok(())) {
        outcome.unwrap();
    }
    assert_eq!(pbns_of(&volume, MapId(2))[OWN..], pbns_of(&volume, MapId(1)), "the same fragments");
    assert_content(&volume, &[(MapId(1), same), (MapId(2), both)]);
    assert_closes_clean(&devices, volume);
}

#[test]
fn a_program_that_waits_for_its_write_does_not_wait_for_blocks_that_would_have_to_be_read() {
    let settings = Settings { fingerprints: FingerprintMode::Lazy, inline: Inline::All, ..two_levels() };
    let (devices, data, volume) = volume_with(settings);
    let (same, _) = contents();
    let before = used(&volume);
    // Within the first request's write to the device, so a wait would never end.
    let inner = {
        let (volume, same) = (volume.clone(), same.clone());
        move || {
            volume.writer.write_request(MapId(2), 0, &same, WriteMode::Awaited, |_, _| ()).unwrap();
            Ok(())
        }
    };
    *data.before_write.lock() = Some(Box::new(inner));
    write(&volume, 1, &same).unwrap();
    assert_eq!(used(&volume) - before, 2 * SAME as u64, "the worker compares them later");
    assert_closes_clean(&devices, volume);
}

#[test]
fn a_request_whose_equal_blocks_were_not_written_after_all_stores_its_own() {
    let (devices, data, volume) = volume();
    let (same, both) = contents();
    let before = used(&volume);
    let [first, second] = write_at_once(&data, &volume, (&same, &both), || Err(io::Error::other("the device fails")));
    assert!(matches!(first, Err(Error::Io { .. })), "{first:?}");
    second.unwrap();
    assert_eq!(used(&volume) - before, (SAME + OWN) as u64, "nothing of the first request is left");
    assert!(*volume.reader.read(MapId(2), 0, both.len()).unwrap() == *both);
    assert_closes_clean(&devices, volume);
}

#[test]
fn a_request_that_holds_its_map_waits_for_no_other() {
    let (devices, data, volume) = volume();
    let (same, _) = contents();
    write(&volume, 1, &unique(SAME + 2, 3)).unwrap();
    let before = used(&volume);
    // It begins within a block, so it holds the lock of its map. A request that it waited for might need that.
    let partial = [vec![7; 10], same.clone()].concat();
    let inner = {
        let (volume, partial) = (volume.clone(), partial.clone());
        move || {
            volume.write(MapId(1), BLOCK - 10, &partial, |_, _| ()).unwrap();
            Ok(())
        }
    };
    *data.before_write.lock() = Some(Box::new(inner));
    write(&volume, 2, &same).unwrap();
    let freed = SAME + 1;
    assert_eq!(used(&volume) - before, (SAME + 1 + SAME - freed) as u64, "both have blocks of their own");
    assert!(*volume.reader.read(MapId(1), BLOCK - 10, partial.len()).unwrap() == *partial);
    assert!(*volume.reader.read(MapId(2), 0, same.len()).unwrap() == *same);
    assert_closes_clean(&devices, volume);
}
