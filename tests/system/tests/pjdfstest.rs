//! `pjdfstest`: POSIX semantics of every name-related system call, for all file types, as root and as two others.
//!
//! Left off, because Linux has none of them on any file system: `chflags`, `chflags_sf_snapshot`, `nfsv4_acls`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{Mount, run, tool};

/// Every optional feature is on that pjdfstest has for Linux (birth times it only tests on BSD); nobody and daemon exist on every Debian.
const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = ALLOW_REMOUNT

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// What pjdfstest finds missing, with the limit that is to blame.
const SKIPPED: [(&str, &str); 1] =
    [("link::link_count_max", "pathconf(_PC_LINK_MAX) knows no FUSE file system, so the test has no count to exceed")];

/// The tests that remount read-only. They run by themselves: some others leave files open for writing,
/// and with those no file system becomes read-only.
const REMOUNTING: &str = "erofs";

fn settings(allow_remount: bool) -> String {
    SETTINGS.replace("ALLOW_REMOUNT", &allow_remount.to_string())
}

/// Runs pjdfstest in `dir` and returns the names of the tests that it skipped.
fn pjdfstest(dir: &Path, allow_remount: bool, patterns: &[&str]) -> Vec<String> {
    let scratch = tempfile::tempdir().unwrap();
    let config = scratch.path().join("pjdfstest.toml");
    fs::write(&config, settings(allow_remount)).unwrap();

    // pjdfstest remounts by mount(8). "-i" keeps that from asking a mount helper, which remounts nothing.
    let wrapper = scratch.path().join("mount");
    fs::write(&wrapper, "#!/bin/sh\nexec /bin/mount -i \"$@\"\n").unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", scratch.path().display(), std::env::var("PATH").unwrap());

    let mut command = Command::new(tool("pjdfstest"));
    command.env("PATH", path).arg("-c").arg(&config).arg("-p").arg(dir).args(["-s", "/dev/shm"]).args(patterns);
    let said = run(&mut command);
    println!("{}", said.lines().find(|line| line.contains("passed")).expect("pjdfstest ends with a summary"));
    let skipped = said.lines().filter_map(|line| line.strip_suffix("skipped"));
    skipped.map(|name| name.trim().to_owned()).collect()
}

/// Runs all of it on a mount.
pub fn passes_on(mount: &mut Mount) {
    for (name, limit) in SKIPPED {
        println!("skipped: {name}: {limit}");
    }
    let mut skipped = pjdfstest(&mount.dir(), false, &[]);
    skipped.retain(|name| !name.contains(REMOUNTING));
    assert_eq!(skipped, SKIPPED.map(|(name, _)| name), "a skipped test shows nothing");
    assert_eq!(pjdfstest(&mount.dir(), true, &[REMOUNTING]), [""; 0], "a skipped test shows nothing");
    mount.check();
}

#[test]
fn pjdfstest_passes() {
    passes_on(&mut Mount::new("4G"));
}
