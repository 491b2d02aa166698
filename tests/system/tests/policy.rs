//! `oncefs policy` and the attribute behind it on a mounted volume: what is set holds at once and below, and goes with
//! files wherever programs bring them.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use oncefs_system_tests::{BLOCK, Mount, bytes, copy_program, oncefs, run, sys, test_dir};
use serde_json::Value;

const ATTRIBUTE: &str = "user.oncefs.policy";
const BLOCKS: u64 = 64;
/// Nobody, who may not command a mounted volume and may say something of his own files.
const NOBODY: u32 = 65_534;

/// A mount on which every block is shared as it is written.
fn mount() -> Mount {
    Mount::on(&test_dir(), "256M", &["inline=all", "run_blocks_min=1"])
}

fn policy(arguments: &[&str], path: &Path) -> Output {
    let (what, rest) = arguments.split_first().unwrap();
    Command::new(oncefs()).arg("policy").arg(what).arg(path).args(rest).output().unwrap()
}

/// Sets a policy; gives what the command says.
fn set(path: &Path, value: &str) -> String {
    let output = policy(&["set", value], path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn shown(path: &Path) -> Value {
    let output = policy(&["show", "--json"], path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn attribute(path: &Path) -> Option<String> {
    let value = sys::get_xattr(path, ATTRIBUTE);
    value.ok().map(|value| String::from_utf8(value).unwrap())
}

/// Writes a file of the same blocks as every other one of this key, durably.
fn write(path: &Path, key: u64) {
    fs::write(path, bytes(key, (BLOCKS * BLOCK) as usize)).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

fn used_blocks(mount: &Mount) -> u64 {
    mount.figure("space", "stored_bytes") / BLOCK
}

fn shell(dir: &Path, command: &str) -> String {
    run(Command::new("sh").arg("-ec").arg(command).current_dir(dir))
}

#[test]
fn a_policy_holds_at_once_below_its_directory_and_is_shown_with_what_follows() {
    let mut mount = mount();
    write(&mount.join("source"), 1);
    let before = used_blocks(&mount);
    fs::create_dir_all(mount.join("alone/deep/deeper")).unwrap();
    write(&mount.join("alone/deep/old"), 1);
    symlink("old", mount.join("alone/deep/link")).unwrap();
    assert_eq!(used_blocks(&mount), before, "it is shared");
    assert_eq!(set(&mount.join("alone"), "off"), "off: 1 files and 3 directories\n");
    write(&mount.join("alone/deep/deeper/new"), 1);
    assert_eq!(used_blocks(&mount), before + BLOCKS);
    write(&mount.join("alone/deep/old"), 1);
    assert_eq!(used_blocks(&mount), before + 2 * BLOCKS, "what is written again is stored anew");
    run(Command::new(oncefs()).arg("dedup").arg(mount.dir()).args(["--now", "--full"]));
    assert_eq!(used_blocks(&mount), before + 2 * BLOCKS, "the worker leaves it alone");
    let told = shown(&mount.join("alone/deep/deeper/new"));
    assert_eq!(
        (told["policy"].as_str(), told["inherits"].as_str(), told["rank"].as_u64()),
        (Some("off"), Some("off"), Some(0))
    );
    assert_eq!((told["is_inline"].as_bool(), told["is_out_of_line"].as_bool()), (Some(false), Some(false)));
    let explained = run(Command::new(oncefs()).arg("explain").arg(mount.join("alone/deep/old")));
    assert!(explained.contains("is not deduplicated (policy off)"), "{explained}");
    mount.check();
    set(&mount.join("alone"), "run=8");
    let told = shown(&mount.join("alone/deep/old"));
    assert_eq!((told["policy"].as_str(), told["run_blocks_min"].as_u64()), (Some("run=8"), Some(8)));
    let told = String::from_utf8(policy(&["show"], &mount.join("alone")).stdout).unwrap();
    assert!(told.contains("policy run=8") && told.contains("new files in it are deduplicated while writing"), "{told}");
    run(Command::new(oncefs()).arg("dedup").arg(mount.dir()).arg("--now"));
    assert_eq!(used_blocks(&mount), before, "what is allowed again is looked at without being asked for");
    set(&mount.join("alone"), "none");
    assert_eq!((attribute(&mount.join("alone")), attribute(&mount.join("alone/deep/old"))), (None, None));
    mount.check();
}

#[test]
fn what_is_no_policy_or_in_no_mount_is_refused() {
    let mount = mount();
    write(&mount.join("file"), 1);
    for wrong in ["on", "run=0", "run=257", "Off"] {
        let output = policy(&["set", wrong], &mount.join("file"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains("run=N"), "{wrong}: {error}");
        let error = sys::set_xattr(&mount.join("file"), ATTRIBUTE, wrong.as_bytes()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{wrong}");
    }
    let output = policy(&["set", "off"], &test_dir());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not in a mounted oncefs volume"));
    let output = policy(&["set", "off"], &mount.join("missing"));
    assert!(!output.status.success());
    symlink("file", mount.join("link")).unwrap();
    assert_eq!(sys::set_xattr(&mount.join("link"), ATTRIBUTE, b"off").unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(attribute(&mount.join("file")), None);
}

#[test]
fn owners_set_their_own_files_and_are_told_of_others() {
    let mount = mount();
    fs::create_dir_all(mount.join("theirs/locked")).unwrap();
    write(&mount.join("theirs/own"), 1);
    write(&mount.join("theirs/root's"), 2);
    for (name, mode) in [("theirs/locked", 0o755), ("theirs/root's", 0o644)] {
        fs::set_permissions(mount.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    sys::chown(&mount.join("theirs"), NOBODY, NOBODY).unwrap();
    sys::chown(&mount.join("theirs/own"), NOBODY, NOBODY).unwrap();
    // Where tests lie and where the program is built nobody may look.
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let program = outside.path().join("oncefs");
    copy_program(&program);
    for path in [outside.path(), mount.dir().parent().unwrap()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new(program)
        .args(["policy", "set"])
        .arg(mount.join("theirs"))
        .arg("later")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("root's") && error.contains("locked") && !error.contains("theirs/own"), "{error}");
    assert_eq!(attribute(&mount.join("theirs/own")).as_deref(), Some("later"));
    assert_eq!(attribute(&mount.join("theirs/root's")), None);
}

#[test]
fn tar_rsync_and_cp_carry_policies_and_a_crash_and_a_remount_keep_them() {
    let mut mount = mount();
    fs::create_dir_all(mount.join("from/below")).unwrap();
    write(&mount.join("from/plain"), 1);
    set(&mount.join("from/below"), "run=8");
    write(&mount.join("from/below/file"), 2);
    fs::create_dir(mount.join("into")).unwrap();
    set(&mount.join("into"), "off");
    shell(&mount.dir(), "tar --xattrs -cf from.tar from && tar --xattrs -xpf from.tar -C into");
    shell(&mount.dir(), "rsync -aX from/ synced/ && cp -a from copied && mv into/from/plain moved");
    let check = |mount: &Mount| {
        let expected = [
            ("into/from", Some("off")),
            ("into/from/below/file", Some("run=8")),
            ("moved", Some("off")),
            ("synced/plain", None),
            ("synced/below/file", Some("run=8")),
            ("copied/below", Some("run=8")),
        ];
        for (path, policy) in expected {
            assert_eq!(attribute(&mount.join(path)).as_deref(), policy, "{path}");
            assert_eq!(shown(&mount.join(path))["policy"].as_str(), policy, "{path}");
        }
    };
    check(&mount);
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    mount.crash();
    check(&mount);
    mount.check();
    check(&mount);
}
