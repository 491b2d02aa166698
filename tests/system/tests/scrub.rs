//! Rot on a mounted volume: bytes of the data file are flipped, the scrub names the files, reading is an error and not
//! other bytes, and any good copy of the content heals. A killed daemon's scrub goes on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{Mount, bytes, eventually, oncefs, run, test_dir};
use serde_json::Value;

const BLOCK: usize = oncefs_system_tests::BLOCK as usize;
const FILE_BLOCKS: usize = 200;
/// The block that is damaged.
const HIT: usize = 77;

/// Runs `oncefs scrub` with `--json`; gives its exit code and what it said.
fn scrub(mount: &Mount, arguments: &[&str]) -> (i32, Value) {
    let mut command = Command::new(oncefs());
    let output = command.arg("scrub").arg(mount.dir()).arg("--json").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = serde_json::from_str(&said);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), value.unwrap_or_else(|_| panic!("not JSON: {said}{error}")))
}

fn tell(mount: &Mount, arguments: &[&str]) {
    let output = Command::new(oncefs()).arg("scrub").arg(mount.dir()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Flips one bit of the block with this content, wherever the data file has it.
fn rot(volume: &Path, content: &[u8]) {
    let file = File::options().read(true).write(true).open(volume.join("data")).unwrap();
    let mut block = vec![0; BLOCK];
    let blocks = file.metadata().unwrap().len() / BLOCK as u64;
    let mut hits = 0;
    for at in (0..blocks).map(|n| n * BLOCK as u64) {
        file.read_exact_at(&mut block, at).unwrap();
        if block == content {
            file.write_all_at(&[block[1000] ^ 16], at + 1000).unwrap();
            hits += 1;
        }
    }
    file.sync_all().unwrap();
    assert_eq!(hits, 1, "the content is stored once");
}

fn block_of(file: &Path, n: usize) -> io::Result<Vec<u8>> {
    let mut block = vec![0; BLOCK];
    File::open(file)?.read_exact_at(&mut block, (n * BLOCK) as u64)?;
    Ok(block)
}

fn assert_damaged(file: &Path, content: &[u8]) {
    assert_eq!(block_of(file, HIT).unwrap_err().raw_os_error(), Some(libc::EIO));
    for n in (0..FILE_BLOCKS).filter(|n| n.abs_diff(HIT) > 1) {
        assert!(block_of(file, n).unwrap() == content[n * BLOCK..][..BLOCK], "block {n}");
    }
    let cat = Command::new("cat").arg(file).output().unwrap();
    assert!(!cat.status.success(), "cat reads past the damage");
    assert!(content.starts_with(&cat.stdout) && cat.stdout.len() <= HIT * BLOCK, "and gave bytes of it");
}

#[test]
fn a_flipped_bit_is_named_never_read_and_healed_by_a_good_copy() {
    let good = tempfile::tempdir_in(test_dir()).unwrap();
    let content = bytes(5, FILE_BLOCKS * BLOCK);
    fs::write(good.path().join("good"), &content).unwrap();
    for verify in ["verify=read", "verify=off"] {
        let mut mount = Mount::on(&test_dir(), "128M", &["inline=all", "worker=off", verify]);
        let (one, two) = (mount.join("a/b/one"), mount.join("two"));
        fs::create_dir_all(mount.join("a/b")).unwrap();
        [&one, &two].iter().for_each(|path| fs::write(path, &content).unwrap());
        fs::hard_link(&one, mount.join("a/link")).unwrap();
        assert_eq!(scrub(&mount, &[]).0, 0, "nothing is damaged");
        let used = mount.figure("space", "stored_bytes");
        mount.umount();
        rot(&mount.volume(), &content[HIT * BLOCK..][..BLOCK]);
        mount.mount();

        let (code, said) = scrub(&mount, &[]);
        assert_eq!(code, 4, "{said:#}");
        assert_eq!(said["scrub"]["blocks_bad_found"], 1, "{said:#}");
        assert_eq!(said["damage"]["complete"], true);
        let files = said["damage"]["files"].as_array().unwrap();
        let mut paths: Vec<&str> = files
            .iter()
            .flat_map(|file| file["paths"].as_array().unwrap())
            .map(|path| path.as_str().unwrap())
            .collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/a/b/one", "/a/link", "/two"], "{said:#}");
        for file in files {
            let range = &file["ranges"][0];
            assert_eq!((&range["offset"], &range["length"]), (&Value::from(HIT * BLOCK), &Value::from(BLOCK)));
            assert_eq!(range["lost"], true);
        }
        [&one, &two].iter().for_each(|file| assert_damaged(file, &content));
        assert_eq!(mount.figure("counters", "blocks_bad"), 1);
        mount.umount();
        let (code, said) = mount.fsck();
        assert_eq!(code, 4, "a damage that is known is no clean volume: {said}");
        let wanted = ["is known to be damaged, and its content is lost", "/a/link, /a/b/one: at byte", "/two: at byte"];
        wanted.iter().for_each(|line| assert!(said.contains(line), "no '{line}': {said}"));
        mount.mount();
        [&one, &two].iter().for_each(|file| assert_damaged(file, &content));

        // The content comes back with a file of another name.
        assert!(Command::new("cp").arg(good.path().join("good")).arg(mount.join("again")).status().unwrap().success());
        let sync = Command::new("sync").arg(mount.join("again")).status().unwrap();
        assert!(sync.success());
        mount.wait_for("counters", "blocks_repaired", |healed| healed == 1);
        [&one, &two].iter().for_each(|file| assert!(fs::read(file).unwrap() == content));
        assert_eq!(scrub(&mount, &["--status"]).0, 3, "healed, and not yet moved");
        let (code, said) = scrub(&mount, &[]);
        assert_eq!((code, &said["scrub"]["blocks_bad"]), (0, &Value::from(0)), "{said:#}");
        assert_eq!(mount.figure("space", "stored_bytes"), used, "the block is in use again");
        mount.check();
        [&one, &two, &mount.join("again")].iter().for_each(|file| assert!(fs::read(file).unwrap() == content));
    }
}

#[test]
fn status_tells_of_damage() {
    let mount = Mount::new("256M");
    let content = bytes(21, FILE_BLOCKS * BLOCK);
    fs::write(mount.join("file"), &content).unwrap();
    File::open(mount.join("file")).unwrap().sync_all().unwrap();
    // The disk of a test may be as full as it likes.
    let status = || Command::new(oncefs()).args(["status", "--free-min", "0"]).arg(mount.dir()).output().unwrap();
    assert_eq!(status().status.code(), Some(0));
    rot(&mount.volume(), &content[HIT * BLOCK..][..BLOCK]);
    assert_eq!(scrub(&mount, &[]).0, 4);
    let said = status();
    let line = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.code() == Some(1) && line.contains("4.00 KiB of data are damaged"), "{line}");
    assert_eq!(mount.stats()["health"]["findings"][0]["cause"], "damage");
    let metrics = run(Command::new(oncefs()).arg("metrics").arg(mount.dir()));
    let bad = metrics.lines().find(|line| line.starts_with("oncefs_bad_bytes{")).unwrap_or_else(|| panic!("{metrics}"));
    assert!(bad.ends_with(" 4096") && metrics.contains("cause=\"damage\"} 1"), "{metrics}");
}

#[test]
fn a_second_copy_keeps_files_whole() {
    let mut mount = Mount::on(&test_dir(), "128M", &["inline=all", "worker=off"]);
    let content = bytes(6, FILE_BLOCKS * BLOCK);
    (0..6).for_each(|n| fs::write(mount.join(format!("{n}")), &content).unwrap());
    assert_eq!(scrub(&mount, &["--replicate-refs-above", "4"]).0, 0);
    assert_eq!(mount.figure("counters", "replicas_made"), FILE_BLOCKS as u64);
    mount.umount();
    // One of the two: what the data file has first.
    let file = File::options().read(true).write(true).open(mount.volume().join("data")).unwrap();
    let wanted = &content[HIT * BLOCK..][..BLOCK];
    let mut block = vec![0; BLOCK];
    let at = (0..).map(|n| n * BLOCK as u64).find(|at| {
        file.read_exact_at(&mut block, *at).unwrap();
        block == wanted
    });
    file.write_all_at(&[!wanted[0]], at.unwrap()).unwrap();
    file.sync_all().unwrap();
    mount.mount();
    (0..6).for_each(|n| assert!(fs::read(mount.join(format!("{n}"))).unwrap() == content));
    let (code, said) = scrub(&mount, &[]);
    assert!([0, 3].contains(&code), "{said:#}");
    assert_eq!(said["scrub"]["blocks_lost"], 0);
    mount.check();
    (0..6).for_each(|n| assert!(fs::read(mount.join(format!("{n}"))).unwrap() == content));
}

#[test]
fn a_killed_daemon_s_scrub_goes_on_where_it_was() {
    let mut mount = Mount::on(&test_dir(), "256M", &["worker=off"]);
    let blocks = 10_000;
    fs::write(mount.join("file"), bytes(7, blocks * BLOCK)).unwrap();
    tell(&mount, &["--start", "--rate", "8M"]);
    let done = |mount: &Mount| scrub(mount, &["--status"]).1["scrub"]["blocks_done"].as_u64().unwrap();
    eventually("2,000 blocks are scrubbed", || done(&mount) >= 2_000);
    tell(&mount, &["--pause"]);
    let at = done(&mount);
    tell(&mount, &["--resume"]);
    let synced = Command::new(oncefs()).arg("sync").arg(mount.dir()).status().unwrap();
    assert!(synced.success());
    mount.crash();
    let (_, said) = scrub(&mount, &["--status"]);
    assert_eq!(said["scrub"]["state"], "running", "{said:#}");
    assert!(said["scrub"]["blocks_done"].as_u64().unwrap() >= at, "{said:#}");
    let (code, said) = scrub(&mount, &["--rate", "0"]);
    assert_eq!((code, &said["scrub"]["blocks_done"]), (0, &Value::from(blocks)), "{said:#}");
    let read_since = mount.figure("counters", "blocks_scrubbed");
    assert!(read_since <= blocks as u64 - at, "{read_since} blocks were read after the crash, {at} before");
    mount.check();
}
