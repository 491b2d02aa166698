//! Copies of whole trees of directories: clones, which can be changed, and snapshots, which never change.
//!
//! A copy is built below a directory without a name, so that no program sees it, and gets its name in the last
//! publication. Until then its top directory is an orphan. So whatever ends the work, the next mount removes what was
//! built (`remove`), and a name always stands for a whole copy.
//!
//! Each publication is bounded, and nothing of the source stays locked between two of them. So the copy of a file has
//! the file's content and times of one moment, but two files may be copied at different moments, and a name that moves
//! meanwhile may be copied twice or not at all.
//!
//! Memory: a record for each directory on the way down and for those beside it that wait, and 48 bytes for each file
//! with several names of which some have not been met.

mod content;
mod copy;
mod diff;
mod naming;
mod own;
mod plan;
pub(crate) mod remove;
mod snapshot;
mod work;

pub use copy::{CopyFailed, CopyKind, TreeCopy};
pub use diff::{DiffCursor, DiffPortion, Difference, NameDiff, Stamp};
pub use own::OwnPortion;
pub use snapshot::{SNAPSHOT_ATTRIBUTE, SnapshotFacts};
pub use work::TreeProgress;
pub(crate) use work::TreeWork;
