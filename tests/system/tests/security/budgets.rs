//! Whose reads decide how many pieces sharing may break a file into. Not covered: ranks, which come from everybody's reads.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{BLOCK, Mount, bytes, oncefs, run_json, test_dir};

use super::user::{User, file_of, let_everybody_in};

const OWNER: User = User::new(1001);
const STRANGER: User = User::new(1002);
const BLOCKS: u64 = 512;
/// More than it takes to see that a file is read at random.
const READS: u64 = 200;

/// Reads blocks at random places past the kernel's cache, as whoever calls. Allocates nothing.
fn read_at_random(file: &File) -> i32 {
    #[repr(align(4096))]
    struct Page([u8; BLOCK as usize]);
    let mut page = Page([0; BLOCK as usize]);
    let reads = (1..=READS).all(|n| file.read_at(&mut page.0, n * 331 % BLOCKS * BLOCK).is_ok_and(|read| read > 0));
    i32::from(!reads)
}

/// Whether sharing has to mind that a file is read in sequence.
fn has_budget(path: &Path) -> bool {
    let said = run_json(Command::new(oncefs()).arg("explain").arg(path).arg("--json"));
    assert!(said["run_blocks_min"].is_u64(), "{said:#}");
    !said["budget"].is_null()
}

#[test]
fn only_reads_of_those_who_may_write_a_file_lift_its_budget() {
    let mount = Mount::on(&test_dir(), "256M", &["ranks=off", "worker=off", "read_slowdown_percent_max=50"]);
    let_everybody_in(&mount);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o644);
    fs::write(&path, bytes(1, (BLOCKS * BLOCK) as usize)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let open =
        |writes: bool| File::options().read(true).write(writes).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let (stranger_s, owner_s) = (open(false), open(true));
    assert_eq!(STRANGER.opens(&path, libc::O_RDWR), libc::EACCES);
    assert_eq!(STRANGER.does(|| read_at_random(&stranger_s)), 0);
    assert!(has_budget(&path), "a stranger who may only read has lifted it");
    assert_eq!(OWNER.does(|| read_at_random(&owner_s)), 0);
    assert!(!has_budget(&path), "it is read at random by who may write it");
    drop((stranger_s, owner_s));
}
