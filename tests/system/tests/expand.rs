//! `oncefs compress` and `oncefs expand` on a mounted volume: they do at once what they are asked for, and a volume that is
//! expanded has the form that it had before. Clones, snapshots and streams treat compressed blocks as any.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use oncefs_system_tests::{BLOCK, Mount, bytes, leave_free, oncefs, run, run_json, test_dir};
use serde_json::Value;

use crate::compress::text;
use crate::disks::{Attached, disk, write_synced};

/// Where a superblock has its version.
const VERSION_AT: usize = 16;

fn command(what: &str, paths: &[&Path]) -> Output {
    Command::new(oncefs()).arg(what).args(paths).stdin(Stdio::null()).output().unwrap()
}

fn done(what: &str, paths: &[&Path]) -> Value {
    run_json(Command::new(oncefs()).args([what, "--json"]).args(paths))
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A mount that may compress and does not by itself, with files that shrink, one that does not, and a copy.
fn mount() -> (Mount, Vec<Vec<u8>>) {
    let mount = Mount::on(&test_dir(), "256M", &["compress=later", "worker=off", "inline=all"]);
    let mut files: Vec<Vec<u8>> = (0..4).map(|n| text(300, n)).collect();
    files.push(bytes(7, (100 * BLOCK) as usize));
    files.push(files[0].clone());
    fs::create_dir(mount.join("tree")).unwrap();
    for (n, content) in files.iter().enumerate() {
        fs::write(mount.join(format!("tree/{n}")), content).unwrap();
    }
    (mount, files)
}

fn assert_same(top: &Path, files: &[Vec<u8>]) {
    for (n, content) in files.iter().enumerate() {
        assert!(
            fs::read(top.join(n.to_string())).unwrap() == *content,
            "file {n} of {} has other bytes",
            top.display()
        );
    }
}

fn version(mount: &Mount) -> u8 {
    fs::read(mount.volume().join("superblock")).unwrap()[VERSION_AT]
}

#[test]
fn files_are_compressed_and_expanded_at_once_and_the_volume_gets_its_old_form_back() {
    let (mut mount, files) = mount();
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    let before = mount.figure("space", "stored_bytes");
    let one = mount.join("tree/1");
    let figures = done("compress", &[&one]);
    assert_eq!((&figures["complete"], &figures["compressed_bytes"]), (&Value::Bool(true), &Value::from(300 * BLOCK)));
    let figures = done("compress", &[&mount.dir()]);
    assert_eq!(figures["compressed_bytes"], 1_200 * BLOCK, "what is shared counts once");
    let explained = run(Command::new(oncefs()).args(["explain", "--no-names"]).arg(&one));
    assert!(explained.contains("; compressed to "), "{explained}");
    let text = refused(&command("expand", &[&mount.dir()]));
    assert!(text.contains("-o compress=off"), "{text}");
    // A file whose policy is not to be compressed.
    let two = mount.join("tree/2");
    assert!(refused(&command("expand", &[&two])).contains("compress=off"));
    run(Command::new(oncefs()).args(["policy", "set"]).arg(&two).arg("compress=off"));
    let figures = done("expand", &[&two]);
    assert_eq!((&figures["blocks_expanded"], &figures["compressed_bytes"]), (&300.into(), &(900 * BLOCK).into()));
    mount.umount();
    assert_eq!(version(&mount), 3);
    mount.set_options(&["compress=off", "worker=off", "inline=all"]);
    mount.mount();

    let figures = done("expand", &[&one]);
    assert_eq!((&figures["blocks_expanded"], &figures["compressed_bytes"]), (&300.into(), &(600 * BLOCK).into()));
    let figures = done("expand", &[&mount.dir()]);
    assert_eq!((&figures["complete"], &figures["compressed_bytes"]), (&Value::Bool(true), &0.into()));
    assert_eq!(mount.figure("space", "stored_bytes"), before, "what was shared is shared");
    assert_same(&mount.join("tree"), &files);
    mount.umount();
    // An earlier version takes a policy of a file's own for compression for damaged.
    assert_eq!(version(&mount), 3);
    mount.mount();
    run(Command::new(oncefs()).args(["policy", "set"]).arg(&two).arg("compress=none"));
    mount.umount();
    assert!(version(&mount) < 3, "version {}", version(&mount));
    assert!(!mount.volume().join("fragments").exists());
    mount.assert_clean();
    mount.mount();
    assert_same(&mount.join("tree"), &files);
    // And once more.
    mount.umount();
    mount.set_options(&["compress=later", "worker=off"]);
    mount.mount();
    done("compress", &[&mount.dir()]);
    assert_same(&mount.join("tree"), &files);
    mount.crash();
    assert_same(&mount.join("tree"), &files);
    mount.check();
}

#[test]
fn a_volume_without_room_is_not_begun_to_be_expanded_and_says_how_much_it_takes() {
    let (mut mount, files) = mount();
    done("compress", &[&mount.dir()]);
    mount.umount();
    mount.set_options(&["compress=off", "worker=off", "inline=all"]);
    mount.mount();
    leave_free(&mount, 1 << 20);
    let before = mount.figure("space", "fragment_bytes");
    let text = refused(&command("expand", &[&mount.dir()]));
    assert!(text.contains(" takes ") && text.contains("are available") && text.contains("oncefs grow"), "{text}");
    let text = refused(&command("expand", &[&mount.join("tree/1"), &mount.join("tree/2")]));
    assert!(text.contains("these files") && text.contains(" takes up to ") && text.contains("name fewer"), "{text}");
    assert_eq!(mount.figure("space", "fragment_bytes"), before);
    assert_same(&mount.join("tree"), &files);
}

#[test]
fn clones_snapshots_and_streams_treat_compressed_blocks_as_any() {
    let (mut mount, files) = mount();
    done("compress", &[&mount.dir()]);
    let stored = mount.figure("space", "stored_bytes");
    run(Command::new(oncefs()).arg("clone").arg(mount.join("tree")).arg(mount.join("clone")));
    run(Command::new(oncefs()).args(["snapshot", "create"]).arg(mount.join("tree")).arg("one"));
    assert_eq!(mount.figure("space", "stored_bytes"), stored, "copies of compressed files take nothing");
    let stream = test_dir().join(format!("stream-of-fragments-{}", std::process::id()));
    let out = File::create(&stream).unwrap();
    let sent = Command::new(oncefs()).arg("send").arg(mount.join("tree")).stdout(out).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let to = Mount::on(&test_dir(), "256M", &["worker=off"]);
    let input = File::open(&stream).unwrap();
    let received = Command::new(oncefs()).arg("receive").arg(to.dir()).arg("tree").stdin(input).output().unwrap();
    fs::remove_file(&stream).unwrap();
    assert!(received.status.success(), "{received:?}");
    assert_same(&to.join("tree"), &files);
    assert_same(&mount.join("clone"), &files);

    // A write beside them, and the way back with all of the copies.
    fs::write(mount.join("tree/2"), text(10, 99)).unwrap();
    mount.umount();
    mount.assert_clean();
    mount.set_options(&["compress=off", "worker=off", "inline=all"]);
    mount.mount();
    let figures = done("expand", &[&mount.dir()]);
    assert_eq!(figures["compressed_bytes"], 0, "{figures}");
    assert_same(&mount.join("clone"), &files);
    run(Command::new(oncefs()).args(["snapshot", "remove"]).arg(mount.dir()).arg("one"));
    mount.check();
}

#[test]
fn a_disk_that_is_compressed_and_expanded_has_the_same_blocks_and_so_has_its_snapshot() {
    let mut mount = Mount::on(&test_dir(), "512M", &["compress=later", "worker=off"]);
    run(&mut disk(&mount, "create", &["home", "128M"]));
    let attached = Attached::new(&mount, "home", true);
    let content = text(1_000, 5);
    write_synced(&attached.join("file"), &content);
    run(Command::new(oncefs()).arg("compress").arg(mount.dir()));
    assert!(mount.figure("space", "compressed_bytes") >= content.len() as u64, "the disk's blocks shrink");
    run(&mut disk(&mount, "snapshot", &["home", "one"]));
    let changed = text(500, 6);
    write_synced(&attached.join("other"), &changed);
    attached.umount();
    run(&mut disk(&mount, "detach", &["home"]));
    mount.umount();
    mount.set_options(&["compress=off", "worker=off"]);
    mount.mount();
    run(Command::new(oncefs()).arg("expand").arg(mount.dir()));
    assert_eq!(mount.figure("space", "compressed_bytes"), 0);
    let attached = Attached::new(&mount, "home", false);
    assert!(
        fs::read(attached.join("file")).unwrap() == content && fs::read(attached.join("other")).unwrap() == changed
    );
    let seen = Attached::read_only(&mount, "home@one");
    assert!(fs::read(seen.join("file")).unwrap() == content && !seen.join("other").exists());
}
