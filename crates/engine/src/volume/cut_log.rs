//! The way out of a log that keeps a volume closed: ends it before the damage.

use std::path::Path;
use std::sync::Arc;

use crate::commit::log::{CutLog, Log};
use crate::device::{Device, FileDevice};
use crate::format::checkpoint::Checkpoint;
use crate::format::keys;
use crate::format::superblock::Superblock;
use crate::hash::Hasher;
use crate::kv::copies::Place;
use crate::kv::{Kv, RocksKv};
use crate::volume::exclusive_lock::ExclusiveLock;
use crate::volume::files::omap_terms;
use crate::volume::held_objects::HeldObjects;
use crate::volume::{object_parts, superblock_file};
use crate::{Copies, DataPlace, Error, Result, WhenHeld};

/// Memory for the record store, of which a single record is read.
const RECORDS_BYTES: u64 = 8 << 20;

/// Ends the log of a closed volume before its first unreadable group. None: all of it can be read.
pub fn cut_log(volume: &Path) -> Result<Option<CutLog>> {
    let superblock = superblock_file::read(volume)?;
    let lock = volume.join("lock");
    let _alone = ExclusiveLock::of_volume(&lock, &volume.display().to_string())?;
    let checkpoint = stored_checkpoint(volume, &superblock)?;
    let checkpoint = checkpoint.and_then(|bytes| Checkpoint::decode(&bytes, superblock.volume_id));
    let checkpoint = checkpoint
        .ok_or_else(|| Error::corrupt("the checkpoint record", "it is missing or damaged: fsck --salvage"))?;
    let (log, _hold) = log_of(volume, &superblock)?;
    Log::cut(log, Hasher::log_id(&superblock.secret), superblock.log_bytes, &checkpoint)
}

/// The log of a closed volume, and what holds it for this process if it lies in objects.
fn log_of(volume: &Path, superblock: &Superblock) -> Result<(Arc<dyn Device>, Option<HeldObjects>)> {
    if let DataPlace::Objects(access) = &superblock.data {
        let parts = object_parts::open(access, volume, superblock.volume_id, &WhenHeld::Refused)?;
        if let Some(log) = parts.log {
            return Ok((log, Some(parts.hold)));
        }
    }
    let path = volume.join("log");
    let log = FileDevice::open_direct(&path, true).map_err(|e| Error::io(format!("opening {}", path.display()), e))?;
    Ok((Arc::new(log), None))
}

/// The checkpoint record, from a record store that stays as it is.
fn stored_checkpoint(volume: &Path, superblock: &Superblock) -> Result<Option<Vec<u8>>> {
    if let (DataPlace::Objects(access), Some(terms)) = (&superblock.data, omap_terms(superblock, RECORDS_BYTES, true)) {
        let parts = object_parts::open(access, volume, superblock.volume_id, &WhenHeld::Refused)?;
        return parts.open_records(terms)?.get(&keys::checkpoint());
    }
    let place = Place::of(volume, superblock.volume_id);
    // The number of copies that the volume keeps does not matter here.
    RocksKv::open(place, Copies::One, RECORDS_BYTES, true)?.get(&keys::checkpoint())
}
