//! The log: a ring of commit groups in a file that was filled with zeros once, so that a flush writes no metadata of
//! the host. [`Journal`] is the log of an open volume, with the gates that order its groups and checkpoints.
//!
//! Invariants: (1) records follow each other without gaps in sequence; (2) one record is written at a time, and the
//! next only after it was flushed, so an unreadable record is the last one; (3) no record is overwritten until a
//! checkpoint made it unnecessary; (4) a record is used only once it is durable. Recovery therefore flushes the last
//! record again before using it.

use std::sync::Arc;

use crate::commit::log_room::{GroupBounds, LogRoom};
use crate::device::buffer::AlignedBuf;
use crate::device::{ALIGN_BYTES, Device};
use crate::format::record::{self, Header, Totals};
use crate::sync::{LockRank, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Error, Result};

mod cut;

pub use cut::CutLog;

/// The way out of a damaged log, for messages.
const WAY_OUT: &str = "restore a copy of the log, or leave that group and all after it out with oncefs fsck --cut-log: what \
                       programs synced since is lost then";

/// The ring and its ends.
pub struct Log {
    device: Arc<dyn Device>,
    log_id: [u8; 16],
    bytes: u64,
    /// Where the next record goes.
    head: u64,
    /// Bytes from the oldest needed record to `head`, including gaps at the ring's end.
    used: u64,
    /// Bytes of `used` that the running checkpoint makes unnecessary.
    trimmed_soon: u64,
    next_sequence: u64,
    /// Whether recovery found that the next record was begun but is incomplete.
    is_last_left_out: bool,
}

/// A record found by recovery.
pub struct Recovered {
    /// Its header.
    pub header: Header,
    /// Its operations.
    pub ops: Vec<u8>,
}

impl Log {
    /// Opens the ring at the end of a checkpoint and reads the groups that followed it.
    pub fn open(
        device: Arc<dyn Device>,
        log_id: [u8; 16],
        bytes: u64,
        sequence: u64,
        at: u64,
    ) -> Result<(Self, Vec<Recovered>)> {
        let next_sequence = sequence.checked_add(1);
        let next_sequence =
            next_sequence.ok_or_else(|| Error::corrupt("the checkpoint record", "no group can follow it"))?;
        let mut log =
            Self { device, log_id, bytes, head: at, used: 0, trimmed_soon: 0, next_sequence, is_last_left_out: false };
        let found = log.device.len().map_err(|e| Error::io("opening the log", e))?;
        if found < bytes || at > bytes {
            return Err(Error::corrupt("the log", format!("it has {found} bytes, {bytes} are expected")));
        }
        let mut records = Vec::new();
        while let Some((at, record)) = log.read_next()? {
            log.advance(at, record.header.record_bytes());
            records.push(record);
        }
        let is_its_own = log.refuse_later_records(sequence)?;
        if sequence > 0 && records.is_empty() && !is_its_own {
            return Err(Error::corrupt(
                "the log",
                format!(
                    "it ends before group {sequence}, up to which the records are: they do not belong together, or it is \
                     damaged there. Restore those that do, or open the volume with oncefs fsck --cut-log as the records are"
                ),
            ));
        }
        for at in log.places() {
            log.is_last_left_out |= log.begun(at)?.is_some();
        }
        if log.is_last_left_out {
            log::warn!("{}", log.left_out().unwrap_or_default());
        }
        Ok((log, records))
    }

    /// The message about a last group that recovery left out as incomplete. None if there is no such group.
    pub fn left_out(&self) -> Option<String> {
        self.is_last_left_out.then(|| {
            format!(
                "group {} of the log is not complete and was left out: the machine stopped while it was written, and nobody \
                 was told that it was stored; or it was damaged since, and what programs synced last is lost",
                self.next_sequence
            )
        })
    }

    /// Makes recovered records durable: writes the last record again and flushes. Only the last one can be
    /// unflushed, if the process died before its flush. A flush alone is not enough: a host that fails to write a
    /// page reports it once, and then treats the page as clean.
    pub fn settle(&self, last: &Recovered) -> Result<()> {
        let bytes = last.header.record_bytes();
        assert_eq!(last.header.sequence + 1, self.next_sequence, "only the last record is written again");
        assert!(bytes <= self.head, "a record of {bytes} bytes cannot end at {}", self.head);
        self.write_record(&last.header, &last.ops, self.head - bytes)
    }

    fn write_record(&self, header: &Header, ops: &[u8], at: u64) -> Result<()> {
        let mut record = AlignedBuf::new(header.record_bytes() as usize);
        record[record::HEADER_BYTES..record::HEADER_BYTES + ops.len()].copy_from_slice(ops);
        record::seal(&mut record, header, self.log_id);
        self.device.write_at(&record, at).map_err(|e| Error::io("writing the log", e))?;
        self.device.flush().map_err(|e| Error::io("flushing the log", e))
    }

    /// Where the next record can begin: at the head, or at the ring's start if it did not fit.
    fn places(&self) -> impl Iterator<Item = u64> + use<> {
        [self.head, 0].into_iter().take(1 + usize::from(self.head > 0))
    }

    /// The record with the next sequence.
    fn read_next(&self) -> Result<Option<(u64, Recovered)>> {
        for at in self.places() {
            if let Some(record) = self.read_record(at)?.filter(|record| record.header.sequence == self.next_sequence) {
                return Ok(Some((at, record)));
            }
        }
        for at in self.places() {
            if let Some(record) = self.read_flipped(at)? {
                return Ok(Some((at, record)));
            }
        }
        Ok(None)
    }

    /// The record with the next sequence if one of its bytes changed since it was written. A record that cannot be
    /// corrected ends the log: damage to a complete record looks like a write that a crash cut short. Such a group was
    /// never acknowledged, and it must not keep the volume closed.
    fn read_flipped(&self, at: u64) -> Result<Option<Recovered>> {
        let Some((header, mut whole)) = self.begun(at)? else { return Ok(None) };
        if !record::mend(&mut whole, &header, self.log_id) {
            return Ok(None);
        }
        Ok(record::open(&whole, self.log_id).map(|(header, ops)| {
            log::warn!("corrected a wrong byte in group {} of the log", header.sequence);
            Recovered { header, ops: ops.to_vec() }
        }))
    }

    /// The record with the next sequence that begins there, after correcting one wrong byte of its header, and its
    /// bytes.
    fn begun(&self, at: u64) -> Result<Option<(Header, AlignedBuf)>> {
        if at + ALIGN_BYTES as u64 > self.bytes {
            return Ok(None);
        }
        let mut first = self.read_at(at, ALIGN_BYTES)?;
        let header = record::mend_header(&mut first, self.log_id, self.next_sequence);
        let Some(header) = header.filter(|header| self.fits(header, at)) else { return Ok(None) };
        let mut whole = self.read_at(at, header.record_bytes() as usize)?;
        whole[..ALIGN_BYTES].copy_from_slice(&first);
        Ok(Some((header, whole)))
    }

    /// Whether a record with that header can begin there.
    fn fits(&self, header: &Header, at: u64) -> bool {
        header.body_len <= self.bytes && at + header.record_bytes() <= self.bytes
    }

    fn read_at(&self, at: u64, len: usize) -> Result<AlignedBuf> {
        let mut bytes = AlignedBuf::new(len);
        self.device.read_at(&mut bytes, at).map_err(|e| Error::io(format!("reading the log ({WAY_OUT})"), e))?;
        Ok(bytes)
    }

    fn read_record(&self, at: u64) -> Result<Option<Recovered>> {
        if at + ALIGN_BYTES as u64 > self.bytes {
            return Ok(None);
        }
        let first = self.read_at(at, ALIGN_BYTES)?;
        let Some(claimed) = record::peek(&first, self.log_id) else { return Ok(None) };
        if !self.fits(&claimed, at) {
            return Ok(None);
        }
        let whole = self.read_at(at, claimed.record_bytes() as usize)?;
        Ok(record::open(&whole, self.log_id).map(|(header, ops)| Recovered { header, ops: ops.to_vec() }))
    }

    /// Refuses to silently lose a record. A whole record after the last one means that a record between them was
    /// damaged after it was acknowledged. Returns whether the record of group `wanted` is anywhere in the ring.
    fn refuse_later_records(&self, wanted: u64) -> Result<bool> {
        const STEP: usize = 1 << 20;
        let (mut at, mut is_there) = (0, false);
        while at < self.bytes {
            let len = STEP.min((self.bytes - at) as usize);
            let piece = self.read_at(at, len)?;
            for (index, block) in piece.chunks_exact(ALIGN_BYTES).enumerate() {
                let sequence = record::peek(block, self.log_id).map(|header| header.sequence);
                is_there = is_there || record::is_of_group(block, self.log_id, wanted);
                let is_later = sequence.is_some_and(|sequence| sequence >= self.next_sequence);
                let place = at + (index * ALIGN_BYTES) as u64;
                if is_later && let Some(later) = self.read_record(place)? {
                    return Err(Error::corrupt(
                        format!("group {} in the log", self.next_sequence),
                        format!(
                            "group {} after it is whole; the volume stays closed so that nothing acknowledged is lost silently. To \
                             open it, {WAY_OUT}",
                            later.header.sequence
                        ),
                    ));
                }
            }
            at += len as u64;
        }
        Ok(is_there)
    }

    fn advance(&mut self, at: u64, bytes: u64) {
        assert!(at + bytes <= self.bytes, "a record of {bytes} bytes at {at} in a log of {}", self.bytes);
        let gap = if at == self.head { 0 } else { self.bytes - self.head };
        self.head = at + bytes;
        self.used += gap + bytes;
        self.next_sequence += 1;
    }

    /// Where a record of `bytes` would go. None: it has no room.
    fn place(&self, bytes: u64) -> Option<u64> {
        let at = if self.head + bytes <= self.bytes { self.head } else { 0 };
        let gap = if at == self.head { 0 } else { self.bytes - self.head };
        (self.used + gap + bytes <= self.bytes).then_some(at)
    }

    /// Writes a group's record and flushes it: on return the group is durable. Returns its sequence and size.
    pub fn append(&mut self, ops: &[u8], totals: Totals) -> Result<(u64, u64)> {
        let header = Header { sequence: self.next_sequence, body_len: ops.len() as u64, totals };
        let bytes = header.record_bytes();
        let at = self.place(bytes).ok_or_else(|| {
            Error::Invalid(format!(
                "a group of {bytes} bytes does not fit into the log, {} of {} are used",
                self.used, self.bytes
            ))
        })?;
        let used = self.used;
        assert!(header.body_len < bytes && bytes.is_multiple_of(ALIGN_BYTES as u64), "{bytes} bytes for {header:?}");
        self.write_record(&header, ops, at)?;
        self.advance(at, bytes);
        assert!(used + bytes <= self.used, "{used} bytes and a record of {bytes} became {}", self.used);
        assert!(self.used <= self.bytes, "{} bytes of a log of {} are used", self.used, self.bytes);
        Ok((header.sequence, bytes))
    }

    /// Learns that a durable checkpoint needs nothing before `mark`.
    pub fn trim(&mut self, mark: Mark) {
        assert!(mark.used_before <= self.used, "trim of {} bytes of {}", mark.used_before, self.used);
        self.used -= mark.used_before;
        self.trimmed_soon = 0;
    }

    /// The present end of the log, for a checkpoint that begins here.
    pub fn mark(&self) -> Mark {
        debug_assert!(self.head <= self.bytes, "the head {} of a log of {} bytes", self.head, self.bytes);
        Mark { sequence: self.next_sequence - 1, head: self.head, used_before: self.used }
    }

    /// Share of the ring that is in use, 0 to 1.
    pub fn fullness(&self) -> f64 {
        self.used as f64 / self.bytes as f64
    }

    /// The same, without the part that the running checkpoint trims.
    fn fullness_left(&self) -> f64 {
        debug_assert!(self.trimmed_soon <= self.used, "{} bytes of {} are trimmed soon", self.trimmed_soon, self.used);
        (self.used - self.trimmed_soon) as f64 / self.bytes as f64
    }

    /// Size of the ring.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A point in the log between two groups.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// The last group before it.
    pub sequence: u64,
    /// Where the next group goes.
    pub head: u64,
    /// Bytes that can be overwritten once the log before the mark is not needed any more.
    pub used_before: u64,
}

/// The log and the gates before it.
pub struct Journal {
    volume_id: [u8; 16],
    /// The last commit before this mount.
    opened_at: u64,
    log: Mutex<Log>,
    room: LogRoom,
    /// Held shared while a change is published in several publications that belong into one group.
    group_gate: RwLock<()>,
    /// Held while one checkpoint is under way.
    checkpointing: Mutex<()>,
    dirty_bytes_max: u64,
}

/// Bounds of the changes between two commits and checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct JournalBounds {
    /// A checkpoint is requested when this many bytes of changes are in memory.
    pub dirty_bytes_max: u64,
    /// A change of a range of more leaves than this does not fit into one group. None: follows from the log's size.
    pub gated_leaves_max: Option<u64>,
}

impl Journal {
    /// The log of a volume whose last commit was `opened_at`.
    pub fn new(volume_id: [u8; 16], opened_at: u64, log: Log, bounds: JournalBounds) -> Self {
        let JournalBounds { dirty_bytes_max, gated_leaves_max } = bounds;
        assert!(gated_leaves_max != Some(0), "a change of one leaf has to fit into one group");
        assert!(dirty_bytes_max > 0, "a bound of 0 bytes would have every publisher wait for a checkpoint");
        let reached = log.mark().sequence;
        assert_eq!(reached, opened_at, "the log ends at group {reached}, the volume at {opened_at}");
        Self {
            volume_id,
            opened_at,
            room: LogRoom::new(GroupBounds::of(log.bytes(), dirty_bytes_max, gated_leaves_max)),
            log: Mutex::new(LockRank::Log, log),
            group_gate: RwLock::new(LockRank::GroupGate, ()),
            checkpointing: Mutex::new(LockRank::Checkpointing, ()),
            dirty_bytes_max,
        }
    }

    /// Which volume it is.
    pub fn volume_id(&self) -> [u8; 16] {
        self.volume_id
    }

    /// See [`Log::left_out`].
    pub fn left_out(&self) -> Option<String> {
        self.log.lock().left_out()
    }

    /// The last commit before this mount.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// A checkpoint is requested when this many bytes of changes are in memory.
    pub fn dirty_bytes_max(&self) -> u64 {
        self.dirty_bytes_max
    }

    /// The room in the log for the current group.
    pub fn room(&self) -> &LogRoom {
        &self.room
    }

    /// How much of the log a group, and a change, may take.
    pub fn bounds(&self) -> &GroupBounds {
        self.room.bounds()
    }

    /// Share of the log that is in use, 0 to 1.
    pub fn fullness(&self) -> f64 {
        self.log.lock().fullness()
    }

    /// Share of the log that will be in use after the running checkpoint, 0 to 1.
    pub fn fullness_left(&self) -> f64 {
        self.log.lock().fullness_left()
    }

    /// Keeps a change that is published in pieces in one group while the guard lives.
    pub fn gate(&self) -> RwLockReadGuard<'_, ()> {
        self.group_gate.read()
    }

    /// Waits until no change is half published, and holds off new ones while the group is taken.
    pub fn close_gate(&self) -> RwLockWriteGuard<'_, ()> {
        self.group_gate.write()
    }

    /// Whether no change is half published, so that the group could be taken now.
    pub fn is_gate_free(&self) -> bool {
        self.group_gate.try_write().is_some()
    }

    /// Holds off checkpoints while the guard lives. A checkpoint holds it itself.
    pub fn hold_checkpoints(&self) -> MutexGuard<'_, ()> {
        self.checkpointing.lock()
    }

    /// Begins a commit. It is the only one until the guard is dropped.
    pub fn begin_commit(&self) -> CommitUnderWay<'_> {
        CommitUnderWay { log: self.log.lock() }
    }

    /// Learns that a checkpoint is durable: nothing before `mark` is needed any more.
    pub fn trim(&self, mark: Mark) {
        self.log.lock().trim(mark);
    }
}

/// The right to append one group.
pub struct CommitUnderWay<'a> {
    log: MutexGuard<'a, Log>,
}

impl CommitUnderWay<'_> {
    /// Share of the log that is in use, 0 to 1. Meanwhile only a checkpoint changes it, by trimming the log.
    pub fn fullness(&self) -> f64 {
        self.log.fullness()
    }

    /// The present end of the log, at which a checkpoint begins.
    pub fn begin_checkpoint(&mut self) -> Mark {
        let mark = self.log.mark();
        self.log.trimmed_soon = mark.used_before;
        mark
    }

    /// Number of the group that is appended next.
    pub fn next_sequence(&self) -> u64 {
        self.log.mark().sequence + 1
    }

    /// Writes a group's record and flushes it: on return the group is durable. Returns its sequence and size.
    pub fn append(&mut self, ops: &[u8], totals: Totals) -> Result<(u64, u64)> {
        let expected = self.next_sequence();
        let (sequence, bytes) = self.log.append(ops, totals)?;
        assert_eq!(sequence, expected, "the group's number");
        Ok((sequence, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    const BYTES: u64 = 64 << 10;

    fn ring() -> (Arc<MemoryDevice>, Log) {
        let device = Arc::new(MemoryDevice::new(BYTES));
        let (log, records) = Log::open(device.clone(), [1; 16], BYTES, 0, 0).unwrap();
        assert!(records.is_empty());
        (device, log)
    }

    fn sequences(records: &[Recovered]) -> Vec<u64> {
        records.iter().map(|record| record.header.sequence).collect()
    }

    #[test]
    fn records_are_found_again_across_the_ring_s_end() {
        let (device, mut log) = ring();
        let mut mark = log.mark();
        for n in 0..40u8 {
            log.trim(Mark { used_before: if log.fullness() > 0.5 { log.mark().used_before } else { 0 }, ..mark });
            if log.fullness() == 0.0 {
                mark = log.mark();
            }
            log.append(&vec![n; 5000], Totals::default()).unwrap();
        }
        let (_, records) = Log::open(device, [1; 16], BYTES, mark.sequence, mark.head).unwrap();
        let expected: Vec<u64> = (mark.sequence + 1..=40).collect();
        assert_eq!(sequences(&records), expected);
        assert!(records.iter().all(|record| record.ops == vec![(record.header.sequence - 1) as u8; 5000]));
    }

    #[test]
    fn a_full_ring_refuses_a_record_until_it_is_trimmed() {
        let (_, mut log) = ring();
        for _ in 0..16 {
            log.append(b"x", Totals::default()).unwrap();
        }
        assert!(log.append(b"x", Totals::default()).is_err());
        log.trim(log.mark());
        log.append(b"x", Totals::default()).unwrap();
    }

    #[test]
    fn a_flipped_bit_in_any_record_is_put_right_also_across_the_ring_s_end() {
        let (device, mut log) = ring();
        let mut marks = Vec::new();
        for n in 0..20u8 {
            log.trim(Mark { used_before: if log.fullness() > 0.5 { log.mark().used_before } else { 0 }, ..log.mark() });
            marks.push(log.mark());
            log.append(&vec![n; 5000], Totals::default()).unwrap();
            for byte in [0, 20, 26, 40, 95, 96, 2_000, 5_095] {
                let at = log.head - 8192;
                let mut block = vec![0; 8192];
                device.read_at(&mut block, at).unwrap();
                block[byte] ^= 16;
                let flipped = device.after_power_cut(|_| true);
                flipped.write_at(&block, at).unwrap();
                let mark = marks.last().unwrap();
                let (_, records) = Log::open(Arc::new(flipped), [1; 16], BYTES, mark.sequence, mark.head).unwrap();
                assert_eq!(sequences(&records), [u64::from(n) + 1], "byte {byte} of group {}", n + 1);
                assert!(records[0].ops == vec![n; 5000]);
            }
        }
    }

    /// Data in a record may cancel itself in the record's code: each of these contents does if whole sectors are
    /// missing.
    #[test]
    fn a_torn_last_record_of_regular_content_never_closes_the_log() {
        let line = b"2026-01-01 00:00:00 host service[1234]: a line of a log with eighty bytes in it\n";
        let counters = |n: usize| ((n / 8) as u64).to_le_bytes()[n % 8];
        let contents: [(&str, &dyn Fn(usize) -> u8); 5] = [
            ("0xFF", &|_| 0xFF),
            ("0xCC", &|_| 0xCC),
            ("spaces", &|_| b' '),
            ("lines", &|n| line[n % line.len()]),
            ("counters", &counters),
        ];
        for (name, content) in contents {
            // Longer than the limit for an even number of wrong bits.
            let (bytes, len) = (256 << 10, 70_000);
            let device = Arc::new(MemoryDevice::new(bytes));
            let (mut log, _) = Log::open(device.clone(), [1; 16], bytes, 0, 0).unwrap();
            log.append(b"group", Totals::default()).unwrap();
            log.append(&(0..len).map(content).collect::<Vec<u8>>(), Totals::default()).unwrap();
            for missing in [1..2, 1..8, 3..136, 40..41, 8..90, 0..1_usize] {
                let torn = device.after_power_cut(|_| true);
                torn.write_at(&vec![0; missing.len() * 512], 4096 + missing.start as u64 * 512).unwrap();
                let (log, records) = Log::open(Arc::new(torn), [1; 16], bytes, 0, 0).unwrap();
                assert_eq!(sequences(&records), [1], "{name} without the sectors {missing:?}");
                assert_eq!(log.left_out().is_some(), missing.start > 0, "{name} without the sectors {missing:?}");
            }
        }
    }

    #[test]
    fn one_wrong_byte_in_the_header_of_the_checkpoint_s_last_group_does_not_close_the_log() {
        let (device, mut log) = ring();
        log.append(b"group", Totals::default()).unwrap();
        let mark = log.mark();
        for byte in [8, 16, 23, 32, 47, 90] {
            let damaged = device.after_power_cut(|_| true);
            let mut block = [0; 4096];
            damaged.read_at(&mut block, 0).unwrap();
            block[byte] ^= 0x21;
            damaged.write_at(&block, 0).unwrap();
            let (_, records) = Log::open(Arc::new(damaged), [1; 16], BYTES, mark.sequence, mark.head).unwrap();
            assert!(records.is_empty(), "byte {byte}");
        }
    }

    #[test]
    fn a_torn_last_record_ends_the_log_and_a_damaged_middle_one_is_refused() {
        let (device, mut log) = ring();
        for _ in 0..3 {
            log.append(b"group", Totals::default()).unwrap();
        }
        let torn = device.after_power_cut(|_| true);
        torn.write_at(&[0xFF; 512], 2 * 4096).unwrap();
        let (_, records) = Log::open(Arc::new(torn), [1; 16], BYTES, 0, 0).unwrap();
        assert_eq!(sequences(&records), [1, 2]);
        device.write_at(&[0xFF; 512], 4096).unwrap();
        assert!(matches!(Log::open(device, [1; 16], BYTES, 0, 0), Err(Error::Corrupt { .. })));
    }
}
