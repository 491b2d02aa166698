//! Names of disks.

use std::fmt;
use std::str::FromStr;

/// Longest name, in bytes: a disk's name also becomes a part of longer ones.
const NAME_BYTES_MAX: usize = 64;

/// The name of a disk: letters, digits, `.`, `_` and `-`, not first a `.` or `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskName(String);

impl DiskName {
    /// As text, which is also the name of its file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DiskName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match text.as_bytes() {
            [] => Err("a disk needs a name".into()),
            [b'.' | b'-', ..] => Err("the name of a disk begins with a letter, a digit or _".into()),
            bytes if bytes.len() > NAME_BYTES_MAX => {
                Err(format!("the name of a disk has at most {NAME_BYTES_MAX} bytes"))
            }
            bytes if bytes.iter().copied().all(is_allowed) => Ok(Self(text.to_owned())),
            _ => Err("the name of a disk consists of letters, digits, . _ and -".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_name_and_no_way_out_of_the_folder() {
        for good in ["home", "vm-7.ext4", "_x", "9", &"a".repeat(NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<DiskName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "../etc", "a/b", "-rf", ".hidden", "with space", "\u{e9}", "a\nb", &"a".repeat(65)] {
            assert!(bad.parse::<DiskName>().is_err(), "{bad:?}");
        }
    }
}
