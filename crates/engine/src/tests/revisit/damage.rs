//! Damaged, missing or failing files of hints and of skipped blocks, and errors on the way.

use std::sync::Arc;

use super::*;
use crate::sync::as_another_thread;
use crate::tests::unreadable::Unreadable;
use crate::volume::assembly::Volume;

fn pages_of(device: &MemoryDevice) -> Vec<u64> {
    (0..device.len().unwrap() / BLOCK).collect()
}

fn scribble(device: &MemoryDevice, pages: &[u64], seed: u64) {
    for page in pages {
        device.write_at(&unique(1, seed + page), page * BLOCK).unwrap();
    }
}

#[test]
fn with_verify_share_the_worker_drops_no_block_for_a_rotten_one() {
    for (verify, blocks) in [("share", 101), ("read", 100)] {
        let devices = Devices::new(DATA, Settings { fingerprints: FingerprintMode::Eager, ..settings(Inline::All) });
        let volume = devices.open();
        volume.hint_levels.fill_hints().unwrap();
        tune(&volume, "verify", verify).unwrap();
        let data = unique(100, 1);
        write(&volume, 1, 0, &data);
        volume.base.hints.clear_memory();
        write(&volume, 2, 0, &data);
        volume.commits.checkpoint().unwrap();
        volume.hint_levels.scan_table().unwrap();
        let target = pbn(&volume, 1, 8);
        scribble(&devices.data, &[target.0], 9);
        revisit_all(&volume);
        assert_eq!(used(&volume), blocks, "verify={verify}");
        if verify == "read" {
            assert_eq!(counter(&volume, "blocks_compared"), 0, "fingerprints decide");
            continue;
        }
        assert_eq!(counter(&volume, "blocks_compared"), 100);
        assert_holds(&volume, 2, &data);
        volume.repairs.repair_noticed().unwrap();
        (1..=2).for_each(|map| assert_holds(&volume, map, &data));
        assert_clean(&volume);
    }
}

fn assert_savings_recover(volume: &Volume, map: u64, data: &[u8]) {
    write_many(volume, map, data);
    work_all(volume, true);
    assert_eq!(used(volume), (data.len() / BLOCK_BYTES) as u64);
    assert_eq!(volume.base.health.failure(), None);
    assert_clean(volume);
}

#[test]
fn a_file_of_hints_that_turns_to_garbage_in_use_costs_nothing_that_the_scan_does_not_bring_back() {
    for pages in [0..u64::MAX, 0..1, 1..2, 5..9] {
        let (devices, volume, data) = volume_with_disk_level();
        let hit: Vec<u64> = pages_of(&devices.hints).into_iter().filter(|page| pages.contains(page)).collect();
        scribble(&devices.hints, &hit, 9);
        write_many(&volume, 2, &data[..500 * BLOCK_BYTES]);
        work_all(&volume, true);
        assert_savings_recover(&volume, 3, &data);
        for map in [1, 3] {
            assert_holds(&volume, map, &data);
        }
    }
}

#[test]
fn a_file_of_hints_that_is_damaged_a_second_time_is_filled_again_a_second_time() {
    let (devices, volume, data) = volume_with_disk_level();
    for round in 0..3u64 {
        let (some, all) = (10 + round, 20 + round);
        scribble(&devices.hints, &pages_of(&devices.hints)[1..], 9 + round);
        // No two of them are adjacent, because the block table would name the next one without a hint.
        let scattered: Vec<u8> =
            data.chunks(2 * BLOCK_BYTES).take(500).flat_map(|pair| &pair[..BLOCK_BYTES]).copied().collect();
        write_many(&volume, some, &scattered);
        work_all(&volume, false);
        delete(&volume, some);
        let scanned = volume.base.hints.coverage().take_pages_scanned();
        assert!(scanned > 0, "round {round}: the damage is noticed, and the table scanned");
        write_many(&volume, all, &data);
        work_all(&volume, false);
        assert_eq!(used(&volume), MANY as u64, "round {round}");
        delete(&volume, all);
    }
}

#[test]
fn a_file_of_hints_that_is_damaged_between_mounts_is_filled_again() {
    type Damage = fn(&Devices);
    let damages: [(&str, Damage); 7] = [
        ("all pages", |devices| scribble(&devices.hints, &pages_of(&devices.hints), 7)),
        ("header", |devices| scribble(&devices.hints, &[0], 7)),
        ("all but the header", |devices| scribble(&devices.hints, &pages_of(&devices.hints)[1..], 7)),
        ("one page", |devices| scribble(&devices.hints, &[3], 7)),
        ("zeros behind the header", |devices| {
            devices.hints.punch(BLOCK, devices.hints.len().unwrap() - BLOCK).unwrap();
            set_header(devices, |header| HintHeader { complete_at: 0, ..header });
        }),
        ("of another volume", |devices| set_header(devices, |header| HintHeader { volume_id: [3; 16], ..header })),
        ("of an earlier incarnation", |devices| {
            set_header(devices, |header| HintHeader { incarnation: header.incarnation + 1, complete_at: 0, ..header });
        }),
    ];
    for (name, damage) in damages {
        for is_clean in [false, true] {
            println!("{name}, clean: {is_clean}");
            let (devices, volume, data) = volume_with_disk_level();
            if is_clean {
                close(&volume);
            }
            damage(&devices);
            let volume = devices.open();
            volume.hint_levels.fill_hints().unwrap();
            assert!(volume.base.hints.coverage().take_pages_scanned() > 0, "the table is scanned");
            assert_savings_recover(&volume, 2, &data);
        }
    }
}

fn set_header(devices: &Devices, change: impl FnOnce(HintHeader) -> HintHeader) {
    let mut page = vec![0; BLOCK_BYTES];
    devices.hints.read_at(&mut page, 0).unwrap();
    let header = HintHeader::decode(page[..].try_into().unwrap()).unwrap();
    devices.hints.write_at(&change(header).encode(), 0).unwrap();
}

#[test]
fn a_file_of_hints_and_one_of_skipped_blocks_that_are_gone_are_made_again() {
    for is_clean in [false, true] {
        let (devices, volume, data) = volume_with_disk_level();
        write_many(&volume, 2, &data);
        if is_clean {
            close(&volume);
        }
        volume.commits.commit().unwrap();
        let devices = Devices { hints: Arc::default(), skipped: Arc::default(), ..devices };
        let volume = devices.open();
        assert!(volume.work_loop.dedup_status().full_pass, "nobody knows what was skipped");
        volume.hint_levels.fill_hints().unwrap();
        assert_savings_recover(&volume, 3, &data);
        close(&volume);
        let volume = devices.open();
        assert!(!volume.worklist.is_revisit_left(), "both files are in use again");
        volume.hint_levels.fill_hints().unwrap();
        assert_eq!(volume.base.hints.coverage().take_pages_scanned(), 0);
    }
}

#[test]
fn a_damaged_checkpoint_of_skipped_blocks_means_a_full_pass() {
    let slot = crate::format::backlog::SLOT_BYTES;
    for seed in 0..20 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (devices, volume) = volume(Inline::Off);
        let data = unique(100, 1);
        for map in 1..4 {
            write(&volume, map, 0, &data);
            volume.backlog_notes.checkpoint_backlog(0);
        }
        close(&volume);
        let newest = volume.base.backlog.file_bytes_written().map(|bytes| bytes / BLOCK % 2 * slot).unwrap();
        let at = newest + random.below(4) * 16;
        match random.below(3) {
            0 => scribble(&devices.skipped, &[newest / BLOCK], seed),
            1 => devices.skipped.punch(newest, BLOCK).unwrap(),
            _ => {
                let mut page = vec![0; BLOCK_BYTES];
                devices.skipped.read_at(&mut page, newest).unwrap();
                page[(at - newest) as usize + 1] ^= 8;
                devices.skipped.write_at(&page, newest).unwrap();
            }
        }
        let volume = devices.open();
        assert!(volume.work_loop.dedup_status().full_pass);
        volume.hint_levels.fill_hints().unwrap();
        revisit_all(&volume);
        assert_eq!(used(&volume), 100);
        write(&volume, 9, 0, &data);
        close(&volume);
        assert!(!devices.open().work_loop.dedup_status().full_pass, "the next checkpoint is sound");
    }
}

/// A device on which every access fails while it is told to.
#[derive(Default)]
struct FailingDevice {
    inner: Arc<MemoryDevice>,
    reads_fail: AtomicBool,
    writes_fail: AtomicBool,
    failed: AtomicU64,
}

impl FailingDevice {
    fn check(&self, fails: &AtomicBool) -> io::Result<()> {
        if !fails.load(Relaxed) {
            return Ok(());
        }
        self.failed.fetch_add(1, Relaxed);
        Err(io::Error::from_raw_os_error(libc::EIO))
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.check(&self.reads_fail)?;
        self.inner.read_at(bytes, at)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check(&self.writes_fail)?;
        self.inner.write_at(bytes, at)
    }
}

impl Device for FailingDevice {
    fn submit(&self, ios: &mut [Io<'_>]) {
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn flush(&self) -> io::Result<()> {
        self.check(&self.writes_fail)?;
        self.inner.flush()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.check(&self.writes_fail)?;
        self.inner.punch(at, len)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.check(&self.reads_fail)?;
        self.inner.next_data(at)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.check(&self.writes_fail)?;
        self.inner.grow(len)
    }
}

/// Only savings are lost. The worker still merges what memory knows, and then rests.
fn assert_works_without_disk_level(volume: &Volume) {
    let data = unique(MANY, 1);
    write_many(volume, 1, &data);
    let recent = unique(100, 2);
    tune(volume, "inline", "off").unwrap();
    write(volume, 2, 0, &recent);
    write(volume, 3, 0, &recent);
    volume.commits.checkpoint().unwrap();
    work_all(volume, false);
    assert!(used(volume) < MANY as u64 + 200, "what memory knows is merged");
    assert_eq!(volume.base.health.failure(), None);
    volume.commits.commit().unwrap();
    volume.commits.checkpoint().unwrap();
    assert_holds(volume, 1, &data);
    assert_clean(volume);
    close(volume);
}

#[test]
fn a_file_of_hints_that_cannot_be_opened_costs_savings_and_nothing_else() {
    let devices = Devices::new(DATA, settings(Inline::All));
    let hints = Arc::new(FailingDevice::default());
    hints.reads_fail.store(true, Relaxed);
    hints.writes_fail.store(true, Relaxed);
    let volume = devices.open_medium(Backend { hints: Some(hints), ..devices.backend() });
    volume.hint_levels.fill_hints().unwrap();
    assert_works_without_disk_level(&volume);
}

#[test]
fn a_file_of_hints_that_fails_for_good_costs_savings_and_nothing_else() {
    for (reads, writes) in [(true, true), (true, false), (false, true)] {
        println!("reads fail: {reads}, writes fail: {writes}");
        let devices = Devices::new(DATA, settings(Inline::All));
        let hints = Arc::new(FailingDevice::default());
        let volume = devices.open_medium(Backend { hints: Some(hints.clone()), ..devices.backend() });
        volume.hint_levels.fill_hints().unwrap();
        write_many(&volume, 7, &unique(MANY, 77));
        delete(&volume, 7);
        hints.reads_fail.store(reads, Relaxed);
        hints.writes_fail.store(writes, Relaxed);
        assert_works_without_disk_level(&volume);
        assert!(hints.failed.load(Relaxed) > 0, "the test has to come there");
    }
}

#[test]
fn a_file_of_hints_that_fails_for_a_while_recovers() {
    let devices = Devices::new(DATA, settings(Inline::All));
    let hints = Arc::new(FailingDevice::default());
    let volume = devices.open_medium(Backend { hints: Some(hints.clone()), ..devices.backend() });
    volume.hint_levels.fill_hints().unwrap();
    let data = unique(MANY, 1);
    hints.writes_fail.store(true, Relaxed);
    write_many(&volume, 1, &data);
    hints.writes_fail.store(false, Relaxed);
    work_all(&volume, false);
    assert_savings_recover(&volume, 2, &data);
}

#[test]
fn a_file_of_skipped_blocks_that_fails_costs_a_full_pass_and_nothing_else() {
    for fails_at_open in [true, false] {
        let devices = Devices::new(DATA, settings(Inline::Off));
        let skipped = Arc::new(FailingDevice { inner: devices.skipped.clone(), ..FailingDevice::default() });
        skipped.reads_fail.store(fails_at_open, Relaxed);
        let volume = devices.open_medium(Backend { skipped: Some(skipped.clone()), ..devices.backend() });
        skipped.writes_fail.store(true, Relaxed);
        volume.hint_levels.fill_hints().unwrap();
        let data = unique(100, 1);
        write(&volume, 1, 0, &data);
        volume.backlog_notes.checkpoint_backlog(0);
        write(&volume, 2, 0, &data);
        volume.backlog_notes.checkpoint_backlog(0);
        close(&volume);
        assert_eq!(volume.base.health.failure(), None);
        let volume = devices.open();
        assert!(volume.work_loop.dedup_status().full_pass);
        volume.hint_levels.fill_hints().unwrap();
        revisit_all(&volume);
        assert_eq!(used(&volume), 100);
    }
}

/// A sorted state whose next reads fail, and that calls a hook after its next scan.
struct HookedKv {
    inner: Arc<dyn Kv>,
    gets_to_fail: AtomicU64,
    after_scan: parking_lot::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl HookedKv {
    fn of(devices: &Devices) -> Arc<Self> {
        Arc::new(Self { inner: devices.kv.clone(), gets_to_fail: AtomicU64::new(0), after_scan: Default::default() })
    }
}

impl Kv for HookedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.gets_to_fail.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(crate::Error::io("reading a record", io::Error::from_raw_os_error(libc::EIO)));
        }
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let found = self.inner.scan(from, to, limit);
        let hook = self.after_scan.lock().take();
        hook.into_iter().for_each(|hook| hook());
        found
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.inner.write(batch)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn memory(&self) -> KvMemory {
        self.inner.memory()
    }
}

#[test]
fn what_could_not_be_looked_at_for_an_error_is_found_by_the_next_full_pass() {
    for is_pass in [false, true] {
        let (devices, volume) = volume(Inline::Off);
        let data = unique(600, 1);
        write(&volume, 1, 0, &data);
        write(&volume, 2, 0, &data);
        close(&volume);
        let kv = HookedKv::of(&devices);
        let volume = devices.open_medium(Backend { kv: kv.clone(), ..devices.backend() });
        volume.hint_levels.fill_hints().unwrap();
        if is_pass {
            volume.base.backlog.restore([Skipped::Everything]);
        }
        // The first leaf is read, the second is not.
        volume.metadata.leaf(LeafKey { map: MapId(1), leaf: 0 }).unwrap();
        kv.gets_to_fail.store(2, Relaxed);
        drop(volume.revisits.revisit(1_000));
        assert_eq!(kv.gets_to_fail.load(Relaxed), 0, "the test has to come there");
        work_all(&volume, true);
        assert_eq!(used(&volume), 600, "is_pass: {is_pass}");
    }
}

#[test]
fn a_block_that_cannot_be_read_keeps_nobody_from_the_others_and_the_work_ends() {
    let devices = Devices::new(DATA, Settings { fingerprints: FingerprintMode::Lazy, ..settings(Inline::Off) });
    let volume = devices.open();
    let data = unique(600, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    close(&volume);
    let (data_area, Pbn(bad)) = (Unreadable::of(&devices.data), pbn(&volume, 2, 300));
    data_area.set(bad * BLOCK..(bad + 1) * BLOCK);
    drop(volume);
    let volume = devices.open_with(data_area);
    volume.hint_levels.fill_hints().unwrap();
    for _ in 0..100 {
        if matches!(volume.revisits.revisit(1_000), Ok(None)) {
            break;
        }
    }
    assert!(!volume.worklist.is_revisit_left(), "a block that cannot be read is equal to none");
    assert_eq!(used(&volume), 601, "all others are merged");
}

#[test]
fn a_checkpoint_in_the_middle_hides_no_file_from_a_full_pass() {
    let devices = Devices::new(DATA, settings(Inline::Off));
    let kv = HookedKv::of(&devices);
    let volume = Arc::new(devices.open_medium(Backend { kv: kv.clone(), ..devices.backend() }));
    volume.hint_levels.fill_hints().unwrap();
    let data = unique(600, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    volume.base.backlog.restore([Skipped::Everything]);
    let checkpointer = volume.clone();
    // The checkpointer is another thread.
    *kv.after_scan.lock() = Some(Box::new(move || as_another_thread(|| checkpointer.commits.checkpoint().unwrap())));
    revisit_all(&volume);
    assert_eq!(used(&volume), 600);
}
