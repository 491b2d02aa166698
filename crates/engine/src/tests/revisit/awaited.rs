//! Requests that programs wait for: fingerprinted at once, and compared only by the worker.

use super::*;
use crate::WriteMode;
use crate::tests::fixture::one_level;
use crate::volume::assembly::Volume;

fn write_awaited(volume: &Volume, map: u64, data: &[u8]) {
    volume.writer.write_request(MapId(map), 0, data, WriteMode::Awaited, |_, _| ()).unwrap();
}

fn lazy(settings: Settings) -> Settings {
    Settings { fingerprints: FingerprintMode::Lazy, inline: Inline::All, ..settings }
}

fn open(settings: Settings) -> (Devices, Volume) {
    let devices = Devices::new(DATA, lazy(settings));
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    tune(&volume, "verify", "off").unwrap();
    (devices, volume)
}

#[test]
fn a_request_that_a_program_waits_for_leaves_comparisons_to_the_worker() {
    let (_devices, volume) = open(two_levels());
    let data = unique(60, 1);
    write(&volume, 1, 0, &data);
    write_awaited(&volume, 2, &data);
    assert_eq!(counter(&volume, "blocks_compared"), 0);
    assert_eq!((used(&volume), counter(&volume, "blocks_shared")), (120, 0), "no target has a fingerprint");
    revisit_all(&volume);
    assert_eq!((used(&volume), counter(&volume, "blocks_remapped")), (60, 60), "the worker compares them");
    assert_holds(&volume, 2, &data);
    assert_clean(&volume);
}

#[test]
fn what_a_program_waited_for_has_fingerprints_and_is_shared_without_being_read() {
    let (_devices, volume) = open(two_levels());
    let data = unique(60, 2);
    write_awaited(&volume, 1, &data);
    assert!(entry(&volume, pbn(&volume, 1, 30)).fingerprint.is_some());
    write_awaited(&volume, 2, &data);
    write(&volume, 3, 0, &data);
    assert_eq!((used(&volume), counter(&volume, "blocks_shared")), (60, 120));
    assert_eq!((counter(&volume, "blocks_compared"), counter(&volume, "data_bytes_read")), (0, 0));
    assert_clean(&volume);
}

#[test]
fn without_a_worker_a_request_that_a_program_waits_for_is_compared() {
    let (_devices, volume) = open(one_level());
    let data = unique(60, 3);
    write(&volume, 1, 0, &data);
    write_awaited(&volume, 2, &data);
    assert_eq!((used(&volume), counter(&volume, "blocks_compared")), (60, 60), "nobody would do it later");
    assert_clean(&volume);
}

#[test]
fn where_nothing_is_looked_up_a_program_waits_for_no_fingerprint() {
    let devices = Devices::new(DATA, Settings { inline: Inline::Off, ..lazy(two_levels()) });
    let volume = devices.open();
    write_awaited(&volume, 1, &unique(60, 4));
    assert_eq!(entry(&volume, pbn(&volume, 1, 30)).fingerprint, None);
}
