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

fn assert_clean(core: &Volume) {
    let report = checker(core).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// Hints on one content in 64.
fn volume() -> Volume {
    let settings = Settings { hint_sample: 64, inline: Inline::All, ..two_levels() };
    let core = Devices::new(DATA, settings).open();
    core.hint_levels.fill_hints().unwrap();
    core
}

/// A file of one to three blocks.
fn file(n: u64) -> Vec<u8> {
    unique(1 + (n % 3) as usize, 1000 + n)
}

fn write(core: &Volume, map: u64, data: &[u8]) {
    core.write(MapId(map), 0, data, |_, _| ()).unwrap();
}

fn write_tree(core: &Volume) -> u64 {
    (0..FILES).for_each(|n| write(core, 1 + n, &file(n)));
    core.commits.commit().unwrap();
    core.free_blocks.totals().used.0
}

/// How many percent of the tree's blocks its copy shares.
fn shared_percent(core: &Volume, write_copy: impl FnOnce(&Volume)) -> u64 {
    let used = write_tree(core);
    write_copy(core);
    core.commits.commit().unwrap();
    let stored = core.free_blocks.totals().used.0 - used;
    println!("{stored} blocks stored for a copy of {used}");
    100 - 100 * stored / used
}

fn copied(core: &Volume, n: u64) -> bool {
    core.reader.read(MapId(COPY + n), 0, file(n).len()).unwrap().iter().eq(&file(n))
}

#[test]
fn a_copy_of_a_tree_is_found_behind_its_first_file_that_a_hint_names() {
    let core = volume();
    let shared = shared_percent(&core, |core| (0..FILES).for_each(|n| write(core, COPY + n, &file(n))));
    assert!(shared >= 90, "{shared} %");
    assert!((0..FILES).all(|n| copied(&core, n)));
    assert_clean(&core);
}

#[test]
fn files_that_changed_and_files_that_are_new_do_not_end_it() {
    let core = volume();
    let shared = shared_percent(&core, |core| {
        for n in 0..FILES {
            match n % 20 {
                7 => write(core, COPY + n, &unique(file(n).len() / BLOCK_BYTES, 90_000 + n)),
                13 => {
                    write(core, 2 * COPY + n, &unique(2, 80_000 + n));
                    write(core, COPY + n, &file(n));
                }
                _ => write(core, COPY + n, &file(n)),
            }
        }
    });
    // A twentieth changed, and a twentieth of the files with two blocks is new.
    assert!(shared >= 80, "{shared} %");
    assert_clean(&core);
}

#[test]
fn two_copies_at_a_time_are_both_found() {
    let core = volume();
    let used = write_tree(&core);
    for n in 0..FILES {
        write(&core, COPY + n, &file(n));
        write(&core, 2 * COPY + n, &file((n + FILES / 2) % FILES));
    }
    core.commits.commit().unwrap();
    let stored = core.free_blocks.totals().used.0 - used;
    assert!(stored <= used / 5, "{stored} blocks for two copies of {used}");
    assert_clean(&core);
}

/// A wrong guess costs a look-up in the block table, never a wrong block.
#[test]
fn a_file_behind_which_something_else_lies_is_stored() {
    let core = volume();
    write_tree(&core);
    for n in (0..FILES).rev() {
        write(&core, COPY + n, &file(n));
        assert!(copied(&core, n));
    }
    assert_clean(&core);
}
