//! A host file system without room: the ballast, its use, and the messages when it is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;

use oncefs_toolbox::waiting::eventually;

use crate::Host;
use crate::background::committer::answer;
use crate::device::{Fault, Faults, FaultyDevice, Lasts};
use crate::kv::copies::Place;
use crate::kv::{Kv, RocksKv};
use crate::place::free_blocks::KEPT_BACK_BLOCKS;
use crate::signals::requests::Done;
use crate::space::ballast::{BALLAST_BYTES, Ballast};
use crate::space::host::HOST_MARGIN_BYTES;
use crate::tests::fixture::{Devices, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Backend, Blocks, Copies, Error, MapId};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Few enough that they are staged, each time.
const BLOCKS_AT_ONCE: u64 = 10;

/// A volume in memory whose data area fails on demand, with a ballast on the real host.
fn volume(dir: &Path, faults: &Arc<Faults>) -> Volume {
    let devices = Devices::new(Blocks(3_000), two_levels());
    let ballast = Ballast::at(dir.join("ballast"));
    ballast.fill().unwrap();
    let data = Arc::new(FaultyDevice::new(devices.data.clone(), "data", faults.clone()));
    devices.open_medium(Backend { data, ballast, host: Some(Host::Directory(dir.to_owned())), ..devices.backend() })
}

fn stage(volume: &Volume) -> Vec<u8> {
    let content = unique(20 * BLOCKS_AT_ONCE as usize, 3);
    for (at, part) in content.chunks((BLOCKS_AT_ONCE * BLOCK) as usize).enumerate() {
        volume.write(MapId(1), at as u64 * BLOCKS_AT_ONCE * BLOCK, part, |_, _| ()).unwrap();
    }
    content
}

fn ballast_bytes(dir: &Path) -> u64 {
    fs::metadata(dir.join("ballast")).unwrap().len()
}

#[test]
fn acknowledged_blocks_get_the_ballast_when_they_are_written_out() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(Faults::default()));
    let volume = volume(dir.path(), &faults);
    let content = stage(&volume);
    faults.arm(faults.count(), Fault::Full, Lasts::Once);
    volume.commits.commit().unwrap();
    assert!(faults.hit().is_some(), "the host was full once");
    assert_eq!(volume.base.health.failure(), None);
    let left = ballast_bytes(dir.path());
    assert!(0 < left && left < BALLAST_BYTES, "some of it went: {left} bytes are left");
    assert!(volume.reader.read(MapId(1), 0, content.len()).unwrap().iter().eq(&content));
}

#[test]
fn without_ballast_the_volume_fails_and_says_what_to_free() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(Faults::default()));
    let volume = volume(dir.path(), &faults);
    stage(&volume);
    faults.arm(faults.count(), Fault::Full, Lasts::UntilMended);
    assert!(matches!(volume.commits.commit(), Err(Error::HostFull { .. })));
    assert_eq!(ballast_bytes(dir.path()), 0);
    let why = volume.base.health.failure().unwrap();
    assert!(why.contains("free at least") && why.contains(dir.path().to_str().unwrap()), "{why}");
}

#[test]
fn everybody_who_waits_for_a_commit_that_finds_no_room_on_the_host_is_told_so() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(Faults::default()));
    let volume = volume(dir.path(), &faults);
    stage(&volume);
    faults.arm(faults.count(), Fault::Full, Lasts::UntilMended);
    let (told, answers) = mpsc::channel();
    let waiter = || -> Done {
        let told = told.clone();
        Box::new(move |result| told.send(result).unwrap())
    };
    answer(&volume, vec![waiter(), waiter()]);
    drop(told);
    let answers: Vec<_> = answers.iter().collect();
    assert!(matches!(answers[..], [Err(Error::HostFull { .. }), Err(Error::HostFull { .. })]), "{answers:?}");
}

#[test]
fn a_volume_shows_a_size_that_its_host_has_room_for() {
    let devices = Devices::new(Blocks(30_000), two_levels());
    let volume = devices.open();
    let whole = volume.free_blocks.capacity();
    assert_eq!(whole, Blocks(30_000));
    for blocks in [20_000, 1_000, 0] {
        volume.base.space.set_host_bytes(HOST_MARGIN_BYTES + blocks * BLOCK);
        assert_eq!(volume.free_blocks.available(), Blocks(blocks));
        assert_eq!(
            volume.free_blocks.capacity(),
            Blocks(blocks + KEPT_BACK_BLOCKS + 1),
            "what can be written, and the label"
        );
    }
    volume.base.space.set_host_bytes(HOST_MARGIN_BYTES + 1_000 * BLOCK);
    volume.write(MapId(1), 0, &unique(100, 5), |_, _| ()).unwrap();
    assert_eq!(volume.free_blocks.available(), Blocks(900));
    assert_eq!(volume.free_blocks.capacity(), Blocks(1_000 + KEPT_BACK_BLOCKS + 1), "writing does not change it");
}

/// A file system in memory of this many bytes, unmounted when dropped.
struct Small {
    dir: tempfile::TempDir,
}

impl Small {
    fn new(bytes: u64) -> Self {
        let small = Self { dir: tempfile::tempdir().unwrap() };
        let options = format!("size={bytes}");
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(small.dir.path()).status();
        assert!(status.unwrap().success(), "this test needs root");
        small
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

#[test]
fn the_record_store_notices_that_a_full_host_has_room_again() {
    let small = Small::new(8 << 20);
    RocksKv::create(&small.path("records")).unwrap();
    let place = Place::of(small.dir.path(), [0; 16]);
    let kv = RocksKv::open(place, Copies::One, 4 << 20, false).unwrap();
    let records = || (0..200u8).map(|n| (vec![n], Some(unique(1, n.into())))).collect();
    assert!(fs::write(small.path("other"), vec![7; 16 << 20]).is_err(), "others fill the host");
    kv.write(records()).unwrap();
    assert!(matches!(kv.flush(), Err(Error::NoSpace)));
    fs::remove_file(small.path("other")).unwrap();
    eventually("the store notices that there is room", || kv.write(records()).and_then(|()| kv.flush()).is_ok());
    assert_eq!(kv.get(&[199]).unwrap(), Some(unique(1, 199)));
}
