//! The file `skipped`: the worker's backlog across mounts, in two slots. One of them is always intact.

use std::io;
use std::sync::Arc;

use oncefs_dedup::Skipped;

use crate::device::buffer::AlignedBuf;
use crate::device::{ALIGN_BYTES, Device};
use crate::format::backlog::{Checkpoint, HEADER_BYTES, SLOT_BYTES};
use crate::format::checksum;

/// The file `skipped`: two slots.
pub struct SkippedFile {
    device: Arc<dyn Device>,
    volume_id: [u8; 16],
    number: u64,
    /// Checksum of the last written content, which need not be written again.
    newest: Option<u64>,
    bytes_written: u64,
}

impl SkippedFile {
    /// Opens the file and reads its newest valid checkpoint, if it has one.
    pub fn open(device: Arc<dyn Device>, volume_id: [u8; 16]) -> io::Result<(Self, Option<Checkpoint>)> {
        let slots = [read_slot(&*device, 0)?, read_slot(&*device, SLOT_BYTES)?];
        if slots.iter().any(|slot| matches!(slot, Slot::Damaged)) {
            log::warn!("a checkpoint of the backlog is damaged: ignoring it, the worker looks at every block once");
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
    pub fn write(&mut self, clean_at: u64, records: Vec<Skipped>) -> io::Result<()> {
        let number = self.number + 1;
        let bytes = Checkpoint { volume_id: self.volume_id, number, clean_at, records }.encode();
        let body = checksum(&bytes[HEADER_BYTES..], clean_at);
        if self.newest == Some(body) {
            return Ok(());
        }
        self.number = number;
        let at = number % 2 * SLOT_BYTES;
        let mut aligned = AlignedBuf::new(bytes.len().next_multiple_of(ALIGN_BYTES));
        assert!(aligned.len() as u64 <= SLOT_BYTES, "{} bytes for a slot of {SLOT_BYTES}", aligned.len());
        aligned[..bytes.len()].copy_from_slice(&bytes);
        self.device.grow(at + aligned.len() as u64)?;
        self.device.write_at(&aligned, at)?;
        self.bytes_written += aligned.len() as u64;
        self.device.flush()?;
        self.newest = Some(body);
        Ok(())
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }
}

/// Opens the file of skipped blocks. None if it cannot be used, which is logged.
pub fn open(device: Arc<dyn Device>, volume_id: [u8; 16]) -> (Option<SkippedFile>, Option<Checkpoint>) {
    match SkippedFile::open(device, volume_id) {
        Ok((file, newest)) => (Some(file), newest),
        Err(error) => {
            log::warn!("cannot use the backlog's file ({error}): the worker looks at every block once");
            (None, None)
        }
    }
}

/// The content of a slot.
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
