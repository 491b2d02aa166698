//! Power cuts under an ext4 and an xfs on a disk. The kernel's writes and flushes of a real file system are recorded and
//! repeated on a file of a volume whose devices are recorded. Of the states that a power cut may leave of these devices,
//! each one drawn shows the disk as it was at some moment since its last acknowledged flush. After its journal is
//! replayed, fsck.ext4 -n or xfs_repair -n finds nothing.

mod recorder;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oncefs_engine::{BackgroundStep, Blocks, Committer, Store};
use oncefs_explore::image::{DeviceImage, Images, PAGE_BYTES, Page, Part};
use oncefs_explore::live::{Setup, StepClock};
use oncefs_explore::setups::ONE_LEVEL;
use oncefs_explore::states::{Effort, for_each_state};
use oncefs_explore::tape::{Allowed, Recorded, Tape};
use oncefs_fs::{AllocateMode, AtimePolicy, Caller, FileSystem, Ino, Options, Privileges, WriteOrigin};
use oncefs_toolbox::Random;
use oncefs_toolbox::counts::gate_or_drill;

use recorder::{Io, Recorder};

const NAME: &[u8] = b"disk";
/// States that are recovered in the gate and in the drill.
const STATES: (u64, u64) = (60, 2_000);
/// Of each step of the recording.
const EFFORT: Effort = Effort { singles_max: 1, sets: 1, tears: 1, states_max: 4 };

const SETUP: Setup =
    Setup { name: "disk", data: Blocks(8 << 10), log_bytes: 4 << 20, has_short_work: false, ..ONE_LEVEL };

/// A file system on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ext4,
    Xfs,
}

impl Kind {
    /// The least disk that it takes, or little more.
    fn disk_bytes(self) -> usize {
        match self {
            Self::Ext4 => 12 << 20,
            Self::Xfs => 32 << 20,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    fn make(self, device: &Path) {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        match self {
            Self::Ext4 => command.args(["-q", "-b", "4096", "-J", "size=4"]),
            // mkfs.xfs refuses disks below 300 MB, except for the tests of xfs, which set these.
            Self::Xfs => {
                command.args(["-q", "-K"]).envs(["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"].map(|name| (name, "1")))
            }
        };
        run(command.arg(device));
    }

    /// Replays the journal, and checks the file system without a repair.
    fn check(self, image: &Path, what: &str) {
        match self {
            Self::Ext4 => {
                let replayed = Command::new("e2fsck").args(["-y", "-E", "journal_only"]).arg(image).output().unwrap();
                // 1: something was done.
                assert!(matches!(replayed.status.code(), Some(0 | 1)), "{what}: {replayed:?}");
                let checked = Command::new("fsck.ext4").arg("-fn").arg(image).output().unwrap();
                assert!(checked.status.success(), "{what}: {checked:?}");
            }
            Self::Xfs => {
                // Only the kernel replays the log of an xfs. This mount leaves the rest of the disk alone.
                let device = Device::of(image);
                device.mount(self);
                device.umount();
                let checked = Command::new("xfs_repair").arg("-n").arg(&device.path).output().unwrap();
                assert!(checked.status.success(), "{what}: {checked:?}");
            }
        }
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A loop device, perhaps mounted. Its end removes both.
struct Device {
    path: PathBuf,
    place: tempfile::TempDir,
}

impl Device {
    fn of(file: &Path) -> Self {
        let losetup = ["--find", "--show", "--direct-io=on", "--sector-size", "4096"];
        let path = PathBuf::from(run(Command::new("losetup").args(losetup).arg(file)).trim());
        Self { path, place: tempfile::tempdir().unwrap() }
    }

    fn mount(&self, kind: Kind) {
        let options = ["-t", kind.name(), "-o", "discard"];
        run(Command::new("mount").args(options).arg(&self.path).arg(self.place.path()));
    }

    fn umount(&self) {
        run(Command::new("umount").arg(self.place.path()));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.place.path()).output();
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).output();
    }
}

/// Files that come, grow, are replaced, and go.
fn work(dir: &Path, random: &mut Random) {
    for number in 0..40_u64 {
        let path = dir.join(format!("file{}", random.below(8)));
        let len = random.below(60_000) as usize;
        match random.below(4) {
            0 => drop(fs::remove_file(&path)),
            _ => {
                let mut file = File::create(dir.join("new")).unwrap();
                file.write_all(&vec![number as u8 + 1; len]).unwrap();
                if random.one_in(2) {
                    file.sync_all().unwrap();
                }
                fs::rename(dir.join("new"), &path).unwrap();
            }
        }
        if random.one_in(3) {
            File::open(dir).unwrap().sync_all().unwrap();
        }
    }
}

/// What a new file system and then the work on it do to their disk.
fn recorded(kind: Kind, seed: u64) -> (Vec<Io>, Vec<Io>) {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::mount(dir.path(), kind.disk_bytes());
    let device = Device::of(&recorder.path());
    kind.make(&device.path);
    let made = recorder.take();
    device.mount(kind);
    work(device.place.path(), &mut Random::new(seed));
    device.umount();
    let worked = recorder.take();
    drop(device);
    (made, worked)
}

/// A disk as its pages.
struct Pages(Images);

impl Pages {
    fn new(kind: Kind) -> Self {
        let mut images = Images::default();
        *images.device_mut(Part::Data) = DeviceImage::new(kind.disk_bytes() as u64);
        Self(images)
    }

    fn set(&mut self, at: u64, data: &[u8]) {
        assert!(at.is_multiple_of(PAGE_BYTES as u64) && data.len().is_multiple_of(PAGE_BYTES), "whole pages");
        for (page, number) in data.chunks(PAGE_BYTES).zip(at / PAGE_BYTES as u64..) {
            self.0.device_mut(Part::Data).set_page(number, Page::new(page));
        }
    }

    fn apply(&mut self, io: &Io) {
        match io {
            Io::Write { at, data } => self.set(*at, data),
            Io::Fallocate { at, len, .. } => self.set(*at, &vec![0; *len as usize]),
            Io::Flush => {}
        }
    }
}

/// The disk in a volume.
struct Disk {
    store: Arc<Store>,
    file_system: Arc<FileSystem>,
    ino: Ino,
}

impl Disk {
    /// Opens the disk of a volume, and makes it if it is not there. `commits`: whatever can be committed is at once.
    fn open(tape: &Arc<Tape>, commits: bool) -> Self {
        let committer: Committer = Box::new(|commit| commit().unwrap());
        let store = SETUP.open_store(tape, Some(committer).filter(|_| commits)).unwrap();
        let options =
            Options { memory_bytes_max: 1 << 20, atime: AtimePolicy::Never, read_only: false, generation: None };
        let clock = Arc::new(StepClock::default());
        let file_system = FileSystem::open_without_threads(store.clone(), clock, &options).unwrap();
        let caller = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
        let ino = match file_system.lookup(Ino::ROOT, NAME) {
            Ok(found) => found.ino,
            Err(_) => file_system.mknod(Ino::ROOT, NAME, libc::S_IFREG | 0o600, 0, &caller).unwrap().ino,
        };
        Self { store, file_system, ino }
    }

    fn repeat(&self, io: &Io) {
        let privileges = Privileges::Kept;
        match io {
            Io::Write { at, data } => {
                self.file_system.write(self.ino, *at, data, WriteOrigin::Caller { privileges }).unwrap();
            }
            Io::Fallocate { at, len, mode } => {
                let mode = match mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
                    true => AllocateMode::PunchHole,
                    false => AllocateMode::ZeroRange { keep_size: true },
                };
                self.file_system.fallocate(self.ino, *at, *len, mode, privileges).unwrap();
            }
            Io::Flush => self.store.commit().unwrap(),
        }
    }

    fn content(&self, kind: Kind) -> Vec<u8> {
        let mut content = vec![0; kind.disk_bytes()];
        for (part, at) in content.chunks_mut(1 << 20).zip((0..).step_by(1 << 20)) {
            let found = self.file_system.read(self.ino, at, part.len(), false).unwrap();
            part[..found.len()].copy_from_slice(&found);
        }
        content
    }
}

/// Repeats the recorded work on the disk of a volume. Returns the volume before, the steps of its devices, and for each
/// content of the disk the numbers of requests after which it has it.
fn repeated(kind: Kind, made: &[Io], worked: &[Io]) -> (Images, Vec<Recorded>, HashMap<u128, Vec<u32>>) {
    let base = SETUP.make().unwrap().0;
    let tape = Tape::new(base, false);
    let disk = Disk::open(&tape, false);
    let mut pages = Pages::new(kind);
    disk.file_system
        .write(disk.ino, kind.disk_bytes() as u64 - 1, &[0], WriteOrigin::Caller { privileges: Privileges::Kept })
        .unwrap();
    for io in made {
        disk.repeat(io);
        pages.apply(io);
    }
    disk.store.run(BackgroundStep::Checkpoint).unwrap();
    drop(disk);
    let base = tape.images();
    let tape = Tape::new(base.clone(), true);
    let disk = Disk::open(&tape, true);
    let mut contents = HashMap::from([(pages.0.hash(), vec![0])]);
    let mut flushed = 0;
    for (io, number) in worked.iter().zip(1..) {
        // A crash within it leaves the disk as before it, or after it.
        tape.allow(Allowed::either(flushed, number));
        disk.repeat(io);
        pages.apply(io);
        contents.entry(pages.0.hash()).or_default().push(number);
        if let Io::Flush = io {
            flushed = number;
        }
    }
    (base, tape.take(), contents)
}

#[test]
fn an_ext4_on_a_disk_is_clean_in_states_that_a_power_cut_leaves_of_the_volume() {
    is_clean_after_power_cuts(Kind::Ext4);
}

#[test]
fn an_xfs_on_a_disk_is_clean_in_states_that_a_power_cut_leaves_of_the_volume() {
    is_clean_after_power_cuts(Kind::Xfs);
}

fn is_clean_after_power_cuts(kind: Kind) {
    let seed = 38;
    let (made, worked) = recorded(kind, seed);
    let flushes = worked.iter().filter(|io| matches!(io, Io::Flush)).count();
    assert!(flushes > 10 && worked.len() > flushes + 30, "{} requests, {flushes} flushes", worked.len());
    let mut random = Random::new(seed);
    let (base, steps, contents) = repeated(kind, &made, &worked);
    let states = steps.len() as u64 * EFFORT.states_max as u64;
    let wanted = gate_or_drill(STATES.0, STATES.1);
    let (mut recovered, mut checked) = (0, HashSet::new());
    let image = tempfile::NamedTempFile::new().unwrap();
    let _ = for_each_state(&base, &steps, EFFORT, seed, None, &mut |crash| {
        if !random.one_in(states.div_ceil(wanted)) {
            return ControlFlow::Continue(());
        }
        let content = Disk::open(&Tape::new(crash.images, false), false).content(kind);
        let mut pages = Pages::new(kind);
        pages.set(0, &content);
        let (at, hash) = (format!("state {}", crash.id), pages.0.hash());
        let moments = contents.get(&hash).unwrap_or_else(|| panic!("{at}: the disk never had this content"));
        let Allowed { acknowledged, under_way, .. } = crash.allowed;
        let last = under_way.unwrap_or(acknowledged);
        assert!(
            moments.iter().any(|moment| (acknowledged..=last).contains(moment)),
            "{at}: the disk is as after request {moments:?}, not one of {acknowledged} to {last}"
        );
        recovered += 1;
        if checked.insert(hash) {
            fs::write(image.path(), &content).unwrap();
            kind.check(image.path(), &at);
        }
        ControlFlow::Continue(())
    });
    println!(
        "{} requests, {} steps, {recovered} states, {} contents of the disk",
        worked.len(),
        steps.len(),
        checked.len()
    );
    assert!(recovered > wanted / 4 && checked.len() > 10, "{recovered} states, {} contents", checked.len());
}
