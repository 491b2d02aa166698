//! Runs as writes and the worker share them: short ones stay, one that continues with the next request is shared as a
//! whole, and no file's content changes.

use crate::fsck::parts::checker;
use crate::policy::inline::OpenBlock;
use crate::settings::values::{Inline, Settings};
use crate::tests::fixture::{Devices, Random, one_level, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId};

const DATA: Blocks = Blocks(40_000);
const BLOCK: u64 = BLOCK_BYTES as u64;

fn with_min(run_blocks_min: u32) -> Settings {
    Settings { run_blocks_min: Some(run_blocks_min), ..one_level() }
}

fn volume(settings: Settings) -> (Devices, Volume) {
    let devices = Devices::new(DATA, settings);
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    (devices, volume)
}

fn write(volume: &Volume, map: u64, first: u64, data: &[u8]) {
    volume.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
}

/// Blocks `first` to `end` of some content.
fn part(data: &[u8], first: usize, end: usize) -> &[u8] {
    &data[first * BLOCK_BYTES..end * BLOCK_BYTES]
}

/// Blocks in use, the label not counted.
fn used(volume: &Volume) -> u64 {
    volume.free_blocks.totals().used.0 - 1
}

fn assert_holds(volume: &Volume, map: u64, data: &[u8]) {
    assert!(*volume.reader.read(MapId(map), 0, data.len()).unwrap() == *data, "file {map}");
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

fn written_to_data(volume: &Volume) -> u64 {
    volume.base.stats.counters.snapshot()["data_bytes_written"]
}

fn worked_off(volume: &Volume) {
    while volume.revisits.revisit(256).unwrap().is_some() {}
}

#[test]
fn a_run_below_the_minimum_is_stored_anew_and_a_longer_one_shared() {
    let (_devices, volume) = volume(with_min(4));
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &[part(&data, 3, 6), &unique(1, 2)].concat());
    assert_eq!(used(&volume), 44, "a run of three is too short");
    write(&volume, 3, 0, &[&unique(2, 3), part(&data, 10, 14), &unique(2, 4)].concat());
    assert_eq!(used(&volume), 48, "one of four is not");
    assert_holds(&volume, 3, &[&unique(2, 3), part(&data, 10, 14), &unique(2, 4)].concat());
}

#[test]
fn a_write_counts_its_request_and_what_became_of_its_blocks() {
    let (_devices, volume) = volume(with_min(1));
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &[part(&data, 0, 10), &unique(2, 2), &vec![0; BLOCK_BYTES]].concat());
    let counters = volume.base.stats.counters.snapshot();
    let expected = [
        ("write_requests", 2),
        ("write_requests_not_admitted", 0),
        ("blocks_written", 53),
        ("blocks_zero", 1),
        ("blocks_shared", 10),
        ("blocks_placed", 42),
    ];
    for (name, count) in expected {
        assert_eq!(counters[name], count, "{name}");
    }
}

#[test]
fn a_run_goes_on_with_the_next_request() {
    let (devices, volume) = volume(with_min(4));
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    volume.commits.commit().unwrap();
    let written = written_to_data(&volume);
    for at in 0..10 {
        write(&volume, 2, 2 * at as u64, part(&data, 2 * at, 2 * at + 2));
        assert_eq!(used(&volume), if at == 0 { 42 } else { 40 }, "request {at}");
    }
    volume.commits.commit().unwrap();
    assert_eq!(written_to_data(&volume), written, "what was open never reached the device");
    assert_holds(&volume, 2, part(&data, 0, 20));
    let volume = devices.after_power_cut_of_all().open();
    assert_eq!(used(&volume), 40);
    assert_holds(&volume, 2, part(&data, 0, 20));
}

#[test]
fn what_a_commit_wrote_out_is_decided_and_what_rides_in_the_log_is_not() {
    for rides in [true, false] {
        let (_devices, volume) = volume(with_min(4));
        let data = unique(40, 1);
        write(&volume, 1, 0, &data);
        volume.commits.commit().unwrap();
        write(&volume, 2, 0, part(&data, 0, 3));
        if !rides {
            // Data that is written to its place at once makes the commit write out all of it.
            write(&volume, 3, 0, &unique(40, 2));
        }
        volume.commits.commit().unwrap();
        let before = used(&volume);
        write(&volume, 2, 3, part(&data, 3, 6));
        assert_eq!(used(&volume), if rides { before - 3 } else { before + 3 }, "rides: {rides}");
        assert_holds(&volume, 2, part(&data, 0, 6));
    }
}

#[test]
fn data_that_rides_in_the_log_is_shared_before_it_is_placed() {
    let (devices, volume) = volume(with_min(8));
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    volume.commits.checkpoint().unwrap();
    for at in 0..20 {
        write(&volume, 2, at as u64, part(&data, at, at + 1));
        volume.commits.commit().unwrap();
    }
    let written = written_to_data(&volume);
    volume.commits.checkpoint().unwrap();
    assert_eq!((used(&volume), written_to_data(&volume)), (40, written));
    let volume = devices.after_power_cut_of_all().open();
    assert_holds(&volume, 2, part(&data, 0, 20));
}

#[test]
fn an_open_block_that_is_written_over_is_left_alone() {
    let (_devices, volume) = volume(with_min(4));
    let (data, other) = (unique(40, 1), unique(2, 2));
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, part(&data, 0, 3));
    // Another request of the file ends elsewhere, but the first one is continued after it.
    let stream = volume.decider.take_stream(MapId(2), crate::Lbn(3));
    write(&volume, 2, 1, &other[..BLOCK_BYTES]);
    volume.decider.keep_stream(MapId(2), stream);
    write(&volume, 2, 3, part(&data, 3, 6));
    let expected = [part(&data, 0, 1), &other[..BLOCK_BYTES], part(&data, 2, 6)].concat();
    assert_holds(&volume, 2, &expected);
}

#[test]
fn refused_blocks_are_further_holders() {
    let (_devices, volume) = volume(with_min(4));
    let data = unique(6, 1);
    // Two pieces of three, refused, then stored side by side: a duplicate of both is a run of six.
    write(&volume, 1, 0, &[part(&data, 0, 3), &unique(1, 2), part(&data, 3, 6)].concat());
    write(&volume, 2, 0, &[part(&data, 0, 3), &unique(1, 3)].concat());
    volume.commits.commit().unwrap();
    write(&volume, 3, 0, &[&unique(1, 4), part(&data, 0, 2)].concat());
    volume.commits.commit().unwrap();
    let before = used(&volume);
    write(&volume, 4, 0, &data);
    assert_eq!(used(&volume), before + 6, "nowhere do they follow each other");
    volume.commits.commit().unwrap();
    write(&volume, 5, 0, &data);
    assert_eq!(used(&volume), before + 6, "now they do");
    assert_holds(&volume, 5, &data);
}

#[test]
fn equal_blocks_of_one_request_share_runs_too() {
    let (_devices, volume) = volume(with_min(4));
    let pattern = unique(8, 1);
    let data = [pattern.clone(), pattern.clone(), pattern].concat();
    write(&volume, 1, 0, &data);
    assert_eq!(used(&volume), 8);
    let same = unique(1, 2).repeat(40);
    write(&volume, 2, 0, &same);
    assert!(used(&volume) <= 8 + 20, "{} blocks are used for forty equal ones", used(&volume) - 8);
    assert_holds(&volume, 1, &data);
    assert_holds(&volume, 2, &same);
}

#[test]
fn the_worker_shares_long_runs_and_leaves_short_ones() {
    let settings = Settings { inline: Inline::Off, run_blocks_min: Some(4), ..two_levels() };
    let (_devices, volume) = volume(settings);
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    let other = [part(&data, 3, 6), &unique(1, 2), part(&data, 20, 30), &unique(1, 3)].concat();
    write(&volume, 2, 0, &other);
    assert_eq!(used(&volume), 55);
    worked_off(&volume);
    assert_eq!(used(&volume), 45, "ten are shared, three are not");
    assert_holds(&volume, 1, &data);
    assert_holds(&volume, 2, &other);
}

#[test]
fn the_worker_goes_on_with_a_run_that_the_file_shares_already() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, volume) = volume(settings);
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, part(&data, 0, 20));
    volume.work_loop.tune(&[("inline".to_owned(), "off".to_owned())]).unwrap();
    write(&volume, 2, 20, part(&data, 20, 23));
    assert_eq!(used(&volume), 43);
    worked_off(&volume);
    assert_eq!(used(&volume), 40, "the three go on where twenty are shared");
    assert_holds(&volume, 2, part(&data, 0, 23));
}

#[test]
fn refused_blocks_are_looked_at_again_when_the_minimum_falls() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, volume) = volume(settings);
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &[part(&data, 0, 4), &unique(1, 2)].concat());
    worked_off(&volume);
    assert_eq!(used(&volume), 45);
    volume.work_loop.tune(&[("run_blocks_min".to_owned(), "4".to_owned())]).unwrap();
    worked_off(&volume);
    assert_eq!(used(&volume), 41);
}

#[test]
fn a_long_duplicate_is_found_whole_with_few_hints() {
    for inline in [Inline::All, Inline::Off] {
        let settings = Settings { inline, run_blocks_min: Some(8), hint_sample: 64, ..two_levels() };
        let (_devices, volume) = volume(settings);
        let data = unique(4_096, 1);
        write_in_requests(&volume, 1, &data);
        assert!(volume.base.hints.len() < 200, "{} of 4096 blocks have hints", volume.base.hints.len());
        write_in_requests(&volume, 2, &data);
        let stored_twice = used(&volume) - 4_096;
        match inline {
            Inline::Off => assert_eq!(stored_twice, 4_096),
            _ => assert!(stored_twice <= 256, "{stored_twice} blocks before the first hint"),
        }
        worked_off(&volume);
        assert_eq!(used(&volume), 4_096, "{inline:?}");
        assert_holds(&volume, 2, &data);
    }
}

fn write_in_requests(volume: &Volume, map: u64, data: &[u8]) {
    for (n, request) in data.chunks(256 * BLOCK_BYTES).enumerate() {
        write(volume, map, n as u64 * 256, request);
        volume.commits.commit().unwrap();
    }
}

/// Random requests of a few files, made of pieces of one content, against plain bytes.
#[test]
fn random_requests_read_back_whatever_the_minimum() {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let run_blocks_min = 1 + random.below(9) as u32;
        let base = if random.below(2) == 0 { one_level() } else { two_levels() };
        let min = (random.below(4) > 0).then_some(run_blocks_min);
        let (mut devices, mut volume) = volume(Settings { run_blocks_min: min, ..base });
        let source = unique(60, seed);
        let mut files = vec![Vec::new(); 3];
        for _ in 0..300 {
            let file = random.below(3) as usize;
            let end = files[file].len() / BLOCK_BYTES;
            let at = if random.below(3) > 0 || end == 0 { end } else { random.below(end as u64) as usize };
            let from = random.below(60) as usize;
            let blocks = (1 + random.below(12) as usize).min(60 - from);
            let data = part(&source, from, from + blocks);
            let bytes = files[file].len().max((at + blocks) * BLOCK_BYTES);
            files[file].resize(bytes, 0);
            files[file][at * BLOCK_BYTES..(at + blocks) * BLOCK_BYTES].copy_from_slice(data);
            write(&volume, file as u64 + 1, at as u64, data);
            match random.below(12) {
                0 => volume.commits.commit().unwrap(),
                1 => volume.commits.checkpoint().unwrap(),
                2 => drop(volume.revisits.revisit(64).unwrap()),
                3 => {
                    volume.commits.commit().unwrap();
                    devices = devices.after_power_cut_of_all();
                    volume = devices.open();
                    volume.hint_levels.fill_hints().unwrap();
                }
                _ => {}
            }
        }
        for (file, data) in files.iter().enumerate() {
            assert_holds(&volume, file as u64 + 1, data);
        }
        println!("seed {seed}, minimum {min:?}: {} blocks used", used(&volume));
    }
}

#[test]
fn a_rider_that_was_freed_before_a_crash_is_not_read_in_the_place_of_what_follows_it() {
    let (devices, volume) = volume(with_min(1));
    write(&volume, 1, 0, &unique(3, 1));
    volume.commits.commit().unwrap();
    volume.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap();
    volume.commits.commit().unwrap();
    let devices = devices.after_power_cut_of_all();
    let volume = devices.open();
    volume.commits.checkpoint().unwrap();
    let data = unique(40, 2);
    write(&volume, 2, 0, &data);
    assert_holds(&volume, 2, &data);
    assert_eq!(volume.base.staging.bytes(), 0, "nothing refers to what is in memory");
}

#[test]
fn open_blocks_that_equal_earlier_ones_of_their_request_are_shared_with_them() {
    let (_devices, volume) = volume(with_min(4));
    let pair = unique(2, 1);
    write(&volume, 1, 0, &[pair.clone(), pair.clone()].concat());
    assert_eq!(used(&volume), 4);
    volume.work_loop.tune(&[("run_blocks_min".to_owned(), "2".to_owned())]).unwrap();
    write(&volume, 1, 4, &unique(1, 2));
    assert_eq!(used(&volume), 3, "two of four, and the new one");
    assert_holds(&volume, 1, &[pair.clone(), pair, unique(1, 2)].concat());
}

#[test]
fn what_was_written_out_before_its_run_went_on_is_left_to_the_worker() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(4), ..two_levels() };
    let (_devices, volume) = volume(settings);
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    worked_off(&volume);
    write(&volume, 2, 0, part(&data, 0, 3));
    // Makes the commit write out all of it.
    write(&volume, 3, 0, &unique(40, 2));
    volume.commits.commit().unwrap();
    write(&volume, 2, 3, part(&data, 3, 10));
    assert_eq!(used(&volume), 83);
    worked_off(&volume);
    assert_eq!(used(&volume), 80);
    assert_holds(&volume, 2, part(&data, 0, 10));
}

#[test]
fn what_a_request_that_is_not_admitted_goes_on_with_is_left_to_the_worker() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, volume) = volume(settings);
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    worked_off(&volume);
    write(&volume, 2, 0, part(&data, 0, 6));
    volume.work_loop.tune(&[("inline".to_owned(), "off".to_owned())]).unwrap();
    write(&volume, 2, 6, part(&data, 6, 12));
    assert_eq!(used(&volume), 52);
    worked_off(&volume);
    assert_eq!(used(&volume), 40);
    assert_holds(&volume, 2, part(&data, 0, 12));
}

#[test]
fn where_there_is_no_worker_nothing_is_left_to_it() {
    let (_devices, volume) = volume(with_min(1_024));
    let data = unique(300, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, part(&data, 0, 256));
    write(&volume, 2, 256, part(&data, 256, 300));
    assert!(!volume.worklist.is_revisit_left(), "more is open than is remembered");
    assert_holds(&volume, 2, &data);
}

#[test]
fn an_open_block_of_a_deleted_file_or_that_is_its_own_holder_is_no_error_and_no_share() {
    let (_devices, volume) = volume(with_min(4));
    write(&volume, 1, 0, &unique(1, 1));
    let tag = volume.base.hasher.tag(&unique(1, 1));
    let pbn = volume.worklist.stored_from(MapId(1), Lbn(0), 1).unwrap()[0];
    let block = OpenBlock { lbn: Lbn(0), pbn, tag, holders: vec![pbn] };
    let shared = || volume.base.stats.counters.snapshot()["blocks_shared"];
    volume.open_run_sharer.share_open(MapId(1), &[(block.clone(), pbn)]).unwrap();
    assert_eq!(shared(), 0, "it is where it is");
    write(&volume, 2, 0, &unique(2, 2));
    write(&volume, 3, 0, &unique(1, 1));
    volume.range_changes.detach(MapId(1), |_| ()).unwrap();
    let other = volume.worklist.stored_from(MapId(3), Lbn(0), 1).unwrap()[0];
    volume.open_run_sharer.share_open(MapId(1), &[(block, other)]).expect("the file was deleted meanwhile");
    assert_eq!(shared(), 0);
}

#[test]
fn more_files_at_a_time_than_are_remembered_are_left_to_the_worker() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, volume) = volume(settings);
    let data = unique(16, 1);
    write(&volume, 1, 0, &data);
    worked_off(&volume);
    for at in 0..16 {
        (2..72).for_each(|map| write(&volume, map, at as u64, part(&data, at, at + 1)));
    }
    assert_eq!(used(&volume), 71 * 16, "no request follows the one before of its file soon enough");
    worked_off(&volume);
    // The last request of the recently written files is still open: one block of each stays.
    assert!(used(&volume) <= 16 + 64, "{} blocks are used", used(&volume));
    assert_holds(&volume, 2, &data);
}
