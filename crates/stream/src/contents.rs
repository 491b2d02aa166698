//! The contents that a stream has had, so that each occurs in it once.

use std::collections::HashMap;

use crate::base::BLOCK;
use crate::{Digest, Source, TreePath};

/// Contents that are remembered. Beyond them a content may occur again, which costs room in the stream only.
const CONTENTS_MAX: usize = 16 << 20;

/// The number of no file: the place is among the contents that the receiver said it has.
const KNOWN: u32 = u32::MAX;

/// A content in a file that came earlier, or one that the receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, a number of `Contents`.
    file: u32,
    /// Its block.
    block: u32,
}

impl Place {
    /// Where it is in its file, in bytes.
    pub fn at(self) -> u64 {
        u64::from(self.block) * BLOCK
    }

    /// Whether this is `blocks` blocks after `first` in the same file.
    pub fn is_after(self, first: Self, blocks: u64) -> bool {
        self.file == first.file && u64::from(self.block) == u64::from(first.block) + blocks
    }
}

/// Finds earlier contents by their hashes.
#[derive(Debug)]
pub struct Contents {
    places: HashMap<Digest, Place>,
    files: Vec<TreePath>,
    contents_max: usize,
}

impl Default for Contents {
    fn default() -> Self {
        Self::with_room_for(CONTENTS_MAX)
    }
}

impl Contents {
    /// Remembers at most this many.
    pub fn with_room_for(contents_max: usize) -> Self {
        Self { places: HashMap::new(), files: Vec::new(), contents_max }
    }

    /// The number of a file whose contents will be remembered.
    pub fn add_file(&mut self, path: &TreePath) -> Option<u32> {
        let number = u32::try_from(self.files.len()).ok().filter(|number| *number != KNOWN)?;
        self.files.push(path.clone());
        Some(number)
    }

    /// Where a content came earlier.
    pub fn find(&self, digest: &Digest) -> Option<Place> {
        self.places.get(digest).copied()
    }

    /// Remembers a content at byte `at` of a file.
    pub fn remember(&mut self, digest: Digest, file: u32, at: u64) {
        let Ok(block) = u32::try_from(at / BLOCK) else { return };
        if self.places.len() < self.contents_max {
            self.places.entry(digest).or_insert(Place { file, block });
        }
    }

    /// Remembers a content that the receiver has, by its number among all of those. Beyond the room for it the content
    /// is sent.
    pub fn remember_known(&mut self, digest: Digest, number: u32) {
        self.remember(digest, KNOWN, u64::from(number) * BLOCK);
    }

    /// Where a place is.
    pub fn source(&self, place: Place) -> Source {
        match place.file {
            KNOWN => Source::Known,
            file => Source::Here { path: self.files[file as usize].clone() },
        }
    }
}
