//! The copy of a file's content and attributes: its own map, with references to the same blocks.

use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, Blocks, Change, Lbn, MapId};

use crate::format::codec::after;
use crate::format::inode::InodeRecord;
use crate::format::xattr;
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::trees::plan::{NamedValues, copied_attribute};
use crate::{Error, FileSystem, Ino, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A range of this many blocks from the start of a file always fits into one publication.
const LEAF_BLOCKS: u64 = 256;
/// Attributes fetched at a time.
const PAGE_RECORDS: usize = 64;
/// Bytes of attributes in one publication, unless a single one has more.
const PORTION_BYTES_MAX: usize = 64 << 10;
/// How often a file is copied in parts that is written to meanwhile, before it is cloned lazily.
const ATTEMPTS_MAX: u32 = 3;

/// The outcome of an attempt to copy a file.
#[derive(PartialEq, Eq)]
enum Attempt {
    /// The file is copied, or the work is to end.
    Over,
    /// The file was written to between two parts.
    Changed,
}

/// A file whose content is copied.
pub(super) struct ContentCopy<'a, Also: Fn(&mut InodeRecord, &InodeRecord)> {
    pub source: Ino,
    pub copy: Ino,
    /// Sets what goes with the content, from the source's record of the same moment.
    pub also: Also,
    pub goes_on: &'a dyn Fn() -> bool,
}

impl FileSystem {
    /// Gives an empty file the content and the size that another one has at one moment. Nothing else knows the copy.
    /// A file of up to 1 MiB is copied in one publication. A larger one may take several, and begins again if it was
    /// written to in between. If it is written to all the time, it is cloned lazily: in one publication, but its
    /// references are counted later.
    pub(super) fn copy_content<Also: Fn(&mut InodeRecord, &InodeRecord)>(
        &self,
        order: &ContentCopy<'_, Also>,
    ) -> Result<()> {
        let source = match self.inode(order.source) {
            // It was deleted after its name was read, so its last moment was without content.
            Err(Error::Stale) => return Ok(()),
            source => source?,
        };
        let copy = self.inode(order.copy)?;
        for _ in 0..ATTEMPTS_MAX {
            let seen = source.content_changes();
            if source.with_map(|map, size| self.copy_parts((&source, map, size), &copy, seen, order))? == Attempt::Over
            {
                return Ok(());
            }
            self.truncate(&copy, 0, |_| ())?;
        }
        self.share_content(&source, &copy, &order.also)
    }

    fn copy_parts<Also: Fn(&mut InodeRecord, &InodeRecord)>(
        &self,
        (source, map, size): (&Arc<Inode>, MapId, u64),
        copy: &Arc<Inode>,
        seen: u64,
        order: &ContentCopy<'_, Also>,
    ) -> Result<Attempt> {
        let blocks = size.div_ceil(BLOCK);
        let is_one_leaf = blocks <= LEAF_BLOCKS;
        // Without data, the first block, a hole, carries the size.
        let mut at = if is_one_leaf { 0 } else { self.data_from(map, 0, blocks)? % blocks.max(1) };
        while at < blocks && (order.goes_on)() {
            let to = (copy.map_and_size()?.0, Lbn(at));
            let (part, next) = match is_one_leaf {
                true => (blocks, blocks),
                false => {
                    let part = self.store.clone_part((map, Lbn(at)), to, Blocks(blocks - at))?.0;
                    (part, self.data_from(map, at + part, blocks)?)
                }
            };
            // Runs with both maps locked, so that no content changes.
            let holds = || source.content_changes() == seen && source.lock().size == size;
            let with = |mapped, change: &mut Change| {
                let now = source.lock().clone();
                self.commit_content(copy, change, mapped, |record| {
                    if next >= blocks {
                        record.size = size;
                        (order.also)(record, &now);
                    }
                })
            };
            if !self.store.clone_blocks_if((map, Lbn(at)), to, Blocks(part), holds, with)? {
                return Ok(Attempt::Changed);
            }
            at = next;
        }
        Ok(Attempt::Over)
    }

    /// The first block from `from` on that has data, or `end`.
    fn data_from(&self, map: MapId, from: u64, end: u64) -> Result<u64> {
        let found = if from < end { self.store.seek_data(map, from * BLOCK, end * BLOCK)? } else { None };
        Ok(found.map_or(end, |byte| byte / BLOCK))
    }

    /// Copies all attributes of an inode to a new one, in portions.
    pub(super) fn copy_attributes(&self, source: Ino, copy: Ino) -> Result<()> {
        let copy = self.inode(copy)?;
        let (mut from, to) = xattr::range(source);
        loop {
            let page = self.store.scan(&from, &to, PAGE_RECORDS)?;
            let (mut portion, mut bytes) = (Vec::new(), 0);
            for (key, value) in &page {
                let Some((name, value)) = copied_attribute(source, key, value)? else { continue };
                let added = name.len() + value.len();
                if bytes + added > PORTION_BYTES_MAX && !portion.is_empty() {
                    self.add_attributes(&copy, std::mem::take(&mut portion))?;
                    bytes = 0;
                }
                bytes += added;
                portion.push((name, value));
            }
            self.add_attributes(&copy, portion)?;
            match page.last() {
                Some((key, _)) if page.len() == PAGE_RECORDS => from = after(key),
                _ => return Ok(()),
            }
        }
    }

    fn add_attributes(&self, copy: &Arc<Inode>, portion: NamedValues) -> Result<()> {
        let _room = self.begin_change()?;
        let (ino, inodes) = (copy.ino, [copy.clone()]);
        let mut staged = Staged::lock(&inodes);
        staged.edit(ino).xattrs += portion.len() as u32;
        let mut change = Change::new();
        let values = portion.iter().map(|(name, value)| (name.as_slice(), Some(value.as_slice())));
        self.attributes_changed(&mut change, staged.get(ino), values);
        for (name, value) in portion {
            change.put(xattr::key(ino, &name), xattr::encode(ino, &value));
        }
        staged.publish(&self.store, change)
    }
}
