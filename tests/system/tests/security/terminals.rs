//! Names that users chose, as root's commands print them: none steers a terminal or looks like a line of ours.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use oncefs_system_tests::{BLOCK, Mount, bytes, oncefs, test_dir};
use serde_json::Value;

const NAMES: [&[u8]; 7] = [
    b"\x1b[2Jclean",
    b"a\nclean: no errors",
    "\u{202e}txt.exe".as_bytes(),
    "\u{9b}2J".as_bytes(),
    b"back\\slash\x7f",
    b"\xff\xfe bytes",
    b"quoted\" at byte 0",
];

fn path_of(mount: &Mount, name: &[u8]) -> PathBuf {
    mount.dir().join(OsStr::from_bytes(name))
}

fn said(output: &Output) -> String {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(said).expect("what commands print is UTF-8")
}

/// No character of a text is a control but for the ends of lines, and none changes how others are read.
fn assert_plain(command: &str, text: &str) {
    let unseen = |c: char| c != '\n' && (c.is_control() || ('\u{200b}'..='\u{200f}').contains(&c));
    let turns = |c: char| ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
    let bad: Vec<char> = text.chars().filter(|c| unseen(*c) || turns(*c)).collect();
    assert!(bad.is_empty(), "{command} printed {bad:?} in {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("clean")), "{command} printed a forged line: {text:?}");
}

/// Flips a bit in every block of the data file that holds something.
fn rot(volume: &Path) {
    let file = File::options().read(true).write(true).open(volume.join("data")).unwrap();
    let mut block = vec![0; BLOCK as usize];
    for at in (0..file.metadata().unwrap().len()).step_by(BLOCK as usize) {
        file.read_exact_at(&mut block, at).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(&[block[99] ^ 4], at + 99).unwrap();
        }
    }
    file.sync_all().unwrap();
}

/// Every name as JSON has it: a string, or an array of bytes.
fn names_in(value: &Value, found: &mut Vec<Vec<u8>>) {
    for file in value["damage"]["files"].as_array().unwrap() {
        for path in file["paths"].as_array().unwrap() {
            found.push(match path {
                Value::String(text) => text.as_bytes().to_vec(),
                bytes => bytes.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect(),
            });
        }
    }
}

#[test]
fn no_name_steers_a_terminal_or_looks_like_a_line_of_ours() {
    let mut mount = Mount::on(&test_dir(), "128M", &["inline=all", "run_blocks_min=1", "worker=off"]);
    for (n, name) in NAMES.iter().enumerate() {
        fs::write(path_of(&mount, name), bytes(n as u64 + 1, 2 * BLOCK as usize)).unwrap();
    }
    let shared = mount.join("shared");
    let all: Vec<u8> = NAMES.iter().flat_map(|name| fs::read(path_of(&mount, name)).unwrap()).collect();
    fs::write(&shared, all).unwrap();

    let dir = mount.dir();
    let tricky = path_of(&mount, NAMES[1]);
    for (arguments, path) in [
        (&["sync"][..], &dir),
        (&["explain"], &shared),
        (&["explain", "--json"], &shared),
        (&["explain"], &tricky),
        (&["policy", "show"], &tricky),
        (&["policy", "show", "--json"], &tricky),
        (&["defrag"], &dir),
        (&["defrag", "--json"], &dir),
        (&["stats", "--layout"], &dir),
        (&["stats", "--layout", "--json"], &dir),
        (&["dedup", "--status"], &tricky),
        (&["explain"], &tricky.join("missing")),
    ] {
        let output = Command::new(oncefs()).args(arguments).arg(path).output().unwrap();
        let said = said(&output);
        assert!(!said.is_empty() || arguments == ["sync"], "{arguments:?} said nothing");
        assert_plain(&arguments.join(" "), &said);
    }

    mount.umount();
    rot(&mount.volume());
    let output = Command::new(oncefs()).args(["fsck", "-d"]).arg(mount.volume()).output().unwrap();
    let text = said(&output);
    assert_plain("fsck", &text);
    for part in [r#""/a\nclean: no errors""#, r#""/\u{1b}[2Jclean""#, r#""/\u{202e}txt.exe""#, r#""/\xFF\xFE bytes""#] {
        assert!(text.contains(part), "fsck does not name {part}:\n{text}");
    }
    mount.mount();
    let text = said(&Command::new(oncefs()).arg("scrub").arg(&dir).output().unwrap());
    assert_plain("scrub", &text);
    for part in [r#""/a\nclean: no errors""#, r#""/\u{9b}2J""#, r#""/back\\slash\u{7f}""#, r#""/quoted\" at byte 0""#] {
        assert!(text.contains(part), "scrub does not name {part}:\n{text}");
    }
    let output = Command::new(oncefs()).args(["scrub", "--status", "--json"]).arg(&dir).output().unwrap();
    assert_plain("scrub --json", &said(&output));
    let mut found = Vec::new();
    names_in(&serde_json::from_slice(&output.stdout).unwrap(), &mut found);
    for name in NAMES {
        let path = [b"/", name].concat();
        assert!(found.contains(&path), "JSON lost {path:?}: {found:?}");
    }
    assert_plain("the log", &mount.logged());
}
