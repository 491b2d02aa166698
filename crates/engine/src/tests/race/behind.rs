//! Writes to files that share blocks, while the worker is behind: they wait for nothing that it does, and until their
//! commit a power cut leaves the old map (Selective, section 4.3, replicates maps for that). Not covered: their
//! duration, which `oncefs-bench` measures, and the hints on disk, whose lock no write takes.

use std::sync::Arc;

use super::*;
use crate::volume::assembly::Volume;
use crate::volume::backend::Backend;

/// A write that takes longer than this waits for the worker.
const WAITS: Duration = Duration::from_secs(20);

/// Files 1 and 2 share their blocks. Files 3 and 4 are equal too, and the worker has yet to visit them. Nothing is in
/// memory, and data area and block table call a hook.
struct Behind {
    devices: Devices,
    volume: Arc<Volume>,
    /// Data area and block table.
    parts: [Arc<HookedDevice>; 2],
    contents: [Vec<u8>; 4],
}

impl Behind {
    fn new() -> Self {
        let settings = Settings { inline: Inline::Off, fingerprints: FingerprintMode::Lazy, ..two_levels() };
        let devices = Devices::new(Blocks(2_000), settings);
        let volume = devices.open();
        let (deduplicated, behind) = (unique(COMPARED, 1), unique(COMPARED, 2));
        write(&volume, 1, &deduplicated);
        write(&volume, 2, &deduplicated);
        while volume.revisits.revisit(1_000).unwrap().is_some() {}
        assert_eq!(first_pbn(&volume, 1), first_pbn(&volume, 2));
        write(&volume, 3, &behind);
        write(&volume, 4, &behind);
        volume.backlog_notes.leave_to_worker(MapId(3), (0..COMPARED as u64).map(crate::Lbn));
        volume.commits.checkpoint().unwrap();
        volume.leave_cleanly();
        drop(volume);
        let backend = devices.backend();
        let hooked = |inner: &Arc<MemoryDevice>| Watched::new(inner, Hooks::default());
        let parts = [&devices.data, &devices.table].map(hooked);
        let [data, table] = parts.clone();
        let volume = Arc::new(devices.open_medium(Backend { data, table, ..backend }));
        volume.worklist.begin_full_pass();
        let contents = [deduplicated.clone(), deduplicated, behind.clone(), behind];
        Self { devices, volume, parts, contents }
    }

    /// Does all remaining work. Before the worker's read of this number from this part, a program does its own. False:
    /// there were fewer reads.
    fn work_with(&self, part: usize, reads: u64, program: impl FnOnce(&Volume) + Send + 'static) -> bool {
        let (volume, waited) = (self.volume.clone(), Arc::new(AtomicU64::new(0)));
        let noted = waited.clone();
        self.parts[part].reads_before.store(reads, Relaxed);
        *self.parts[part].before_read.lock() = Some(Box::new(move || {
            let (done, is_done) = mpsc::channel();
            thread::spawn(move || {
                program(&volume);
                done.send(())
            });
            noted.store(u64::from(is_done.recv_timeout(WAITS).is_err()), Relaxed);
            Ok(())
        }));
        while self.volume.revisits.revisit(1_000).unwrap().is_some() {}
        let was_reached = self.parts[part].before_read.lock().take().is_none();
        assert_eq!(waited.load(Relaxed), 0, "a program waits for the worker at read {reads} of part {part}");
        was_reached
    }

    fn assert_holds(&self, volume: &Volume) {
        for (map, content) in (1..).zip(&self.contents) {
            assert!(volume.reader.read(MapId(map), 0, content.len()).unwrap().iter().eq(content), "file {map} differs");
        }
        assert_clean(volume);
    }
}

fn write(volume: &Volume, map: u64, data: &[u8]) {
    volume.write(MapId(map), 0, data, |_, _| ()).unwrap();
}

#[test]
fn a_write_to_files_that_share_blocks_waits_for_none_of_the_worker_s_reads() {
    let mut reached = [0_u64; 2];
    for (part, reached) in reached.iter_mut().enumerate() {
        loop {
            let mut copies = Behind::new();
            // Of deduplicated files, and of those being visited.
            let changes =
                [(1, 5), (2, COMPARED - 1), (3, 0), (4, 40)].map(|(map, at)| (map, at, unique(1, 90 + at as u64)));
            for (map, at, block) in &changes {
                copies.contents[map - 1][at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].copy_from_slice(block);
            }
            let program = move |volume: &Volume| {
                for (map, at, block) in &changes {
                    volume.write(MapId(*map as u64), (at * BLOCK_BYTES) as u64, block, |_, _| ()).unwrap();
                    assert!(
                        volume
                            .reader
                            .read(MapId(*map as u64), (at * BLOCK_BYTES) as u64, BLOCK_BYTES)
                            .unwrap()
                            .iter()
                            .eq(block)
                    );
                }
                volume.commits.commit().unwrap();
            };
            if !copies.work_with(part, *reached, program) {
                break;
            }
            *reached += 1;
            copies.assert_holds(&copies.volume);
            copies.volume.commits.commit().unwrap();
            copies.assert_holds(&copies.devices.after_power_cut_of_all().open());
        }
    }
    assert!(reached.iter().all(|reads| *reads > 0), "the worker has to read each part: {reached:?}");
}

/// The action on the second of two equal files.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The worker lets it share the blocks of the first.
    Deduplicate,
    /// A program writes some of its blocks.
    Write,
    /// The changes are committed.
    Commit,
}

#[test]
fn until_a_change_of_a_shared_file_is_committed_a_power_cut_leaves_its_old_map() {
    use Step::{Commit, Deduplicate, Write};
    for steps in [
        [Deduplicate, Commit, Write, Commit],
        [Deduplicate, Write, Commit, Commit],
        [Write, Deduplicate, Commit, Commit],
        [Write, Commit, Deduplicate, Commit],
    ] {
        let copies = TwoCopies::new();
        let (old, mut now) = (copies.content.clone(), copies.content.clone());
        let mut committed = (now.clone(), copies.volume.free_blocks.totals().used);
        for step in steps {
            match step {
                Deduplicate => copies.revisit_all(),
                Write => {
                    let block = unique(2, 7);
                    copies.volume.write(MapId(2), 9 * BLOCK_BYTES as u64, &block, |_, _| ()).unwrap();
                    now[9 * BLOCK_BYTES..11 * BLOCK_BYTES].copy_from_slice(&block);
                }
                Commit => {
                    copies.volume.commits.commit().unwrap();
                    committed = (now.clone(), copies.volume.free_blocks.totals().used);
                }
            }
            let cut = copies.devices.after_power_cut_of_all().open();
            for (map, content) in [(1, &old), (2, &committed.0)] {
                let read = cut.reader.read(MapId(map), 0, content.len()).unwrap();
                assert!(read.iter().eq(content), "file {map} behind {step:?} of {steps:?}");
            }
            assert_eq!(cut.free_blocks.totals().used, committed.1, "behind {step:?} of {steps:?}");
            assert_clean(&cut);
        }
        assert_eq!(
            copies.volume.free_blocks.totals().used,
            Blocks(1 + COMPARED as u64 + 2),
            "{steps:?}: all is shared but two"
        );
    }
}
