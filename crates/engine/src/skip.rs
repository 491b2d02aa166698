//! The skipped buffer of an open volume: what in-line deduplication left to the worker, and its checkpoint in the
//! file `skipped`. A crash loses what came after the last checkpoint; then everything is looked at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_dedup::Skipped;

use crate::batch::{Batch, Outcome};
use crate::buffer::AlignedBuf;
use crate::core::Core;
use crate::device::{ALIGN_BYTES, Device};
use crate::format::checksum;
use crate::format::skipped::{Checkpoint, HEADER_BYTES, SLOT_BYTES};
use crate::{Lbn, MapId};

/// The file `skipped`: two slots.
pub struct SkippedFile {
    device: Arc<dyn Device>,
    volume_id: [u8; 16],
    number: u64,
    /// Checksum of what was written last; it need not be written again.
    newest: Option<u64>,
    /// Bytes written so far.
    pub bytes_written: u64,
}

impl SkippedFile {
    /// Opens the file and reads the newest sound checkpoint in it; None: there is none.
    pub fn open(device: Arc<dyn Device>, volume_id: [u8; 16]) -> io::Result<(Self, Option<Checkpoint>)> {
        let slots = [read_slot(&*device, 0)?, read_slot(&*device, SLOT_BYTES)?];
        if slots.iter().any(|slot| matches!(slot, Slot::Damaged)) {
            log::warn!("a checkpoint of skipped blocks is damaged: it is set aside, and every block is looked at once");
        }
        let newest = slots
            .into_iter()
            .filter_map(Slot::sound)
            .filter(|slot| slot.volume_id == volume_id)
            .max_by_key(|s| s.number);
        let number = newest.as_ref().map_or(0, |newest| newest.number);
        Ok((Self { device, volume_id, number, newest: None, bytes_written: 0 }, newest))
    }

    /// Writes a checkpoint into the older slot; durable on return.
    fn write(&mut self, clean_at: u64, records: Vec<Skipped>) -> io::Result<()> {
        let number = self.number + 1;
        let bytes = Checkpoint { volume_id: self.volume_id, number, clean_at, records }.encode();
        let body = checksum(&bytes[HEADER_BYTES..], clean_at);
        if self.newest == Some(body) {
            return Ok(());
        }
        self.number = number;
        let at = number % 2 * SLOT_BYTES;
        let mut aligned = AlignedBuf::new(bytes.len().next_multiple_of(ALIGN_BYTES));
        aligned[..bytes.len()].copy_from_slice(&bytes);
        self.device.grow(at + aligned.len() as u64)?;
        self.device.write_at(&aligned, at)?;
        self.bytes_written += aligned.len() as u64;
        self.device.flush()?;
        self.newest = Some(body);
        Ok(())
    }
}

/// Opens the file of skipped blocks. Nothing, with a line in the log: it cannot be used.
pub fn open(device: Arc<dyn Device>, volume_id: [u8; 16]) -> (Option<SkippedFile>, Option<Checkpoint>) {
    match SkippedFile::open(device, volume_id) {
        Ok((file, newest)) => (Some(file), newest),
        Err(error) => {
            log::warn!("the file of skipped blocks cannot be used ({error}): every block is looked at once");
            (None, None)
        }
    }
}

/// What a place of the file holds.
enum Slot {
    Empty,
    Damaged,
    Sound(Checkpoint),
}

impl Slot {
    fn sound(self) -> Option<Checkpoint> {
        match self {
            Self::Sound(checkpoint) => Some(checkpoint),
            Self::Empty | Self::Damaged => None,
        }
    }
}

fn read_slot(device: &dyn Device, at: u64) -> io::Result<Slot> {
    let len = device.len()?;
    if len < at + ALIGN_BYTES as u64 {
        return Ok(if len > at { Slot::Damaged } else { Slot::Empty });
    }
    let mut head = AlignedBuf::new(ALIGN_BYTES);
    device.read_at(&mut head, at)?;
    let header: &[u8; HEADER_BYTES] = head.first_chunk().expect("a slot is longer than its header");
    if head.iter().all(|byte| *byte == 0) {
        return Ok(Slot::Empty);
    }
    let Some(length) = Checkpoint::length(header) else { return Ok(Slot::Damaged) };
    let whole = length.next_multiple_of(ALIGN_BYTES);
    if len < at + whole as u64 {
        return Ok(Slot::Damaged);
    }
    let mut bytes = AlignedBuf::new(whole);
    device.read_at(&mut bytes, at)?;
    Ok(Checkpoint::decode(&bytes[..length]).map_or(Slot::Damaged, Slot::Sound))
}

impl Core {
    /// At a clean unmount, when nothing is published any more: leaves what the next mount goes on from.
    pub fn leave_cleanly(&self) {
        self.write_out_hints();
        let sequence = self.state.lock().durable_sequence;
        if self.skipped.lock().bytes_max() > 0 {
            self.checkpoint_skipped(sequence);
        }
    }

    /// Takes in what an earlier mount left. `fresh`: nothing was ever written to the volume.
    pub fn restore_skipped(&self, newest: Option<Checkpoint>, is_fresh: bool) {
        if self.settings.lock().skipped_bytes == 0 {
            return;
        }
        let is_whole = newest.as_ref().is_some_and(|newest| newest.clean_at == self.opened_at && newest.clean_at > 0);
        let mut skipped = self.skipped.lock();
        for record in newest.into_iter().flat_map(|newest| newest.records) {
            skipped.restore(record);
        }
        drop(skipped);
        if !is_whole && !is_fresh {
            // After what is known one by one: a full pass finds what the crash lost.
            self.begin_full_pass();
        }
    }

    /// Notes which blocks of a published batch the worker has yet to look at, and which not any more.
    pub fn note_skipped(&self, map: MapId, batch: &Batch) {
        if !self.is_later(map) {
            return;
        }
        let mut skipped = self.skipped.lock();
        if skipped.bytes_max() == 0 {
            return;
        }
        let is_final = final_refusals(batch);
        // A block equal to what was there is as known or unknown as before.
        let state_of = |index: usize| match batch.outcomes[index] {
            Outcome::Anew(_) => Some(!is_final[index]),
            _ if batch.unchanged.contains(&index) => None,
            _ => Some(false),
        };
        let mut first = 0;
        while first < batch.len() {
            let state = state_of(first);
            let end = (first..batch.len()).find(|index| state_of(*index) != state).unwrap_or(batch.len());
            let (lbn, blocks) = (batch.first.plus(first as u64), (end - first) as u64);
            match state {
                Some(true) => skipped.add(map.0, lbn, blocks),
                Some(false) => skipped.remove(map.0, lbn, blocks),
                None => {}
            }
            first = end;
        }
    }

    /// Leaves blocks of a file to the worker, where there is one.
    pub fn leave_to_worker(&self, map: MapId, lbns: impl IntoIterator<Item = Lbn>) {
        if !self.is_later(map) {
            return;
        }
        let mut skipped = self.skipped.lock();
        if skipped.bytes_max() > 0 {
            lbns.into_iter().for_each(|lbn| skipped.add(map.0, lbn, 1));
        }
    }

    /// Writes the skipped buffer to disk. `clean_at`: nothing was published after this commit; 0: something may be.
    pub fn checkpoint_skipped(&self, clean_at: u64) {
        let mut file = self.skipped_file.lock();
        let Some(open) = &mut *file else { return };
        let records: Vec<Skipped> = {
            let pass = self.pass.lock();
            let skipped = self.skipped.lock();
            pass.left().into_iter().chain(skipped.contents()).collect()
        };
        let written = open.write(clean_at, records);
        self.counters.skipped_bytes_written.store(open.bytes_written, Relaxed);
        if let Err(error) = written {
            log::warn!("the skipped buffer cannot be written ({error}): after a crash every block is looked at");
            *file = None;
        }
    }
}

/// Which blocks were refused for good, because their run is too short: those stay until `run_blocks_min` of their file
/// falls. Where a run ends at a block of which memory knows nothing, the disk level may know that it goes on.
fn final_refusals(batch: &Batch) -> Vec<bool> {
    let mut is_final = vec![false; batch.len()];
    for &index in batch.refused.iter().chain(&batch.open) {
        is_final[index] = true;
    }
    let is_unknown = |index: usize| matches!(batch.outcomes[index], Outcome::Anew(_));
    for (index, next) in (0..batch.len()).zip(1..batch.len()) {
        is_final[next] &= is_final[index] || !is_unknown(index);
    }
    for (index, next) in (0..batch.len()).zip(1..batch.len()).rev() {
        is_final[index] &= is_final[next] || !is_unknown(next);
    }
    is_final
}
