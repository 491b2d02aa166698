//! A sender that asks which contents the other volume has, and does not send those.

use super::*;

/// Sends the tree to the other volume with --ask. Returns the bytes of the stream as the sender told them.
fn send_asking(pair: &Pair, shell: &Path, name: &str) -> Output {
    let mut command = Command::new(oncefs());
    command.arg("send").arg(pair.from.join("tree")).arg("--rsh").arg(shell).arg("--ask");
    command.arg("--to").arg("host").arg(pair.to.join(name)).stdin(Stdio::null());
    command.output().unwrap()
}

/// A shell that also keeps what is sent, in the file `kept`.
fn keeping_shell(pair: &Pair, shell: &Path) -> PathBuf {
    let keeping = pair.stream("keeping-shell");
    let (kept, shell) = (pair.stream("kept"), shell.display().to_string());
    let text = format!("#!/bin/sh\ntee {} | {shell} \"$@\"\n", kept.display());
    run(Command::new("sh").args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "-", &text]).arg(&keeping));
    keeping
}

#[test]
fn contents_that_the_other_volume_has_are_not_sent() {
    let mut pair = Pair::new();
    let (tree, blocks) = (pair.from.join("tree"), 600);
    fs::create_dir_all(tree.join("dir")).unwrap();
    let known = bytes(1, blocks * 4096 + 1234);
    fs::write(tree.join("dir/known"), &known).unwrap();
    fs::write(tree.join("mixed"), [&known[4096 * 100..4096 * 300], &bytes(2, 50 * 4096)].concat()).unwrap();
    fs::write(tree.join("own"), bytes(3, 100 * 4096 + 5)).unwrap();
    fs::write(tree.join("small"), &known[..8192]).unwrap();
    fs::write(pair.to.join("elsewhere"), &known).unwrap();
    run(Command::new(oncefs()).arg("sync").arg(pair.to.dir()));
    let stored = pair.to.figure("space", "stored_bytes");
    let shell = keeping_shell(&pair, &shell(&pair));

    let output = send_asking(&pair, &shell, "copy");
    assert!(output.status.success(), "{}", said(&output));
    pair.assert_equal("tree", "copy");
    let sent = fs::metadata(pair.stream("kept")).unwrap().len();
    assert!(sent < 240 * BLOCK, "{sent} bytes, though only 150 blocks are new");
    pair.assert_nothing_is_left();
    let more = pair.to.figure("space", "stored_bytes") - stored;
    assert!(more <= 152 * BLOCK, "{more} bytes more for 151 new blocks");
    fs::remove_file(pair.to.join("elsewhere")).unwrap();
    pair.to.check();
    pair.assert_equal("tree", "copy");

    // The same stream makes no sense where nobody answers.
    let output = pair.receive("again", &fs::read(pair.stream("kept")).unwrap(), &[]);
    assert!(refused(&output).contains("nobody reads the answers"), "{}", said(&output));
    assert!(receive(&pair.to.dir(), "again", &["--discard"]).status().unwrap().success());
}

#[test]
fn a_sender_that_asks_goes_on_after_a_break_and_is_refused_as_one_that_does_not() {
    let pair = Pair::new();
    make_tree(&pair.from.join("tree"));
    fs::write(pair.to.join("elsewhere"), bytes(1, 600 * 4096 + 1234)).unwrap();
    let shell = shell(&pair);
    let stream = pair.send("tree", &[]);
    refused(&pair.receive("copy", &stream[..stream.len() / 2], &[]));
    let output = send_asking(&pair, &shell, "copy");
    assert!(output.status.success(), "{}", said(&output));
    pair.assert_equal("tree", "copy");
    pair.assert_nothing_is_left();
    let text = refused(&send_asking(&pair, &shell, "copy"));
    assert!(text.contains("it exists"), "{text}");
}
