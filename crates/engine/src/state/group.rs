//! The current commit group: everything published since the last freeze.

use std::time::Instant;

use crate::Pbn;
use crate::format::ops::{Op, OpWriter};
use crate::space::allocator::Run;

/// What the next log record will hold, and what happens once it is durable.
#[derive(Default)]
pub struct Group {
    ops: OpWriter,
    /// Blocks whose last reference went: free once the group is durable and nobody has them pinned.
    pub freed: Vec<Run>,
    /// Blocks published by this group whose content is still in memory.
    pub staged: Vec<Pbn>,
    /// When the first change came.
    pub began: Option<Instant>,
    /// When the last change came.
    pub last: Option<Instant>,
}

impl Group {
    /// Appends a change.
    pub fn push(&mut self, op: &Op<'_>) {
        self.ops.push(op);
    }

    /// Notes that the group holds something, at `now`.
    pub fn touch(&mut self, now: Instant) {
        debug_assert!(self.last.is_none_or(|last| last <= now), "a group's changes come in the order of time");
        self.began.get_or_insert(now);
        self.last = Some(now);
    }

    /// Adds a freed block, joined to the run before it if it follows.
    pub fn free(&mut self, pbn: Pbn) {
        assert!(pbn > Pbn(0), "the label is never freed");
        match self.freed.last_mut() {
            Some(run) if run.end() == pbn => run.blocks += 1,
            _ => self.freed.push(Run { pbn, blocks: 1 }),
        }
    }

    /// Whether nothing was published.
    pub fn is_empty(&self) -> bool {
        self.began.is_none()
    }

    /// The encoded changes, records not included.
    pub fn ops(&self) -> &[u8] {
        self.ops.bytes()
    }

    /// Gives up the writer, to append the group's records and data to it.
    pub fn into_ops(self) -> OpWriter {
        self.ops
    }
}
