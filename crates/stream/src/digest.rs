//! The hashes of a stream: BLAKE3 under the stream's own key.

use std::fmt;

use crate::Malformed;
use crate::fields::Fields;

/// Hash of a content, or the identity of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 16]);

/// The whole hash of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrongDigest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Digest {
    pub(crate) fn put_optional(digest: Option<&Self>, out: &mut Vec<u8>) {
        out.push(digest.is_some().into());
        digest.into_iter().for_each(|digest| out.extend_from_slice(&digest.0));
    }

    pub(crate) fn take_optional(fields: &mut Fields) -> Result<Option<Self>, Malformed> {
        if fields.flag()? { fields.array().map(|bytes| Some(Self(bytes))) } else { Ok(None) }
    }
}

/// A random key, so that no attacker can prepare two contents with the same hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The hash of a content.
    pub fn digest(&self, content: &[u8]) -> Digest {
        Digest(first(blake3::keyed_hash(&self.0, content)))
    }

    /// The hash of a whole block by which a sender asks for a content.
    pub fn strong_digest(&self, block: &[u8]) -> StrongDigest {
        StrongDigest(blake3::keyed_hash(&self.0, block).into())
    }
}

/// An identity made of parts; other parts give another one.
pub fn identity(parts: &[&[u8]]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Digest(first(hasher.finalize()))
}

/// The checks of records. Each covers all records before it, so that none can be missing, doubled or in another place.
#[derive(Clone)]
pub struct Chain {
    key: [u8; 32],
    last: [u8; 32],
}

impl Chain {
    pub fn new(key: &Key) -> Self {
        Self { key: key.0, last: [0; 32] }
    }

    /// The check of the next record, of the parts `head` and `body`.
    pub fn next(&mut self, head: &[u8], body: &[u8]) -> [u8; 8] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.last).update(head).update(body);
        self.last = hasher.finalize().into();
        let mut check = [0; 8];
        check.copy_from_slice(&self.last[..8]);
        check
    }
}

fn first(hash: blake3::Hash) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_bytes()[..16]);
    first
}
