//! Small files where hints name few contents: a copy of a tree is found file by file, each after the one before it.

use crate::fsck::parts::checker;
use crate::settings::values::{Inline, Settings};
use crate::tests::fixture::{Devices, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, MapId};

const DATA: Blocks = Blocks(20_000);
const FILES: u64 = 600;
/// Maps of the copy begin here.
const COPY: u64 = 10_000;

fn assert_clean(volume: &Volume) {
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// Hints on one content in 64.
fn volume() -> Volume {
    let settings = Settings { hint_sample: 64, inline: Inline::All, ..two_levels() };
    let volume = Devices::new(DATA, settings).open();
    volume.hint_levels.fill_hints().unwrap();
    volume
}

/// A file of one to three blocks.
fn file(n: u64) -> Vec<u8> {
    unique(1 + (n % 3) as usize, 1000 + n)
}

fn write(volume: &Volume, map: u64, data: &[u8]) {
    volume.write(MapId(map), 0, data, |_, _| ()).unwrap();
}

fn write_tree(volume: &Volume) -> u64 {
    (0..FILES).for_each(|n| write(volume, 1 + n, &file(n)));
    volume.commits.commit().unwrap();
    volume.free_blocks.totals().used.0
}

/// How many percent of the tree's blocks its copy shares.
fn shared_percent(volume: &Volume, write_copy: impl FnOnce(&Volume)) -> u64 {
    let used = write_tree(volume);
    write_copy(volume);
    volume.commits.commit().unwrap();
    let stored = volume.free_blocks.totals().used.0 - used;
    println!("{stored} blocks stored for a copy of {used}");
    100 - 100 * stored / used
}

fn copied(volume: &Volume, n: u64) -> bool {
    volume.reader.read(MapId(COPY + n), 0, file(n).len()).unwrap().iter().eq(&file(n))
}

#[test]
fn a_copy_of_a_tree_is_found_behind_its_first_file_that_a_hint_names() {
    let volume = volume();
    let shared = shared_percent(&volume, |volume| (0..FILES).for_each(|n| write(volume, COPY + n, &file(n))));
    assert!(shared >= 90, "{shared} %");
    assert!((0..FILES).all(|n| copied(&volume, n)));
    assert_clean(&volume);
}

#[test]
fn files_that_changed_and_files_that_are_new_do_not_end_it() {
    let volume = volume();
    let shared = shared_percent(&volume, |volume| {
        for n in 0..FILES {
            match n % 20 {
                7 => write(volume, COPY + n, &unique(file(n).len() / BLOCK_BYTES, 90_000 + n)),
                13 => {
                    write(volume, 2 * COPY + n, &unique(2, 80_000 + n));
                    write(volume, COPY + n, &file(n));
                }
                _ => write(volume, COPY + n, &file(n)),
            }
        }
    });
    // A twentieth changed, and a twentieth of the files with two blocks is new.
    assert!(shared >= 80, "{shared} %");
    assert_clean(&volume);
}

#[test]
fn two_copies_at_a_time_are_both_found() {
    let volume = volume();
    let used = write_tree(&volume);
    for n in 0..FILES {
        write(&volume, COPY + n, &file(n));
        write(&volume, 2 * COPY + n, &file((n + FILES / 2) % FILES));
    }
    volume.commits.commit().unwrap();
    let stored = volume.free_blocks.totals().used.0 - used;
    assert!(stored <= used / 5, "{stored} blocks for two copies of {used}");
    assert_clean(&volume);
}

/// A wrong guess costs a look-up in the block table, never a wrong block.
#[test]
fn a_file_behind_which_something_else_lies_is_stored() {
    let volume = volume();
    write_tree(&volume);
    for n in (0..FILES).rev() {
        write(&volume, COPY + n, &file(n));
        assert!(copied(&volume, n));
    }
    assert_clean(&volume);
}
