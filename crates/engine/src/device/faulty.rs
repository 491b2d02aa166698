//! Faults on demand: wrappers around the parts of a volume of which the n-th operation fails, ends early, damages what
//! it carries or takes its time. For tests; a volume that is served never has one.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::Device;

/// What is asked of a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Bytes of a device.
    Read,
    /// Bytes to a device.
    Write,
    /// A flush of a device.
    Flush,
    /// Space of a device back to the host.
    Punch,
    /// Where a device's next data is.
    NextData,
    /// The size of a device.
    Len,
    /// A larger device.
    Grow,
    /// One record.
    Get,
    /// Several records.
    Scan,
    /// A batch of records.
    Put,
    /// A flush of the records.
    FlushRecords,
}

impl Access {
    /// Whether it changes something, and so may meet a full host.
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
    /// A write carries the first half of its bytes, then EIO; a read fills half of its buffer, then fails as at the
    /// end of a file. Other operations: EIO.
    CutShort,
    /// A read or write succeeds with this bit of its bytes changed, counted from the first, modulo their number.
    /// Other operations succeed.
    Flip {
        /// The bit.
        bit: u64,
    },
    /// The operation succeeds so much later.
    Slow(Duration),
}

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// It hits one operation.
    Once,
    /// It hits every further operation of the same part until it is taken away. `Full` spares what changes nothing.
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

/// Counts the operations of all parts that share it, in one order, and decides which goes wrong.
#[derive(Default)]
pub struct Faults(Mutex<Script>);

impl Faults {
    /// The operation with this number, counted from 0 since these faults were made, goes wrong.
    pub fn arm(&self, at: usize, fault: Fault, lasts: Lasts) {
        let mut script = self.0.lock();
        script.armed = Some(Armed { at, fault, lasts, part: None });
        script.hit = None;
    }

    /// No further operation goes wrong.
    pub fn mend(&self) {
        self.0.lock().armed = None;
    }

    /// The first operation that the fault met.
    pub fn hit(&self) -> Option<(&'static str, Access)> {
        self.0.lock().hit
    }

    /// All operations so far: part and kind.
    pub fn seen(&self) -> Vec<(&'static str, Access)> {
        self.0.lock().seen.clone()
    }

    /// How many operations there were.
    pub fn count(&self) -> usize {
        self.0.lock().seen.len()
    }

    /// Counts an operation, and says how it goes wrong.
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
        let fault = armed.fault;
        script.hit.get_or_insert((part, access));
        Some(fault)
    }
}

impl Fault {
    /// The error of an operation that carries no bytes; None: it succeeds, in time or late.
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
    /// Wraps a part of a volume, under the name that the faults know it by.
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

impl Device for FaultyDevice {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
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

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
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
