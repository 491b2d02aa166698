//! The disk level of the hint store as an open volume holds it: a directory in memory over the file `hints`.

use std::io;
use std::sync::Arc;

use oncefs_dedup::DiskLevel;

use crate::device::Device;
use crate::hints::file::HintFile;
use crate::{Blocks, Tag};

/// Failures of the file after which it is given up.
pub const FAILURES_MAX: u32 = 8;

/// The disk level: its directory in memory and its pages in a file.
pub struct DiskHints {
    /// Where which page is.
    pub level: DiskLevel,
    /// The pages.
    pub file: HintFile,
    /// Where the sweep goes on.
    pub cursor: Tag,
    /// Damaged pages that were spoken of.
    pub damage_known: u64,
    pub failures: u32,
    pub retries: u32,
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
    pub fn is_given_up(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Forgets every page.
    pub fn begin_anew(&mut self) -> io::Result<()> {
        self.level = DiskLevel::new(self.file.page_hints_max());
        self.file.begin_anew()
    }
}

/// Opens the disk level. None, with a line in the log: it cannot be used.
pub fn open(device: Arc<dyn Device>, volume_id: [u8; 16], data: Blocks) -> Option<DiskHints> {
    match HintFile::open(device, volume_id, data.0) {
        Ok((file, was_damaged)) => {
            if was_damaged {
                log::warn!("the file of hints is damaged: it is set aside and filled anew from the block table");
            }
            Some(DiskHints::new(file))
        }
        Err(error) => {
            log::warn!("the file of hints cannot be used ({error}): some duplicates will be missed");
            None
        }
    }
}

/// The disk level, unless there is none or it was given up.
pub fn in_use(disk: &mut Option<DiskHints>) -> Option<&mut DiskHints> {
    disk.as_mut().filter(|disk| !disk.is_given_up())
}
