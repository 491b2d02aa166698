//! The header of a stream.

use crate::fields::Fields;
use crate::{Digest, Key, Malformed, Position};

/// The first record: which tree this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The key of all hashes in the stream.
    pub key: Key,
    /// The tree that is sent.
    pub source: Digest,
    /// The older tree that it refers to.
    pub older: Option<Digest>,
    /// Some: continues a stream that broke off after this position.
    pub resumed: Option<Position>,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80);
        out.extend_from_slice(&self.key.0);
        out.extend_from_slice(&self.source.0);
        Digest::put_optional(self.older.as_ref(), &mut out);
        out.push(self.resumed.is_some().into());
        self.resumed.iter().for_each(|position| position.put(&mut out));
        out
    }

    /// The key comes first, because it is needed to check the rest.
    pub(crate) fn key_of(payload: &[u8]) -> Result<Key, Malformed> {
        Fields(payload).array().map(Key)
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let (key, source) = (Key(fields.array()?), Digest(fields.array()?));
        let older = Digest::take_optional(&mut fields)?;
        let resumed = if fields.flag()? { Some(Position::take(&mut fields)?) } else { None };
        fields.end().map(|()| Self { key, source, older, resumed })
    }
}
