//! The disk level of the hint store in an open volume: a directory in memory over the file `hints`.

use std::io;
use std::sync::Arc;

use oncefs_dedup::{DiskLevel, Hint, Merged, Sample, Swept};

use crate::device::Device;
use crate::hints::file::HintFile;
use crate::{Blocks, Tag};

/// After this many failures the file is not used any more.
const FAILURES_MAX: u32 = 8;
/// How often an abandoned file is tried again.
const RETRIES_MAX: u32 = 8;

/// The disk level: its directory in memory and its pages in a file.
///
/// A failure here only means missing advice. The caller passes each outcome to [`DiskHints::settle`].
pub struct DiskHints {
    /// Which page is where.
    level: DiskLevel,
    /// The pages.
    file: HintFile,
    /// The tag at which the sweep continues.
    cursor: Tag,
    /// Damaged pages that were already reported.
    damage_known: u64,
    failures: u32,
    retries: u32,
}

/// The state of the level after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As before.
    Sound,
    /// The file failed or was damaged: it is empty now.
    Emptied,
    /// It failed too often, or cannot be emptied, and is not used any more.
    Unusable,
}

impl DiskHints {
    /// A file whose pages are not adopted yet.
    pub fn new(file: HintFile) -> Self {
        Self {
            level: DiskLevel::new(file.page_hints_max()),
            file,
            cursor: Tag(0),
            damage_known: 0,
            failures: 0,
            retries: 0,
        }
    }

    /// Whether the file failed too often.
    fn is_unusable(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Forgets every page.
    pub fn reset(&mut self) -> io::Result<()> {
        self.level = DiskLevel::new(self.file.page_hints_max());
        self.file.reset()
    }

    /// Handles the outcome of an operation. A failure, or damage that it found, empties the level and is logged once.
    pub fn settle(&mut self, error: Option<&io::Error>) -> Condition {
        let damaged = self.new_damage();
        let reason = match error {
            Some(error) => error.to_string(),
            None if damaged > 0 => format!("{damaged} pages are damaged"),
            None => return Condition::Sound,
        };
        self.failures += 1;
        if self.reset().is_err() {
            self.failures = FAILURES_MAX;
        }
        if self.is_unusable() {
            log::warn!("cannot use the hint file ({reason}): some duplicates are missed until it works again");
            Condition::Unusable
        } else {
            log::warn!("cannot use the hint file ({reason}): refilling it from the block table");
            Condition::Emptied
        }
    }

    /// Pages found damaged since the last call.
    fn new_damage(&mut self) -> u64 {
        let (known, found) = (self.damage_known, self.file.damaged());
        assert!(known <= found, "{known} damaged pages were reported, {found} were found");
        self.damage_known = found;
        found - known
    }

    /// Tries an unusable file once more. True: it works again, and is empty.
    pub fn retry(&mut self) -> bool {
        if !self.is_unusable() || self.retries >= RETRIES_MAX || self.reset().is_err() {
            return false;
        }
        (self.failures, self.retries) = (0, self.retries + 1);
        assert!(self.level.is_empty(), "{} hints are left in an emptied file", self.level.len());
        true
    }

    /// Finds the pages after a mount. From then on pages may be written, so the mark of completeness is removed.
    /// Returns the commit at which the level named every live block of the sample. 0: none.
    pub fn adopt(&mut self, sample: Sample) -> io::Result<u64> {
        let adopted = self.file.adopt();
        let damaged = self.new_damage();
        if damaged > 0 {
            log::warn!("{damaged} pages of the hint file are damaged: refilling them from the block table");
        }
        let complete_at = self.file.complete_at(sample);
        let level = adopted?;
        self.file.set_complete_at(0, sample)?;
        self.level = level;
        Ok(if self.file.damaged() == 0 { complete_at } else { 0 })
    }

    /// Marks the level, durably, as naming every live block of the sample at a commit.
    pub fn mark_complete(&mut self, sequence: u64, sample: Sample) -> io::Result<()> {
        self.file.set_complete_at(sequence, sample)
    }

    /// Adds hints, which come in ascending order; see [`DiskLevel::merge`].
    pub fn merge(&mut self, hints: &[Hint], worth: impl FnMut(&[Hint]) -> Vec<u32>) -> io::Result<Merged> {
        self.level.merge(&mut self.file, hints, worth)
    }

    /// Appends the hints of tags, which come in ascending order. After a failure the hints found before it stay.
    pub fn look_up(&mut self, tags: &[Tag], found: &mut Vec<Hint>) -> io::Result<()> {
        self.level.lookup(&mut self.file, tags, found).map(|_| ())
    }

    /// Drops the hints of one page that are not live. The next call takes the next page. After a failure the sweep
    /// starts over.
    pub fn sweep(&mut self, are_live: impl FnMut(&[Hint]) -> Vec<bool>) -> io::Result<Swept> {
        let swept = self.level.sweep(&mut self.file, self.cursor, are_live);
        self.cursor = swept.as_ref().ok().and_then(|swept| swept.next).unwrap_or(Tag(0));
        swept
    }

    /// The next sweep takes the first page.
    pub fn restart_sweep(&mut self) {
        self.cursor = Tag(0);
    }

    /// Learns that the data area has grown: pbns may need more bytes in a page.
    pub fn grow(&mut self, data: Blocks) {
        assert!(data.0 > 0, "a data area of {} blocks", data.0);
        self.file.set_data_blocks(data.0);
        self.level.set_page_hints_max(self.file.page_hints_max());
    }

    /// How many bits of a tag the hints of one page share: hints that leave memory together go to one page.
    pub fn eviction_range_bits(&self) -> u32 {
        self.level.eviction_range_bits()
    }

    /// Bytes of the file, and hints in it.
    pub fn size(&self) -> (u64, u64) {
        (self.file.bytes(self.level.pages()), self.level.len())
    }

    /// Bytes read from the file and written to it since the mount.
    pub fn traffic(&self) -> (u64, u64) {
        (self.file.bytes_read(), self.file.bytes_written())
    }
}

/// Opens the disk level. None if it cannot be used, which is logged.
pub fn open(device: Arc<dyn Device>, volume_id: [u8; 16], data: Blocks) -> Option<DiskHints> {
    match HintFile::open(device, volume_id, data.0) {
        Ok((file, was_damaged)) => {
            if was_damaged {
                log::warn!("the header of the hint file is damaged: refilling the file from the block table");
            }
            Some(DiskHints::new(file))
        }
        Err(error) => {
            log::warn!("cannot use the hint file ({error}): some duplicates will be missed");
            None
        }
    }
}

/// The disk level, unless it does not exist or failed too often.
pub fn in_use(disk: &mut Option<DiskHints>) -> Option<&mut DiskHints> {
    disk.as_mut().filter(|disk| !disk.is_unusable())
}
