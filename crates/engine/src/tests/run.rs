//! Runs as writes and the worker share them: short ones stay, one that continues with the next request is shared as a
//! whole, and no file's content changes.

use crate::fsck::parts::checker;
use crate::settings::values::{Inline, Settings};
use crate::tests::fixture::{Devices, Random, one_level, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::write::inline::OpenBlock;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId};

const DATA: Blocks = Blocks(40_000);
const BLOCK: u64 = BLOCK_BYTES as u64;

fn with_min(run_blocks_min: u32) -> Settings {
    Settings { run_blocks_min: Some(run_blocks_min), ..one_level() }
}

fn volume(settings: Settings) -> (Devices, Volume) {
    let devices = Devices::new(DATA, settings);
    let core = devices.open();
    core.hint_levels.fill_hints().unwrap();
    (devices, core)
}

fn write(core: &Volume, map: u64, first: u64, data: &[u8]) {
    core.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
}

/// Blocks `first` to `end` of some content.
fn part(data: &[u8], first: usize, end: usize) -> &[u8] {
    &data[first * BLOCK_BYTES..end * BLOCK_BYTES]
}

/// Blocks in use, the label not counted.
fn used(core: &Volume) -> u64 {
    core.free_blocks.totals().used.0 - 1
}

fn assert_holds(core: &Volume, map: u64, data: &[u8]) {
    assert!(*core.reader.read(MapId(map), 0, data.len()).unwrap() == *data, "file {map}");
    let report = checker(core).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

fn written_to_data(core: &Volume) -> u64 {
    core.base.stats.counters.snapshot()["data_bytes_written"]
}

fn worked_off(core: &Volume) {
    while core.revisits.revisit(256).unwrap().is_some() {}
}

#[test]
fn a_run_below_the_minimum_is_stored_anew_and_a_longer_one_shared() {
    let (_devices, core) = volume(with_min(4));
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &[part(&data, 3, 6), &unique(1, 2)].concat());
    assert_eq!(used(&core), 44, "a run of three is too short");
    write(&core, 3, 0, &[&unique(2, 3), part(&data, 10, 14), &unique(2, 4)].concat());
    assert_eq!(used(&core), 48, "one of four is not");
    assert_holds(&core, 3, &[&unique(2, 3), part(&data, 10, 14), &unique(2, 4)].concat());
}

#[test]
fn a_write_counts_its_request_and_what_became_of_its_blocks() {
    let (_devices, core) = volume(with_min(1));
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &[part(&data, 0, 10), &unique(2, 2), &vec![0; BLOCK_BYTES]].concat());
    let counters = core.base.stats.counters.snapshot();
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
    let (devices, core) = volume(with_min(4));
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    core.commits.commit().unwrap();
    let written = written_to_data(&core);
    for at in 0..10 {
        write(&core, 2, 2 * at as u64, part(&data, 2 * at, 2 * at + 2));
        assert_eq!(used(&core), if at == 0 { 42 } else { 40 }, "request {at}");
    }
    core.commits.commit().unwrap();
    assert_eq!(written_to_data(&core), written, "what was open never reached the device");
    assert_holds(&core, 2, part(&data, 0, 20));
    let core = devices.after_power_cut_of_all().open();
    assert_eq!(used(&core), 40);
    assert_holds(&core, 2, part(&data, 0, 20));
}

#[test]
fn what_a_commit_wrote_out_is_decided_and_what_rides_in_the_log_is_not() {
    for rides in [true, false] {
        let (_devices, core) = volume(with_min(4));
        let data = unique(40, 1);
        write(&core, 1, 0, &data);
        core.commits.commit().unwrap();
        write(&core, 2, 0, part(&data, 0, 3));
        if !rides {
            // Data that is written to its place at once makes the commit write out all of it.
            write(&core, 3, 0, &unique(40, 2));
        }
        core.commits.commit().unwrap();
        let before = used(&core);
        write(&core, 2, 3, part(&data, 3, 6));
        assert_eq!(used(&core), if rides { before - 3 } else { before + 3 }, "rides: {rides}");
        assert_holds(&core, 2, part(&data, 0, 6));
    }
}

#[test]
fn data_that_rides_in_the_log_is_shared_before_it_is_placed() {
    let (devices, core) = volume(with_min(8));
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    core.commits.checkpoint().unwrap();
    for at in 0..20 {
        write(&core, 2, at as u64, part(&data, at, at + 1));
        core.commits.commit().unwrap();
    }
    let written = written_to_data(&core);
    core.commits.checkpoint().unwrap();
    assert_eq!((used(&core), written_to_data(&core)), (40, written));
    let core = devices.after_power_cut_of_all().open();
    assert_holds(&core, 2, part(&data, 0, 20));
}

#[test]
fn an_open_block_that_is_written_over_is_left_alone() {
    let (_devices, core) = volume(with_min(4));
    let (data, other) = (unique(40, 1), unique(2, 2));
    write(&core, 1, 0, &data);
    write(&core, 2, 0, part(&data, 0, 3));
    // Another request of the file ends elsewhere, but the first one is continued after it.
    let stream = core.decider.take_stream(MapId(2), crate::Lbn(3));
    write(&core, 2, 1, &other[..BLOCK_BYTES]);
    core.decider.keep_stream(MapId(2), stream);
    write(&core, 2, 3, part(&data, 3, 6));
    let expected = [part(&data, 0, 1), &other[..BLOCK_BYTES], part(&data, 2, 6)].concat();
    assert_holds(&core, 2, &expected);
}

#[test]
fn refused_blocks_are_further_holders() {
    let (_devices, core) = volume(with_min(4));
    let data = unique(6, 1);
    // Two pieces of three, refused, then stored side by side: a duplicate of both is a run of six.
    write(&core, 1, 0, &[part(&data, 0, 3), &unique(1, 2), part(&data, 3, 6)].concat());
    write(&core, 2, 0, &[part(&data, 0, 3), &unique(1, 3)].concat());
    core.commits.commit().unwrap();
    write(&core, 3, 0, &[&unique(1, 4), part(&data, 0, 2)].concat());
    core.commits.commit().unwrap();
    let before = used(&core);
    write(&core, 4, 0, &data);
    assert_eq!(used(&core), before + 6, "nowhere do they follow each other");
    core.commits.commit().unwrap();
    write(&core, 5, 0, &data);
    assert_eq!(used(&core), before + 6, "now they do");
    assert_holds(&core, 5, &data);
}

#[test]
fn equal_blocks_of_one_request_share_runs_too() {
    let (_devices, core) = volume(with_min(4));
    let pattern = unique(8, 1);
    let data = [pattern.clone(), pattern.clone(), pattern].concat();
    write(&core, 1, 0, &data);
    assert_eq!(used(&core), 8);
    let same = unique(1, 2).repeat(40);
    write(&core, 2, 0, &same);
    assert!(used(&core) <= 8 + 20, "{} blocks are used for forty equal ones", used(&core) - 8);
    assert_holds(&core, 1, &data);
    assert_holds(&core, 2, &same);
}

#[test]
fn the_worker_shares_long_runs_and_leaves_short_ones() {
    let settings = Settings { inline: Inline::Off, run_blocks_min: Some(4), ..two_levels() };
    let (_devices, core) = volume(settings);
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    let other = [part(&data, 3, 6), &unique(1, 2), part(&data, 20, 30), &unique(1, 3)].concat();
    write(&core, 2, 0, &other);
    assert_eq!(used(&core), 55);
    worked_off(&core);
    assert_eq!(used(&core), 45, "ten are shared, three are not");
    assert_holds(&core, 1, &data);
    assert_holds(&core, 2, &other);
}

#[test]
fn the_worker_goes_on_with_a_run_that_the_file_shares_already() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, core) = volume(settings);
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, part(&data, 0, 20));
    core.work_loop.tune(&[("inline".to_owned(), "off".to_owned())]).unwrap();
    write(&core, 2, 20, part(&data, 20, 23));
    assert_eq!(used(&core), 43);
    worked_off(&core);
    assert_eq!(used(&core), 40, "the three go on where twenty are shared");
    assert_holds(&core, 2, part(&data, 0, 23));
}

#[test]
fn refused_blocks_are_looked_at_again_when_the_minimum_falls() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, core) = volume(settings);
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &[part(&data, 0, 4), &unique(1, 2)].concat());
    worked_off(&core);
    assert_eq!(used(&core), 45);
    core.work_loop.tune(&[("run_blocks_min".to_owned(), "4".to_owned())]).unwrap();
    worked_off(&core);
    assert_eq!(used(&core), 41);
}

#[test]
fn a_long_duplicate_is_found_whole_with_few_hints() {
    for inline in [Inline::All, Inline::Off] {
        let settings = Settings { inline, run_blocks_min: Some(8), hint_sample: 64, ..two_levels() };
        let (_devices, core) = volume(settings);
        let data = unique(4_096, 1);
        write_in_requests(&core, 1, &data);
        assert!(core.base.hints.len() < 200, "{} of 4096 blocks have hints", core.base.hints.len());
        write_in_requests(&core, 2, &data);
        let stored_twice = used(&core) - 4_096;
        match inline {
            Inline::Off => assert_eq!(stored_twice, 4_096),
            _ => assert!(stored_twice <= 256, "{stored_twice} blocks before the first hint"),
        }
        worked_off(&core);
        assert_eq!(used(&core), 4_096, "{inline:?}");
        assert_holds(&core, 2, &data);
    }
}

fn write_in_requests(core: &Volume, map: u64, data: &[u8]) {
    for (n, request) in data.chunks(256 * BLOCK_BYTES).enumerate() {
        write(core, map, n as u64 * 256, request);
        core.commits.commit().unwrap();
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
        let (mut devices, mut core) = volume(Settings { run_blocks_min: min, ..base });
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
            write(&core, file as u64 + 1, at as u64, data);
            match random.below(12) {
                0 => core.commits.commit().unwrap(),
                1 => core.commits.checkpoint().unwrap(),
                2 => drop(core.revisits.revisit(64).unwrap()),
                3 => {
                    core.commits.commit().unwrap();
                    devices = devices.after_power_cut_of_all();
                    core = devices.open();
                    core.hint_levels.fill_hints().unwrap();
                }
                _ => {}
            }
        }
        for (file, data) in files.iter().enumerate() {
            assert_holds(&core, file as u64 + 1, data);
        }
        println!("seed {seed}, minimum {min:?}: {} blocks used", used(&core));
    }
}

#[test]
fn a_rider_that_was_freed_before_a_crash_is_not_read_in_the_place_of_what_follows_it() {
    let (devices, core) = volume(with_min(1));
    write(&core, 1, 0, &unique(3, 1));
    core.commits.commit().unwrap();
    core.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap();
    core.commits.commit().unwrap();
    let devices = devices.after_power_cut_of_all();
    let core = devices.open();
    core.commits.checkpoint().unwrap();
    let data = unique(40, 2);
    write(&core, 2, 0, &data);
    assert_holds(&core, 2, &data);
    assert_eq!(core.base.staging.bytes(), 0, "nothing refers to what is in memory");
}

#[test]
fn open_blocks_that_equal_earlier_ones_of_their_request_are_shared_with_them() {
    let (_devices, core) = volume(with_min(4));
    let pair = unique(2, 1);
    write(&core, 1, 0, &[pair.clone(), pair.clone()].concat());
    assert_eq!(used(&core), 4);
    core.work_loop.tune(&[("run_blocks_min".to_owned(), "2".to_owned())]).unwrap();
    write(&core, 1, 4, &unique(1, 2));
    assert_eq!(used(&core), 3, "two of four, and the new one");
    assert_holds(&core, 1, &[pair.clone(), pair, unique(1, 2)].concat());
}

#[test]
fn what_was_written_out_before_its_run_went_on_is_left_to_the_worker() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(4), ..two_levels() };
    let (_devices, core) = volume(settings);
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    worked_off(&core);
    write(&core, 2, 0, part(&data, 0, 3));
    // Makes the commit write out all of it.
    write(&core, 3, 0, &unique(40, 2));
    core.commits.commit().unwrap();
    write(&core, 2, 3, part(&data, 3, 10));
    assert_eq!(used(&core), 83);
    worked_off(&core);
    assert_eq!(used(&core), 80);
    assert_holds(&core, 2, part(&data, 0, 10));
}

#[test]
fn what_a_request_that_is_not_admitted_goes_on_with_is_left_to_the_worker() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, core) = volume(settings);
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    worked_off(&core);
    write(&core, 2, 0, part(&data, 0, 6));
    core.work_loop.tune(&[("inline".to_owned(), "off".to_owned())]).unwrap();
    write(&core, 2, 6, part(&data, 6, 12));
    assert_eq!(used(&core), 52);
    worked_off(&core);
    assert_eq!(used(&core), 40);
    assert_holds(&core, 2, part(&data, 0, 12));
}

#[test]
fn where_there_is_no_worker_nothing_is_left_to_it() {
    let (_devices, core) = volume(with_min(1_024));
    let data = unique(300, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, part(&data, 0, 256));
    write(&core, 2, 256, part(&data, 256, 300));
    assert!(!core.worklist.is_revisit_left(), "more is open than is remembered");
    assert_holds(&core, 2, &data);
}

#[test]
fn an_open_block_of_a_deleted_file_or_that_is_its_own_holder_is_no_error_and_no_share() {
    let (_devices, core) = volume(with_min(4));
    write(&core, 1, 0, &unique(1, 1));
    let tag = core.base.hasher.tag(&unique(1, 1));
    let pbn = core.worklist.stored_from(MapId(1), Lbn(0), 1).unwrap()[0];
    let block = OpenBlock { lbn: Lbn(0), pbn, tag, holders: vec![pbn] };
    let shared = || core.base.stats.counters.snapshot()["blocks_shared"];
    core.open_run_sharer.share_open(MapId(1), &[(block.clone(), pbn)]).unwrap();
    assert_eq!(shared(), 0, "it is where it is");
    write(&core, 2, 0, &unique(2, 2));
    write(&core, 3, 0, &unique(1, 1));
    core.range_changes.detach(MapId(1), |_| ()).unwrap();
    let other = core.worklist.stored_from(MapId(3), Lbn(0), 1).unwrap()[0];
    core.open_run_sharer.share_open(MapId(1), &[(block, other)]).expect("the file was deleted meanwhile");
    assert_eq!(shared(), 0);
}

#[test]
fn more_files_at_a_time_than_are_remembered_are_left_to_the_worker() {
    let settings = Settings { inline: Inline::All, run_blocks_min: Some(8), ..two_levels() };
    let (_devices, core) = volume(settings);
    let data = unique(16, 1);
    write(&core, 1, 0, &data);
    worked_off(&core);
    for at in 0..16 {
        (2..72).for_each(|map| write(&core, map, at as u64, part(&data, at, at + 1)));
    }
    assert_eq!(used(&core), 71 * 16, "no request follows the one before of its file soon enough");
    worked_off(&core);
    // The last request of the recently written files is still open: one block of each stays.
    assert!(used(&core) <= 16 + 64, "{} blocks are used", used(&core));
    assert_holds(&core, 2, &data);
}
