//! Writes a stream.

use std::io::{self, Write};

use crate::digest::Chain;
use crate::grammar::Grammar;
use crate::record::checked_part;
use crate::{Header, Record, Totals, VERSION};

/// The first bytes of each stream.
pub(crate) const MAGIC: [u8; 8] = *b"oncesend";
/// Kind of the header.
pub(crate) const HEADER_KIND: u8 = 0;
/// Kind and length before a payload.
pub(crate) const HEAD_BYTES: usize = 5;

/// Writes records and their checks.
pub struct Writer<Out> {
    out: Out,
    chain: Chain,
    grammar: Grammar,
    totals: Totals,
    bytes: u64,
    /// The last payload. Its memory serves for the next one.
    payload: Vec<u8>,
}

impl<Out: Write> Writer<Out> {
    /// Writes the header.
    ///
    /// # Errors
    /// Those of the output.
    pub fn begin(out: Out, header: &Header) -> io::Result<Self> {
        let (grammar, totals) = (Grammar::new(), Totals::default());
        let mut writer = Self { out, chain: Chain::new(&header.key), grammar, totals, bytes: 0, payload: Vec::new() };
        writer.put(&[&MAGIC, &VERSION.to_le_bytes()])?;
        writer.frame(HEADER_KIND, &header.encode())?;
        Ok(writer)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Those of the output. `InvalidData`: a reader would refuse the record, and nothing was written.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        self.grammar.take(record).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        if let Record::File { attributes, .. } | Record::Leave { attributes } = record {
            attributes.check().map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        let kind = record.encode(&mut payload);
        self.totals.add(record);
        let written = self.frame(kind, &payload);
        self.payload = payload;
        written
    }

    /// Writes the trailer. Returns what the stream holds, and the output.
    ///
    /// # Errors
    /// Those of the output. `InvalidData`: a directory or a file has not ended.
    pub fn finish(mut self) -> io::Result<(Totals, Out)> {
        let totals = self.totals;
        self.record(&Record::End { totals })?;
        self.out.flush()?;
        Ok((totals, self.out))
    }

    /// Hands on everything that is written.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The totals of the records so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[1..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let check = self.chain.next(&head, checked_part(kind, payload));
        self.put(&[&head, payload, &check])
    }

    fn put(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        for part in parts {
            self.out.write_all(part)?;
            self.bytes += part.len() as u64;
        }
        Ok(())
    }
}
