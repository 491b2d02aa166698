//! The last step of a copy: the top gets its name.

use oncefs_engine::Change;

use crate::format::{orphan, xattr};
use crate::inodes::staged::Staged;
use crate::names::name_change::NameChange;
use crate::trees::copy::{CopyKind, TreeCopy};
use crate::trees::snapshot::{SNAPSHOT_ATTRIBUTE, SnapshotFacts};
use crate::trees::work::TreeProgress;
use crate::{Attributes, FileKind, FileSystem, Ino, Result};

impl FileSystem {
    /// Refuses a name that a copy could not get, before the work begins.
    pub(super) fn check_free(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let directory = self.directory(parent)?;
        let record = directory.lock();
        self.check_takes_name(&record, parent, name)
    }

    /// Gives the top of a copy its name, and a snapshot its attribute. From this publication on it is no orphan.
    pub(super) fn name_tree(
        &self,
        order: &TreeCopy<'_>,
        top: Ino,
        subdirectories: u32,
        progress: &TreeProgress,
    ) -> Result<Attributes> {
        let (parent, name) = (order.parent, order.name);
        let _room = self.begin_change()?;
        let inodes = [self.directory(parent)?, self.inode(top)?];
        let mut staged = Staged::lock(&inodes);
        self.check_takes_name(staged.get(parent), parent, name)?;
        let mut change = Change::new();
        let now = self.clock.now();
        let record = staged.edit(top);
        if order.kind == CopyKind::Snapshot {
            let facts = SnapshotFacts::of(progress, now, order.of);
            change.put(xattr::key(top, SNAPSHOT_ATTRIBUTE), xattr::encode(top, &facts.encode()));
            record.xattrs += 1;
        }
        let is_directory = record.is_directory();
        record.nlink = if is_directory { 2 + subdirectories } else { 1 };
        if is_directory {
            record.parent = parent;
        }
        let (kind, attributes) = (record.kind, record.attributes(top));
        if kind == FileKind::Regular {
            self.add_place_of_named(&mut change, top, &staged.get(top).usage);
        }
        let directory = staged.entries_changed(parent, now);
        directory.entries += 1;
        directory.nlink += u32::from(is_directory);
        let mut names = NameChange::new(self);
        names.set(parent, name, top, kind)?;
        names.finish(&mut change);
        change.delete(orphan::key(top));
        staged.publish(&self.store, change)?;
        Ok(attributes)
    }
}
