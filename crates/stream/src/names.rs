//! Names and paths in a stream. None of them leads out of the tree.

use std::fmt;

use crate::Malformed;
use crate::fields::Fields;

/// Directories above an entry, the top of the tree included. `send` and `receive` refuse deeper trees.
pub const DEPTH_MAX: usize = 4096;

const NAME_BYTES_MAX: usize = 255;

/// The name of an entry in its directory: any bytes but `/` and NUL, and neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// It is empty, longer than 255 bytes, `.` or `..`, or holds `/` or NUL.
    pub fn new(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes {
            b"" => Err(Malformed("a name is empty")),
            b"." | b".." => Err(Malformed("a name is . or ..")),
            _ if bytes.len() > NAME_BYTES_MAX => Err(Malformed("a name is longer than 255 bytes")),
            _ if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(Malformed("a name holds / or NUL")),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        out.extend_from_slice(&self.0);
    }

    pub(crate) fn take(fields: &mut Fields) -> Result<Self, Malformed> {
        let length = fields.u8()?;
        Self::new(fields.bytes(length.into())?)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A path below the top of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<Name>);

impl TreePath {
    /// Its names.
    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// Descends to an entry.
    pub fn push(&mut self, name: Name) {
        self.0.push(name);
    }

    /// Ascends to the directory above.
    pub fn pop(&mut self) -> Option<Name> {
        self.0.pop()
    }

    /// The path of an entry of this directory.
    pub fn with(&self, name: &Name) -> Self {
        let mut path = self.clone();
        path.push(name.clone());
        path
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.0.len() as u16).to_le_bytes());
        self.0.iter().for_each(|name| name.put(out));
    }

    pub(crate) fn take(fields: &mut Fields) -> Result<Self, Malformed> {
        let count = usize::from(fields.u16()?);
        if count == 0 || count > DEPTH_MAX {
            return Err(Malformed("a path has no name or more than 4096"));
        }
        (0..count).map(|_| Name::take(fields)).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for wrong in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'x'; 256]] {
            assert!(Name::new(wrong).is_err(), "{}", wrong.escape_ascii());
        }
        for right in [&b"..."[..], b".a", b"\xff\n", &[b'x'; 255]] {
            assert_eq!(Name::new(right).unwrap().bytes(), right);
        }
    }
}
