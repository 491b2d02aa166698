//! The medium that a volume is opened on: parts on a tape, some of them in objects.

use std::sync::Arc;

use oncefs_engine::device::Device;
use oncefs_engine::{Backend, Ballast};

use crate::image::Part;
use crate::objects::ObjectsOnTape;
use crate::tape::Tape;

/// The devices from which a volume is opened. `object_bytes`: those that may lie in objects do, in objects of this
/// size.
pub fn backend(tape: &Arc<Tape>, log_bytes: u64, object_bytes: Option<u64>) -> Backend {
    let in_objects = |part| -> Arc<dyn Device> {
        match object_bytes {
            Some(object_bytes) => Arc::new(ObjectsOnTape::new(tape, part, object_bytes)),
            None => tape.device(part),
        }
    };
    Backend {
        data: in_objects(Part::Data),
        table: in_objects(Part::Table),
        fragments: Some(in_objects(Part::Fragments)),
        log: in_objects(Part::Log),
        log_bytes,
        kv: tape.records(),
        ballast: Ballast::none(),
        host: None,
        secret: [9; 32],
        volume_id: [1; 16],
        hints: Some(tape.device(Part::Hints)),
        skipped: Some(tape.device(Part::Skipped)),
        device_load: None,
        hold: None,
    }
}
