//! Which runs of a file are worth sharing: one number for all files, or each file's own, as `oncefs-dedup` makes it of
//! how the file is read and how it lies.

use std::collections::HashMap;

use oncefs_dedup::ReadPattern;

use crate::trace::{Place, Read};
use crate::volume::Volume;

/// A gap that the engine reads over: what lies no farther apart counts as lying together.
const GAP_BLOCKS_MAX: u64 = 8;

/// The shortest run worth sharing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// So many blocks, in every file.
    Fixed(u32),
    /// Each file's own.
    Automatic {
        /// What a seek costs, in blocks that could be read meanwhile.
        seek_blocks: f64,
    },
}

/// The rule, and what it knows of the files that were read.
pub(super) struct RunRules {
    threshold: Threshold,
    files: HashMap<u64, Known>,
}

struct Known {
    pattern: ReadPattern,
    /// Where its last read began and ended.
    last: (u64, u64),
    run_blocks_min: u32,
}

impl RunRules {
    /// Nothing read so far.
    pub fn new(threshold: Threshold) -> Self {
        Self { threshold, files: HashMap::new() }
    }

    /// The shortest run worth sharing in a file.
    pub fn run_blocks_min(&self, file: u64) -> u32 {
        match self.threshold {
            Threshold::Fixed(run_blocks_min) => run_blocks_min,
            Threshold::Automatic { seek_blocks } => match self.files.get(&file) {
                Some(known) => known.run_blocks_min,
                None => ReadPattern::default().run_blocks_min(seek_blocks, None),
            },
        }
    }

    /// Learns of a read. True: the file's number fell.
    pub fn note(&mut self, read: &Read, volume: &Volume) -> bool {
        let Threshold::Automatic { seek_blocks } = self.threshold else { return false };
        let Place { file, lbn } = read.place;
        let before = self.run_blocks_min(file);
        let unread = || Known { pattern: ReadPattern::default(), last: (0, 0), run_blocks_min: before };
        let known = self.files.entry(file).or_insert_with(unread);
        let follows = known.last.1 > 0 && (known.last.0..=known.last.1).contains(&lbn);
        known.last = (lbn, lbn + read.blocks);
        known.pattern.read(read.blocks as u32, follows);
        let (together, apart) = lies(read, volume);
        known.pattern.lies(together, apart);
        known.run_blocks_min = known.pattern.run_blocks_min(seek_blocks, Some(before));
        known.run_blocks_min < before
    }
}

/// Neighbours in the file that lie together, and those that lie apart although neither is shared.
fn lies(read: &Read, volume: &Volume) -> (u32, u32) {
    let (mut together, mut apart) = (0, 0);
    let pbns: Vec<_> = (0..read.blocks).filter_map(|at| volume.at(read.place.plus(at as usize))).collect();
    for pair in pbns.windows(2) {
        let is_near = (pair[0].0..=pair[0].0 + 1 + GAP_BLOCKS_MAX).contains(&pair[1].0);
        let is_shared = pair.iter().any(|pbn| volume.count(*pbn) > 1);
        if is_near || is_shared { together += 1 } else { apart += 1 }
    }
    (together, apart)
}
