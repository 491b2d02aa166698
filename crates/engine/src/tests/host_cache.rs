//! Blocks that files share are read through the host's page cache of the device, and others past it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::{Device, Io, MemoryDevice};
use crate::read::parts::Part;
use crate::settings::values::{Settings, Verify};
use crate::tests::fixture::{Devices, one_level, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn};

const BLOCKS: usize = 24;
const SHARED: MapId = MapId(1);
const SHARED_TOO: MapId = MapId(2);
const ALONE: MapId = MapId(3);

/// A device in memory behind a page cache like the host's: reads through it fill it, and writes make it forget.
pub struct Cached {
    inner: Arc<MemoryDevice>,
    pages: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// Whether reads through the cache fail.
    fails: Mutex<bool>,
}

impl Cached {
    pub fn of(devices: &Devices) -> Arc<Self> {
        Arc::new(Self { inner: devices.data.clone(), pages: Mutex::default(), fails: Mutex::default() })
    }

    fn holds(&self, pbns: &[Pbn]) -> bool {
        pbns.iter().all(|pbn| self.pages.lock().contains_key(&pbn.0))
    }

    /// Changes a copy, as failing memory does.
    pub fn rot(&self, pbn: Pbn) {
        self.pages.lock().get_mut(&pbn.0).expect("the cache holds it")[9] ^= 1;
    }

    fn held(&self) -> usize {
        self.pages.lock().len()
    }

    fn read_through(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        if *self.fails.lock() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        for (number, page) in (at / BLOCK_BYTES as u64..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            let mut pages = self.pages.lock();
            if let Some(cached) = pages.get(&number) {
                page.copy_from_slice(cached);
                continue;
            }
            self.inner.read_at(page, number * BLOCK_BYTES as u64)?;
            pages.insert(number, page.to_vec());
        }
        Ok(())
    }

    fn forget(&self, at: u64, len: u64) {
        let first = at / BLOCK_BYTES as u64;
        self.pages.lock().retain(|number, _| !(first..first + len / BLOCK_BYTES as u64).contains(number));
    }
}

impl Device for Cached {
    fn submit(&self, ios: &mut [Io<'_>]) {
        for io in ios {
            let is_through = io.is_through_host_cache();
            if is_through {
                // The kernel fills the pages of gaps, too.
                let (first, blocks) = (io.at() / BLOCK_BYTES as u64, io.len() / BLOCK_BYTES);
                let mut page = vec![0; BLOCK_BYTES];
                for number in first..first + blocks as u64 {
                    drop(self.read_through(&mut page, number * BLOCK_BYTES as u64));
                }
            }
            io.by_pieces(
                |bytes, at| if is_through { self.read_through(bytes, at) } else { self.inner.read_at(bytes, at) },
                |bytes, at| {
                    self.forget(at, bytes.len() as u64);
                    self.inner.write_at(bytes, at)
                },
            );
        }
    }

    fn has_host_cache(&self) -> bool {
        true
    }

    fn leave_host_cache(&self, at: u64, len: u64) {
        self.forget(at, len);
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.forget(at, len);
        self.inner.punch(at, len)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(at)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.inner.grow(len)
    }
}

/// Two equal files and one that shares nothing, on a volume that was just opened on such a device.
fn just_opened() -> (Arc<Cached>, Volume) {
    let devices = Devices::new(Blocks(4_000), one_level());
    let volume = devices.open();
    for (map, seed) in [(SHARED, 1), (SHARED_TOO, 1), (ALONE, 3)] {
        volume.write(map, 0, &unique(BLOCKS, seed), |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    assert_eq!(pbns(&volume, SHARED), pbns(&volume, SHARED_TOO), "the files share all blocks");
    drop(volume);
    let device = Cached::of(&devices);
    let volume = devices.open_with(device.clone());
    use_host_cache(&volume, true);
    (device, volume)
}

fn use_host_cache(volume: &Volume, host_cache: bool) {
    volume.base.tuning.follow(&Settings { host_cache, ..volume.base.tuning.settings() });
}

fn pbns(volume: &Volume, map: MapId) -> Vec<Pbn> {
    volume.worklist.stored_from(map, Lbn(0), BLOCKS as u64).unwrap()
}

/// Reads all of a file from the device, and compares it.
fn read_from_device(volume: &Volume, map: MapId, seed: u64) {
    pbns(volume, map).into_iter().for_each(|pbn| volume.base.read_cache.remove(pbn));
    assert!(*volume.reader.read(map, 0, BLOCKS * BLOCK_BYTES).unwrap() == *unique(BLOCKS, seed));
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.base.stats.counters.snapshot()[name]
}

#[test]
fn the_hosts_cache_keeps_what_files_share_and_nothing_else() {
    let (device, volume) = just_opened();
    read_from_device(&volume, SHARED, 1);
    assert_eq!(device.held(), 0, "nobody knew the references yet");
    read_from_device(&volume, SHARED_TOO, 1);
    assert!(device.holds(&pbns(&volume, SHARED)) && device.held() == BLOCKS);
    read_from_device(&volume, ALONE, 3);
    assert_eq!(device.held(), BLOCKS, "blocks that are not shared stay out");
    assert_eq!(counter(&volume, "blocks_read_through_host"), BLOCKS as u64);
}

#[test]
fn a_rotten_copy_in_the_hosts_cache_is_no_damage() {
    let (device, volume) = just_opened();
    (0..2).for_each(|_| read_from_device(&volume, SHARED, 1));
    let rotten = pbns(&volume, SHARED)[5];
    device.rot(rotten);
    read_from_device(&volume, SHARED_TOO, 1);
    assert!(!device.holds(&[rotten]), "it was forgotten");
    assert!(!volume.base.damage.is_any_bad());
    assert_eq!(counter(&volume, "blocks_wrong_in_host_cache"), 1);
}

#[test]
fn gaps_between_shared_blocks_do_not_enter_the_hosts_cache() {
    let (device, volume) = just_opened();
    read_from_device(&volume, SHARED, 1);
    let pbns = pbns(&volume, SHARED);
    assert!(pbns.windows(2).all(|pair| pair[0].plus(1) == pair[1]), "the file is one run");
    pbns.iter().for_each(|pbn| volume.base.read_cache.remove(*pbn));
    let mut bytes = vec![0; 3 * BLOCK_BYTES];
    let parts = [0, 2, 4].iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES));
    let parts = parts.map(|(at, bytes)| Part { pbn: pbns[*at], bytes }).collect();
    volume.block_reader.read_parts(SHARED, parts).unwrap();
    assert!(device.holds(&[pbns[0], pbns[2], pbns[4]]) && device.held() == 3);
    let expected = unique(BLOCKS, 1);
    let right = [0, 2, 4].map(|at| &expected[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]).concat();
    assert!(bytes == right);
}

#[test]
fn comparisons_are_of_the_device() {
    let (device, volume) = just_opened();
    read_from_device(&volume, SHARED, 1);
    let first = pbns(&volume, SHARED)[0];
    volume.base.read_cache.remove(first);
    let mut bytes = vec![0; BLOCK_BYTES];
    volume.block_reader.read_run(first, &mut bytes).unwrap();
    assert!(bytes == unique(BLOCKS, 1)[..BLOCK_BYTES] && device.held() == 0);
}

#[test]
fn a_block_that_cannot_be_read_through_the_hosts_cache_is_read_from_the_device() {
    let (device, volume) = just_opened();
    read_from_device(&volume, SHARED, 1);
    *device.fails.lock() = true;
    let first = pbns(&volume, SHARED)[0];
    volume.base.read_cache.remove(first);
    assert!(*volume.reader.read(SHARED, 0, BLOCK_BYTES).unwrap() == unique(BLOCKS, 1)[..BLOCK_BYTES]);
    assert!(!volume.base.damage.is_any_bad());
}

#[test]
fn without_the_setting_every_read_is_of_the_device() {
    let (device, volume) = just_opened();
    use_host_cache(&volume, false);
    (0..2).for_each(|_| read_from_device(&volume, SHARED, 1));
    assert_eq!((device.held(), counter(&volume, "blocks_read_through_host")), (0, 0));
}

#[test]
fn a_rotten_copy_is_replaced_in_parts_that_overlap_and_came_by_different_ways() {
    let (device, volume) = just_opened();
    (0..2).for_each(|_| read_from_device(&volume, SHARED, 1));
    let alone = pbns(&volume, ALONE);
    read_from_device(&volume, ALONE, 3);
    // Of a run of two parts, the first begins with a block that only one file has.
    volume.clone_blocks((ALONE, Lbn(2)), (SHARED_TOO, Lbn(0)), Blocks(2), |_, _| ()).unwrap();
    let read = || {
        alone.iter().for_each(|pbn| volume.base.read_cache.remove(*pbn));
        let (mut first, mut second) = (vec![0; 4 * BLOCK_BYTES], vec![0; 4 * BLOCK_BYTES]);
        let parts = vec![Part { pbn: alone[0], bytes: &mut first }, Part { pbn: alone[2], bytes: &mut second }];
        volume.block_reader.read_parts(ALONE, parts).unwrap();
        let expected = unique(BLOCKS, 3);
        assert!(first == expected[..4 * BLOCK_BYTES] && second == expected[2 * BLOCK_BYTES..6 * BLOCK_BYTES]);
    };
    read();
    assert!(device.holds(&alone[2..6]), "the second part begins with a shared block");
    device.rot(alone[2]);
    read();
    assert!(!volume.base.damage.is_any_bad());
    assert!(counter(&volume, "blocks_wrong_in_host_cache") > 0);
}

#[test]
fn reads_that_are_not_verified_are_of_the_device() {
    let (device, volume) = just_opened();
    volume.base.tuning.follow(&Settings { verify: Verify::Off, ..volume.base.tuning.settings() });
    (0..2).for_each(|_| read_from_device(&volume, SHARED, 1));
    assert_eq!(device.held(), 0);
}
