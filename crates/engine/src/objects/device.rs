//! A device in objects of a cluster: an image, whose bytes lie in objects of equal size that exist only where something
//! was written.
//!
//! Writes and holes are submitted and not awaited; a flush waits for all of them. After a crash each object is as one
//! of its changes since the last flush left it, whatever the others are. A write that crosses objects is one change for
//! each of them, and may arrive in part.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_rados::{Change, Error, Objects, Read};

use super::epoch::Epoch;
use super::in_flight::{Flights, Owned};
use super::pool_room::ObjectRoom;
use crate::device::{Device, Io};
use crate::format::image::{self, ImageHeader};
use crate::sync::AtomicU64;

/// Objects that are looked for in one go.
const LOOKED_FOR: u64 = 256;

/// A device in objects.
pub struct ObjectDevice {
    objects: Arc<dyn Objects>,
    name: &'static str,
    header: ImageHeader,
    len: AtomicU64,
    flights: Flights,
    /// A hole in a part of an object gives its space back.
    has_partial_holes: bool,
}

/// A part of a range of the device that lies in one object.
struct Portion {
    number: u64,
    /// First byte in the object.
    at: u64,
    len: usize,
}

impl ObjectDevice {
    /// Makes an image of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], and what a change of an object may fail with.
    pub fn create(objects: &dyn Objects, name: &str, header: ImageHeader) -> Result<(), Error> {
        objects.change(name, Change::Create { bytes: &header.encode() })
    }

    /// The header of an image. None: there is no such image.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`]: the cluster does not give it. [`crate::Error::Corrupt`]: it is damaged.
    pub fn header(objects: &dyn Objects, name: &str) -> crate::Result<Option<ImageHeader>> {
        let found = objects.content(name, image::BYTES);
        let found = found.map_err(|e| crate::Error::io(format!("reading the object {name}"), e.into()))?;
        found.map(|bytes| ImageHeader::decode(&bytes, name)).transpose()
    }

    /// Opens an image.
    pub fn new(objects: Arc<dyn Objects>, name: &'static str, header: ImageHeader, room: Arc<ObjectRoom>) -> Self {
        Self::guarded(objects, name, header, room, None)
    }

    /// Opens an image whose objects take changes in this epoch only.
    pub fn guarded(
        objects: Arc<dyn Objects>,
        name: &'static str,
        header: ImageHeader,
        room: Arc<ObjectRoom>,
        epoch: Option<Epoch>,
    ) -> Self {
        let flights = Flights::new(objects.clone(), room, epoch);
        Self { objects, name, header, len: AtomicU64::new(header.len), flights, has_partial_holes: true }
    }

    /// The same in an erasure-coded pool, which would write zeros for a hole in a part of an object, and read the rest
    /// of its stripes for that.
    pub fn erasure_coded(self) -> Self {
        Self { has_partial_holes: false, ..self }
    }

    /// The names of all objects that an image may have.
    pub fn objects_of(name: &str, header: &ImageHeader) -> Vec<String> {
        (0..header.len.div_ceil(header.object_bytes)).map(|number| numbered(name, number)).collect()
    }

    fn object(&self, number: u64) -> String {
        numbered(self.name, number)
    }

    /// Splits a range at the borders of objects.
    fn portions(&self, at: u64, len: u64) -> impl Iterator<Item = Portion> + use<> {
        let object_bytes = self.header.object_bytes;
        let end = at + len;
        let mut next = at;
        std::iter::from_fn(move || {
            let within = next % object_bytes;
            let len = (object_bytes - within).min(end - next);
            let portion = Portion { number: next / object_bytes, at: within, len: len as usize };
            next += len;
            (len > 0).then_some(portion)
        })
    }

    fn check(&self, at: u64, len: u64) -> io::Result<()> {
        let end = self.len.load(Relaxed);
        if at.checked_add(len).is_some_and(|last| last <= end) {
            return Ok(());
        }
        let text = format!("bytes {at}+{len} of the image {} are beyond its end at {end}", self.name);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(at, bytes.len() as u64)?;
        let mut rest = bytes;
        for Portion { number, at, len } in self.portions(at, bytes.len() as u64) {
            let (here, behind) = rest.split_at(len);
            rest = behind;
            self.flights.begin(number, self.object(number), Owned::Write { at, bytes: here.to_vec() });
        }
        Ok(())
    }

    /// Makes all reads among `ios` together.
    fn read(&self, ios: &mut [Io<'_>]) {
        let mut results: Vec<io::Result<()>> = Vec::new();
        let mut reads = Vec::new();
        let mut owners = Vec::new();
        for (owner, io) in ios.iter_mut().enumerate() {
            results.push(if io.is_write() { Ok(()) } else { self.check(io.at(), io.len() as u64) });
            if io.is_write() || results[owner].is_err() {
                continue;
            }
            for (at, bytes) in io.wanted() {
                let mut rest = bytes;
                for Portion { number, at, len } in self.portions(at, rest.len() as u64) {
                    let (here, behind) = rest.split_at_mut(len);
                    rest = behind;
                    reads.push(Read::new(self.object(number), at, here));
                    owners.push((owner, number));
                }
            }
        }
        if reads.is_empty() {
            give_results(ios, results);
            return;
        }
        let numbers: BTreeSet<u64> = owners.iter().map(|(_, number)| *number).collect();
        self.flights.land_those_of(&numbers.into_iter().collect::<Vec<_>>());
        self.objects.read_all(&mut reads);
        for (read, (owner, number)) in reads.into_iter().zip(owners) {
            if results[owner].is_ok() {
                let result = self.flights.loss_of(number).map_or(read.result, Err);
                results[owner] = result.map_err(io::Error::from);
            }
        }
        give_results(ios, results);
    }
}

fn numbered(name: &str, number: u64) -> String {
    format!("{name}.{number:016x}")
}

/// Gives reads their results.
fn give_results(ios: &mut [Io<'_>], results: Vec<io::Result<()>>) {
    for (io, result) in ios.iter_mut().zip(results) {
        if !io.is_write() {
            io.finish(result);
        }
    }
}

impl Device for ObjectDevice {
    fn submit(&self, ios: &mut [Io<'_>]) {
        for io in ios.iter_mut() {
            if let Some(bytes) = io.written() {
                let result = self.write(io.at(), bytes);
                io.finish(result);
            }
        }
        self.read(ios);
    }

    fn submit_while(&self, ios: &mut [Io<'_>], meanwhile: &mut dyn FnMut()) {
        // Writes are only submitted here; what they take comes later.
        self.submit(ios);
        meanwhile();
    }

    fn flush(&self) -> io::Result<()> {
        Ok(self.flights.land_all()?)
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.check(at, len)?;
        let mut has_holes = self.has_partial_holes;
        for Portion { number, at, len } in self.portions(at, len) {
            let is_whole = len as u64 == self.header.object_bytes;
            if is_whole || self.has_partial_holes {
                let owned = if is_whole { Owned::Remove } else { Owned::Zero { at, len: len as u64 } };
                self.flights.begin(number, self.object(number), owned);
                has_holes = true;
            }
        }
        match has_holes {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, "a part of an erasure-coded object stays")),
        }
    }

    fn punch_bytes(&self) -> u64 {
        self.header.object_bytes
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.flights.land_all()?;
        let (object_bytes, len) = (self.header.object_bytes, self.len.load(Relaxed));
        let (mut first, end) = (at / object_bytes, len.div_ceil(object_bytes));
        while first < end {
            let numbers: Vec<u64> = (first..end.min(first + LOOKED_FOR)).collect();
            let names: Vec<String> = numbers.iter().map(|number| self.object(*number)).collect();
            let sizes = self.objects.sizes(&names)?;
            // An object that ends before `at` has nothing more.
            let reaches = |(number, size): (&u64, Option<u64>)| {
                size.is_some_and(|size| number * object_bytes + size > at).then_some(*number)
            };
            if let Some(number) = numbers.iter().zip(sizes).find_map(reaches) {
                return Ok(Some(at.max(number * object_bytes)));
            }
            first += LOOKED_FOR;
        }
        Ok(None)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len.load(Relaxed))
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        if len <= self.len.load(Relaxed) {
            return Ok(());
        }
        let header = ImageHeader { len, ..self.header };
        // The object exists, and keeps its size: a full pool takes it.
        self.objects.change(self.name, Change::WriteFull { bytes: &header.encode() })?;
        self.len.store(len, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
