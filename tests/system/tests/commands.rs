//! The commands as a person meets them: in the background, under their other names, and with wrong arguments.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use oncefs_system_tests::{Mount, bytes, oncefs, run, test_dir};

fn oncefs_with(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(oncefs());
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

/// Requires a failure told in one line, and returns the line.
fn one_line_error(output: &Output) -> String {
    assert!(!output.status.success(), "this must fail");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.trim_end().lines().count(), 1, "an error is one line:\n{said}");
    assert!(!said.contains("panicked"), "{said}");
    said.into_owned()
}

fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}

/// Ids of the processes whose arguments name `path`.
fn processes_naming(path: &Path) -> Vec<String> {
    let wanted = path.to_str().unwrap();
    let names = |entry: &fs::DirEntry| {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(wanted)
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(names)
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn mount_returns_when_the_mount_is_live_and_umount_when_the_daemon_is_gone() {
    let volume = Mount::unmounted(&test_dir(), "1G", &[]);
    for round in 0..3u64 {
        run(Command::new(oncefs()).arg("mount").arg(volume.volume()).arg(volume.dir()));
        assert!(is_mounted(&volume.dir()), "mount came back before the mount was live");
        if round > 0 {
            assert!(
                fs::read(volume.join("file")).unwrap() == bytes(round - 1, 100_000),
                "the content of round {round} is lost"
            );
        }
        fs::write(volume.join("file"), bytes(round, 100_000)).unwrap();
        run(Command::new(oncefs()).arg("umount").arg(volume.dir()));
        assert!(!is_mounted(&volume.dir()));
        assert_eq!(processes_naming(&volume.volume()), [""; 0], "umount came back before the daemon was gone");
    }
    volume.assert_clean();
}

#[test]
fn the_names_that_mount_and_fsck_call_work() {
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    let named = |name: &str| {
        let link = scratch.path().join(name);
        if !link.exists() {
            symlink(oncefs(), &link).unwrap();
        }
        Command::new(link)
    };
    let (volume, dir) = (scratch.path().join("volume"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    run(named("mkfs.oncefs").arg(&volume).args(["--size", "1G"]));
    run(named("mount.oncefs").arg(&volume).arg(&dir).args(["-o", "rw,nosuid,nodev"]));
    fs::write(dir.join("file"), "content").unwrap();
    run(named("umount.fuse.oncefs").arg(&dir));
    assert!(!is_mounted(&dir));
    // fsck(8) passes -a at boot.
    run(named("fsck.oncefs").arg("-a").arg(&volume));
    run(named("mount.oncefs").arg(&volume).arg(&dir).args(["-o", "ro"]));
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "content");
    assert!(fs::write(dir.join("file"), "other").is_err(), "read-only means read-only");
    run(named("umount.oncefs").arg(&dir));
}

#[test]
fn a_path_that_is_no_volume_is_refused_in_one_line() {
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    one_line_error(&oncefs_with(&[&"mount", &"/usr/include", &dir]));
    one_line_error(&oncefs_with(&[&"mount", &scratch.path().join("missing"), &dir]));
    one_line_error(&oncefs_with(&[&"stats", &scratch.path()]));
    one_line_error(&oncefs_with(&[&"umount", &scratch.path()]));
    one_line_error(&oncefs_with(&[&"mkfs", &"/usr/include", &"--size", &"1G"]));
    let fsck = oncefs_with(&[&"fsck", &"/usr/include"]);
    one_line_error(&fsck);
    assert_eq!(fsck.status.code(), Some(8), "fsck's code for an operational error");
}

#[test]
fn a_volume_in_use_is_refused_and_left_alone() {
    let mount = Mount::new("1G");
    let other = mount.dir().parent().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    one_line_error(&oncefs_with(&[&"mount", &mount.volume(), &other]));
    one_line_error(&oncefs_with(&[&"mkfs", &mount.volume(), &"--size", &"1G"]));
    assert_eq!(mount.fsck().0, 8, "a mounted volume is not checked");
    fs::write(mount.join("file"), "still well").unwrap();
}

#[test]
fn wrong_options_are_named() {
    let volume = Mount::unmounted(&test_dir(), "1G", &[]);
    let said = one_line_error(&oncefs_with(&[&"mount", &volume.volume(), &volume.dir(), &"-o", &"no_such_option"]));
    assert!(said.contains("no_such_option"), "{said}");
    assert!(!is_mounted(&volume.dir()));
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    one_line_error(&oncefs_with(&[&"mkfs", &scratch.path().join("v"), &"--size", &"lots"]));
}

#[test]
fn a_damaged_volume_is_refused_and_fsck_says_so() {
    let mut mount = Mount::new("1G");
    fs::write(mount.join("file"), bytes(1, 1 << 20)).unwrap();
    mount.umount();
    let data = largest_file(&mount.volume());
    fs::File::options().write(true).open(&data).unwrap().set_len(1000).unwrap();
    one_line_error(&oncefs_with(&[&"mount", &mount.volume(), &mount.dir()]));
    let (code, said) = mount.fsck();
    assert!(code & (4 | 8) != 0, "fsck of a volume with a truncated {} ended with {code}: {said}", data.display());
}

/// The data area: the largest file of a volume by its apparent size.
fn largest_file(volume: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(volume).unwrap().flatten().filter(|e| e.file_type().unwrap().is_file());
    files.max_by_key(|e| e.metadata().unwrap().len()).unwrap().path()
}

#[test]
fn growing_makes_room_while_files_are_in_use() {
    let mut mount = Mount::new("256M");
    let file = fs::File::create(mount.join("open")).unwrap();
    let before = mount.figure("space", "data_bytes");
    run(Command::new(oncefs()).arg("grow").arg(mount.dir()).arg("1G"));
    assert_eq!(before, 256 << 20);
    assert_eq!(mount.figure("space", "data_bytes"), 1 << 30);
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes(3, 512 << 20), 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    one_line_error(&oncefs_with(&[&"grow", &mount.dir(), &"128M"]));
    mount.check();
    assert_eq!(mount.figure("space", "data_bytes"), 1 << 30);
    assert!(fs::read(mount.join("open")).unwrap() == bytes(3, 512 << 20));
}

#[test]
fn stats_speak_to_people_and_programs() {
    let mount = Mount::new("1G");
    fs::write(mount.join("file"), bytes(1, 1 << 20)).unwrap();
    fs::File::open(mount.join("file")).unwrap().sync_all().unwrap();
    let stats = mount.stats();
    for group in ["space", "stages", "caches", "counters"] {
        assert!(stats[group].is_object(), "stats lack {group}: {stats:#}");
    }
    assert_eq!(mount.figure("counters", "blocks_placed"), 256);
    let said = run(Command::new(oncefs()).arg("stats").arg(mount.dir()));
    assert!(said.lines().count() > 10, "{said}");
}
