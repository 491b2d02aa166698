//! `-o compress=later` and `-o compress=inline` on a mounted volume: files shrink while programs use them, and are the same
//! afterwards.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{BLOCK, Mount, Random, bytes, oncefs, run, test_dir};

/// Lines that no other seed gives, and that shrink to about a third.
pub fn text(blocks: u64, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut text = String::new();
    while (text.len() as u64) < blocks * BLOCK {
        let word = random.below(50_000);
        text += &format!("line {word} of file {seed}, {}\n", word * 7);
    }
    text.truncate((blocks * BLOCK) as usize);
    text.into_bytes()
}

#[test]
fn files_shrink_while_they_are_rewritten_and_survive_a_kill_and_a_mount_without_the_option() {
    let mut mount = Mount::on(&test_dir(), "256M", &["compress=later", "worker=always"]);
    let mut files: Vec<Vec<u8>> = (0..6).map(|n| text(300, n)).collect();
    files.push(bytes(7, (300 * BLOCK) as usize));
    for (n, content) in files.iter().enumerate() {
        fs::write(mount.join(n.to_string()), content).unwrap();
    }
    fs::copy(mount.join("0"), mount.join("copy of 0")).unwrap();
    File::open(mount.dir()).unwrap().sync_all().unwrap();
    mount.wait_for("counters", "blocks_compressed", |blocks| blocks > 300);
    let file = File::options().write(true).open(mount.join("1")).unwrap();
    for n in (0..300).step_by(7) {
        let block = text(1, 1_000 + n);
        file.write_all_at(&block, n * BLOCK).unwrap();
        files[1][(n * BLOCK) as usize..((n + 1) * BLOCK) as usize].copy_from_slice(&block);
    }
    file.sync_all().unwrap();
    let used_max = (300 * 6 / 2 + 300) * BLOCK;
    mount.wait_for("space", "stored_bytes", |bytes| bytes < used_max);
    let assert_same = |mount: &Mount| {
        for (n, content) in files.iter().enumerate() {
            assert!(fs::read(mount.join(n.to_string())).unwrap() == *content, "file {n} has other bytes");
        }
        assert!(fs::read(mount.join("copy of 0")).unwrap() == files[0], "the copy has other bytes");
    };
    assert_same(&mount);
    mount.crash();
    assert_same(&mount);
    mount.umount();
    mount.assert_clean();
    mount.set_options(&["compress=off"]);
    mount.mount();
    assert_same(&mount);
    for n in 0..files.len() {
        fs::remove_file(mount.join(n.to_string())).unwrap();
    }
    fs::remove_file(mount.join("copy of 0")).unwrap();
    mount.wait_for("space", "stored_bytes", |bytes| bytes < 20 * BLOCK);
    mount.check();
}

#[test]
fn gaps_are_closed_and_damaged_entries_of_fragments_are_found_again() {
    let mut mount = Mount::on(&test_dir(), "256M", &["compress=later", "worker=always"]);
    let mut files: Vec<Vec<u8>> = (0..6).map(|n| text(300, n)).collect();
    for (n, content) in files.iter().enumerate() {
        fs::write(mount.join(n.to_string()), content).unwrap();
    }
    File::open(mount.dir()).unwrap().sync_all().unwrap();
    // Single blocks may be left to a later pass.
    let compressed_min = 6 * 300 * BLOCK / 100 * 95;
    mount.wait_for("space", "compressed_bytes", |bytes| bytes > compressed_min);
    for (number, content) in files.iter_mut().enumerate() {
        let file = File::options().write(true).open(mount.join(number.to_string())).unwrap();
        for n in (0..300).filter(|n| n % 4 > 0) {
            let block = text(1, 10_000 * (1 + number as u64) + n);
            file.write_all_at(&block, n * BLOCK).unwrap();
            content[(n * BLOCK) as usize..((n + 1) * BLOCK) as usize].copy_from_slice(&block);
        }
        file.sync_all().unwrap();
    }
    mount.wait_for("counters", "fragments_repacked", |fragments| fragments > 300);
    mount.wait_for("space", "compressed_bytes", |bytes| bytes > compressed_min);
    let assert_same = |mount: &Mount| {
        for (n, content) in files.iter().enumerate() {
            assert!(fs::read(mount.join(n.to_string())).unwrap() == *content, "file {n} has other bytes");
        }
    };
    assert_same(&mount);
    mount.crash();
    assert_same(&mount);
    mount.umount();
    let entries = File::options().read(true).write(true).open(mount.volume().join("fragments")).unwrap();
    let mut hit = 0;
    for sector in 0..entries.metadata().unwrap().len() / 512 {
        let mut byte = [0];
        entries.read_exact_at(&mut byte, sector * 512 + 20).unwrap();
        // Every seventh sector with entries.
        if byte[0] != 0 && sector % 7 == 0 {
            entries.write_all_at(&[!byte[0]], sector * 512 + 20).unwrap();
            hit += 1;
        }
    }
    assert!(hit > 5, "{hit} sectors are damaged");
    let fsck = |arguments: &[&str]| {
        let output = Command::new(oncefs()).arg("fsck").args(arguments).arg(mount.volume()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    };
    let (code, said) = fsck(&["-n"]);
    assert!(code == 4 && said.contains("[rule 6]"), "{code}: {said}");
    let (code, said) = fsck(&["-p"]);
    assert_eq!(code & 4, 4, "not without asking: {said}");
    let (code, said) = fsck(&["-y"]);
    assert_eq!(code, 1, "{said}");
    let (code, said) = fsck(&["-n", "-d"]);
    assert_eq!(code, 0, "{said}");
    mount.mount();
    assert_same(&mount);
    mount.check();
}

fn policy_set(path: &Path, policies: &[&str]) {
    run(Command::new(oncefs()).args(["policy", "set"]).arg(path).args(policies));
}

#[test]
fn what_is_compressed_as_it_is_written_is_the_same_after_a_kill_and_follows_the_policies_of_directories() {
    let mut mount = Mount::on(&test_dir(), "256M", &["compress=inline", "compress_method=lz4", "worker=off"]);
    fs::create_dir(mount.join("off")).unwrap();
    policy_set(&mount.join("off"), &["compress=off"]);
    let files = [("text", text(300, 1)), ("random", bytes(2, (300 * BLOCK) as usize)), ("off/text", text(300, 3))];
    for (name, content) in &files {
        fs::write(mount.join(name), content).unwrap();
        File::open(mount.join(name)).unwrap().sync_all().unwrap();
    }
    let compressed = mount.figure("counters", "blocks_compressed_inline");
    assert!((200..=300).contains(&compressed), "{compressed} blocks are compressed");
    assert!(mount.figure("counters", "write_requests_incompressible") > 0);
    let assert_same = |mount: &Mount| {
        for (name, content) in &files {
            assert!(fs::read(mount.join(name)).unwrap() == *content, "{name} has other bytes");
        }
    };
    assert_same(&mount);
    mount.crash();
    assert_same(&mount);
    policy_set(&mount.join("off"), &["off", "compress=inline"]);
    fs::write(mount.join("off/again"), text(300, 4)).unwrap();
    File::open(mount.join("off/again")).unwrap().sync_all().unwrap();
    assert!(mount.figure("counters", "blocks_compressed_inline") >= 200);
    mount.check();
}
