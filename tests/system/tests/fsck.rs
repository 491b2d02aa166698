//! `oncefs fsck` on real volumes: what changes nothing changes nothing, damage is named with its files, what can be
//! mended is, and the exit bits say so.
//!
//! Each fault by itself is tested beside the code (`check/tests.rs` in `engine` and `fs`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oncefs_system_tests::{Mount, bytes, oncefs};

const BLOCK: usize = oncefs_system_tests::BLOCK as usize;

/// Exit code and output.
fn fsck(mount: &Mount, arguments: &[&str]) -> (i32, String) {
    let output =
        Command::new(oncefs()).arg("fsck").args(arguments).arg(mount.volume()).stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

/// Path, inode, time of the last write and content of everything in a volume.
fn image(dir: &Path) -> BTreeMap<PathBuf, (u64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        if metadata.is_dir() {
            found.extend(image(&path));
        }
        let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path, (metadata.ino(), metadata.mtime_nsec(), content));
    }
    found
}

/// Files with content of their own and shared content.
fn fill(mount: &Mount) {
    fs::create_dir_all(mount.join("dir/deep")).unwrap();
    for n in 0..20 {
        fs::write(mount.join(format!("dir/deep/{n}")), bytes(n % 7, 300_000)).unwrap();
    }
    fs::write(mount.join("large"), bytes(99, 20 << 20)).unwrap();
}

fn assert_files(mount: &Mount) {
    for n in 0..20 {
        assert!(fs::read(mount.join(format!("dir/deep/{n}"))).unwrap() == bytes(n % 7, 300_000), "file {n}");
    }
}

/// Where a content lies in the data area.
fn place_of(volume: &Path, content: &[u8]) -> u64 {
    let data = fs::read(volume.join("data")).unwrap();
    let at = data.chunks(BLOCK).position(|block| block == content).expect("the content is in the data area");
    (at * BLOCK) as u64
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn a_check_changes_no_byte_of_a_volume_also_of_one_that_crashed() {
    let mut mount = Mount::new("256M");
    fill(&mount);
    mount.kill();
    let before = image(&mount.volume());
    for arguments in [&["-n"][..], &[], &["-n", "-d"]] {
        let (code, said) = fsck(&mount, arguments);
        assert_eq!(code, 0, "{said}");
        let after = image(&mount.volume());
        assert!(before.keys().eq(after.keys()), "files came or went with {arguments:?}");
        let changed: Vec<_> =
            before.iter().filter(|(path, file)| after[*path] != **file).map(|(path, _)| path).collect();
        assert!(changed.is_empty(), "fsck {arguments:?} changed {changed:?}");
    }
    let (code, said) = fsck(&mount, &["-y"]);
    assert_eq!(code, 0, "a crash is no error: {said}");
    mount.mount();
}

#[test]
fn a_damaged_page_of_the_block_table_is_rebuilt() {
    let mut mount = Mount::new("256M");
    fill(&mount);
    mount.umount();
    for sector in [0, 2, 9, 20] {
        flip(&mount.volume().join("table"), sector * 512 + 100);
    }
    let (code, said) = fsck(&mount, &["-n"]);
    assert!(
        code == 4 && said.contains("page 0 of the block table is damaged in sectors 0, 2 [rule 6]"),
        "{code}: {said}"
    );
    let (code, said) = fsck(&mount, &["-p"]);
    assert_eq!(code & 4, 4, "not without asking: {said}");
    let (code, said) = fsck(&mount, &["-y"]);
    assert!(code == 1 && said.contains("repaired: page 0 of the block table"), "{code}: {said}");
    let (code, said) = fsck(&mount, &["-n", "-d"]);
    assert_eq!(code, 0, "{said}");
    mount.mount();
    assert_files(&mount);
    assert!(fs::read(mount.join("large")).unwrap() == bytes(99, 20 << 20));
    mount.check();
}

#[test]
fn a_rotten_block_is_named_with_its_files_and_kept() {
    let mut mount = Mount::new("256M");
    fill(&mount);
    mount.umount();
    let data = mount.volume().join("data");
    flip(&data, place_of(&mount.volume(), &bytes(3, 300_000)[BLOCK..2 * BLOCK]) + 5);
    let (code, said) = fsck(&mount, &["-n"]);
    assert_eq!(code, 0, "only reading finds it: {said}");
    for arguments in ["-nd", "-yd"] {
        let (code, said) = fsck(&mount, &[arguments]);
        assert!(code == 4 && said.contains("has content with tag"), "{code}: {said}");
        for path in ["/dir/deep/3", "/dir/deep/10", "/dir/deep/17"] {
            assert!(said.contains(path), "{path} is not named by {said}");
        }
        assert!(said.contains("at byte 4096: "), "{said}");
    }
}

#[test]
fn a_volume_in_use_and_wrong_usage_have_their_exit_bits() {
    let mount = Mount::new("256M");
    for arguments in ["-n", "-y", "-p"] {
        assert_eq!(fsck(&mount, &[arguments]).0, 8, "a mounted volume is neither checked nor mended");
    }
    assert_eq!(fsck(&mount, &["-n", "-y"]).0, 16);
}

#[test]
fn what_cannot_be_mended_is_refused_with_the_part_that_is_damaged() {
    let mut mount = Mount::new("256M");
    fill(&mount);
    mount.umount();
    let superblocks = ["superblock", "copies/superblock"].map(|name| mount.volume().join(name));
    superblocks.iter().for_each(|path| flip(path, 2_000));
    for arguments in ["-n", "-y"] {
        let (code, said) = fsck(&mount, &[arguments]);
        assert!(code == 4 && said.contains("superblock"), "{code}: {said}");
    }
    superblocks.iter().for_each(|path| flip(path, 2_000));
    assert_eq!(fsck(&mount, &["-y"]).0, 0);
}

/// The newest of the record files that have a copy.
fn copied_record_file(volume: &Path) -> PathBuf {
    let names = fs::read_dir(volume.join("copies")).unwrap().map(|entry| entry.unwrap().file_name());
    let newest = names.filter(|name| name.to_str().unwrap().ends_with(".sst")).max().expect("a record file has a copy");
    volume.join("records").join(newest)
}

#[test]
fn a_flipped_byte_of_a_record_file_is_an_error_that_is_corrected_and_then_none() {
    let mut mount = Mount::new("256M");
    fill(&mount);
    mount.umount();
    for option in ["-p", "-a", "-y"] {
        flip(&copied_record_file(&mount.volume()), 200);
        let (code, said) = fsck(&mount, &[]);
        assert!(code == 4 && said.contains("fsck -p restores it"), "{option}: {code}: {said}");
        let (code, said) = fsck(&mount, &[option]);
        assert!(code == 1 && said.contains("restored from its copy"), "{option}: {code}: {said}");
        assert_eq!(fsck(&mount, &[]).0, 0, "{option}: the second look");
    }
    mount.mount();
    assert_files(&mount);
}

/// Where each group begins that the log has, the newest last.
fn groups_in(log: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    let mut groups: Vec<(u64, usize)> = (0..log.len())
        .step_by(BLOCK)
        .filter(|at| word(at + 8) == 0x6F6E_6365_6673_4C52)
        .map(|at| (word(at + 16), at))
        .collect();
    groups.sort_unstable();
    groups.into_iter().map(|(_, at)| at).collect()
}

#[test]
fn a_damaged_log_is_refused_with_its_way_out_and_cut_when_that_is_asked_for() {
    let mut mount = Mount::new("256M");
    for n in 0..12 {
        let path = mount.join(format!("file {n}"));
        fs::write(&path, bytes(n, 5_000)).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    }
    mount.kill();
    let log = mount.volume().join("log");
    let groups = groups_in(&fs::read(&log).unwrap());
    assert!(groups.len() > 6, "{groups:?}");
    let file = File::options().write(true).open(&log).unwrap();
    file.write_all_at(&[1, 2, 3, 4, 5, 6, 7], groups[groups.len() - 3] as u64 + 100).unwrap();
    let (code, said) = fsck(&mount, &["-y"]);
    assert!(code == 4 && said.contains("fsck --cut-log"), "{code}: {said}");
    let (code, said) = fsck(&mount, &["--cut-log"]);
    assert!(code == 1 && said.contains("2 groups after it"), "{code}: {said}");
    assert_eq!(fsck(&mount, &[]).0, 0);
    mount.mount();
    assert!(fs::read(mount.join("file 0")).unwrap() == bytes(0, 5_000));
}
