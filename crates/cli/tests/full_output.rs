//! A full output: every command reports it and fails, but completes its work, and none panics.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::common::{BINARY, Place, Run, oncefs};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

fn with_full_stdout(arguments: &[&str]) -> Run {
    let output = Command::new(BINARY).args(arguments).stdout(full()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    Run { code: output.status.code(), out: String::new(), err }
}

#[test]
fn every_command_says_that_a_full_output_takes_nothing() {
    let place = Place::with_volume();
    let (volume, mnt) = (place.volume_str(), place.mnt_str());
    let told = &["standard output", "No space left"];
    with_full_stdout(&["fsck", volume]).fails(8, told);
    with_full_stdout(&["--help"]).fails(1, told);
    with_full_stdout(&["version"]).fails(1, told);
    place.mount(&[]).succeeds();
    fs::write(place.file("file"), vec![7; 64 << 10]).unwrap();
    let file = place.str("mnt/file");
    let commands: [&[&str]; 16] = [
        &["stats", mnt],
        &["stats", mnt, "-v"],
        &["stats", mnt, "--json"],
        &["stats", mnt, "--fragmentation"],
        &["report", mnt, "-o", "-"],
        &["status", mnt],
        &["tune", mnt],
        &["tune", mnt, "inline=off"],
        &["dedup", mnt, "--status"],
        &["scrub", mnt, "--status"],
        &["explain", &file],
        &["explain", &file, "--json"],
        &["policy", "show", &file],
        &["policy", "set", &file, "off"],
        &["defrag", &file, "--dry-run"],
        &["grow", mnt, "512M"],
    ];
    for command in commands {
        with_full_stdout(command).fails(1, told);
    }
    let tuned = oncefs(&["tune", mnt]).succeeds().out;
    assert!(tuned.lines().any(|line| line.starts_with("inline ") && line.contains("off")), "{tuned}");
    assert!(oncefs(&["policy", "show", &file]).succeeds().out.contains("policy off"));
    with_full_stdout(&["umount", "-v", mnt]).fails(1, told);
    assert!(!place.is_mounted());
}

#[test]
fn a_command_that_can_tell_nobody_of_its_failure_fails_with_its_code() {
    let nowhere = ["fsck", "/nowhere"];
    let code = |arguments: &[&str]| {
        Command::new(BINARY).args(arguments).stdout(full()).stderr(full()).status().unwrap().code()
    };
    assert_eq!(code(&nowhere), Some(8));
    assert_eq!(code(&["stats", "/nowhere"]), Some(1));
    assert_eq!(code(&["version"]), Some(1));
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    for arguments in [&["--help"][..], &["version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let command = Command::new(BINARY).args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(command.status.signal(), Some(libc::SIGPIPE), "{command:?}");
        assert!(command.stderr.is_empty(), "{command:?}");
    }
}
