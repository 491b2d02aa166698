//! How far a stream was received, and the token that carries it back to `send`.

use std::fmt;
use std::str::FromStr;

use crate::fields::Fields;
use crate::{Digest, Malformed, Moment, TreePath, identity};

/// Entries come in the order of a walk: an entry of a directory before those with greater names, and everything below it
/// before those too. All entries up to a position have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The last entry that has arrived; a directory with everything in it.
    pub path: TreePath,
    /// Some: only a part of this file has arrived.
    pub partial: Option<Partial>,
}

/// A file of which the first part has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Bytes that have arrived, a multiple of the block size.
    pub bytes: u64,
    /// Size of the whole file.
    pub size: u64,
    /// When it was last changed.
    pub modified: Moment,
}

impl Position {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.path.put(out);
        out.push(self.partial.is_some().into());
        if let Some(Partial { bytes, size, modified }) = self.partial {
            out.extend_from_slice(&bytes.to_le_bytes());
            out.extend_from_slice(&size.to_le_bytes());
            modified.put(out);
        }
    }

    pub(crate) fn take(fields: &mut Fields) -> Result<Self, Malformed> {
        let path = TreePath::take(fields)?;
        let partial = match fields.flag()? {
            true => Some(Partial { bytes: fields.u64()?, size: fields.u64()?, modified: Moment::take(fields)? }),
            false => None,
        };
        Ok(Self { path, partial })
    }
}

/// The point from which `send --resume` continues: the stream that broke off, and the position in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The tree that was sent.
    pub source: Digest,
    /// The older tree that it was compared with.
    pub older: Option<Digest>,
    /// How far it was received.
    pub position: Position,
}

/// Begins each token: the version of its form.
const MARK: &str = "1-";

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.source.0.to_vec();
        Digest::put_optional(self.older.as_ref(), &mut bytes);
        self.position.put(&mut bytes);
        let check = check_of(&bytes);
        f.write_str(MARK)?;
        bytes.iter().chain(&check).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let wrong = Malformed("this is not a whole token: oncefs receive DIR NAME --token prints it");
        let digits =
            text.strip_prefix(MARK).filter(|digits| digits.len() % 2 == 0 && digits.is_ascii()).ok_or(wrong)?;
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong);
        let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>()?;
        let (body, check) = bytes.split_at_checked(bytes.len().wrapping_sub(4)).ok_or(wrong)?;
        if check != check_of(body) {
            return Err(wrong);
        }
        let mut fields = Fields(body);
        let token = Self {
            source: Digest(fields.array()?),
            older: Digest::take_optional(&mut fields)?,
            position: Position::take(&mut fields)?,
        };
        fields.end().map(|()| token)
    }
}

fn check_of(bytes: &[u8]) -> [u8; 4] {
    let mut check = [0; 4];
    check.copy_from_slice(&identity(&[bytes]).0[..4]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    #[test]
    fn a_token_comes_back_and_a_changed_one_is_refused() {
        let mut path = TreePath::default();
        path.push(Name::new(b"a\xff").unwrap());
        path.push(Name::new(b"b").unwrap());
        let modified = Moment { seconds: -1, nanoseconds: 5 };
        for partial in [None, Some(Partial { bytes: 4096, size: 5000, modified })] {
            for older in [None, Some(Digest([7; 16]))] {
                let position = Position { path: path.clone(), partial };
                let token = Token { source: Digest([1; 16]), older, position };
                let text = token.to_string();
                assert_eq!(text.parse(), Ok(token));
                assert!(
                    text[..text.len() - 2].parse::<Token>().is_err() && format!("{text}00").parse::<Token>().is_err()
                );
                for at in 2..text.len() {
                    let other = if &text[at..=at] == "0" { "1" } else { "0" };
                    assert!([&text[..at], other, &text[at + 1..]].concat().parse::<Token>().is_err(), "digit {at}");
                }
            }
        }
        for wrong in ["", "1-", "1-00", "2-00", "1-zz", "1-\u{e4}\u{e4}"] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }
}
