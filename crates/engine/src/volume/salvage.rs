//! Saves what is left of a closed volume's record store.

use std::path::Path;
use std::sync::Arc;

use crate::commit::log::Log;
use crate::device::{Device, FileDevice};
use crate::format::checkpoint::Checkpoint;
use crate::format::keys;
use crate::format::superblock::Superblock;
use crate::hash::Hasher;
use crate::kv::copies::Place;
use crate::kv::omap::OmapTerms;
use crate::kv::{IsRecord, Kv, RocksKv, Salvaged, Terms};
use crate::volume::exclusive_lock::ExclusiveLock;
use crate::volume::files::{check_table, copies_of, omap_terms};
use crate::volume::held_objects::HeldObjects;
use crate::volume::{object_parts, superblock_file};
use crate::{DataPlace, Error, ObjectAccess, Result, WhenHeld};

/// Memory for the record store while it is examined.
const EXAMINED_BYTES_MAX: u64 = 4 << 20;

/// Rebuilds a volume's record store from its readable parts, if copies do not restore it. None: all of it can be read.
/// Record files that are gone together with their copies are given up only if `without` names them.
pub fn salvage(volume: &Path, is_record: IsRecord<'_>, without: &[String]) -> Result<Option<Salvaged>> {
    let superblock = superblock_file::read(volume)?;
    let _alone = ExclusiveLock::of_volume(&volume.join("lock"), &volume.display().to_string())?;
    superblock_file::make_sound(volume, &superblock)?;
    if let (DataPlace::Objects(access), Some(terms)) =
        (&superblock.data, omap_terms(&superblock, EXAMINED_BYTES_MAX, true))
    {
        return check_objects(access, volume, terms).map(|()| None);
    }
    let place = Place::of(volume, superblock.volume_id);
    RocksKv::restore_current(&place)?;
    match is_whole(&place, &superblock) {
        Ok(true) => RocksKv::finish_salvage(&place).map(|()| None),
        Ok(false) | Err(Error::Corrupt { .. } | Error::Io { .. }) => {
            let reaches_back = |checkpoint: &[u8]| reaches_back(volume, &superblock, checkpoint);
            RocksKv::salvage(&place, Terms { is_record, without, reaches_back: &reaches_back }).map(Some)
        }
        Err(error) => Err(error),
    }
}

/// Reads every record of a store in objects. Their cluster keeps their copies and repairs them; nothing can be saved
/// beside that.
fn check_objects(access: &ObjectAccess, volume: &Path, terms: OmapTerms) -> Result<()> {
    let parts = object_parts::open(access, volume, terms.volume_id, &WhenHeld::Refused)?;
    let told = |error| match error {
        Error::Corrupt { what, detail } => {
            let way_out = "the cluster keeps the copies of its objects: ceph health detail, ceph pg repair";
            Error::corrupt(what, format!("{detail}; {way_out}"))
        }
        error => error,
    };
    parts.open_records(terms).and_then(|kv| kv.read_all()).map_err(told)
}

/// Whether every record can be read, after repairs from copies.
fn is_whole(place: &Place, superblock: &Superblock) -> Result<bool> {
    let has_copies = place.list().is_some_and(|list| !list.manifest.is_empty());
    let kv = RocksKv::open(place.clone(), copies_of(superblock), EXAMINED_BYTES_MAX, !has_copies)?;
    let found = kv.check_files(has_copies)?;
    let checkpoint = kv.get(&keys::checkpoint())?;
    let is_open = checkpoint.is_some_and(|bytes| Checkpoint::decode(&bytes, superblock.volume_id).is_some());
    Ok(found.left.is_empty() && is_open && kv.is_readable()?)
}

/// Whether the log repeats all that came after a checkpoint: the block table is of that checkpoint, or of one that the
/// log still leads to.
fn reaches_back(volume: &Path, superblock: &Superblock, checkpoint: &[u8]) -> bool {
    let Some(checkpoint) = Checkpoint::decode(checkpoint, superblock.volume_id) else { return false };
    let Checkpoint { sequence, log_at, .. } = checkpoint;
    let Some(Examined { table, log, _hold }) = Examined::of(volume, superblock) else { return false };
    let is_of = |last: u64| check_table(&*table, superblock.volume_id, sequence..=last).is_ok();
    let last_in_log = || {
        let log_id = Hasher::log_id(&superblock.secret);
        let (_, groups) = Log::open(log?, log_id, superblock.log_bytes, sequence, log_at).ok()?;
        groups.last().map(|group| group.header.sequence)
    };
    is_of(sequence) || last_in_log().is_some_and(is_of)
}

/// Block table and log, and what holds them for this process.
struct Examined {
    table: Arc<dyn Device>,
    log: Option<Arc<dyn Device>>,
    _hold: Option<HeldObjects>,
}

impl Examined {
    fn of(volume: &Path, superblock: &Superblock) -> Option<Self> {
        let file = |name| -> Option<Arc<dyn Device>> {
            let open = if name == "log" { FileDevice::open_direct } else { FileDevice::open_buffered };
            Some(Arc::new(open(&volume.join(name), false).ok()?))
        };
        if let DataPlace::Objects(access) = &superblock.data {
            let parts = object_parts::open(access, volume, superblock.volume_id, &WhenHeld::Refused).ok()?;
            let log = parts.log.or_else(|| file("log"));
            return Some(Self { table: parts.table, log, _hold: Some(parts.hold) });
        }
        Some(Self { table: file("table")?, log: file("log"), _hold: None })
    }
}
