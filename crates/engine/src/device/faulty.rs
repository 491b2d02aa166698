//! Faults on demand: wrappers around the parts of a volume that make the n-th operation fail, end early, damage its
//! data or take long. Only for tests.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Device, Io};

/// A kind of operation on a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Reads bytes of a device.
    Read,
    /// Writes bytes to a device.
    Write,
    /// Flushes a device.
    Flush,
    /// Returns space of a device to the host.
    Punch,
    /// Looks for a device's next data.
    NextData,
    /// Asks for the size of a device.
    Len,
    /// Enlarges a device.
    Grow,
    /// Reads one record.
    Get,
    /// Reads several records.
    Scan,
    /// Writes a batch of records.
    Put,
    /// Flushes the records.
    FlushRecords,
}

impl Access {
    /// Whether it changes something, and so may find the host full.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Read | Self::NextData | Self::Len | Self::Get | Self::Scan)
    }
}

/// How an operation goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO.
    Broken,
    /// ENOSPC.
    Full,
    /// A write stores the first half of its bytes, then fails with EIO; a read fills half of its buffer, then fails as
    /// at the end of a file. Other operations fail with EIO.
    CutShort,
    /// A read or write succeeds with this bit of its bytes changed, counted from the first, modulo their number.
    /// Other operations succeed.
    Flip {
        /// The bit.
        bit: u64,
    },
    /// The operation succeeds after this delay.
    Slow(Duration),
}

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// It affects one operation.
    Once,
    /// It affects every later operation of the same part until it is removed. `Full` spares operations that change
    /// nothing.
    UntilMended,
}

#[derive(Clone, Copy)]
struct Armed {
    at: usize,
    fault: Fault,
    lasts: Lasts,
    part: Option<&'static str>,
}

#[derive(Default)]
struct Script {
    seen: Vec<(&'static str, Access)>,
    armed: Option<Armed>,
    hit: Option<(&'static str, Access)>,
}

/// Counts the operations of all parts that share it, in one order, and decides which one fails.
#[derive(Default)]
pub struct Faults(Mutex<Script>);

impl Faults {
    /// Makes the operation with this number fail, counted from 0 since these faults were created.
    pub fn arm(&self, at: usize, fault: Fault, lasts: Lasts) {
        let mut script = self.0.lock();
        script.armed = Some(Armed { at, fault, lasts, part: None });
        script.hit = None;
    }

    /// Makes no further operation fail.
    pub fn mend(&self) {
        self.0.lock().armed = None;
    }

    /// The first operation that the fault affected.
    pub fn hit(&self) -> Option<(&'static str, Access)> {
        self.0.lock().hit
    }

    /// All operations so far: part and kind.
    pub fn seen(&self) -> Vec<(&'static str, Access)> {
        self.0.lock().seen.clone()
    }

    /// The number of operations so far.
    pub fn count(&self) -> usize {
        self.0.lock().seen.len()
    }

    /// Counts an operation and returns its fault, if it has one.
    pub(crate) fn next(&self, part: &'static str, access: Access) -> Option<Fault> {
        let mut script = self.0.lock();
        let number = script.seen.len();
        script.seen.push((part, access));
        let armed = script.armed.as_mut()?;
        match armed.part {
            None if number < armed.at => return None,
            None => armed.part = Some(part),
            Some(_) if armed.lasts == Lasts::Once => return None,
            Some(hit) if hit != part => return None,
            Some(_) if armed.fault == Fault::Full && !access.is_change() => return None,
            Some(_) => {}
        }
        debug_assert!(armed.at <= number, "operation {number} fails, {} is the first to", armed.at);
        let fault = armed.fault;
        script.hit.get_or_insert((part, access));
        Some(fault)
    }
}

impl Fault {
    /// The error of an operation without data. None: it succeeds, maybe late.
    pub(crate) fn error(self) -> Option<io::Error> {
        match self {
            Self::Broken | Self::CutShort => Some(io::Error::from_raw_os_error(libc::EIO)),
            Self::Full => Some(io::Error::from_raw_os_error(libc::ENOSPC)),
            Self::Flip { .. } => None,
            Self::Slow(time) => {
                thread::sleep(time);
                None
            }
        }
    }
}

/// A device with faults.
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    part: &'static str,
    faults: Arc<Faults>,
}

impl FaultyDevice {
    /// Wraps a part of a volume. `faults` knows it by this name.
    pub fn new(inner: Arc<dyn Device>, part: &'static str, faults: Arc<Faults>) -> Self {
        Self { inner, part, faults }
    }

    fn check(&self, access: Access) -> io::Result<()> {
        let fault = self.faults.next(self.part, access);
        fault.and_then(Fault::error).map_or(Ok(()), Err)
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    let at = bit as usize % (bytes.len() * 8).max(1);
    if let Some(byte) = bytes.get_mut(at / 8) {
        *byte ^= 1 << (at % 8);
    }
}

impl FaultyDevice {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let fault = self.faults.next(self.part, Access::Read);
        if fault == Some(Fault::CutShort) {
            let half = bytes.len() / 2;
            self.inner.read_at(&mut bytes[..half], at)?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(error) = fault.and_then(Fault::error) {
            return Err(error);
        }
        self.inner.read_at(bytes, at)?;
        if let Some(Fault::Flip { bit }) = fault {
            flip(bytes, bit);
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.faults.next(self.part, Access::Write) {
            Some(Fault::CutShort) => {
                self.inner.write_at(&bytes[..bytes.len() / 2], at)?;
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            Some(Fault::Flip { bit }) => {
                let mut damaged = bytes.to_vec();
                flip(&mut damaged, bit);
                self.inner.write_at(&damaged, at)
            }
            other => match other.and_then(Fault::error) {
                Some(error) => Err(error),
                None => self.inner.write_at(bytes, at),
            },
        }
    }
}

impl Device for FaultyDevice {
    fn submit(&self, ios: &mut [Io<'_>]) {
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn flush(&self) -> io::Result<()> {
        self.check(Access::Flush)?;
        self.inner.flush()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.check(Access::Punch)?;
        self.inner.punch(at, len)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.check(Access::NextData)?;
        self.inner.next_data(at)
    }

    fn len(&self) -> io::Result<u64> {
        self.check(Access::Len)?;
        self.inner.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.check(Access::Grow)?;
        self.inner.grow(len)
    }
}
