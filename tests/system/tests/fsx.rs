//! `fsx`: random operations on one file, every read checked against what was written.

use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{Mount, elapsed, gate_or_drill, run, seed, tool};

/// Operations in the gate and in the drill.
const MIXED_OPERATIONS: (u64, u64) = (14_000, 100_000);
const BLOCK_OPERATIONS: (u64, u64) = (6_000, 40_000);
/// Beside that of the run.
const FIXED_SEEDS: [u64; 2] = [20_261_121, 4_242_424_242];

/// Small and unaligned: everything at once in a file of a few dozen blocks. At least a byte: an empty range is refused
/// by posix_fallocate(3) everywhere, and fsx takes that for the end.
const MIXED: &str = "flen = 262144
nomsyncafterwrite = true
[opsize]
min = 1
max = 65536
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 5
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 3
punch_hole = 5
sendfile = 2
posix_fadvise = 2
copy_file_range = 8
";

/// Whole blocks in a larger file: sharing and holes are the common case.
/// posix_fallocate is for the other settings: fsx does not align it, and asks for empty ranges at the end.
const BLOCKS: &str = "flen = 4194304
nomsyncafterwrite = true
[opsize]
min = 4096
max = 131072
align = 4096
[weights]
close_open = 1
invalidate = 1
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 2
fsync = 0.2
fdatasync = 0.2
punch_hole = 8
sendfile = 1
posix_fadvise = 1
copy_file_range = 20
";

fn exercise(mount: &Mount, settings: &Path, operations: u64, seed: u64) {
    let file = mount.join(format!("fsx-{seed}"));
    let mut fsx = Command::new(tool("fsx"));
    fsx.args(["-q", "-N", &operations.to_string(), "-S", &seed.to_string()]);
    fsx.arg("-P").arg(settings.parent().unwrap()).arg("-f").arg(settings).arg(&file);
    elapsed(&format!("fsx, {operations} operations, seed {seed}"), || run(&mut fsx));
}

fn exercise_all(config: &str, (gate, drill): (u64, u64)) {
    let operations = gate_or_drill(gate, drill);
    let mut mount = Mount::new("2G");
    let artifacts = tempfile::tempdir().unwrap();
    let settings = artifacts.path().join("fsx.toml");
    std::fs::write(&settings, config).unwrap();
    let seeds: Vec<u64> = FIXED_SEEDS.into_iter().chain([seed()]).collect();
    for seed in &seeds {
        exercise(&mount, &settings, operations / seeds.len() as u64, *seed);
    }
    mount.check();
}

#[test]
fn mixed_operations_on_a_small_file_read_back_what_was_written() {
    exercise_all(MIXED, MIXED_OPERATIONS);
}

#[test]
fn block_operations_with_sharing_and_holes_read_back_what_was_written() {
    exercise_all(BLOCKS, BLOCK_OPERATIONS);
}
