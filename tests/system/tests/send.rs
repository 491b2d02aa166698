//! `oncefs send` and `oncefs receive` between two volumes: trees arrive as they were, or not at all.
//!
//! The format, damage at each byte and records that make no sense: the tests of `oncefs-stream`.

mod asked;
mod flags;
mod trees;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use oncefs_system_tests::{Mount, bytes, eventually, oncefs, run, sys, test_dir};
use tempfile::TempDir;
use trees::{described, make_tree};

const BLOCK: u64 = 4096;

/// Two volumes, and a place for streams.
struct Pair {
    from: Mount,
    to: Mount,
    streams: TempDir,
}

impl Pair {
    /// The times of access are compared too, so nothing but the test may change them.
    fn new() -> Self {
        let options = ["noatime,inline=all,worker=off,run_blocks_min=1"];
        let [from, to] = [(); 2].map(|()| Mount::on(&test_dir(), "512M", &options));
        Self { from, to, streams: tempfile::tempdir_in(test_dir()).unwrap() }
    }

    fn stream(&self, name: &str) -> PathBuf {
        self.streams.path().join(name)
    }

    /// Sends a directory into a file of bytes.
    fn send(&self, dir: &str, options: &[&str]) -> Vec<u8> {
        let file = self.stream("sent");
        let output = send(&self.from.join(dir), options, &file);
        assert!(output.status.success(), "{}", said(&output));
        fs::read(file).unwrap()
    }

    fn receive(&self, name: &str, stream: &[u8], options: &[&str]) -> Output {
        let file = self.stream("to-receive");
        fs::write(&file, stream).unwrap();
        receive(&self.to.dir(), name, options).stdin(File::open(file).unwrap()).output().unwrap()
    }

    fn receive_all(&self, name: &str, stream: &[u8]) {
        let output = self.receive(name, stream, &[]);
        assert!(output.status.success(), "{}", said(&output));
    }

    /// The token of an interrupted receive.
    fn token(&self, name: &str) -> String {
        let output = receive(&self.to.dir(), name, &["--token"]).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn assert_equal(&self, dir: &str, name: &str) {
        let (sent, received) = (described(&self.from.join(dir)), described(&self.to.join(name)));
        for (path, what) in &sent {
            assert_eq!(received.get(path), Some(what), "{}", path.display());
        }
        assert_eq!(sent.len(), received.len(), "{:?}", received.keys());
    }

    fn assert_nothing_is_left(&self) {
        let left = fs::read_dir(self.to.join(".oncefs/receive")).unwrap().count();
        assert_eq!(left, 0, "a finished receive leaves something in .oncefs");
    }
}

fn send(dir: &Path, options: &[&str], to: &Path) -> Output {
    let out = File::create(to).unwrap();
    Command::new(oncefs()).arg("send").arg(dir).args(options).stdin(Stdio::null()).stdout(out).output().unwrap()
}

fn receive(dir: &Path, name: &str, options: &[&str]) -> Command {
    let mut command = Command::new(oncefs());
    command.arg("receive").arg(dir).arg(name).args(options);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", said(output));
    said(output)
}

#[test]
fn a_tree_arrives_with_everything_in_it_and_each_content_is_sent_once() {
    let mut pair = Pair::new();
    make_tree(&pair.from.join("tree"));
    let before = described(&pair.from.join("tree"));
    let stream = pair.send("tree", &[]);
    assert!(before == described(&pair.from.join("tree")), "sending changes the tree");
    let stored = pair.from.figure("space", "stored_bytes");
    assert!((stream.len() as u64) < stored + stored / 20, "{} bytes for {stored} stored ones", stream.len());
    pair.receive_all("copy", &stream);
    pair.assert_equal("tree", "copy");
    pair.assert_nothing_is_left();
    let received = pair.to.figure("space", "stored_bytes");
    assert!(received <= stored + 16 * BLOCK, "{received} bytes stored of {stored}");
    pair.to.check();
    pair.assert_equal("tree", "copy");
    assert!(refused(&pair.receive("copy", &stream, &[])).contains("it exists"));
}

#[test]
fn the_root_of_a_mount_is_sent_without_the_folders_that_are_its_own() {
    let pair = Pair::new();
    fs::create_dir_all(pair.from.join(".oncefs/receive")).unwrap();
    fs::write(pair.from.join("file"), b"file").unwrap();
    pair.receive_all("copy", &pair.send("", &[]));
    let names: Vec<_> = fs::read_dir(pair.to.join("copy")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    // What was received is sent on as it is.
    let on = pair.stream("on");
    assert!(send(&pair.to.join("copy"), &[], &on).status.success());
    pair.receive_all("again", &fs::read(on).unwrap());
    assert_eq!(described(&pair.to.join("copy")), described(&pair.to.join("again")));
}

#[test]
fn a_stream_that_breaks_off_anywhere_goes_on_with_its_token() {
    let pair = Pair::new();
    make_tree(&pair.from.join("tree"));
    let stream = pair.send("tree", &[]);
    for (n, part) in [0.02, 0.3, 0.5, 0.7, 0.9, 0.999].into_iter().enumerate() {
        let name = format!("copy-{n}");
        let cut = (stream.len() as f64 * part) as usize;
        let text = refused(&pair.receive(&name, &stream[..cut], &[]));
        assert!(text.contains("ends early") && !pair.to.join(&name).exists(), "{text}");
        if !text.contains("--token") {
            // Nothing had arrived, so there is nothing to go on with.
            pair.receive_all(&name, &stream);
            continue;
        }
        assert!(refused(&pair.receive(&name, &stream, &[])).contains("a part of it has arrived before"));
        // The rest breaks off too.
        let token = pair.token(&name);
        let rest = pair.send("tree", &["--resume", &token]);
        refused(&pair.receive(&name, &rest[..rest.len() / 2], &[]));
        if pair.token(&name) != token {
            let text = refused(&pair.receive(&name, &rest, &[]));
            assert!(text.contains("does not go on where"), "{text}");
        }
        let rest = pair.send("tree", &["--resume", &pair.token(&name)]);
        pair.receive_all(&name, &rest);
        pair.assert_equal("tree", &name);
    }
    pair.assert_nothing_is_left();
}

/// Feeds a receive with a part of a stream, and leaves it waiting for the rest.
fn fed(pair: &Pair, name: &str, part: &[u8]) -> Child {
    let mut child = receive(&pair.to.dir(), name, &["--save-every", "1M"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(part).unwrap();
    child
}

fn has_position(mount: &Mount) -> bool {
    let Ok(folders) = fs::read_dir(mount.join(".oncefs/receive")) else { return false };
    folders.flatten().any(|folder| folder.path().join("position").exists())
}

#[test]
fn a_receive_that_is_killed_and_whose_volume_crashes_goes_on() {
    let mut pair = Pair::new();
    make_tree(&pair.from.join("tree"));
    let stream = pair.send("tree", &[]);
    let mut child = fed(&pair, "copy", &stream[..stream.len() * 2 / 3]);
    eventually("a position is saved", || has_position(&pair.to));
    assert!(refused(&pair.receive("copy", &stream, &[])).contains("another process receives it"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!pair.to.join("copy").exists());
    pair.to.crash();
    let rest = pair.send("tree", &["--resume", &pair.token("copy")]);
    assert!(rest.len() < stream.len(), "what has arrived is not sent again");
    pair.receive_all("copy", &rest);
    pair.assert_equal("tree", "copy");
    pair.to.check();
    pair.assert_equal("tree", "copy");
}

#[test]
fn a_tree_that_changed_after_a_break_is_received_as_it_is_then() {
    let pair = Pair::new();
    let tree = pair.from.join("tree");
    fs::create_dir_all(tree.join("b")).unwrap();
    fs::write(tree.join("a"), bytes(1, 100 * 4096)).unwrap();
    fs::write(tree.join("b/large"), bytes(2, 1000 * 4096)).unwrap();
    fs::write(tree.join("b/z"), bytes(3, 100 * 4096)).unwrap();
    let stream = pair.send("tree", &[]);
    refused(&pair.receive("copy", &stream[..stream.len() * 9 / 10], &[]));
    // The file that had arrived in part is another one now.
    fs::write(tree.join("b/large"), bytes(4, 700 * 4096)).unwrap();
    pair.receive_all("copy", &pair.send("tree", &["--resume", &pair.token("copy")]));
    pair.assert_equal("tree", "copy");

    refused(&pair.receive("other", &stream[..stream.len() * 9 / 10], &[]));
    fs::remove_dir_all(tree.join("b")).unwrap();
    let rest = pair.send("tree", &["--resume", &pair.token("other")]);
    let text = refused(&pair.receive("other", &rest, &[]));
    assert!(text.contains("receive it again, all of it"), "{text}");
    assert!(receive(&pair.to.dir(), "other", &["--discard"]).status().unwrap().success());
    pair.receive_all("other", &pair.send("tree", &[]));
    pair.assert_equal("tree", "other");
    pair.assert_nothing_is_left();
}

#[test]
fn damaged_streams_and_impossible_requests_are_refused_and_leave_nothing_under_the_name() {
    let pair = Pair::new();
    make_tree(&pair.from.join("tree"));
    let stream = pair.send("tree", &[]);
    for n in 0..24 {
        let mut wrong = stream.clone();
        let at = wrong.len() * n / 24;
        wrong[at] ^= 0x10;
        let output = pair.receive("copy", &wrong, &[]);
        let text = refused(&output);
        assert!(["damaged", "not a stream", "longer"].iter().any(|word| text.contains(word)), "byte {at}: {text}");
        assert!(!pair.to.join("copy").exists());
        assert!(receive(&pair.to.dir(), "copy", &["--discard"]).status().unwrap().success());
    }
    for (stream, word) in [(&b""[..], "not a stream"), (b"garbage", "not a stream"), (&stream[..11], "ends early")] {
        assert!(refused(&pair.receive("copy", stream, &[])).contains(word));
    }
    pair.assert_nothing_is_left();
    let no_token = receive(&pair.to.dir(), "copy", &["--token"]).output().unwrap();
    assert!(refused(&no_token).contains("no receive of"), "{}", said(&no_token));
    let to = pair.stream("none");
    fs::write(pair.from.join("file"), b"").unwrap();
    assert!(refused(&send(&pair.from.join("file"), &[], &to)).contains("is not a directory"));
    assert!(refused(&send(&test_dir(), &[], &to)).contains("not in a mounted oncefs volume"));
    let wrong = send(&pair.from.join("tree"), &["--resume", "1-00"], &to);
    assert!(wrong.status.code() == Some(2) && said(&wrong).contains("not a whole token"), "{}", said(&wrong));
    let up = receive(&pair.to.dir(), "../copy", &[]).stdin(Stdio::null()).output().unwrap();
    assert!(up.status.code() == Some(2) && said(&up).contains("cannot be the name"), "{}", said(&up));
}

/// Copies a tree without its data, as a snapshot would.
fn clone_tree(from: &Path, to: &Path) {
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to));
}

fn change(tree: &Path) {
    let file = File::options().write(true).open(tree.join("dir/large")).unwrap();
    file.write_all_at(&bytes(50, 3 * 4096), 100 * BLOCK).unwrap();
    file.set_len(650 * BLOCK + 99).unwrap();
    File::options().write(true).open(tree.join("dir/same")).unwrap().set_len(300 * BLOCK + 5).unwrap();
    fs::create_dir(tree.join("new")).unwrap();
    fs::rename(tree.join("z-shifted"), tree.join("new/moved")).unwrap();
    fs::write(tree.join("new/file"), bytes(51, 5000)).unwrap();
    fs::remove_file(tree.join("dir/inner/small-9")).unwrap();
    fs::write(tree.join("dir/inner/small-10"), b"other").unwrap();
    fs::remove_file(tree.join("repeats")).unwrap();
    fs::create_dir(tree.join("repeats")).unwrap();
    sys::set_xattr(&tree.join("dir/inner/small-11"), "user.new", b"value").unwrap();
}

#[test]
fn of_a_newer_tree_only_the_changes_are_sent_and_stored() {
    let mut pair = Pair::new();
    make_tree(&pair.from.join("old"));
    clone_tree(&pair.from.join("old"), &pair.from.join("new"));
    change(&pair.from.join("new"));
    pair.receive_all("old", &pair.send("old", &[]));
    let (stored, older) = (pair.to.figure("space", "stored_bytes"), pair.from.join("old"));
    let changes = pair.send("new", &["--from", older.to_str().unwrap()]);
    assert!(changes.len() < 200_000, "{} bytes for a few changes", changes.len());
    pair.receive_all("new", &changes);
    pair.assert_equal("new", "new");
    pair.assert_equal("old", "old");
    pair.to.check();
    pair.assert_equal("new", "new");
    let more = pair.to.figure("space", "stored_bytes") - stored;
    assert!(more < 200_000, "{more} bytes more for a few changes");
    pair.assert_nothing_is_left();

    // The same in two parts.
    for part in [2, 3] {
        let name = format!("new-{part}");
        refused(&pair.receive(&name, &changes[..changes.len() * (part - 1) / part], &[]));
        let token = pair.token(&name);
        let without = send(&pair.from.join("new"), &["--resume", &token], &pair.stream("none"));
        assert!(refused(&without).contains("of another stream"), "{}", said(&without));
        let rest = pair.send("new", &["--from", older.to_str().unwrap(), "--resume", &token]);
        pair.receive_all(&name, &rest);
        pair.assert_equal("new", &name);
    }
}

#[test]
fn changes_are_refused_where_the_older_tree_is_missing_or_was_changed() {
    let pair = Pair::new();
    make_tree(&pair.from.join("old"));
    clone_tree(&pair.from.join("old"), &pair.from.join("new"));
    change(&pair.from.join("new"));
    let older = pair.from.join("old");
    let changes = pair.send("new", &["--from", older.to_str().unwrap()]);
    assert!(refused(&pair.receive("new", &changes, &[])).contains("receive that one into the same directory first"));
    pair.assert_nothing_is_left();
    fs::create_dir(pair.to.join("elsewhere")).unwrap();
    let mut elsewhere = receive(&pair.to.join("elsewhere"), "old", &[]);
    let full = pair.stream("full");
    fs::write(&full, pair.send("old", &[])).unwrap();
    assert!(elsewhere.stdin(File::open(&full).unwrap()).status().unwrap().success());
    let at = pair.to.join("elsewhere/old");
    let output = pair.receive("new", &changes, &["--older", at.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    pair.assert_equal("new", "new");
    let file = File::options().write(true).open(at.join("dir/large")).unwrap();
    file.write_all_at(b"x", 5).unwrap();
    drop(file);
    let output = pair.receive("again", &changes, &["--older", at.to_str().unwrap()]);
    assert!(refused(&output).contains("dir/large: a file of the older tree was changed"), "{}", said(&output));
    assert!(!pair.to.join("again").exists());
    let apart = send(&pair.from.join("new"), &["--from", at.to_str().unwrap()], &pair.stream("none"));
    assert!(refused(&apart).contains("is in another mount"), "{}", said(&apart));
}

/// A program in place of ssh(1) that runs the command here.
fn shell(pair: &Pair) -> PathBuf {
    let programs = pair.stream("programs");
    fs::create_dir(&programs).unwrap();
    symlink(oncefs(), programs.join("oncefs")).unwrap();
    let shell = pair.stream("shell");
    let text =
        format!("#!/bin/sh\n[ \"$1\" = host ] || exit 9\nshift\nPATH={}:$PATH exec sh -c \"$*\"\n", programs.display());
    // Another process writes it: while this one has it open for writing, no thread's child could run it.
    run(Command::new("sh").args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "-", &text]).arg(&shell));
    shell
}

#[test]
fn a_tree_is_sent_to_another_machine_by_one_command_that_goes_on_when_it_is_run_again() {
    let pair = Pair::new();
    make_tree(&pair.from.join("tree"));
    let shell = shell(&pair);
    let send_to = |host: &str, name: &str| {
        let mut command = Command::new(oncefs());
        command.arg("send").arg(pair.from.join("tree")).arg("--rsh").arg(&shell);
        command.arg("--to").arg(host).arg(pair.to.join(name)).stdin(Stdio::null());
        command.output().unwrap()
    };
    let output = send_to("host", "it's a copy");
    assert!(output.status.success() && output.stdout.is_empty(), "{}", said(&output));
    pair.assert_equal("tree", "it's a copy");
    let text = refused(&send_to("host", "it's a copy"));
    assert!(text.contains("it exists") && text.contains("host"), "the other side says why: {text}");
    let stream = pair.send("tree", &[]);
    refused(&pair.receive("rest", &stream[..stream.len() / 2], &[]));
    let output = send_to("host", "rest");
    assert!(output.status.success(), "{}", said(&output));
    assert!(!said(&output).contains(&format!("sent {} entries", described(&pair.from.join("tree")).len() - 1)));
    pair.assert_equal("tree", "rest");
    pair.assert_nothing_is_left();
    assert!(refused(&send_to("nowhere", "copy")).contains("nowhere"));
}

#[test]
fn snapshots_are_sent_as_they_were_and_the_later_one_by_its_changes() {
    let pair = Pair::new();
    let home = pair.from.join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("file"), bytes(1, 500 * 4096)).unwrap();
    let snapshot = |name: &str| {
        run(Command::new(oncefs()).args(["snapshot", "create"]).arg(&home).arg(name));
    };
    snapshot("one");
    File::options().append(true).open(home.join("file")).unwrap().write_all(b"more").unwrap();
    snapshot("two");
    fs::remove_file(home.join("file")).unwrap();
    let [one, two] = ["one", "two"].map(|name| format!(".oncefs/snapshots/{name}"));
    pair.receive_all("one", &pair.send(&one, &[]));
    let changes = pair.send(&two, &["--from", pair.from.join(&one).to_str().unwrap()]);
    assert!(changes.len() < 10_000, "{} bytes for an appended word", changes.len());
    pair.receive_all("two", &changes);
    pair.assert_equal(&one, "one");
    pair.assert_equal(&two, "two");
}
