//! The commit group that publications are collected in: the operations of the next log record.

use std::time::Instant;

use crate::Pbn;
use crate::format::ops::{Op, OpWriter};
use crate::space::allocator::Run;

/// Joins neighbours that get the same count into one operation.
#[derive(Default)]
pub struct CountRun {
    run: Option<(Run, u32)>,
}

impl CountRun {
    /// Adds a block and its new count.
    pub fn add(&mut self, pbn: Pbn, count: u32, group: &mut Group) {
        match &mut self.run {
            Some((run, same)) if run.end() == pbn && *same == count => run.blocks += 1,
            _ => {
                self.end(group);
                self.run = Some((Run { pbn, blocks: 1 }, count));
            }
        }
    }

    /// Appends the last operation.
    pub fn end(&mut self, group: &mut Group) {
        if let Some((run, count)) = self.run.take() {
            group.push(&Op::Count { pbn: run.pbn, blocks: run.blocks, count });
        }
    }
}

/// The content of the next log record, and the work that follows once it is durable.
#[derive(Default)]
pub struct Group {
    ops: OpWriter,
    /// Blocks that lost their last reference: free once the group is durable and no reader has them pinned.
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

    /// Notes that the group received a change, at `now`.
    pub fn touch(&mut self, now: Instant) {
        debug_assert!(self.last.is_none_or(|last| last <= now), "a group's changes come in the order of time");
        self.began.get_or_insert(now);
        self.last = Some(now);
    }

    /// Appends new counts of blocks.
    pub fn count(&mut self, counts: impl Iterator<Item = (Pbn, u32)>) {
        let mut run = CountRun::default();
        counts.for_each(|(pbn, count)| run.add(pbn, count, self));
        run.end(self);
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

    /// Gives up the writer, so that the group's records and data can be appended.
    pub fn into_ops(self) -> OpWriter {
        self.ops
    }
}
