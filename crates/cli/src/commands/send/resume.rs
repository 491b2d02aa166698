//! Where a resumed stream goes on.

use oncefs_stream::{Partial, Position, TreePath};

/// The part of an entry that is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All of it.
    All,
    /// Nothing, and nothing below it.
    Nothing,
    /// The rest of a file, if it is still the same.
    Rest(Partial),
}

/// The rest of the entry at `path` after `position`. Names ascend in a walk, and a directory comes before its
/// entries.
pub fn left_of(path: &TreePath, position: Option<&Position>) -> Left {
    let Some(position) = position else { return Left::All };
    let (names, arrived) = (path.names(), position.path.names());
    match (names == arrived, position.partial) {
        (true, Some(partial)) => Left::Rest(partial),
        (true, None) => Left::Nothing,
        (false, _) if names.starts_with(arrived) => Left::Nothing,
        (false, _) if arrived.starts_with(names) || names > arrived => Left::All,
        (false, _) => Left::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use oncefs_stream::{Moment, Name};

    use super::*;

    fn path(text: &str) -> TreePath {
        let mut path = TreePath::default();
        text.split('/').for_each(|name| path.push(Name::new(name.as_bytes()).unwrap()));
        path
    }

    #[test]
    fn everything_up_to_the_position_has_arrived_and_everything_after_it_is_left() {
        let position = Position { path: path("b/c"), partial: None };
        let left = |text: &str| left_of(&path(text), Some(&position));
        for arrived in ["a", "a/z", "b/a", "b/b/z", "b/c", "b/c/x"] {
            assert_eq!(left(arrived), Left::Nothing, "{arrived}");
        }
        for other in ["b", "b/c.", "b/d", "c", "c/a"] {
            assert_eq!(left(other), Left::All, "{other}");
        }
        assert_eq!(left_of(&path("a"), None), Left::All);
        let partial = Partial { bytes: 4096, size: 5000, modified: Moment::default() };
        let position = Position { partial: Some(partial), ..position };
        assert_eq!(left_of(&path("b/c"), Some(&position)), Left::Rest(partial));
        assert_eq!(left_of(&path("b/b"), Some(&position)), Left::Nothing);
    }
}
