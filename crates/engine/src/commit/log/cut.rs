//! Ends a damaged log before its first group that cannot be read, for good. Only done when somebody asks for it: what was
//! acknowledged in that group and in those after it is lost.
//!
//! The groups from there on lose their first block each, in any order. As long as one is left that is whole, the volume
//! stays closed as before, so a crash in between only means to do it again. After the last one it opens as of the group
//! before the damage.

use std::sync::Arc;

use super::Log;
use crate::device::buffer::AlignedBuf;
use crate::device::{ALIGN_BYTES, Device};
use crate::format::record;
use crate::{Error, Result};

/// What was left out of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutLog {
    /// The first group that could not be read.
    pub group: u64,
    /// Later groups that were whole.
    pub whole_later: u64,
}

impl Log {
    /// Leaves out what follows the last group that can be read behind group `sequence`, which ends at `at`. None: nothing
    /// does.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: the log cannot be written.
    pub fn cut(
        device: Arc<dyn Device>,
        log_id: [u8; 16],
        bytes: u64,
        (sequence, at): (u64, u64),
    ) -> Result<Option<CutLog>> {
        let next_sequence = sequence + 1;
        let mut log = Self {
            device,
            log_id,
            bytes,
            head: at.min(bytes),
            used: 0,
            trimmed_soon: 0,
            next_sequence,
            is_last_left_out: false,
        };
        while let Ok(Some((at, record))) = log.read_next() {
            log.advance(at, record.header.record_bytes());
        }
        let (mut cut, mut is_any) = (CutLog { group: log.next_sequence, whole_later: 0 }, false);
        let block = ALIGN_BYTES as u64;
        for at in (0..bytes / block).map(|number| number * block) {
            // A place that cannot be read may be able to be written.
            if let Ok(mut first) = log.read_at(at, ALIGN_BYTES) {
                let is_next = record::mend_header(&mut first, log_id, log.next_sequence).is_some();
                let sequence = record::peek(&first, log_id).map(|header| header.sequence);
                if !is_next && sequence.is_none_or(|sequence| sequence < log.next_sequence) {
                    continue;
                }
                cut.whole_later += u64::from(log.read_record(at).is_ok_and(|record| record.is_some()));
            }
            is_any = true;
            log.device.write_at(&AlignedBuf::new(ALIGN_BYTES), at).map_err(failed)?;
        }
        log.device.flush().map_err(failed)?;
        Ok(is_any.then_some(cut))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::io("cutting the log", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use crate::format::record::Totals;

    const BYTES: u64 = 256 << 10;
    /// A group of more than 64 KiB, in which an even number of wrong bits is not sought.
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
        Log::cut(device.clone(), [1; 16], BYTES, (0, 0)).unwrap()
    }

    #[test]
    fn a_log_with_a_damaged_group_opens_without_it_and_those_after_it_once_it_is_cut() {
        let device = ring(&[10, 10, 10, 10]);
        change(&device, 4_096 + 100, &[1, 1, 1]);
        let Err(Error::Corrupt { detail, .. }) = open(&device) else { panic!("it is refused") };
        assert!(detail.contains("fsck --cut-log"), "{detail}");
        assert_eq!(cut(&device), Some(CutLog { group: 2, whole_later: 2 }));
        let (log, groups) = open(&device).unwrap();
        assert_eq!((groups, log.left_out()), (vec![1], None));
        assert_eq!(cut(&device), None, "nothing is left to be cut");
    }

    #[test]
    fn a_last_group_that_was_complete_is_refused_and_not_taken_for_a_torn_one() {
        let device = ring(&[10, LONG]);
        change(&device, 4_096 + 9_000, &[0xFF]);
        let Err(Error::Corrupt { detail, .. }) = open(&device) else { panic!("it is refused") };
        assert!(detail.contains("was complete") && detail.contains("fsck --cut-log"), "{detail}");
        assert_eq!(cut(&device), Some(CutLog { group: 2, whole_later: 0 }));
        assert_eq!(open(&device).unwrap().1, [1]);
    }

    #[test]
    fn a_last_group_that_is_not_complete_is_left_out_and_told() {
        let device = ring(&[10, LONG]);
        change(&device, 4_096 + 9_000, &[1, 2, 3, 4, 5]);
        let (log, groups) = open(&device).unwrap();
        assert_eq!(groups, [1]);
        assert!(log.left_out().unwrap().starts_with("group 2 of the log is not complete"));
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
}
