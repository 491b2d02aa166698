//! Blocks that files share are read through the host's page cache of the device, and others past it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::{Device, Io, MemoryDevice};
use crate::settings::values::Settings;
use crate::tests::fixture::{Devices, one_level, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn};

const BLOCKS: usize = 24;
const SHARED: MapId = MapId(1);
const SHARED_TOO: MapId = MapId(2);
const ALONE: MapId = MapId(3);

/// A device in memory behind a page cache like the host's: reads through it fill it, and writes make it forget.
struct Cached {
    inner: Arc<MemoryDevice>,
    pages: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Cached {
    fn of(devices: &Devices) -> Arc<Self> {
        Arc::new(Self { inner: devices.data.clone(), pages: Mutex::default() })
    }

    fn holds(&self, pbns: &[Pbn]) -> bool {
        pbns.iter().all(|pbn| self.pages.lock().contains_key(&pbn.0))
    }

    fn held(&self) -> usize {
        self.pages.lock().len()
    }

    fn read_through(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
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
            io.by_pieces(
                |bytes, at| if is_through { self.read_through(bytes, at) } else { self.inner.read_at(bytes, at) },
                |bytes, at| {
                    self.forget(at, bytes.len() as u64);
                    self.inner.write_at(bytes, at)
                },
            );
        }
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
    device.pages.lock().get_mut(&rotten.0).unwrap()[9] ^= 1;
    read_from_device(&volume, SHARED_TOO, 1);
    assert!(!device.holds(&[rotten]), "it was forgotten");
    assert!(!volume.base.damage.is_any_bad());
}

#[test]
fn without_the_setting_every_read_is_of_the_device() {
    let (device, volume) = just_opened();
    use_host_cache(&volume, false);
    (0..2).for_each(|_| read_from_device(&volume, SHARED, 1));
    assert_eq!((device.held(), counter(&volume, "blocks_read_through_host")), (0, 0));
}
