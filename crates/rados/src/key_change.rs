//! Changes of the keys of an object.

/// A change of an object's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange<'a> {
    /// Sets the value of a key.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Removes a key, which may be missing.
    Remove {
        /// The key.
        key: &'a [u8],
    },
    /// Removes the keys with `from <= key < to`. The same change sets and removes none of them: BlueStore removes the
    /// keys that were there before it.
    RemoveRange {
        /// The first key.
        from: &'a [u8],
        /// The key after the last.
        to: &'a [u8],
    },
}
