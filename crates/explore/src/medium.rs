//! The medium that a volume is opened on: parts on a tape, some of them in objects.

use std::sync::Arc;

use oncefs_engine::device::Device;
use oncefs_engine::kv::Kv;
use oncefs_engine::{Backend, Ballast, Result};

use crate::image::Part;
use crate::keyed_objects;
use crate::objects::ObjectsOnTape;
use crate::tape::Tape;

/// The volume on a tape.
pub const VOLUME_ID: [u8; 16] = [1; 16];

/// Where the parts of a volume lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Size of the log.
    pub log_bytes: u64,
    /// Size of the objects in which data area and block table lie. None: they are files.
    pub object_bytes: Option<u64>,
    /// Most keys of the objects in which the records lie. None: they are in another store.
    pub record_keys_max: Option<u64>,
}

/// The devices from which a volume is opened.
///
/// # Errors
///
/// Those of opening the records.
pub fn backend(tape: &Arc<Tape>, places: Places) -> Result<Backend> {
    let Places { log_bytes, object_bytes, record_keys_max } = places;
    let in_objects = |part| -> Arc<dyn Device> {
        match object_bytes {
            Some(object_bytes) => Arc::new(ObjectsOnTape::new(tape, part, object_bytes)),
            None => tape.device(part),
        }
    };
    let kv: Arc<dyn Kv> = match record_keys_max {
        Some(keys_max) => Arc::new(keyed_objects::open(tape, VOLUME_ID, keys_max)?),
        None => tape.records(),
    };
    Ok(Backend {
        data: in_objects(Part::Data),
        table: in_objects(Part::Table),
        fragments: Some(in_objects(Part::Fragments)),
        log: in_objects(Part::Log),
        log_bytes,
        kv,
        ballast: Ballast::none(),
        host: None,
        secret: [9; 32],
        volume_id: VOLUME_ID,
        hints: Some(tape.device(Part::Hints)),
        skipped: Some(tape.device(Part::Skipped)),
        device_load: None,
        turns: false,
        hold: None,
    })
}
