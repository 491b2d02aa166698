//! A recording version of a volume's devices and sorted state. They work in memory, and all their changes go to one
//! tape, in one order.
//!
//! A device makes the promises of a disk: data written before a completed flush survives a crash, and of later writes
//! any sectors may. RocksDB is stricter: after a crash it is at some batch boundary since its last flush. Growing is
//! durable on return.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use oncefs_engine::device::{Device, Io};
use oncefs_engine::kv::{Kv, KvMemory, Put};
use parking_lot::Mutex;

use crate::effect::{Effect, Pages};
use crate::image::{Images, PAGE_BYTES, Page, Part};
use crate::point::Doing;

/// The snapshots of the model that a crash may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The last one that was acknowledged.
    pub acknowledged: u32,
    /// The one whose commit is under way.
    pub under_way: Option<u32>,
    /// Commits may happen within an operation: files that it does not touch are as in the acknowledged snapshot, and
    /// its own changes are consistent.
    pub is_between: bool,
}

impl Allowed {
    /// Exactly this snapshot.
    pub fn only(acknowledged: u32) -> Self {
        Self { acknowledged, under_way: None, is_between: false }
    }

    /// Exactly one of these two snapshots.
    pub fn either(acknowledged: u32, under_way: u32) -> Self {
        Self { acknowledged, under_way: Some(under_way), is_between: false }
    }

    /// Any state between this snapshot and the next.
    pub fn between(acknowledged: u32) -> Self {
        Self { acknowledged, under_way: None, is_between: true }
    }
}

/// One step on the tape.
#[derive(Clone)]
pub struct Recorded {
    /// The effect.
    pub effect: Effect,
    /// The program's activity.
    pub doing: Doing,
    /// The snapshots that a crash after it may leave.
    pub allowed: Allowed,
}

struct Inner {
    images: Images,
    recorded: Option<Vec<Recorded>>,
    doing: Doing,
    allowed: Allowed,
    /// Changes of objects with records so far.
    object_changes: u64,
}

/// The parts of a volume in memory, and the record of their changes.
pub struct Tape(Mutex<Inner>);

impl Tape {
    /// Begins with the contents of the parts. `records`: keeps all steps, otherwise only the result.
    pub fn new(images: Images, records: bool) -> Arc<Self> {
        let recorded = records.then(Vec::new);
        Arc::new(Self(Mutex::new(Inner {
            images,
            recorded,
            doing: Doing::Recover,
            allowed: Allowed::default(),
            object_changes: 0,
        })))
    }

    /// Sets the program's activity from here on.
    pub fn doing(&self, doing: Doing) {
        self.0.lock().doing = doing;
    }

    /// Sets the snapshots that a crash from here on may leave.
    pub fn allow(&self, allowed: Allowed) {
        self.0.lock().allowed = allowed;
    }

    /// Does `work` as another activity.
    pub fn meanwhile<T>(&self, doing: Doing, work: impl FnOnce() -> T) -> T {
        let before = std::mem::replace(&mut self.0.lock().doing, doing);
        let result = work();
        self.0.lock().doing = before;
        result
    }

    /// Records a step without an effect on a device.
    pub fn mark(&self, what: &'static str) {
        self.0.lock().note(Effect::Mark(what));
    }

    /// Records a step.
    pub(crate) fn note(&self, effect: Effect) {
        self.0.lock().note(effect);
    }

    /// Writes pages of a part, or makes them holes.
    pub(crate) fn write(&self, part: Part, first: u64, pages: Pages, is_punch: bool) {
        self.0.lock().write(part, first, pages, is_punch);
    }

    /// Fills bytes from a part.
    pub(crate) fn read(&self, part: Part, bytes: &mut [u8], at: u64) {
        self.0.lock().images.device(part).read(bytes, at);
    }

    /// The first byte of a page of data at or after a byte of a part.
    pub(crate) fn next_data(&self, part: Part, at: u64) -> Option<u64> {
        let page = PAGE_BYTES as u64;
        let next = self.0.lock().images.device(part).next_page(at / page);
        next.map(|number| at.max(number * page))
    }

    /// The size of a part.
    pub(crate) fn len(&self, part: Part) -> u64 {
        self.0.lock().images.device(part).bytes()
    }

    /// Enlarges a part.
    pub(crate) fn grow(&self, part: Part, len: u64) {
        let mut inner = self.0.lock();
        inner.images.device_mut(part).grow(len);
        inner.note(Effect::Grow(part, len));
    }

    /// Makes the medium lose the first page of the data area with these bytes. False: no page has them.
    pub fn rot(&self, bytes: &[u8]) -> bool {
        let mut inner = self.0.lock();
        let Some(page) = inner.images.device(Part::Data).page_with(bytes) else { return false };
        inner.images.device_mut(Part::Data).rot(page);
        inner.note(Effect::Rot(page));
        true
    }

    /// The present contents of the parts.
    pub fn images(&self) -> Images {
        self.0.lock().images.clone()
    }

    /// Ends the recording.
    pub fn take(&self) -> Vec<Recorded> {
        self.0.lock().recorded.take().unwrap_or_default()
    }

    /// Looks at the sorted state.
    pub(crate) fn with_records<T>(&self, look: impl FnOnce(&BTreeMap<Vec<u8>, Vec<u8>>) -> T) -> T {
        look(self.0.lock().images.records.records())
    }

    /// Changes an object with records. Returns the number of the change.
    pub(crate) fn change_object(&self, object: &Arc<str>, puts: Vec<Put>) -> u64 {
        let mut inner = self.0.lock();
        inner.object_changes += 1;
        let number = inner.object_changes;
        inner.images.records.apply(&puts);
        inner.note(Effect::Keys { object: object.clone(), number, puts: Arc::new(puts) });
        number
    }

    /// The changes of an object up to this one are durable.
    pub(crate) fn land(&self, object: &Arc<str>, number: u64) {
        self.0.lock().note(Effect::KeysDurable(object.clone(), number));
    }

    /// A part as a disk has it.
    pub(crate) fn device(self: &Arc<Self>, part: Part) -> Arc<dyn Device> {
        Arc::new(TapeDevice { tape: self.clone(), part })
    }

    /// The sorted state.
    pub(crate) fn records(self: &Arc<Self>) -> Arc<dyn Kv> {
        Arc::new(TapeKv(self.clone()))
    }
}

impl Inner {
    fn note(&mut self, effect: Effect) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(Recorded { effect, doing: self.doing, allowed: self.allowed });
        }
    }

    fn write(&mut self, part: Part, first: u64, pages: Pages, is_punch: bool) {
        let device = self.images.device_mut(part);
        for (page, number) in pages.iter().zip(first..) {
            device.set_page(number, page.clone());
        }
        self.note(Effect::Write { part, first, pages, is_punch });
    }

    fn check(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        let end = self.images.device(part).bytes();
        if at.checked_add(len).is_some_and(|last| last <= end) {
            return Ok(());
        }
        let what = format!("bytes {at}+{len} of {} are beyond the end at {end}", part.name());
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }
}

/// One device.
struct TapeDevice {
    tape: Arc<Tape>,
    part: Part,
}

/// Checks that a write has whole pages: the engine writes no others, because direct I/O would refuse them.
fn whole_pages(at: u64, len: u64) -> io::Result<(u64, u64)> {
    let page = PAGE_BYTES as u64;
    if at.is_multiple_of(page) && len.is_multiple_of(page) {
        return Ok((at / page, len / page));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("bytes {at}+{len} are not whole pages")))
}

impl TapeDevice {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let inner = self.tape.0.lock();
        inner.check(self.part, at, bytes.len() as u64)?;
        inner.images.device(self.part).read(bytes, at);
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (first, _) = whole_pages(at, bytes.len() as u64)?;
        let pages: Pages = bytes.chunks_exact(PAGE_BYTES).map(Page::new).collect();
        let mut inner = self.tape.0.lock();
        inner.check(self.part, at, bytes.len() as u64)?;
        inner.write(self.part, first, pages, false);
        Ok(())
    }
}

impl Device for TapeDevice {
    fn submit(&self, ios: &mut [Io<'_>]) {
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn flush(&self) -> io::Result<()> {
        self.tape.note(Effect::Flush(self.part));
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let (first, count) = whole_pages(at, len)?;
        let mut inner = self.tape.0.lock();
        inner.check(self.part, at, len)?;
        inner.write(self.part, first, vec![None; count as usize].into(), true);
        Ok(())
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(self.tape.next_data(self.part, at))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.tape.len(self.part))
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.tape.grow(self.part, len);
        Ok(())
    }
}

/// The sorted state.
struct TapeKv(Arc<Tape>);

impl Kv for TapeKv {
    fn get(&self, key: &[u8]) -> oncefs_engine::Result<Option<Vec<u8>>> {
        Ok(self.0.0.lock().images.records.records().get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> oncefs_engine::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let inner = self.0.0.lock();
        let found = inner
            .images
            .records
            .records()
            .range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)));
        Ok(found.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn write(&self, batch: Vec<Put>) -> oncefs_engine::Result<()> {
        let mut inner = self.0.0.lock();
        inner.images.records.apply(&batch);
        inner.note(Effect::Batch(Arc::new(batch)));
        Ok(())
    }

    fn flush(&self) -> oncefs_engine::Result<()> {
        self.0.0.lock().note(Effect::FlushRecords);
        Ok(())
    }

    fn memory(&self) -> KvMemory {
        KvMemory::default()
    }
}
