//! Files with very many names at great depth: whoever asks for them gets an answer of bounded size.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{BLOCK, Mount, bytes, oncefs, run, test_dir};
use serde_json::Value;

const DEPTH: usize = 300;
const LINKS: usize = 200;
/// What people are told of one file, however many names it has.
const SAID_BYTES_MAX: usize = 64 << 10;

/// Directories below one another, each with a name of `name`; gives the deepest one.
fn deepest(mount: &Mount, name: &str) -> File {
    let name = CString::new(name).unwrap();
    let mut at = File::open(mount.dir()).unwrap();
    for _ in 0..DEPTH {
        // SAFETY: the string outlives both calls, and the descriptor is new and nobody else's.
        at = unsafe {
            assert_eq!(libc::mkdirat(at.as_raw_fd(), name.as_ptr(), 0o755), 0);
            File::from_raw_fd(libc::openat(at.as_raw_fd(), name.as_ptr(), libc::O_DIRECTORY | libc::O_CLOEXEC))
        };
    }
    at
}

fn link_into(directory: &File, mount: &Mount, file: &str, name: &str) {
    let top = File::open(mount.dir()).unwrap();
    let (file, name) = (CString::new(file).unwrap(), CString::new(name).unwrap());
    // SAFETY: both strings outlive the call.
    let linked = unsafe { libc::linkat(top.as_raw_fd(), file.as_ptr(), directory.as_raw_fd(), name.as_ptr(), 0) };
    assert_eq!(linked, 0);
}

fn said(arguments: &[&str], path: &Path) -> String {
    run(Command::new(oncefs()).args(arguments).arg(path))
}

#[test]
fn explain_of_a_file_beside_many_deep_links_answers_with_bounded_bytes() {
    let mount = Mount::on(&test_dir(), "256M", &["inline=all", "run_blocks_min=1"]);
    for name in ["roots", "users"] {
        fs::write(mount.join(name), bytes(1, BLOCK as usize)).unwrap();
    }
    let deep = deepest(&mount, &"n".repeat(200));
    (0..LINKS).for_each(|n| link_into(&deep, &mount, "users", &format!("link {n}")));
    fs::remove_file(mount.join("users")).unwrap();
    drop(deep);
    let text = said(&["explain"], &mount.join("roots"));
    assert!(text.contains("<directory ") && text.len() < SAID_BYTES_MAX, "{} bytes: {text:.300}", text.len());
    let json = said(&["explain", "--json"], &mount.join("roots"));
    let value: Value = serde_json::from_str(&json).unwrap();
    let other = &value["runs"][0]["with"][0];
    let paths = other["paths"].as_array().unwrap();
    assert_eq!(paths.len() as u64 + other["more_paths"].as_u64().unwrap(), LINKS as u64);
    assert!(json.len() < SAID_BYTES_MAX, "{} bytes", json.len());
    assert!(said(&["stats", "--fragmentation"], &mount.dir()).len() < SAID_BYTES_MAX);
    // What is printed leads to the file.
    let path = paths[0].as_str().unwrap();
    let number = path.strip_prefix("<directory ").unwrap().split('>').next().unwrap();
    let found = run(Command::new("find").arg(mount.dir()).args(["-inum", number, "-printf", "%y"]));
    assert_eq!(found, "d");
}
