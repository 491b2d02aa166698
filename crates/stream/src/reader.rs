//! Reads a stream, and refuses everything that is not one.

use std::io::{self, Read};

use crate::digest::Chain;
use crate::grammar::Grammar;
use crate::record::{PAYLOAD_BYTES_MAX, checked_part};
use crate::writer::{HEAD_BYTES, HEADER_KIND, MAGIC};
use crate::{BLOCK_BYTES, Error, Header, Key, Malformed, Record, Result, Totals, VERSION};

/// Longest header: a key, two identities, and a path.
const HEADER_BYTES_MAX: usize = (1 << 20) + 8192;

/// Memory for a record grows with what has arrived of it, at most by this much at a time.
const GROWTH_BYTES_MAX: u64 = 1 << 18;

/// Reads records and their checks.
pub struct Reader<In> {
    input: In,
    version: u32,
    key: Key,
    chain: Chain,
    grammar: Grammar,
    totals: Totals,
    /// Whole records, the header included.
    records: u64,
    bytes: u64,
    /// The last payload. Its memory serves for the next one.
    payload: Vec<u8>,
}

impl<In: Read> Reader<In> {
    /// Reads the header.
    ///
    /// # Errors
    /// The input fails, or has no whole and intact header of a version up to this one.
    pub fn begin(mut input: In) -> Result<(Self, Header)> {
        let mut begin = [0; 12];
        let read = read_up_to(&mut input, &mut begin)?;
        let magic = read.min(MAGIC.len());
        if begin[..magic] != MAGIC[..magic] || read == 0 {
            return Err(Error::NotAStream);
        }
        if read < begin.len() {
            return Err(Error::EndsEarly { records: 0 });
        }
        let version = u32::from_le_bytes([begin[8], begin[9], begin[10], begin[11]]);
        if !(1..=VERSION).contains(&version) {
            return Err(Error::Version(version));
        }
        let key = Key([0; 32]);
        let (chain, grammar, totals) = (Chain::new(&key), Grammar::new(), Totals::default());
        let mut reader = Self {
            input,
            version,
            key,
            chain,
            grammar,
            totals,
            records: 0,
            bytes: begin.len() as u64,
            payload: Vec::new(),
        };
        let header = reader.header()?;
        Ok((reader, header))
    }

    fn header(&mut self) -> Result<Header> {
        let (head, payload) = self.framed(HEADER_BYTES_MAX)?;
        if head[0] != HEADER_KIND {
            return Err(self.damaged(Malformed("it is not the header")));
        }
        self.key = Header::key_of(&payload).map_err(|why| self.damaged(why))?;
        self.chain = Chain::new(&self.key);
        self.check(&head, &payload)?;
        let header = Header::decode(&payload).map_err(|why| self.damaged(why))?;
        self.records += 1;
        Ok(header)
    }

    /// Reads the next record. `End` is the last one.
    ///
    /// # Errors
    /// The input fails, or ends, or the record is damaged or makes no sense here. Reading on is useless then.
    pub fn record(&mut self) -> Result<Record> {
        let (head, payload) = self.framed(PAYLOAD_BYTES_MAX)?;
        self.check(&head, &payload)?;
        let record = Record::decode(self.version, head[0], &payload).map_err(|why| self.damaged(why))?;
        self.payload = payload;
        if let Record::Data { bytes, digests, .. } = &record {
            let found = bytes.chunks(BLOCK_BYTES).map(|content| self.key.digest(content));
            if !found.eq(digests.iter().copied()) {
                return Err(self.damaged(Malformed("a content does not have its hash")));
            }
        }
        self.grammar.take(&record).map_err(|why| Error::Misplaced { number: self.records, why })?;
        match &record {
            Record::End { totals } => self.end(totals)?,
            record => self.totals.add(record),
        }
        self.records += 1;
        Ok(record)
    }

    fn end(&mut self, told: &Totals) -> Result<()> {
        if *told != self.totals {
            return Err(self.damaged(Malformed("its totals are not those of the records before it")));
        }
        match read_up_to(&mut self.input, &mut [0])? {
            0 => Ok(()),
            _ => Err(Error::GoesOn),
        }
    }

    /// The totals of the records so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Bytes read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn framed(&mut self, bytes_max: usize) -> Result<([u8; HEAD_BYTES], Vec<u8>)> {
        let mut head = [0; HEAD_BYTES];
        self.fill(&mut head)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > bytes_max {
            return Err(self.damaged(Malformed("it is longer than any record")));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        while payload.len() < length {
            let part = ((length - payload.len()) as u64).min(GROWTH_BYTES_MAX);
            let read = (&mut self.input).take(part).read_to_end(&mut payload)?;
            self.bytes += read as u64;
            if read == 0 {
                return Err(Error::EndsEarly { records: self.records });
            }
        }
        Ok((head, payload))
    }

    fn check(&mut self, head: &[u8], payload: &[u8]) -> Result<()> {
        let mut told = [0; 8];
        self.fill(&mut told)?;
        match self.chain.next(head, checked_part(head[0], payload)) == told {
            true => Ok(()),
            false => Err(self.damaged(Malformed("its checksum is wrong, or a record before it is missing"))),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let read = read_up_to(&mut self.input, bytes)?;
        self.bytes += read as u64;
        if read < bytes.len() { Err(Error::EndsEarly { records: self.records }) } else { Ok(()) }
    }

    fn damaged(&self, why: Malformed) -> Error {
        Error::Damaged { number: self.records, why }
    }
}

/// Reads until `bytes` is full or the input ends.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match input.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(read)
}
