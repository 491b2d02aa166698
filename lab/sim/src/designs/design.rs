//! What every design does with a trace, and what came of it.

use oncefs_dedup::Pbn;

use crate::trace::{Read, Write};
use crate::volume::Volume;

/// A dedup design that a trace is replayed through.
pub trait Design {
    /// Takes a write.
    fn write(&mut self, write: &Write);
    /// Notes a read, which changes nothing on the volume.
    fn read(&mut self, _read: &Read) {}
    /// There is time for work in the background, as much as it takes.
    fn idle(&mut self);
    /// Blocks that work in the background replaced by others since the last call: from which, to which.
    fn take_remapped(&mut self) -> Vec<(Pbn, Pbn)> {
        Vec::new()
    }
    /// What came of it so far.
    fn outcome(&self) -> Outcome;
    /// What lies where.
    fn volume(&self) -> &Volume;
    /// Asserts that its own books balance.
    fn check(&self);
}

impl Design for Box<dyn Design> {
    fn write(&mut self, write: &Write) {
        (**self).write(write);
    }
    fn read(&mut self, read: &Read) {
        (**self).read(read);
    }
    fn idle(&mut self) {
        (**self).idle();
    }
    fn outcome(&self) -> Outcome {
        (**self).outcome()
    }
    fn take_remapped(&mut self) -> Vec<(Pbn, Pbn)> {
        (**self).take_remapped()
    }
    fn volume(&self) -> &Volume {
        (**self).volume()
    }
    fn check(&self) {
        (**self).check();
    }
}

/// What a design found, and what that took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Blocks found to be stored already as they were written.
    pub found_inline: u64,
    /// Blocks found later, and released.
    pub found_out_of_line: u64,
    /// Memory for finding duplicates at its largest, bytes.
    pub memory_bytes: u64,
    /// Index entries that this memory holds now.
    pub entries: u64,
    /// Pages of 4096 bytes read for the index on disk.
    pub disk_reads: u64,
    /// Pages of 4096 bytes written for the index on disk.
    pub disk_writes: u64,
    /// Of these reads and writes: those to move entries from memory to the disk.
    pub eviction_ios: u64,
    /// Index entries that left memory for the disk.
    pub demoted: u64,
    /// Hints that the block table refused.
    pub refused: u64,
    /// Blocks looked up and given to the run detector as they were written; one that was open, each time.
    pub lookups: u64,
    /// Holders that the detector had to look at for these.
    pub holders: u64,
    /// Blocks stored while their run was open, and shared with the file's next request.
    pub remapped: u64,
    /// Blocks in use at the end.
    pub stored: u64,
    /// Extents of all files at the end.
    pub extents: u64,
}

impl Outcome {
    /// Found in all.
    pub fn found(&self) -> u64 {
        self.found_inline + self.found_out_of_line
    }

    /// Pages read and written.
    pub fn disk_ios(&self) -> u64 {
        self.disk_reads + self.disk_writes
    }

    /// Bytes written to the disk's index per entry demoted to it; 0 if none was.
    pub fn bytes_per_demoted(&self) -> f64 {
        if self.demoted == 0 { 0.0 } else { self.disk_writes as f64 * 4096.0 / self.demoted as f64 }
    }
}
