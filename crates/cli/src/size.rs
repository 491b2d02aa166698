//! Sizes of volumes on the command line: one to reach, or one to add.

use std::str::FromStr;

pub use oncefs_toolbox::Size;

/// A size to reach (`20G`) or to add (`+5G`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This total size.
    To(u64),
    /// This much more than now.
    By(u64),
}

impl NewSize {
    /// The size to reach from `current` bytes.
    pub fn from(self, current: u64) -> u64 {
        match self {
            Self::To(bytes) => bytes,
            Self::By(bytes) => current.saturating_add(bytes),
        }
    }
}

impl FromStr for NewSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('-') {
            return Err("nothing can be taken away: give the size to reach, or +SIZE to add".to_owned());
        }
        match text.strip_prefix('+') {
            Some(more) => Ok(Self::By(more.parse::<Size>()?.0)),
            None => Ok(Self::To(text.parse::<Size>()?.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_adds_to_the_present_size() {
        assert_eq!("+1G".parse::<NewSize>().unwrap().from(1 << 30), 2 << 30);
        assert_eq!("1G".parse::<NewSize>().unwrap().from(5 << 30), 1 << 30);
    }
}
