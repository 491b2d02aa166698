//! `oncefs defrag` on a mounted volume: a file stitched from pieces of others lies in few extents afterwards, at a price
//! that is bounded and told, while programs use it; nothing else changes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use oncefs_system_tests::{BLOCK, Mount, Random, bytes, copy_program, oncefs, run, sys, test_dir};
use serde_json::Value;

const SOURCES: u64 = 10;
const SOURCE_BLOCKS: u64 = 400;
/// Nobody, who may not command a mounted volume.
const NOBODY: u32 = 65_534;

/// A mount without a worker, which would share again what a test has laid out, with the files that pieces are taken from.
fn mount() -> Mount {
    let mount = Mount::on(&test_dir(), "256M", &["inline=all", "worker=off", "run_blocks_min=64"]);
    fs::create_dir(mount.join("sources")).unwrap();
    for n in 0..SOURCES {
        fs::write(source(&mount, n), source_content(n)).unwrap();
    }
    mount
}

fn source(mount: &Mount, n: u64) -> std::path::PathBuf {
    mount.join(format!("sources/{n}"))
}

fn source_content(n: u64) -> Vec<u8> {
    bytes(100 + n, (SOURCE_BLOCKS * BLOCK) as usize)
}

/// Makes a file of pieces of 1 to 3 blocks that it shares with the sources. Gives its content.
fn stitch(mount: &Mount, path: &Path, blocks: u64, seed: u64) -> Vec<u8> {
    let contents: Vec<Vec<u8>> = (0..SOURCES).map(source_content).collect();
    let sources: Vec<File> = (0..SOURCES).map(|n| File::open(source(mount, n)).unwrap()).collect();
    let target = File::create(path).unwrap();
    let mut random = Random::new(seed);
    let mut content = Vec::new();
    while (content.len() as u64) < blocks * BLOCK {
        let (n, len) = (random.below(SOURCES) as usize, (1 + random.below(3)) * BLOCK);
        let at = random.below(SOURCE_BLOCKS - 3) * BLOCK;
        sys::copy_range_all(&sources[n], at, &target, content.len() as u64, len).unwrap();
        content.extend_from_slice(&contents[n][at as usize..(at + len) as usize]);
    }
    target.sync_all().unwrap();
    content
}

fn defrag(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(oncefs()).arg("defrag").args(paths).args(arguments).output().unwrap()
}

/// What the command says as JSON; it has to succeed.
fn outcome(arguments: &[&str], paths: &[&Path]) -> Value {
    let output = defrag(&[arguments, &["--json"]].concat(), paths);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn total(outcome: &Value, name: &str) -> u64 {
    outcome["total"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {outcome:#}"))
}

fn assert_sources(mount: &Mount) {
    for n in 0..SOURCES {
        assert!(fs::read(source(mount, n)).unwrap() == source_content(n), "source {n} has other bytes");
    }
}

#[test]
fn a_stitched_file_lies_in_few_extents_after_one_command_and_nothing_else_changes() {
    let mut mount = mount();
    let path = mount.join("stitched");
    let content = stitch(&mount, &path, 3_000, 1);
    let used = mount.figure("space", "stored_bytes");
    let times = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.modified().unwrap(), metadata.len())
    };
    let before = times(&path);
    let extents = |path: &Path| total(&outcome(&["--dry-run"], &[path]), "extents_before");
    let of_sources = extents(&mount.join("sources"));

    let said = outcome(&[], &[&path]);
    let moved = total(&said, "blocks_moved");
    assert!(total(&said, "extents_before") > 1_000, "{said:#}");
    assert!(total(&said, "extents_after") <= 4, "{said:#}");
    assert_eq!(total(&said, "blocks_unshared"), moved, "every block was shared");
    assert_eq!(mount.figure("space", "stored_bytes") - used, moved * BLOCK);
    assert_eq!(mount.figure("counters", "blocks_defragmented"), moved);
    assert!(fs::read(&path).unwrap() == content);
    assert_eq!(times(&path), before, "neither its time nor its size");

    // Durable when the command has returned.
    mount.crash();
    assert!(fs::read(&path).unwrap() == content);
    mount.check();
    assert!(fs::read(&path).unwrap() == content);
    assert_sources(&mount);
    assert_eq!(extents(&mount.join("sources")), of_sources, "the sources were laid out again");
    assert_eq!(total(&outcome(&[], &[&path]), "blocks_moved"), 0, "nothing is left to do");
}

#[test]
fn without_space_and_in_a_dry_run_nothing_that_is_shared_moves() {
    let mut mount = mount();
    let path = mount.join("stitched");
    let content = stitch(&mount, &path, 1_000, 2);
    let used = mount.figure("space", "stored_bytes");
    let none = outcome(&["--space", "0"], &[&path]);
    assert_eq!(total(&none, "blocks_moved"), 0, "{none:#}");
    assert_eq!(none["total"]["left"]["space_limit"].as_u64().unwrap(), total(&none, "extents_before") - 1);
    let planned = outcome(&["--dry-run"], &[&path]);
    assert_eq!(total(&planned, "extents_after"), 1, "{planned:#}");
    let long = outcome(&["--run-blocks-min", "1"], &[&path]);
    assert_eq!(total(&long, "blocks_moved"), 0, "every piece is long enough: {long:#}");
    assert_eq!(mount.figure("counters", "blocks_defragmented"), 0);
    assert_eq!(mount.figure("space", "stored_bytes"), used);
    let some = outcome(&["--space", "400K"], &[&path]);
    assert!((1..=100).contains(&total(&some, "blocks_unshared")), "{some:#}");
    assert!(mount.figure("space", "stored_bytes") <= used + 100 * BLOCK);
    assert!(fs::read(&path).unwrap() == content);

    mount.umount();
    mount.set_options(&["ro"]);
    mount.mount();
    outcome(&["--dry-run"], &[&path]);
    let refused = defrag(&[], &[&path]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("read-only"), "{refused:?}");
}

#[test]
fn a_tree_is_laid_out_file_by_file_while_programs_use_it() {
    let mut mount = mount();
    fs::create_dir_all(mount.join("tree/a/b")).unwrap();
    let names = ["tree/one", "tree/a/two", "tree/a/b/three"];
    let mut contents: Vec<Vec<u8>> =
        (10..).zip(names).map(|(seed, name)| stitch(&mount, &mount.join(name), 500, seed)).collect();
    fs::hard_link(mount.join("tree/one"), mount.join("tree/a/also-one")).unwrap();
    symlink(mount.join("sources"), mount.join("tree/link")).unwrap();
    run(Command::new("mkfifo").arg(mount.join("tree/pipe")));
    let other = mount.join("tree/other");
    fs::create_dir(&other).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&other));
    fs::write(other.join("elsewhere"), bytes(1, 100_000)).unwrap();

    let (written, is_over) = (File::options().write(true).open(mount.join(names[1])).unwrap(), AtomicBool::new(false));
    let said = thread::scope(|scope| {
        let (written, is_over, content) = (&written, &is_over, &mut contents[1]);
        scope.spawn(move || {
            let mut random = Random::new(3);
            while !is_over.load(Relaxed) {
                let at = (random.below(499) * BLOCK) as usize;
                let new = bytes(random.below(1 << 40), BLOCK as usize);
                written.write_all_at(&new, at as u64).unwrap();
                written.sync_data().unwrap();
                content[at..at + new.len()].copy_from_slice(&new);
            }
        });
        let said = outcome(&["--space", "100%"], &[&mount.join("tree")]);
        is_over.store(true, Relaxed);
        said
    });
    run(Command::new("umount").arg(&other));
    drop(written);
    assert_eq!(said["files_examined"], 3, "{said:#}");
    assert!(total(&said, "extents_after") * 2 < total(&said, "extents_before"), "{said:#}");
    mount.check();
    for (name, content) in names.iter().zip(&contents) {
        assert!(fs::read(mount.join(name)).unwrap() == *content, "{name} has other bytes");
    }
    assert_sources(&mount);
}

#[test]
fn what_cannot_be_laid_out_is_told() {
    let (mount, other) = (mount(), Mount::on(&test_dir(), "64M", &["worker=off"]));
    let outside = tempfile::tempdir_in(test_dir()).unwrap();
    for (paths, wanted) in [
        (vec![outside.path().to_owned()], "not in a mounted oncefs volume"),
        (vec![mount.volume()], "not in a mounted oncefs volume"),
        (vec![mount.join("missing")], "No such file"),
        (vec![mount.dir(), other.dir()], "another volume"),
    ] {
        let paths: Vec<&Path> = paths.iter().map(|path| path.as_path()).collect();
        let refused = defrag(&[], &paths);
        assert_eq!(refused.status.code(), Some(1), "{paths:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(wanted) && said.lines().count() == 1, "{paths:?}: {said}");
    }
    for wrong in [&["--space", "101%"], &["--space", "lots"], &["--run-blocks-min", "0"], &["--run-blocks-min", "1025"]]
    {
        assert_eq!(defrag(wrong, &[&mount.dir()]).status.code(), Some(2), "{wrong:?}");
    }
    fs::create_dir(mount.join("empty")).unwrap();
    // Where the program is built nobody may look.
    let program = outside.path().join("oncefs");
    copy_program(&program);
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let by_nobody = Command::new(program).arg("defrag").arg(mount.join("sources")).uid(NOBODY).output().unwrap();
    assert_eq!(by_nobody.status.code(), Some(1), "{by_nobody:?}");
    let said = defrag(&[], &[&mount.join("empty")]);
    assert!(
        said.status.success() && String::from_utf8_lossy(&said.stdout).starts_with("0 files: 0 extents"),
        "{said:?}"
    );
}
