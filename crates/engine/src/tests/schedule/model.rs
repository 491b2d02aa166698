//! The permitted contents of the files, now and after a power cut at any device request.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::fsck::parts::checker;
use crate::tests::fixture::{Devices, Random};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Change, MapId, Result};

pub const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks read at a time. More of them in as many places would be read by threads outside the scheduler.
const READ_BLOCKS: usize = 4;
/// Block contents that several files may have.
const COMMON: u64 = 4;
/// Block contents if files share most: so few that contents often lose their last block.
const FEW: u64 = 3;
/// The power is cut at one of this many first device requests. Some schedules have fewer.
const REQUESTS: u64 = 100;
/// The power is also cut before one in this many flushes of the log, when a group is written but not durable yet.
const LOG_FLUSHES: u64 = 3;
/// The power is also cut after one in this many commits that a writer waited for.
const COMMITS: u64 = 3;
/// At most this many cuts are checked.
const CUTS_MAX: usize = 3;

/// What a file holds, block by block: 0 is a hole, anything else the content of that number.
pub type Content = Vec<u64>;

/// Contents with this bit shrink to a third.
const SHRINKS: u64 = 1 << 62;
/// Words of such a block that do not shrink. The others are zeros.
const DENSE_WORDS: usize = 180;

/// The first word of a block identifies its content, so that a reader can see whether it is whole. Number 0 is zeros.
fn fill(block: &mut [u8], id: u64) {
    let mut words = Random::new(id);
    let (first, rest) = block.split_at_mut(8);
    first.copy_from_slice(&id.to_le_bytes());
    let dense = match id {
        0 => 0,
        _ if id & SHRINKS != 0 => DENSE_WORDS,
        _ => rest.len() / 8,
    };
    rest.chunks_exact_mut(8).take(dense).for_each(|word| word.copy_from_slice(&words.word().to_le_bytes()));
}

pub fn bytes_of(content: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; content.len() * BLOCK_BYTES];
    bytes.chunks_exact_mut(BLOCK_BYTES).zip(content).for_each(|(block, id)| fill(block, *id));
    bytes
}

/// Contents that other files have too, and new ones, or new ones only. Holes are rare.
pub fn content(random: &mut Random, blocks: u64) -> Content {
    let kinds = if random.below(2) == 0 { 8 } else { 1 };
    let mut id = || match random.below(kinds) {
        1 => 0,
        2..=4 => 1 + random.below(COMMON),
        _ => (1 << 40 | random.word()) & !SHRINKS,
    };
    (0..blocks).map(|_| id()).collect()
}

/// Contents that few files have alone, and none for long.
pub fn shared_content(random: &mut Random, blocks: u64) -> Content {
    (0..blocks).map(|_| 1 + random.below(FEW)).collect()
}

/// Contents that shrink. Some are those of other files too.
pub fn shrinking_content(random: &mut Random, blocks: u64) -> Content {
    let mut id = || SHRINKS | if random.below(4) == 0 { random.below(COMMON) } else { random.word() >> 3 };
    (0..blocks).map(|_| id()).collect()
}

/// Reads the first blocks of a file, which begins at block `first` of its map. Each must be one that was written.
fn read(volume: &Volume, map: MapId, first: u64, blocks: u64) -> Result<Content> {
    let mut content = Content::new();
    for at in (first..first + blocks).step_by(READ_BLOCKS) {
        let count = (first + blocks - at).min(READ_BLOCKS as u64);
        let bytes = volume.reader.read(map, at * BLOCK, count as usize * BLOCK_BYTES)?.to_vec();
        for block in bytes.chunks(BLOCK_BYTES) {
            let id = u64::from_le_bytes(block[..8].try_into().unwrap());
            assert!(bytes_of(&[id]) == block, "a block that begins with {id:x} is not the one that was written");
            content.push(id);
        }
    }
    Ok(content)
}

/// A file with its possible contents: all since the last commit that its writer knows of.
#[derive(Clone)]
pub struct File {
    pub map: MapId,
    pub versions: Vec<Content>,
    /// The content that was published last. It changes under the lock of the file's map.
    pub published: Content,
    /// All contents that it ever had.
    pub seen: BTreeSet<u64>,
}

impl File {
    pub fn new(map: MapId) -> Self {
        Self { map, versions: vec![Vec::new()], published: Vec::new(), seen: BTreeSet::from([0]) }
    }

    pub fn newest(&self) -> &Content {
        self.versions.last().expect("a file has a content")
    }
}

/// The files as their writers know them, and the devices. Its locks are not the scheduler's: a power cut takes both in
/// one step.
pub struct Model {
    pub devices: Devices,
    /// The block of a map at which its file begins.
    pub first: u64,
    files: Mutex<Vec<File>>,
    requests_until_cut: AtomicU64,
    random: Mutex<Random>,
    cuts: Mutex<Vec<(Devices, Vec<File>)>>,
}

impl Model {
    /// A new volume.
    pub fn new(devices: Devices, first: u64, mut random: Random) -> Self {
        let requests_until_cut = AtomicU64::new(random.below(REQUESTS));
        let (files, cuts) = (Mutex::default(), Mutex::default());
        Self { devices, first, files, requests_until_cut, random: Mutex::new(random), cuts }
    }

    /// A device gets a request, which may be the one that a power cut prevents.
    pub fn request(&self) {
        if self.requests_until_cut.fetch_sub(1, Relaxed) == 0 {
            self.cut();
        }
    }

    /// Called before a flush of the log.
    pub fn log_flush(&self) {
        self.cut_once_in(LOG_FLUSHES);
    }

    fn cut_once_in(&self, times: u64) {
        if self.random.lock().below(times) == 0 {
            self.cut();
        }
    }

    /// Keeps the devices as a power cut would leave them at this moment.
    fn cut(&self) {
        let mut cuts = self.cuts.lock();
        if cuts.len() < CUTS_MAX {
            cuts.push((self.devices.after_power_cut(&mut self.random.lock()), self.files.lock().clone()));
        }
    }

    /// A further file, empty.
    pub fn add(&self, map: MapId) {
        self.files.lock().push(File::new(map));
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// A file as its writer left it.
    pub fn file(&self, slot: usize) -> File {
        self.files.lock()[slot].clone()
    }

    /// The new content becomes possible before the change begins.
    pub fn expect(&self, slot: usize, content: Content) {
        let file = &mut self.files.lock()[slot];
        file.seen.extend(&content);
        file.versions.push(content);
    }

    /// The file's newest content is about to be published: its map is locked, and nothing refuses the change any more.
    pub fn publish(&self, slot: usize) {
        let file = &mut self.files.lock()[slot];
        file.published = file.newest().clone();
    }

    /// A change that was refused did not happen.
    pub fn did_not_happen(&self, slot: usize) {
        self.files.lock()[slot].versions.pop();
    }

    /// The file is another one from now on.
    pub fn replace(&self, slot: usize, map: MapId) {
        self.files.lock()[slot].map = map;
    }

    /// A commit that began when files had this many versions was acknowledged.
    pub fn acknowledge(&self, versions: &[(usize, usize)]) {
        let mut files = self.files.lock();
        for (slot, count) in versions {
            files[*slot].versions.drain(..count - 1);
        }
        drop(files);
        self.cut_once_in(COMMITS);
    }

    /// After a power cut each file holds one of its possible contents: at the cuts in between, and now.
    pub fn check_power_cuts(&self) {
        self.recovered(&self.devices.after_power_cut_of_all(), &self.files.lock(), "after a power cut at the end");
        for (devices, files) in self.cuts.lock().drain(..) {
            self.recovered(&devices, &files, "after a power cut in between");
        }
    }

    /// Reads the first blocks of a file. Each must be one that was written.
    pub fn read(&self, volume: &Volume, map: MapId, blocks: u64) -> Result<Content> {
        read(volume, map, self.first, blocks)
    }

    /// In the recovered volume, each file holds one of its possible contents, also once all clones are complete.
    fn recovered(&self, devices: &Devices, files: &[File], when: &str) {
        let volume = devices.open();
        let found: Vec<_> =
            files.iter().enumerate().map(|(slot, file)| self.recovered_file(&volume, slot, file, when)).collect();
        if volume.lazy_clones.are_any() {
            take_all_leaves(&volume);
            for (slot, file) in files.iter().enumerate() {
                let taken = self.recovered_file(&volume, slot, file, when);
                assert_eq!(taken, found[slot], "{when}: file {slot} changed when clones took leaves");
            }
        }
        assert_clean(&volume, when);
    }

    fn recovered_file(&self, volume: &Volume, slot: usize, file: &File, when: &str) -> Content {
        let record = volume.metadata.get(&[0x10, slot as u8]).unwrap();
        let number =
            |at: usize| record.as_ref().map_or(0, |record| u64::from_le_bytes(record[at..at + 8].try_into().unwrap()));
        let found = self.read(volume, MapId(number(0)), number(8)).unwrap();
        assert!(file.versions.contains(&found), "{when}: file {slot} holds {found:x?}, none of {:x?}", file.versions);
        found
    }
}

/// Completes all pending clones.
pub fn take_all_leaves(volume: &Volume) {
    while volume.lazy_clones.step().unwrap() {}
}

/// Keeps a file's map and size with its change.
pub fn note(slot: usize, map: MapId, content: &Content) -> impl FnOnce(i64, &mut Change) + use<> {
    let value = [map.0.to_le_bytes(), (content.len() as u64).to_le_bytes()].concat();
    move |_, change| change.put(vec![0x10, slot as u8], value)
}

/// Notes that the file is deleted.
pub fn note_gone(slot: usize) -> impl FnOnce(&mut Change) {
    move |change| change.delete(vec![0x10, slot as u8])
}

pub fn assert_clean(volume: &Volume, when: &str) {
    let report = checker(&volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
}
