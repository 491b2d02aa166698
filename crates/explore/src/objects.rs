//! A device in objects on a tape. Each change of an object is a step of its own, so a write that crosses objects may
//! arrive in part. Awaiting a change makes nothing durable here, only a flush of the device does, so the states include
//! all that a cluster may leave.

use std::io;
use std::sync::Arc;

use oncefs_engine::device::{Device, Io};
use oncefs_engine::format::image::ImageHeader;
use oncefs_engine::objects::device::ObjectDevice;
use oncefs_engine::objects::pool_room::ObjectRoom;
use oncefs_rados::{Change, Guard, Hold, Objects, Pending, Read, Result, WhenFull};

use crate::effect::{Effect, Pages};
use crate::image::{PAGE_BYTES, Page, Part};
use crate::tape::Tape;

/// The objects of one device. Their bytes are those of the device on the tape.
struct TapeObjects {
    tape: Arc<Tape>,
    part: Part,
    object_bytes: u64,
}

impl TapeObjects {
    /// The first byte of an object on the device.
    fn start(&self, object: &str) -> u64 {
        let number = object.strip_prefix(self.part.name()).and_then(|rest| rest.strip_prefix('.'));
        let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
        number.expect("only numbered objects of this part are used") * self.object_bytes
    }

    /// Where an object ends: the last one, with the device.
    fn end(&self, object: &str) -> u64 {
        (self.start(object) + self.object_bytes).min(self.tape.len(self.part))
    }

    fn write(&self, at: u64, pages: Pages, is_punch: bool) {
        assert!(at.is_multiple_of(PAGE_BYTES as u64), "a change at byte {at}");
        self.tape.write(self.part, at / PAGE_BYTES as u64, pages, is_punch);
    }

    fn punch(&self, at: u64, len: u64) {
        assert!(len.is_multiple_of(PAGE_BYTES as u64), "a hole of {len} bytes");
        self.write(at, vec![None; len as usize / PAGE_BYTES].into(), true);
    }
}

/// A change that is made when it begins.
struct Made;

impl Pending for Made {
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl Objects for TapeObjects {
    fn read_all(&self, reads: &mut [Read<'_>]) {
        for read in reads {
            self.tape.read(self.part, read.bytes, self.start(&read.object) + read.at);
        }
    }

    fn begin(&self, object: &str, change: Change<'_>, _: Option<Guard<'_>>, _: WhenFull) -> Box<dyn Pending> {
        match change {
            Change::Write { at, bytes } => {
                self.write(self.start(object) + at, bytes.chunks_exact(PAGE_BYTES).map(Page::new).collect(), false);
            }
            Change::Zero { at, len } => self.punch(self.start(object) + at, len),
            Change::Remove => self.punch(self.start(object), self.end(object) - self.start(object)),
            Change::WriteFull { bytes } => {
                let header = ImageHeader::decode(bytes, object).expect("the device wrote it");
                self.tape.grow(self.part, header.len);
            }
            Change::Create { .. } | Change::SetAttribute { .. } | Change::Keys { .. } => {
                panic!("the device makes no {object}")
            }
        }
        Box::new(Made)
    }

    fn sizes(&self, objects: &[String]) -> Result<Vec<Option<u64>>> {
        let size = |object: &String| {
            let (start, end) = (self.start(object), self.end(object));
            self.tape.next_data(self.part, start).filter(|next| *next < end).map(|_| end - start)
        };
        Ok(objects.iter().map(size).collect())
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn hold(&self, _: &str, _: Option<&str>) -> Result<Hold> {
        Ok(Hold::of_nothing())
    }

    fn holder(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn has_room(&self) -> Result<bool> {
        Ok(true)
    }
}

/// A device in objects, whose flush is a step on the tape.
pub struct ObjectsOnTape {
    device: ObjectDevice,
    tape: Arc<Tape>,
    part: Part,
}

impl ObjectsOnTape {
    /// A part in objects of this size.
    pub fn new(tape: &Arc<Tape>, part: Part, object_bytes: u64) -> Self {
        let objects: Arc<dyn Objects> = Arc::new(TapeObjects { tape: tape.clone(), part, object_bytes });
        let header = ImageHeader { volume_id: [1; 16], len: tape.len(part), object_bytes };
        let room = Arc::new(ObjectRoom::of(objects.clone()));
        Self { device: ObjectDevice::new(objects, part.name(), header, room), tape: tape.clone(), part }
    }
}

impl Device for ObjectsOnTape {
    fn submit(&self, ios: &mut [Io<'_>]) {
        self.device.submit(ios);
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()?;
        self.tape.note(Effect::Flush(self.part));
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.punch(at, len)
    }

    fn punch_bytes(&self) -> u64 {
        self.device.punch_bytes()
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.device.next_data(at)
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.device.grow(len)
    }
}
