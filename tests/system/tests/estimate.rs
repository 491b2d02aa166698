//! `oncefs estimate` beside a real volume: what it says of a tree is what the volume then saves.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{Mount, Random, bytes, oncefs, run, run_json, test_dir};
use serde_json::Value;

/// Savings may differ by so many points.
const POINTS_MAX: f64 = 2.0;
const BLOCK: usize = 4096;

/// A tree with copies, parts of copies, scattered blocks of others, small files with tails, and a sparse file: 30 MiB,
/// less than a volume wants to hold before it measures its device.
fn make_tree(top: &Path) {
    let mut random = Random::new(11);
    fs::create_dir_all(top.join("small")).unwrap();
    let originals: Vec<Vec<u8>> = (0..8).map(|n| bytes(n, 512 * BLOCK + 100)).collect();
    for (n, original) in originals.iter().enumerate() {
        fs::write(top.join(format!("original-{n}")), original).unwrap();
    }
    fs::write(top.join("whole-copy"), &originals[0]).unwrap();
    fs::write(top.join("part-of-a-copy"), &originals[1][40 * BLOCK..300 * BLOCK]).unwrap();
    for n in 0..4 {
        let block = |at: u64| match random.below(3) {
            0 => originals[random.index(8)][random.index(512) * BLOCK..][..BLOCK].to_vec(),
            _ => bytes(1_000 * (n + 1) + at, BLOCK),
        };
        fs::write(top.join(format!("scattered-{n}")), (0..600).flat_map(block).collect::<Vec<u8>>()).unwrap();
    }
    for n in 0..600 {
        let len = 1 + random.index(3 * BLOCK);
        fs::write(top.join(format!("small/{n}")), bytes(5_000 + n % 400, len)).unwrap();
    }
    let sparse = File::create(top.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(&originals[2][..64 * BLOCK], 32 << 20).unwrap();
}

fn estimate(paths: &[&Path]) -> Value {
    run_json(Command::new(oncefs()).arg("estimate").args(paths).arg("--json"))
}

#[test]
fn what_is_estimated_is_what_a_volume_saves() {
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    let tree = scratch.path().join("tree");
    make_tree(&tree);
    let estimated = estimate(&[&tree]);
    let desktop = &estimated["profiles"][0];
    assert_eq!(desktop["profile"], "desktop");

    let mount = Mount::new("256M");
    run(Command::new("cp").arg("-a").arg(&tree).arg(mount.dir()));
    run(Command::new(oncefs()).args(["dedup", "--now", "--full"]).arg(mount.dir()));
    let (held, stored) = (mount.figure("space", "held_bytes"), mount.figure("space", "stored_bytes"));
    let saved = 100.0 * (held - stored) as f64 / held as f64;
    println!("estimated {desktop}\nsaved {saved:.2} %");
    assert!((desktop["percent"].as_f64().unwrap() - saved).abs() <= POINTS_MAX, "{desktop}, not {saved} %");
    let blocks = estimated["read"]["blocks"].as_u64().unwrap();
    assert_eq!(blocks * BLOCK as u64, held, "blocks are counted as a volume counts them");

    assert_eq!(
        estimate(&[&mount.join("tree")])["duplicates"],
        estimated["duplicates"],
        "the same files, on the volume"
    );
}

#[test]
fn what_compression_is_estimated_to_save_is_what_a_mount_saves() {
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..40 {
        let content = match n % 4 {
            0 => bytes(n, 60 * BLOCK),
            1 => crate::compress::text(90, n / 8),
            2 => crate::compress::text(3, n),
            _ => [vec![n as u8; 5 * BLOCK], bytes(n, 1_000), crate::compress::text(20, n)].concat(),
        };
        fs::write(tree.join(n.to_string()), content).unwrap();
    }
    let estimated = estimate(&[&tree]);
    let of_method =
        |method: &Value| (method["method"] == "zstd:1").then(|| method["saved_with_dedup_percent"].as_f64());
    let percent = estimated["compression"].as_array().unwrap().iter().find_map(of_method).flatten().unwrap();

    let mount = Mount::on(&test_dir(), "256M", &["compress=later"]);
    run(Command::new("cp").arg("-a").arg(&tree).arg(mount.dir()));
    run(Command::new(oncefs()).args(["dedup", "--now", "--full"]).arg(mount.dir()));
    run(Command::new(oncefs()).arg("compress").arg(mount.dir()));
    let (held, stored) = (mount.figure("space", "held_bytes"), mount.figure("space", "stored_bytes"));
    let saved = 100.0 * (held - stored) as f64 / held as f64;
    println!("estimated {percent:.2} %, saved {saved:.2} %");
    assert!((percent - saved).abs() <= POINTS_MAX, "{percent} %, not {saved} %");
}
