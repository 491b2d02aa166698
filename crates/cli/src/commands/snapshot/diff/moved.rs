//! Moves among changes: a name that went and one that came, for the same file.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::control::answers::Stamp;

/// A change of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of the change.
    pub kind: Kind,
    /// The name's path.
    pub path: PathBuf,
    /// The identity of its inode.
    pub stamp: Option<Stamp>,
    /// The path that it had before.
    pub from: Option<PathBuf>,
}

/// A change of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It came.
    Added,
    /// It went.
    Removed,
    /// Its content changed.
    Modified,
    /// Its owner, mode, times or attributes changed.
    Attributes,
    /// It was somewhere else.
    Moved,
}

impl Kind {
    /// For JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Modified => "modified",
            Self::Attributes => "attributes",
            Self::Moved => "moved",
        }
    }
}

/// The part of the identity that a file keeps from one moment to another.
fn key_of(stamp: &Stamp) -> Stamp {
    Stamp { inode: 0, ..*stamp }
}

/// Makes one change of a name that went and one that came, if only these two are of this file. A directory stays two
/// changes, because its names are listed too.
pub fn join_moves(changes: Vec<Change>) -> Vec<Change> {
    let mut by_file: HashMap<Stamp, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        let Some(stamp) = change.stamp.filter(|stamp| stamp.kind != libc::S_IFDIR) else { continue };
        let (went, came) = by_file.entry(key_of(&stamp)).or_default();
        match change.kind {
            Kind::Removed => went.push(at),
            Kind::Added => came.push(at),
            _ => {}
        }
    }
    let mut changes: Vec<Option<Change>> = changes.into_iter().map(Some).collect();
    for (went, came) in by_file.into_values() {
        if let ([went], [came]) = (&went[..], &came[..])
            && let Some(gone) = changes[*went].take()
            && let Some(moved) = &mut changes[*came]
        {
            (moved.kind, moved.from) = (Kind::Moved, Some(gone.path));
        }
    }
    changes.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: Kind, path: &str, inode: u64, bytes: u64, mode: u32) -> Change {
        let stamp = Stamp { inode, kind: mode, bytes, written: (5, 0), created: (4, 0) };
        Change { kind, path: path.into(), stamp: Some(stamp), from: None }
    }

    #[test]
    fn a_file_that_went_and_came_was_moved_unless_others_are_like_it() {
        let file = libc::S_IFREG;
        let changes = vec![
            change(Kind::Removed, "old", 1, 10, file),
            change(Kind::Added, "new", 2, 10, file),
            change(Kind::Removed, "twice", 3, 20, file),
            change(Kind::Added, "like one", 4, 20, file),
            change(Kind::Added, "like two", 5, 20, file),
            change(Kind::Removed, "directory", 6, 0, libc::S_IFDIR),
            change(Kind::Added, "other", 7, 0, libc::S_IFDIR),
            change(Kind::Modified, "changed", 8, 10, file),
        ];
        let joined = join_moves(changes);
        assert_eq!(joined.len(), 7);
        let moved: Vec<_> = joined.iter().filter(|change| change.from.is_some()).collect();
        assert_eq!(moved.len(), 1);
        assert_eq!((&*moved[0].path, moved[0].from.as_deref()), ("new".as_ref(), Some("old".as_ref())));
        assert_eq!(moved[0].kind.name(), "moved");
    }
}
