//! Permanently ends a damaged log before its first unreadable group. Only done at the user's request, because the
//! acknowledged changes of that group and of those after it are lost.
//!
//! The groups from there on lose their first block each, in any order. While one of them is still whole, the volume
//! stays closed as before, so a crash in between only means to repeat the cut. After the last one, the volume opens as
//! of the group before the damage. Nothing is written to the groups that were read. If there are none, and the group of
//! the checkpoint cannot be found, nothing would show that the log belongs to the records. Then an empty group follows
//! the checkpoint.

use std::ops::Range;
use std::sync::Arc;

use super::{Log, Recovered};
use crate::device::buffer::AlignedBuf;
use crate::device::{ALIGN_BYTES, Device};
use crate::format::checkpoint::Checkpoint;
use crate::format::record;
use crate::{Error, Result};

/// How often a place is read before it counts as unreadable: an error may pass.
const TRIES: usize = 3;

/// The part of a log that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutLog {
    /// The first group that could not be read.
    pub group: u64,
    /// Later groups that were whole.
    pub whole_later: u64,
    /// Whether a trace of such a group was found. Otherwise only a place was cleared that may have contained it.
    pub is_begun: bool,
}

impl Log {
    /// Leaves out everything after the last readable group that follows a checkpoint. None: nothing had to be left out.
    ///
    /// # Errors
    ///
    /// - [`Error::Corrupt`]: no group can follow the checkpoint.
    /// - [`Error::Io`]: the log cannot be written.
    pub fn cut(
        device: Arc<dyn Device>,
        log_id: [u8; 16],
        bytes: u64,
        checkpoint: &Checkpoint,
    ) -> Result<Option<CutLog>> {
        let Checkpoint { sequence, log_at, totals } = *checkpoint;
        let next_sequence = sequence.checked_add(1);
        let next_sequence =
            next_sequence.ok_or_else(|| Error::corrupt("the checkpoint record", "no group can follow it"))?;
        let mut log = Self {
            device,
            log_id,
            bytes,
            head: log_at.min(bytes),
            used: 0,
            trimmed_soon: 0,
            next_sequence,
            is_last_left_out: false,
        };
        let kept = log.recover_readable();
        let mut is_there = sequence == 0 || !kept.is_empty();
        let mut cut = CutLog { group: log.next_sequence, whole_later: 0, is_begun: false };
        let (mut is_any, block) = (false, ALIGN_BYTES as u64);
        for at in (0..bytes / block).map(|number| number * block) {
            if kept.iter().any(|kept| kept.contains(&at)) {
                continue;
            }
            // An unreadable place may still be writable.
            if let Some(first) = log.read_patiently(at) {
                is_there = is_there || record::is_of_group(&first, log_id, sequence);
                if record::likely_sequence(&first, log_id).is_none_or(|sequence| sequence < log.next_sequence) {
                    continue;
                }
                cut.is_begun = true;
                cut.whole_later += u64::from(log.read_record(at).is_ok_and(|record| record.is_some()));
            }
            is_any = true;
            log.device.write_at(&AlignedBuf::new(ALIGN_BYTES), at).map_err(failed)?;
        }
        log.device.flush().map_err(failed)?;
        // After the flush: the groups to leave out must not follow an empty group.
        if !is_there {
            log.append(&[], totals)?;
        }
        Ok((is_any || !is_there).then_some(cut))
    }

    /// Continues as far as the log can be read, and returns where those groups lie.
    fn recover_readable(&mut self) -> Vec<Range<u64>> {
        let mut kept = Vec::new();
        while let Some((at, record)) = self.next_readable() {
            let bytes = record.header.record_bytes();
            kept.push(at..at + bytes);
            self.advance(at, bytes);
        }
        kept
    }

    /// The next group. An unreadable place does not hide it if it lies in the other one.
    fn next_readable(&self) -> Option<(u64, Recovered)> {
        if let Some(found) = (0..TRIES).find_map(|_| self.read_next().ok()) {
            return found;
        }
        self.places().find_map(|at| {
            let whole = self.read_record(at).ok().flatten();
            let next = whole.filter(|record| record.header.sequence == self.next_sequence);
            next.or_else(|| self.read_flipped(at).ok().flatten()).map(|record| (at, record))
        })
    }

    fn read_patiently(&self, at: u64) -> Option<AlignedBuf> {
        (0..TRIES).find_map(|_| self.read_at(at, ALIGN_BYTES).ok())
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::io("cutting the log", error)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::*;
    use crate::Blocks;
    use crate::device::MemoryDevice;
    use crate::format::record::Totals;
    use crate::tests::watched::{Watch, Watched};

    const BYTES: u64 = 256 << 10;
    /// A group of more than 64 KiB, in which an even number of wrong bits is not searched for.
    const LONG: usize = 70_000;

    fn ring(groups: &[usize]) -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(BYTES));
        let (mut log, _) = Log::open(device.clone(), [1; 16], BYTES, 0, 0).unwrap();
        for len in groups {
            log.append(&vec![7; *len], Totals::default()).unwrap();
        }
        device
    }

    fn change(device: &MemoryDevice, at: u64, bits: &[u8]) {
        let mut block = vec![0; ALIGN_BYTES];
        let from = at / ALIGN_BYTES as u64 * ALIGN_BYTES as u64;
        device.read_at(&mut block, from).unwrap();
        bits.iter().zip((at - from) as usize..).for_each(|(bits, at)| block[at] ^= bits);
        device.write_at(&block, from).unwrap();
    }

    fn open(device: &Arc<MemoryDevice>) -> Result<(Log, Vec<u64>)> {
        let (log, records) = Log::open(device.clone(), [1; 16], BYTES, 0, 0)?;
        Ok((log, records.iter().map(|record| record.header.sequence).collect()))
    }

    fn cut(device: &Arc<MemoryDevice>) -> Option<CutLog> {
        Log::cut(device.clone(), [1; 16], BYTES, &Checkpoint::default()).unwrap()
    }

    #[test]
    fn a_log_with_a_damaged_group_opens_without_it_and_those_after_it_once_it_is_cut() {
        let device = ring(&[10, 10, 10, 10]);
        change(&device, 4_096 + 100, &[1, 1, 1]);
        let Err(Error::Corrupt { detail, .. }) = open(&device) else { panic!("it is refused") };
        assert!(detail.contains("fsck --cut-log"), "{detail}");
        assert_eq!(cut(&device), Some(CutLog { group: 2, whole_later: 2, is_begun: true }));
        let (log, groups) = open(&device).unwrap();
        assert_eq!((groups, log.left_out()), (vec![1], None));
        assert_eq!(cut(&device), None, "nothing is left to be cut");
    }

    #[test]
    fn a_last_group_that_is_not_complete_is_left_out_and_told() {
        let device = ring(&[10, LONG]);
        for bits in [&[1, 2, 3, 4, 5][..], &[0xFF]] {
            let damaged = Arc::new(device.after_power_cut(|_| true));
            change(&damaged, 4_096 + 9_000, bits);
            let (log, groups) = open(&damaged).unwrap();
            assert_eq!(groups, [1], "{bits:?}");
            assert!(log.left_out().unwrap().starts_with("group 2 of the log is not complete"), "{bits:?}");
        }
        assert_eq!(open(&ring(&[10, 20])).unwrap().0.left_out(), None);
    }

    #[test]
    fn a_log_that_is_whole_is_not_cut() {
        let device = ring(&[10, LONG, 20]);
        assert_eq!(cut(&device), None);
        assert_eq!(open(&device).unwrap().1, [1, 2, 3]);
    }

    #[test]
    fn a_crash_while_it_is_cut_leaves_it_closed_or_cut() {
        for kept in 0..8_u32 {
            let device = ring(&[10, 10, 10, 10]);
            change(&device, 4_096 + 100, &[1, 1, 1]);
            // The blocks that had been written by then, of the three.
            (0..3_u32).filter(|n| kept >> n & 1 == 1).for_each(|n| {
                device.write_at(&[0; ALIGN_BYTES], 4_096 * (1 + u64::from(n))).unwrap();
            });
            match open(&device) {
                Ok((_, groups)) => assert_eq!((groups, kept & 6), (vec![1], 6), "{kept:b}"),
                Err(_) => assert_ne!(kept & 6, 6, "{kept:b}"),
            }
            cut(&device);
            assert_eq!(open(&device).unwrap().1, [1], "{kept:b}");
        }
    }

    /// A block cannot be read until it is written, or once.
    struct Unreadable {
        block: u64,
        /// Which reads of the block fail.
        failing: Mutex<Range<usize>>,
        reads: AtomicUsize,
    }

    impl Unreadable {
        fn new(inner: &Arc<MemoryDevice>, block: u64, failing: Range<usize>) -> Arc<Watched<Self>> {
            Watched::new(inner, Self { block, failing: Mutex::new(failing), reads: AtomicUsize::new(0) })
        }
    }

    impl Watch for Unreadable {
        fn before_read(&self, bytes: Range<u64>) -> io::Result<()> {
            let is_hit = bytes.contains(&self.block);
            if is_hit && self.failing.lock().contains(&self.reads.fetch_add(1, Ordering::Relaxed)) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Ok(())
        }

        fn before_write(&self, bytes: Range<u64>) -> io::Result<()> {
            if bytes.contains(&self.block) {
                *self.failing.lock() = 0..0;
            }
            Ok(())
        }
    }

    fn groups_of(device: Arc<dyn Device>, checkpoint: &Checkpoint) -> Result<Vec<(u64, usize)>> {
        let (_, records) = Log::open(device, [1; 16], BYTES, checkpoint.sequence, checkpoint.log_at)?;
        Ok(records.iter().map(|record| (record.header.sequence, record.ops.len())).collect())
    }

    /// That of a clean volume: its last group is that of the checkpoint.
    fn clean() -> (Arc<MemoryDevice>, Checkpoint) {
        let totals = Totals { data: Blocks(77), ..Totals::default() };
        (ring(&[10, 10]), Checkpoint { sequence: 2, log_at: 8_192, totals })
    }

    #[test]
    fn a_clean_log_without_a_trace_of_its_last_group_opens_once_it_is_cut() {
        let (device, checkpoint) = clean();
        let unreadable: Arc<dyn Device> = Unreadable::new(&device, 4_096, 0..usize::MAX);
        let Err(Error::Io { .. }) = groups_of(unreadable.clone(), &checkpoint) else { panic!("it is refused") };
        let found = Log::cut(unreadable.clone(), [1; 16], BYTES, &checkpoint).unwrap();
        assert_eq!(found, Some(CutLog { group: 3, whole_later: 0, is_begun: false }));
        let (_, records) = Log::open(unreadable.clone(), [1; 16], BYTES, 2, 8_192).unwrap();
        assert_eq!((records.len(), records[0].header.totals), (1, checkpoint.totals));
        assert_eq!(Log::cut(unreadable, [1; 16], BYTES, &checkpoint).unwrap(), None, "nothing is left to be cut");

        // Closed for more than one wrong byte, or by a power cut after the place was cleared.
        for bits in [&[0xFF_u8; 96][..], &[3, 4]] {
            let (device, checkpoint) = clean();
            change(&device, 4_096 + 9, bits);
            let Err(Error::Corrupt { .. }) = groups_of(device.clone(), &checkpoint) else { panic!("it is refused") };
            assert!(Log::cut(device.clone(), [1; 16], BYTES, &checkpoint).unwrap().is_some());
            assert_eq!(groups_of(device, &checkpoint).unwrap(), [(3, 0)]);
        }
    }

    #[test]
    fn one_wrong_byte_in_the_header_of_a_clean_log_s_last_group_leaves_nothing_to_be_cut() {
        for byte in [8, 16, 23, 32, 47] {
            let (device, checkpoint) = clean();
            change(&device, 4_096 + byte, &[0x21]);
            assert_eq!(groups_of(device.clone(), &checkpoint).unwrap(), [], "byte {byte}");
            assert_eq!(Log::cut(device.clone(), [1; 16], BYTES, &checkpoint).unwrap(), None, "byte {byte}");
            assert_eq!(groups_of(device, &checkpoint).unwrap(), [], "byte {byte}");
        }
    }

    #[test]
    fn groups_that_were_read_are_never_written_to() {
        // One read of a block fails, or all once its group was read.
        for failing in [0..1, 1..2, 2..3, 3..4, 2..usize::MAX] {
            for block in (0..10).map(|number| number * 4_096) {
                let device = ring(&[10, 10, 20_000, 10]);
                let unreadable = Unreadable::new(&device, block, failing.clone());
                Log::cut(unreadable, [1; 16], BYTES, &Checkpoint::default()).unwrap();
                let groups = groups_of(device, &Checkpoint::default()).unwrap();
                assert_eq!(groups.len(), 4, "block {block}, reads {failing:?}");
            }
        }
    }

    #[test]
    fn a_place_that_cannot_be_read_does_not_hide_a_group_at_the_ring_s_start() {
        let device = Arc::new(MemoryDevice::new(BYTES));
        let (mut log, _) = Log::open(device.clone(), [1; 16], BYTES, 0, 0).unwrap();
        for len in [100_000, 100_000, LONG] {
            log.append(&vec![7; len], Totals::default()).unwrap();
            log.trim(log.mark());
        }
        let checkpoint = Checkpoint { sequence: 2, log_at: 204_800, totals: Totals::default() };
        let unreadable: Arc<dyn Device> = Unreadable::new(&device, checkpoint.log_at, 0..usize::MAX);
        assert!(groups_of(unreadable.clone(), &checkpoint).is_err());
        assert!(Log::cut(unreadable.clone(), [1; 16], BYTES, &checkpoint).unwrap().is_some());
        assert_eq!(groups_of(unreadable, &checkpoint).unwrap(), [(3, LONG)]);
    }

    #[test]
    fn a_later_group_whose_header_has_a_wrong_byte_is_cut_too_and_never_comes_back() {
        for byte in [8, 16, 32] {
            let device = ring(&[10, 10, 10]);
            change(&device, 4_096 + 100, &[1, 1, 1]);
            change(&device, 8_192 + byte, &[0x21]);
            cut(&device);
            let (mut log, groups) = open(&device).unwrap();
            assert_eq!(groups, [1]);
            log.append(b"new", Totals::default()).unwrap();
            assert_eq!(open(&device).unwrap().1, [1, 2], "byte {byte}");
        }
    }
}
