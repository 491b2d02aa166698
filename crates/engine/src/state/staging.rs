//! Blocks whose content is in memory although their pbn is already published: small writes on their way to the data
//! area, and data that rides in the log until a checkpoint places it. Readers look here first.
//!
//! Invariants: (1) a block stays until its bytes are in the data area; (2) a pbn is not handed out again while its
//! block is here or its data is in an untrimmed log record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicUsize, Mutex};
use crate::{BLOCK_BYTES, Pbn};

/// One block in memory.
pub type Block = Arc<[u8]>;

/// Published blocks in memory, by pbn.
#[derive(Default)]
pub struct Staging {
    blocks: Mutex<BTreeMap<Pbn, Block>>,
    count: AtomicUsize,
}

impl Staging {
    /// Keeps a block's content.
    pub fn put(&self, pbn: Pbn, bytes: &[u8]) {
        assert_eq!(bytes.len(), BLOCK_BYTES, "whole blocks only");
        assert!(pbn > Pbn(0), "the label is not staged");
        let mut blocks = self.blocks.lock();
        blocks.insert(pbn, bytes.into());
        self.count.store(blocks.len(), Ordering::Release);
    }

    /// A block's content, if it is here.
    pub fn get(&self, pbn: Pbn) -> Option<Block> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.blocks.lock().get(&pbn).cloned()
    }

    /// Whether none of `pbn..pbn + blocks` is here.
    pub fn has_none(&self, pbn: Pbn, blocks: u64) -> bool {
        debug_assert!(blocks > 0, "no blocks at {pbn}");
        self.count.load(Ordering::Acquire) == 0 || self.blocks.lock().range(pbn..pbn.plus(blocks)).next().is_none()
    }

    /// Drops blocks that are in the data area now, or that were never published.
    pub fn remove(&self, pbns: impl IntoIterator<Item = Pbn>) {
        let mut blocks = self.blocks.lock();
        for pbn in pbns {
            blocks.remove(&pbn);
        }
        self.count.store(blocks.len(), Ordering::Release);
    }

    /// Drops the blocks of a run that becomes free. A run is long, and few of its blocks are here.
    pub fn remove_run(&self, pbn: Pbn, blocks: u64) {
        if self.has_none(pbn, blocks) {
            return;
        }
        let mut held = self.blocks.lock();
        let here: Vec<Pbn> = held.range(pbn..pbn.plus(blocks)).map(|(pbn, _)| *pbn).collect();
        for pbn in here {
            held.remove(&pbn);
        }
        self.count.store(held.len(), Ordering::Release);
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.count.load(Ordering::Acquire) * BLOCK_BYTES) as u64
    }
}
