//! How the rank queues and the engine follow a change of a file's usage.

use oncefs_engine::{Change, FilePolicy, QueuePlace};

use crate::format::inode::InodeRecord;
use crate::{FileSystem, Ino};

impl FileSystem {
    /// Adds the consequences of a file's new usage to the change that publishes it: the file's new place in the queues,
    /// and its policy in the engine. A file that was emptied has a new map, which takes over the policy of the old one.
    /// The caller holds the inode's lock, and calls this only if there are consequences
    /// ([`InodeRecord::is_ranked_as`]).
    pub(crate) fn follow_use(&self, change: &mut Change, ino: Ino, before: &InodeRecord, after: &InodeRecord) {
        debug_assert!(!after.is_ranked_as(before), "nothing follows from the new usage of inode {}", ino.0);
        debug_assert_eq!(before.kind, after.kind, "inode {} cannot change its kind", ino.0);
        let (was, is) = (before.usage.rank(), after.usage.rank());
        if was != is {
            self.ranker.queues().count_moved(ino, was, is);
            self.add_place(change, QueuePlace::of(&after.usage, ino.0));
        }
        let is_update_heavy = after.usage.is_update_heavy();
        let policy = FilePolicy { rank: is, is_update_heavy, ..self.store.file_policy(before.map) };
        if before.map == after.map {
            self.store.policy_change(change, after.map, policy);
        } else if policy != FilePolicy::default() {
            self.store.first_policy(change, after.map, policy);
        }
    }
}
