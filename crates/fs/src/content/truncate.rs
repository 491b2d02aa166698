//! Truncation: files cut short, enlarged or emptied.

use std::ops::Range;
use std::sync::Arc;

use oncefs_engine::{Change, MapId};

use crate::content::write::assert_covered;
use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::{Error, FILE_BYTES_MAX, FileSystem, Result};

impl FileSystem {
    /// Sets the size of a regular file in bytes. `edit` changes other fields in the same commit group.
    pub(crate) fn truncate(&self, inode: &Arc<Inode>, size: u64, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::FileTooLarge);
        }
        inode.with_map(|map, _| {
            if self.resize_record(inode, size, &edit)? {
                return Ok(());
            }
            if size > 0 {
                return self.cut(inode, map, size, &edit);
            }
            let fresh = self.store.new_map();
            Ok(self.store.detach(map, |change| {
                self.edit_inode(inode, change, |record| {
                    if record.size > 0 {
                        self.monitor.note_written(&mut record.usage, true);
                    }
                    (record.map, record.size, record.blocks) = (fresh, 0, 0);
                    edit(record);
                })
            })?)
        })
    }

    /// Drops everything after `size`. Works from the end, so that a crash between two parts leaves a file that is cut
    /// less.
    fn cut(&self, inode: &Inode, map: MapId, size: u64, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        assert!((1..=FILE_BYTES_MAX).contains(&size), "inode {}: cut to {size} bytes", inode.ino.0);
        let mut parts = self.store.parts(map, size..FILE_BYTES_MAX, false)?;
        assert_covered(&parts, size, FILE_BYTES_MAX);
        let first = parts.remove(0);
        for Range { start, end } in parts.into_iter().rev() {
            self.store.zero(map, start, end - start, false, |mapped, change| {
                self.commit_content(inode, change, mapped, |record| record.size = record.size.min(start))
            })?;
        }
        let with = |mapped, change: &mut Change| {
            debug_assert!(mapped <= 0, "inode {}: cutting to {size} bytes added {mapped} blocks", inode.ino.0);
            self.commit_content(inode, change, mapped, |record| {
                self.monitor.note_written(&mut record.usage, false);
                record.size = size;
                edit(record);
            })
        };
        // The later parts are empty now, but still listed: only the first part's range fits into one group.
        match first.end {
            FILE_BYTES_MAX => Ok(self.store.truncate(map, size, with)?),
            end => Ok(self.store.zero(map, size, end - size, false, with)?),
        }
    }

    /// Sets the size if that leaves the map as it is: enlarging a file, or emptying an empty one. False: the map must
    /// change too.
    fn resize_record(&self, inode: &Inode, size: u64, edit: impl Fn(&mut InodeRecord)) -> Result<bool> {
        let _room = self.store.room_for_records();
        let mut record = inode.lock();
        let empty = (size, record.size, record.blocks) == (0, 0, 0);
        if size <= record.size && !empty {
            return Ok(false);
        }
        let mut edited = record.clone();
        if !empty {
            self.monitor.note_written(&mut edited.usage, false);
        }
        edited.size = size;
        edit(&mut edited);
        debug_assert_eq!(edited.size, size, "inode {}: another edit set its size", inode.ino.0);
        let mut change = Change::new();
        self.put_inode_requeued(&mut change, inode.ino, &record, &edited);
        self.store.publish(change)?;
        let before = std::mem::replace(&mut *record, edited);
        self.tell_if_dropped(inode.ino, &before, &record);
        Ok(true)
    }
}
