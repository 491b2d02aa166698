//! Hints on a sample: both levels name every live block of it and no other. The next mount treats a level as complete
//! only if it is.

use super::*;
use crate::Profile;
use crate::volume::assembly::Volume;

fn sampled(hint_sample: u32) -> Settings {
    Settings { hint_sample, hint_bytes: 12 << 10, ..settings(Inline::All) }
}

fn open(devices: Devices, settings: Settings) -> (Devices, Volume) {
    let devices = Devices { settings, ..devices };
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    (devices, volume)
}

/// Whether a level names the block.
fn is_named(volume: &Volume, tag: crate::Tag, pbn: Pbn) -> bool {
    volume.base.hints.peek(&[tag]).contains(&(tag, pbn)) || volume.base.hints.is_on_disk(tag, pbn)
}

/// The tags and blocks of a file of `MANY` blocks.
fn blocks_of(volume: &Volume, map: u64) -> Vec<(crate::Tag, Pbn)> {
    let pbns: Vec<Pbn> = (0..MANY as u64).map(|lbn| pbn(volume, map, lbn)).collect();
    pbns.into_iter().map(|pbn| (entry(volume, pbn).tag, pbn)).collect()
}

/// How many blocks of a file are in the sample, all of which must be named, and how many others are.
fn named(volume: &Volume, map: u64) -> (usize, usize) {
    volume.hint_levels.merge_waiting_hints();
    let (inside, outside): (Vec<_>, Vec<_>) =
        blocks_of(volume, map).into_iter().partition(|(tag, _)| volume.base.hints.sample().has(*tag));
    let missing = inside.iter().filter(|(tag, pbn)| !is_named(volume, *tag, *pbn)).count();
    assert_eq!(missing, 0, "of {} blocks of {:?}", inside.len(), volume.base.hints.sample());
    (inside.len(), outside.iter().filter(|(tag, pbn)| is_named(volume, *tag, *pbn)).count())
}

#[test]
fn hints_name_the_live_blocks_of_the_sample_and_no_others() {
    for inline in [Inline::All, Inline::Off] {
        let devices = Devices::new(DATA, Settings { inline, ..sampled(4) });
        let volume = devices.open();
        write_many(&volume, 1, &unique(MANY, 1));
        let (inside, outside) = named(&volume, 1);
        assert!(inside > MANY / 5 && inside < MANY / 3, "{inside} of {MANY} in a sample of 1 of 4");
        assert_eq!(outside, 0);
        work_all(&volume, true);
        assert_eq!(counter(&volume, "hints_repaired"), 0, "a block that is not of the sample has lost nothing");
        assert_eq!(named(&volume, 1), (inside, 0));
        volume.base.hints.clear_memory();
        volume.base.hints.clear_disk_level();
        work_all(&volume, true);
        assert_eq!(counter(&volume, "hints_repaired"), inside as u64, "those of the sample have");
        assert_eq!(named(&volume, 1), (inside, 0));
    }
}

#[test]
fn the_worker_finds_every_copy_of_what_is_in_the_sample() {
    let devices = Devices::new(DATA, Settings { inline: Inline::Off, ..sampled(4) });
    let volume = devices.open();
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    write_many(&volume, 2, &data);
    let (inside, _) = named(&volume, 1);
    work_all(&volume, true);
    assert!(used(&volume) <= (2 * MANY - inside) as u64, "{} blocks in use", used(&volume));
    let first = blocks_of(&volume, 1);
    let second = blocks_of(&volume, 2);
    let differ = first.iter().zip(&second).filter(|(a, b)| volume.base.hints.sample().has(a.0) && a.1 != b.1).count();
    assert_eq!(differ, 0);
    assert_holds(&volume, 2, &data);
    assert_clean(&volume);
}

/// For earlier and later mounts: a file of hints is complete for a sparser sample, not for others.
#[test]
fn hints_of_another_sample_pass_for_complete_only_if_they_are() {
    for (before, after, is_scanned) in
        [(1, 1, false), (2, 2, false), (2, 1, true), (1, 2, false), (2, 4, false), (2, 3, true), (4, 2, true)]
    {
        for is_clean in [true, false] {
            println!("1 of {before}, then 1 of {after}; clean: {is_clean}");
            let (devices, volume) = open(Devices::new(DATA, sampled(before)), sampled(before));
            write_many(&volume, 1, &unique(MANY, 1));
            named(&volume, 1);
            volume.commits.checkpoint().unwrap();
            if is_clean {
                volume.leave_cleanly();
            }
            let (_devices, volume) = open(devices, sampled(after));
            let scanned = volume.base.hints.coverage().take_pages_scanned() > 0;
            assert_eq!(scanned, is_scanned || !is_clean);
            assert!(volume.base.hints.coverage().is_complete());
            named(&volume, 1);
        }
    }
}

#[test]
fn hints_beyond_the_sample_are_swept() {
    let (devices, volume) = open(Devices::new(DATA, sampled(1)), sampled(1));
    write_many(&volume, 1, &unique(MANY, 1));
    close(&volume);
    let (_devices, volume) = open(devices, sampled(4));
    assert!(named(&volume, 1).1 > MANY / 2, "until then they are there");
    while volume.hint_levels.sweep_hint_page() {}
    let (inside, outside) = named(&volume, 1);
    assert_eq!((outside, volume.base.hints.disk_level_size().1), (0, inside as u64));
    assert_eq!(counter(&volume, "hints_swept"), (MANY - inside) as u64);
}

/// Profiles as they are, with memory for every hint, so that each mount reads the table.
#[test]
fn a_volume_goes_from_server_to_desktop_and_back() {
    let profile = |profile| Settings { inline: Inline::All, ..Settings::of(profile, 64 << 20) };
    let (mut devices, mut volume) = open(Devices::new(DATA, profile(Profile::Server)), profile(Profile::Server));
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    let (inside, outside) = named(&volume, 1);
    assert!(inside > MANY / 100 && inside < MANY / 40 && outside == 0, "{inside} and {outside} of {MANY}");
    for (round, next) in [Profile::Desktop, Profile::Server, Profile::Desktop].into_iter().enumerate() {
        close(&volume);
        (devices, volume) = open(devices, profile(next));
        let is_desktop = next == Profile::Desktop;
        assert_eq!(named(&volume, 1), (if is_desktop { MANY } else { inside }, 0));
        write_many(&volume, 2, &data);
        let copies = used(&volume) - MANY as u64;
        assert!(copies <= if is_desktop { 0 } else { (MANY - inside) as u64 }, "round {round}: {copies} copies");
        assert_holds(&volume, 2, &data);
        delete(&volume, 2);
        volume.commits.commit().unwrap();
        volume.groups.release_waiting();
        assert_clean(&volume);
    }
}

#[test]
fn a_server_s_hints_get_their_share_when_the_volume_grows() {
    let settings = Settings::of(Profile::Server, 1 << 30);
    let (_devices, volume) = open(Devices::new(DATA, settings.clone()), settings);
    let bounds = |volume: &Volume| (volume.base.tuning.settings().hint_bytes, volume.base.hints.memory_size().1);
    assert_eq!(bounds(&volume), (1 << 20, 1 << 20), "the least");
    volume.grow(512 << 30).unwrap();
    assert_eq!(bounds(&volume), (16 << 20, 16 << 20), "half a TiB");
    tune(&volume, "hint_memory", "3M").unwrap();
    volume.grow(1 << 40).unwrap();
    assert_eq!(bounds(&volume), (3 << 20, 3 << 20), "what was set stays");
}
