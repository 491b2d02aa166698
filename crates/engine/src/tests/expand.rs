//! The way back from compression, on volumes in memory: nothing stays compressed, what was shared stays shared, content
//! stays, and a power cut, a full volume and damage leave each block one or the other.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_dedup::{Compress, FilePolicy};

use crate::device::Device;
use crate::format::fragment::is_fragment;
use crate::format::keys;
use crate::settings::values::Settings;
use crate::tests::compress::{assert_content, compress_all, pbns_of, text, used, written, zstd};
use crate::tests::fixture::{Devices, Random, unique};
use crate::volume::assembly::Volume;
use crate::worker::expand::{Measured, Moved};
use crate::{BLOCK_BYTES, Blocks, Change, Conversion, Converted, Error, Lbn, MapCursor, MapId};

const BLOCK: u64 = BLOCK_BYTES as u64;
const START: MapCursor = MapCursor { map: 0, leaf: 0 };

/// One pass over everything, and its sum.
fn expand(volume: &Volume) -> Converted {
    let (mut sum, mut next, mut moved) = (Converted::default(), Some(START), Moved::default());
    while let Some(from) = next {
        let part = volume.converter.expand_portion(None, from, 100, &mut moved).unwrap();
        sum.converted += part.converted;
        sum.damaged += part.damaged;
        sum.without_room += part.without_room;
        next = part.next;
    }
    sum
}

fn fragments(volume: &Volume) -> u64 {
    volume.base.state.lock().fragment_totals.fragments
}

fn compressed(devices: &Devices, files: &[(MapId, Vec<u8>)]) -> Volume {
    let volume = written(devices, files);
    compress_all(&volume);
    volume.commits.commit().unwrap();
    volume
}

#[test]
fn a_volume_that_is_expanded_has_no_fragment_and_as_many_blocks_as_before() {
    let devices = Devices::new(Blocks(4_000), zstd());
    let mut files: Vec<_> = (1..5).map(|n| (MapId(n), text(150, n))).collect();
    files.push((MapId(5), unique(40, 5)));
    let volume = written(&devices, &files);
    let before = used(&volume);
    compress_all(&volume);
    assert!(fragments(&volume) > 500);
    let done = expand(&volume);
    assert_eq!((done.converted, done.damaged, done.without_room), (600, 0, 0));
    assert_eq!((fragments(&volume), used(&volume)), (0, before));
    assert_eq!(volume.base.stats.counters.blocks_expanded.load(Relaxed), 600);
    assert_content(&volume, &files);
    volume.commits.checkpoint().unwrap();
    assert_eq!(volume.metadata.get(&keys::fragment_totals()).unwrap(), None);
    drop(volume);
    let volume = devices.open();
    assert_content(&volume, &files);
    assert_eq!(expand(&volume), Converted::default(), "nothing is left to do");
}

/// A file of 200 blocks, and two clones of it that share all of them.
fn cloned_twice(devices: &Devices, content: &[u8]) -> (Volume, Vec<(MapId, Vec<u8>)>) {
    let files: Vec<_> = (1..4).map(|map| (MapId(map), content.to_vec())).collect();
    let volume = written(devices, &files[..1]);
    for (clone, _) in &files[1..] {
        volume.clone_blocks((MapId(1), Lbn(0)), (*clone, Lbn(0)), Blocks(200), |_, _| ()).unwrap();
    }
    (volume, files)
}

#[test]
fn what_is_shared_is_expanded_once_and_stays_shared_also_with_clones_that_took_nothing_yet() {
    let devices = Devices::new(Blocks(4_000), zstd());
    let content = text(200, 1);
    let (volume, files) = cloned_twice(&devices, &content);
    let before = used(&volume);
    compress_all(&volume);
    // The second half has other references, so a batch of it is not the batch of the first.
    expand(&volume);
    assert_eq!((fragments(&volume), used(&volume)), (0, before));
    let first = pbns_of(&volume, MapId(1));
    assert!(!first.iter().any(|pbn| is_fragment(*pbn)));
    for (map, _) in &files {
        assert_eq!(pbns_of(&volume, *map), first, "map {}", map.0);
    }
    assert_content(&volume, &files);
}

#[test]
fn one_file_is_expanded_and_others_keep_their_fragments() {
    let devices = Devices::new(Blocks(4_000), zstd());
    let files = vec![(MapId(1), text(300, 1)), (MapId(2), text(100, 2)), (MapId(3), text(300, 1))];
    let volume = compressed(&devices, &files);
    let (mut next, mut converted, mut moved) = (Some(START), 0, Moved::default());
    while let Some(from) = next {
        let part = volume.converter.expand_portion(Some(MapId(1)), from, 50, &mut moved).unwrap();
        converted += part.converted;
        next = part.next;
    }
    assert_eq!(converted, 300);
    let are_fragments = |map| pbns_of(&volume, MapId(map)).iter().filter(|pbn| is_fragment(**pbn)).count();
    assert_eq!((are_fragments(1), are_fragments(2)), (0, 100));
    assert_eq!(are_fragments(3), 256, "what it shared stays with the other file");
    assert_content(&volume, &files);
}

/// A pass over one map, and the sum of what it says.
fn pass(volume: &Volume, map: MapId, moved: &mut Moved) -> Converted {
    let (mut sum, mut next) = (Converted::default(), Some(START));
    while let Some(from) = next {
        let part = volume.converter.expand_portion(Some(map), from, 100, moved).unwrap();
        (sum.converted, next) = (sum.converted + part.converted, part.next);
        sum.for_another_pass += part.for_another_pass;
    }
    sum
}

/// How much room expanding a map takes at most.
fn measured(volume: &Volume, map: MapId) -> u64 {
    let (mut room, mut next, mut measured) = (0, Some(START), Measured::new());
    while let Some(from) = next {
        let part = volume.converter.measure_portion(Some(map), from, 100, &mut measured).unwrap();
        (room, next) = (room + part.room, part.next);
    }
    room
}

#[test]
fn what_a_file_has_many_times_is_measured_once() {
    const TIMES: u64 = 6;
    let devices = Devices::new(Blocks(6_000), zstd());
    let (map, content) = (MapId(1), text(256, 1));
    let volume = compressed(&devices, &[(map, content.clone())]);
    for n in 1..TIMES {
        volume.clone_blocks((map, Lbn(0)), (map, Lbn(n * 256)), Blocks(256), |_, _| ()).unwrap();
    }
    volume.commits.commit().unwrap();
    let before = used(&volume);
    for _ in 0..2 {
        let room = measured(&volume, map);
        assert!((200..=256).contains(&room), "{room}");
    }
    pass(&volume, map, &mut Moved::default());
    assert!(used(&volume) <= before + 256);
    assert_content(&volume, &[(map, content.repeat(TIMES as usize))]);
}

#[test]
fn files_that_share_more_than_a_pass_remembers_take_several_and_stay_shared() {
    let devices = Devices::new(Blocks(4_000), zstd());
    let mut files: Vec<_> = (1..4).map(|n| (MapId(n), text(200, n))).collect();
    let volume = written(&devices, &files);
    for (map, content) in files.clone() {
        let clone = MapId(map.0 + 3);
        volume.clone_blocks((map, Lbn(0)), (clone, Lbn(0)), Blocks(200), |_, _| ()).unwrap();
        files.push((clone, content));
    }
    let before = used(&volume);
    compress_all(&volume);
    // The first of the files is as much as that.
    let mut moved = Moved::at_most(100);
    let mut left_by_pass = || {
        moved.clear();
        files.iter().map(|(map, _)| pass(&volume, *map, &mut moved).for_another_pass).sum::<u64>()
    };
    assert_eq!([(); 3].map(|()| left_by_pass()), [800, 400, 0]);
    assert_eq!((fragments(&volume), used(&volume)), (0, before));
    for map in 1..4 {
        assert_eq!(pbns_of(&volume, MapId(map)), pbns_of(&volume, MapId(map + 3)));
    }
    assert_content(&volume, &files);
}

#[test]
fn what_a_file_takes_at_most_is_said_before_it_is_expanded() {
    let devices = Devices::new(Blocks(6_000), zstd());
    let shared = text(200, 9);
    let files = vec![
        (MapId(1), text(400, 1)),
        (MapId(2), [&shared[..], &text(300, 2)].concat()),
        (MapId(3), [&unique(60, 3)[..], &shared].concat()),
    ];
    let volume = compressed(&devices, &files);
    for (map, _) in &files {
        let before = (used(&volume), fragments(&volume));
        let room = measured(&volume, *map);
        assert_eq!((used(&volume), fragments(&volume)), before, "measuring changes nothing");
        let converted = pass(&volume, *map, &mut Moved::default()).converted;
        let (after, most) = (used(&volume), before.0 + room);
        assert!(converted >= 200 && after <= most, "map {}: {after} blocks, and at most {most} were said", map.0);
        // What only this file has leaves its packs.
        assert!(*map != MapId(1) || room < converted * 4 / 5, "{room} for {converted} blocks");
        assert_eq!(measured(&volume, *map), 0, "nothing is left to do");
    }
    assert_content(&volume, &files);
}

#[test]
fn a_file_with_a_clone_that_took_nothing_yet_takes_a_block_for_each_fragment() {
    let devices = Devices::new(Blocks(4_000), zstd());
    let (source, content) = (MapId(1), text(300, 1));
    let volume = compressed(&devices, &[(source, content.clone())]);
    let clone = volume.lazy_clones.clone_map(source, || Blocks(300), |_, _, _| ()).unwrap();
    let before = used(&volume);
    let room = measured(&volume, source);
    pass(&volume, source, &mut Moved::default());
    assert_eq!((room, used(&volume) - before), (300, 300));
    assert_content(&volume, &[(source, content.clone()), (clone, content)]);
}

#[test]
fn a_power_cut_leaves_each_block_expanded_or_not() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut devices = Devices::new(Blocks(3_000), zstd());
        let mut files: Vec<_> = (1..4).map(|n| (MapId(n), text(60 + random.below(200) as usize, n))).collect();
        drop(compressed(&devices, &files));
        for round in 0..4 {
            let volume = devices.open();
            let (mut at, mut moved) = (Some(START), Moved::default());
            for _ in 0..random.below(6) {
                let Some(from) = at else { break };
                at = volume.converter.expand_portion(None, from, 60, &mut moved).unwrap().next;
                match random.below(5) {
                    0 => volume.commits.commit().unwrap(),
                    1 => volume.commits.checkpoint().unwrap(),
                    _ => {}
                }
            }
            let (map, content) = &mut files[random.below(3) as usize];
            let block_at = random.below(content.len() as u64 / BLOCK) as usize;
            let block = text(1, seed * 1_000 + round);
            content[block_at * BLOCK_BYTES..(block_at + 1) * BLOCK_BYTES].copy_from_slice(&block);
            volume.write(*map, block_at as u64 * BLOCK, &block, |_, _| ()).unwrap();
            volume.commits.commit().unwrap();
            // These may or may not survive, and change no content.
            if let Some(from) = at {
                volume.converter.expand_portion(None, from, 60, &mut moved).unwrap();
            }
            drop(volume);
            devices = devices.after_power_cut(&mut random);
            assert_content(&devices.open(), &files);
        }
    }
}

#[test]
fn a_full_volume_leaves_what_has_no_room_and_counts_it() {
    let devices = Devices::new(Blocks(1_500), zstd());
    let files = vec![(MapId(1), text(400, 1)), (MapId(2), text(400, 2))];
    let volume = compressed(&devices, &files);
    volume.commits.checkpoint().unwrap();
    volume.run(crate::BackgroundStep::Release).unwrap();
    let free = volume.free_blocks.available().0 as usize;
    let filler = (MapId(3), unique(free - 50, 3));
    volume.write(filler.0, 0, &filler.1, |_, _| ()).unwrap();
    volume.commits.commit().unwrap();
    let done = expand(&volume);
    assert!(done.without_room > 0 && done.converted < 800, "{done:?}");
    volume.commits.checkpoint().unwrap();
    assert_content(&volume, &[files, vec![filler]].concat());
}

#[test]
fn a_damaged_fragment_stays_and_all_others_are_expanded() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let volume = compressed(&devices, &[(MapId(1), text(100, 1))]);
    volume.commits.checkpoint().unwrap();
    let pbns = pbns_of(&volume, MapId(1));
    let place = volume.metadata.known_places([pbns[50]].into_iter())[&pbns[50]];
    devices.data.write_at(&[0xFF; 20], place.at + 7).unwrap();
    let done = expand(&volume);
    assert_eq!((done.converted, done.damaged, fragments(&volume)), (99, 1, 1));
    assert!(matches!(volume.reader.read(MapId(1), 50 * BLOCK, BLOCK_BYTES), Err(Error::Corrupt { .. })));
}

#[test]
fn what_a_mount_compresses_is_not_expanded_and_a_volume_of_old_form_is_not_compressed() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let volume = devices.open();
    let asked = |volume: &Volume, what| volume.converter.convert(what, None, START);
    let begin = Conversion::BeginExpand { command: None };
    let begun = asked(&volume, begin).unwrap().command;
    assert!(matches!(asked(&volume, Conversion::Expand { command: begun }), Err(Error::Invalid(_))));
    asked(&volume, Conversion::End { command: begun }).unwrap();
    let command = asked(&volume, Conversion::BeginCompress { command: None }).unwrap().command;
    assert_eq!(asked(&volume, Conversion::Compress { command }).unwrap(), Converted::default());
    let off = Devices::new(Blocks(2_000), Settings { compress: Compress::Off, ..zstd() });
    let backend = crate::volume::backend::Backend { fragments: None, ..off.backend() };
    let volume = off.open_medium(backend);
    assert!(matches!(asked(&volume, Conversion::BeginCompress { command: None }), Err(Error::Invalid(_))));
    assert!(matches!(asked(&volume, Conversion::Compress { command: 1 }), Err(Error::Invalid(_))));
    let expand = Conversion::Expand { command: asked(&volume, begin).unwrap().command };
    assert_eq!(asked(&volume, expand).unwrap(), Converted::default());
}

#[test]
fn while_files_are_expanded_no_other_command_begins_so_what_they_share_is_stored_and_measured_once() {
    let devices = Devices::new(Blocks(2_000), Settings { compress: Compress::Off, ..zstd() });
    let content = text(200, 1);
    let (volume, files) = cloned_twice(&devices, &content);
    let before = used(&volume);
    // A portion has all of such a file.
    let asked = |second, what, map: Option<u64>| {
        let clock = || Duration::from_secs(second);
        volume.converter.convert_by(&clock, what, map.map(MapId), START)
    };
    let command = asked(0, Conversion::BeginCompress { command: None }, None).unwrap().command;
    assert_eq!(asked(0, Conversion::Compress { command }, None).unwrap().converted, 600);
    assert_eq!(fragments(&volume), 200);
    for begin in [Conversion::BeginCompress { command: None }, Conversion::BeginExpand { command: None }] {
        assert!(matches!(asked(9, begin, None), Err(Error::Invalid(_))), "one command at a time, whatever it does");
    }
    asked(9, Conversion::End { command }, None).unwrap();
    assert!(asked(9, Conversion::Compress { command }, None).unwrap().is_overtaken);
    let begin = Conversion::BeginExpand { command: None };
    let command = asked(0, begin, None).unwrap().command;
    let room = |map| asked(5, Conversion::MeasureExpand { command }, Some(map)).unwrap().room;
    assert_eq!(room(1), 200);
    assert!(matches!(asked(9, begin, None), Err(Error::Invalid(_))), "another one is under way");
    assert_eq!(room(2), 0, "it shares all with the first");
    let expand = Conversion::Expand { command };
    assert_eq!(asked(9, expand, Some(1)).unwrap().converted, 200);
    assert!(matches!(asked(18, begin, None), Err(Error::Invalid(_))), "another one is under way");
    assert_eq!(asked(18, expand, Some(2)).unwrap().converted, 200);
    assert_eq!(pbns_of(&volume, MapId(1)), pbns_of(&volume, MapId(2)));
    // The first one stands still.
    let second = asked(28, begin, None).unwrap().command;
    let overtaken = Converted { is_overtaken: true, ..Converted::default() };
    let again = Conversion::BeginExpand { command: Some(command) };
    for what in [expand, again, Conversion::MeasureExpand { command }] {
        assert_eq!(asked(99, what, Some(3)).unwrap(), overtaken);
    }
    asked(29, Conversion::End { command }, None).unwrap();
    assert!(asked(29, begin, None).is_err(), "the second one goes on");
    assert_eq!(asked(29, Conversion::Expand { command: second }, Some(3)).unwrap().converted, 200);
    asked(29, Conversion::End { command: second }, None).unwrap();
    asked(29, begin, None).unwrap();
    assert_eq!(fragments(&volume), 0);
    assert!(used(&volume) <= before + 200, "what the first one had moved is not known to the second");
    assert_content(&volume, &files);
}

/// A command compresses these maps in one pass. What it counts.
fn compress(volume: &Volume, maps: &[MapId]) -> Converted {
    let command = volume.converter.convert(Conversion::BeginCompress { command: None }, None, START).unwrap().command;
    let done = compress_pass(volume, maps, command);
    volume.converter.convert(Conversion::End { command }, None, START).unwrap();
    done
}

/// A pass of a command over these maps. What it counts.
fn compress_pass(volume: &Volume, maps: &[MapId], command: u64) -> Converted {
    volume.converter.convert(Conversion::BeginCompress { command: Some(command) }, None, START).unwrap();
    let mut sum = Converted::default();
    for map in maps {
        let mut next = Some(START);
        while let Some(from) = next {
            let part = volume.converter.convert(Conversion::Compress { command }, Some(*map), from).unwrap();
            sum.converted += part.converted;
            sum.damaged += part.damaged;
            sum.without_room += part.without_room;
            sum.for_another_pass += part.for_another_pass;
            next = part.next;
        }
    }
    sum
}

/// Three files of 200 blocks, and a clone of each: maps 1 to 3, and 4 to 6.
fn three_and_clones(devices: &Devices) -> (Volume, Vec<(MapId, Vec<u8>)>) {
    let mut files: Vec<_> = (1..4).map(|n| (MapId(n), text(200, n))).collect();
    let volume = written(devices, &files);
    for (map, content) in files.clone() {
        let clone = MapId(map.0 + 3);
        volume.clone_blocks((map, Lbn(0)), (clone, Lbn(0)), Blocks(200), |_, _| ()).unwrap();
        files.push((clone, content));
    }
    (volume, files)
}

#[test]
fn files_that_share_more_than_a_pass_remembers_are_compressed_in_several_and_stay_shared() {
    let devices = Devices::new(Blocks(4_000), Settings { compress: Compress::Off, ..zstd() });
    let (volume, files) = three_and_clones(&devices);
    let maps: Vec<MapId> = files.iter().map(|(map, _)| *map).collect();
    // The first of the files is as much as that.
    volume.block_compressor.remember_at_most(100);
    let command = volume.converter.convert(Conversion::BeginCompress { command: None }, None, START).unwrap().command;
    let passes = [(); 3].map(|()| compress_pass(&volume, &maps, command));
    assert_eq!(passes.map(|done| (done.converted, done.for_another_pass)), [(400, 800), (400, 400), (400, 0)]);
    assert_eq!(fragments(&volume), 600);
    for map in 1..4 {
        assert_eq!(pbns_of(&volume, MapId(map)), pbns_of(&volume, MapId(map + 3)));
    }
    assert_content(&volume, &files);
}

#[test]
fn a_command_and_the_worker_make_one_fragment_of_what_their_files_share() {
    let devices = Devices::new(Blocks(4_000), zstd());
    let (volume, files) = three_and_clones(&devices);
    // Its turn has four leaves, so the clones of the second and the third file are left.
    assert_eq!(volume.block_compressor.compress_some(200).unwrap(), Some(800));
    assert_eq!(compress(&volume, &[MapId(5)]).converted, 200);
    assert_eq!(fragments(&volume), 600, "a command knows what the worker has moved");
    compress_all(&volume);
    assert_eq!(fragments(&volume), 600);
    for map in 1..4 {
        assert_eq!(pbns_of(&volume, MapId(map)), pbns_of(&volume, MapId(map + 3)));
    }
    assert_content(&volume, &files);
}

#[test]
fn a_command_compresses_what_was_synced_alone_and_lies_in_the_log() {
    let devices = Devices::new(Blocks(2_000), Settings { compress: Compress::Off, ..zstd() });
    let volume = devices.open();
    let content = text(40, 1);
    for (n, block) in (0..).zip(content.chunks(BLOCK_BYTES)) {
        volume.write(MapId(1), n * BLOCK, block, |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
    }
    assert!(volume.base.staging.bytes() > 0, "the log has blocks");
    let done = compress(&volume, &[MapId(1)]);
    assert_eq!((done.converted, fragments(&volume)), (40, 40));
    assert_content(&volume, &[(MapId(1), content)]);
}

#[test]
fn what_has_no_room_for_packs_and_what_is_damaged_stays_uncompressed_and_is_counted() {
    let devices = Devices::new(Blocks(1_200), Settings { compress: Compress::Off, ..zstd() });
    let file = (MapId(1), text(400, 1));
    let volume = written(&devices, std::slice::from_ref(&file));
    volume.commits.checkpoint().unwrap();
    let damaged = pbns_of(&volume, MapId(1))[7];
    devices.data.write_at(&[0xFF; 20], damaged.0 * BLOCK + 9).unwrap();
    let filler = (MapId(2), unique(volume.free_blocks.available().0 as usize, 3));
    volume.write(filler.0, 0, &filler.1, |_, _| ()).unwrap();
    volume.commits.commit().unwrap();
    let done = compress(&volume, &[MapId(1)]);
    assert_eq!((done.damaged, done.converted), (1, 0));
    assert!(done.without_room > 300, "{done:?}");
    assert_eq!(fragments(&volume), 0);
}

#[test]
fn compression_on_request_needs_no_worker() {
    let devices = Devices::new(Blocks(2_000), Settings { compress: Compress::Off, ..zstd() });
    let files = vec![(MapId(1), text(300, 1)), (MapId(2), text(30, 2))];
    let volume = written(&devices, &files);
    assert_eq!(compress(&volume, &[MapId(1)]).converted, 300);
    assert_eq!(fragments(&volume), 300);
    assert!(!pbns_of(&volume, MapId(2)).iter().any(|pbn| is_fragment(*pbn)));
    assert_content(&volume, &files);
}

#[test]
fn a_volume_keeps_its_format_while_files_have_policies_that_earlier_versions_do_not_know() {
    let devices = Devices::new(Blocks(2_000), Settings { compress: Compress::Off, ..zstd() });
    let volume = written(&devices, &[(MapId(1), text(20, 1))]);
    let says = |policy: FilePolicy| {
        let mut change = Change::new();
        volume.file_policies.policy_change(&mut change, MapId(1), policy);
        volume.publisher.publish(change).unwrap();
        volume.commits.checkpoint().unwrap();
        volume.can_forget_fragments().unwrap()
    };
    let dedup = FilePolicy { policy_override: Some("off".parse().unwrap()), ..FilePolicy::default() };
    assert!(says(FilePolicy::default()) && says(dedup));
    for compress in Compress::ALL {
        assert!(!says(FilePolicy { compress: Some(compress), ..dedup }), "compress={compress}");
        assert!(says(dedup));
    }
}
