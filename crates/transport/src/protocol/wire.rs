//! Reads and writes the numbers, names and bytes of messages, in the byte order of the machine. Reading checks every
//! length.

use std::fmt;

/// A message that breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads a message from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_ne_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.array()?))
    }

    /// Skips bytes without a meaning.
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.bytes(len).map(drop)
    }

    /// A name, without the NUL byte that ends it; not empty.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let text = self.text()?;
        if text.is_empty() { Err(Malformed("a name is empty")) } else { Ok(text) }
    }

    /// The bytes up to a NUL byte, without it.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed("a name has no end"))?;
        let text = self.bytes(len)?;
        self.skip(1)?;
        Ok(text)
    }

    /// Skips the padding of `len` bytes, just read, to a multiple of 8.
    pub(crate) fn skip_padding(&mut self, len: usize) -> Result<(), Malformed> {
        self.skip(len.next_multiple_of(8) - len)
    }

    /// Whether nothing is left.
    pub(crate) fn rest_is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Fails if bytes are left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("something follows its end")) }
    }
}

/// Writes a message from its beginning.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn zeros(&mut self, len: usize) -> &mut Self {
        self.0.resize(self.0.len() + len, 0);
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The message. Its length must be that of the protocol.
    pub(crate) fn finish(self, bytes_expected: usize) -> Vec<u8> {
        assert_eq!(self.0.len(), bytes_expected, "bytes of an encoded structure, and bytes that fuse.h gives it");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut reader = Reader::new(&[1, 0, 0, 0, b'a', 0, 9]);
        assert_eq!(reader.u32(), Ok(u32::from_ne_bytes([1, 0, 0, 0])));
        assert_eq!(reader.name(), Ok(&b"a"[..]));
        assert!(reader.end().is_err(), "a byte is left");
        assert!(reader.u16().is_err() && reader.name().is_err());
        assert!(Reader::new(b"\0").name().is_err(), "an empty name");
        assert_eq!(Reader::new(b"\0").text(), Ok(&b""[..]));
    }

    #[test]
    #[should_panic(expected = "bytes of an encoded structure")]
    fn a_structure_of_another_size_is_not_sent() {
        let mut writer = Writer::with_capacity(8);
        writer.u32(1);
        writer.finish(8);
    }
}
