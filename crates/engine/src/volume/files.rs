//! A volume's parts in its directory: creating them, finding them, and refusing faulty ones.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncefs_toolbox::Size;

use crate::commit::log_room::LOG_BYTES_MIN;
use crate::device::buffer::AlignedBuf;
use crate::device::signatures::{self, Signature};
use crate::device::{Device, FileDevice};
use crate::format::checkpoint::Checkpoint;
use crate::format::fragment::FIRST_NUMBER;
use crate::format::page::{PAGE_BYTES, Page, table_bytes};
use crate::format::record::Totals;
use crate::format::superblock::Superblock;
use crate::format::{keys, label};
use crate::kv::copies::Place;
use crate::kv::omap::OmapTerms;
use crate::kv::{Kv, RocksKv};
use crate::pace::load::DeviceLoad;
use crate::settings::values::Settings;
use crate::space::ballast::Ballast;
use crate::space::host::Host;
use crate::volume::backend::Backend;
use crate::volume::exclusive_lock::ExclusiveLock;
use crate::volume::object_parts::ObjectParts;
pub use crate::volume::unfinished::OnSignature;
use crate::volume::unfinished::{Unfinished, sync_directory};
use crate::volume::{data_device, device_claims, object_parts, ownership, superblock_file};
use crate::{BLOCK_BYTES, Blocks, Copies, DataPlace, Error, MapId, OpenOptions, Result, VolumeSpec, WhenHeld};

const LOG_BYTES_MAX: u64 = 1 << 30;
/// The smallest data area.
const DATA_BYTES_MIN: u64 = 16 << 20;
/// The limit of hints: 2 PiB.
pub const DATA_BLOCKS_MAX: u64 = 1 << oncefs_dedup::HINT_PBN_BITS;
/// The file with the block table's pages of fragments.
const FRAGMENTS: &str = "fragments";
/// The unit in which a host counts a file's space.
const HOST_SECTOR_BYTES: u64 = 512;
/// Most signatures of a device that a refusal names. ZFS may have hundreds.
const SIGNATURES_TOLD_MAX: usize = 5;
/// Memory for the record store while it is created.
const MAKING_BYTES_MAX: u64 = 4 << 20;
/// Bytes zeroed in one request when the log is created.
const ZERO_BYTES: u64 = 1 << 20;
// A size within its bounds stays within them when it is rounded up to whole blocks.
const _: () = assert!(LOG_BYTES_MIN < LOG_BYTES_MAX && LOG_BYTES_MAX.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(DATA_BYTES_MIN / BLOCK_BYTES as u64 <= DATA_BLOCKS_MAX);

/// Paths of a volume's parts.
struct Paths<'a> {
    volume: &'a Path,
}

impl Paths<'_> {
    fn part(&self, name: &str) -> PathBuf {
        self.volume.join(name)
    }

    /// Where a volume's blocks are.
    fn data(&self, superblock: &Superblock, given: Option<&Path>) -> Result<PathBuf> {
        match &superblock.data {
            DataPlace::File | DataPlace::Objects(_) if given.is_some() => {
                let place = if superblock.data == DataPlace::File { "its directory" } else { "objects" };
                Err(Error::Invalid(format!("the volume's blocks are in {place}: give it no data device")))
            }
            // For messages: nothing opens it.
            DataPlace::Objects(access) => Ok(format!("rados://{}/{}", access.pool, access.namespace).into()),
            DataPlace::File => Ok(self.part("data")),
            DataPlace::Device(named) => data_device::locate(named, superblock.volume_id, given),
        }
    }
}

/// Makes an empty volume, which counts once it is finished.
pub fn make(volume: &Path, spec: &VolumeSpec, random: [u8; 64], on_signature: OnSignature) -> Result<Unfinished> {
    let paths = Paths { volume };
    let data = data_blocks(spec)?;
    if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&spec.log_bytes) {
        return Err(Error::Invalid(format!("the log must have {} to {}", Size(LOG_BYTES_MIN), Size(LOG_BYTES_MAX))));
    }
    let superblock = Superblock {
        volume_id: random[..16].try_into().expect("sixteen bytes"),
        secret: random[16..48].try_into().expect("thirty-two bytes"),
        log_bytes: spec.log_bytes.next_multiple_of(BLOCK_BYTES as u64),
        data: spec.data.clone(),
        profile: spec.profile,
        copies: spec.copies,
        // Versions of oncefs without objects refuse the volume by its version, which is that of these two.
        has_clones: matches!(spec.data, DataPlace::Objects(_)),
        has_fragments: matches!(spec.data, DataPlace::Objects(_)),
    };
    let log_bytes = superblock.log_bytes;
    assert!((spec.log_bytes..=LOG_BYTES_MAX).contains(&log_bytes), "a log of {log_bytes} bytes");
    let encoded = superblock.encode()?;
    let mut unfinished = Unfinished::begin(volume, superblock.volume_id)?;
    let objects = make_data(&paths, data, &superblock, on_signature, &mut unfinished)?;
    if objects.is_none() {
        zero_file(&paths.part("log"), superblock.log_bytes)?;
    }
    let kv = make_records(&paths, &superblock, objects.as_ref())?;
    write_first_checkpoint(&*kv, data, superblock.volume_id)?;
    drop(kv);
    Ballast::at(paths.part("ballast")).fill().map_err(|e| Error::io("making the ballast", e))?;
    new_file(&paths.part("lock"))?;
    let mut file = new_file(&paths.part("superblock"))?;
    file.write_all(&encoded).and_then(|()| file.sync_all()).map_err(|e| Error::io("writing the superblock", e))?;
    sync_directory(volume)?;
    superblock_file::make_sound(volume, &superblock)?;
    Ok(unfinished)
}

/// Makes an empty store of records, and opens it.
fn make_records(paths: &Paths<'_>, superblock: &Superblock, objects: Option<&ObjectParts>) -> Result<Arc<dyn Kv>> {
    if let (Some(parts), Some(terms)) = (objects, omap_terms(superblock, MAKING_BYTES_MAX, false)) {
        parts.make_records(superblock.volume_id)?;
        return Ok(Arc::new(parts.open_records(terms)?));
    }
    RocksKv::create(&paths.part("records"))?;
    let place = Place::of(paths.volume, superblock.volume_id);
    Ok(Arc::new(RocksKv::open(place, copies_of(superblock), MAKING_BYTES_MAX, false)?))
}

/// How the records are opened if they lie in objects. None: they lie in the volume's directory.
pub fn omap_terms(superblock: &Superblock, cache_bytes_max: u64, read_only: bool) -> Option<OmapTerms> {
    let DataPlace::Objects(access) = &superblock.data else { return None };
    let volume_id = superblock.volume_id;
    access.record_keys_max.map(|keys_max| OmapTerms { volume_id, cache_bytes_max, keys_max, read_only })
}

/// Makes the data area, with its label, and the block table; in objects, also the log. Returns the objects, if these
/// parts are there.
fn make_data(
    paths: &Paths<'_>,
    data: Blocks,
    superblock: &Superblock,
    on_signature: OnSignature,
    unfinished: &mut Unfinished,
) -> Result<Option<ObjectParts>> {
    let volume_id = superblock.volume_id;
    match &superblock.data {
        DataPlace::File => {
            let path = paths.part("data");
            sparse_file(&path, data.bytes())?;
            write_label(&path, volume_id, on_signature, unfinished)?;
        }
        DataPlace::Device(path) => write_label(path, volume_id, on_signature, unfinished)?,
        DataPlace::Objects(access) => {
            let parts = object_parts::make(access, data, superblock.log_bytes, volume_id, on_signature, unfinished)?;
            let written = parts.data.write_at(&label::encode(volume_id), 0).and_then(|()| parts.data.flush());
            written.map_err(|e| Error::io("labelling the data area", e))?;
            return Ok(Some(parts));
        }
    }
    sparse_file(&paths.part("table"), table_bytes(data))?;
    Ok(None)
}

/// Makes an empty volume with `data` blocks on devices of zeros.
#[cfg(any(test, feature = "testing"))]
pub fn make_on(backend: &crate::Backend, data: Blocks) -> Result<()> {
    let failed = |e| Error::io("labelling the data area", e);
    let label = label::encode(backend.volume_id);
    backend.data.write_at(&label, 0).and_then(|()| backend.data.flush()).map_err(failed)?;
    write_first_checkpoint(&*backend.kv, data, backend.volume_id)
}

fn write_first_checkpoint(kv: &dyn Kv, data: Blocks, volume_id: [u8; 16]) -> Result<()> {
    let totals = Totals { data, used: Blocks(1), next_map: MapId(1), ..Totals::default() };
    kv.write(vec![(keys::checkpoint(), Some(Checkpoint { sequence: 0, log_at: 0, totals }.encode(volume_id)))])?;
    kv.flush()
}

/// How many copies a volume keeps by default.
pub fn copies_of(superblock: &Superblock) -> Copies {
    superblock.copies.unwrap_or_else(|| Settings::of(superblock.profile, MAKING_BYTES_MAX).copies)
}

fn data_blocks(spec: &VolumeSpec) -> Result<Blocks> {
    let device_bytes = match &spec.data {
        DataPlace::File | DataPlace::Objects(_) => None,
        DataPlace::Device(path) => Some(device_bytes(path)?),
    };
    let bytes = match (spec.data_bytes, device_bytes) {
        (Some(wanted), Some(there)) if wanted > there => {
            return Err(Error::Invalid(format!("the device has {}, {} are wanted", Size(there), Size(wanted))));
        }
        (Some(wanted), _) => wanted,
        (None, Some(there)) => there,
        (None, None) => return Err(Error::Invalid("the size of the data area is missing".to_owned())),
    };
    if bytes < DATA_BYTES_MIN {
        return Err(Error::Invalid(format!("the data area must have at least {}", Size(DATA_BYTES_MIN))));
    }
    let blocks = bytes / BLOCK_BYTES as u64;
    if blocks > DATA_BLOCKS_MAX {
        return Err(Error::Invalid(format!("the data area can have at most {DATA_BLOCKS_MAX} blocks")));
    }
    Ok(Blocks(blocks))
}

fn device_bytes(path: &Path) -> Result<u64> {
    let failed = |e| Error::io(format!("opening {}", path.display()), e);
    let is_device = fs::metadata(path).map_err(failed)?.file_type().is_block_device();
    if !is_device {
        return Err(Error::Invalid(format!("{} is not a block device", path.display())));
    }
    let _alone = ExclusiveLock::of(path)?;
    FileDevice::open_direct(path, true).and_then(|device| device.len()).map_err(failed)
}

fn new_file(path: &Path) -> Result<File> {
    let file = File::options().create_new(true).write(true).mode(0o600).open(path);
    file.map_err(|e| Error::io(format!("making {}", path.display()), e))
}

fn sparse_file(path: &Path, bytes: u64) -> Result<()> {
    let file = new_file(path)?;
    file.set_len(bytes).and_then(|()| file.sync_all()).map_err(|e| match e.kind() {
        io::ErrorKind::FileTooLarge => Error::Invalid(format!(
            "the file system that {} would be in has no files of {} GiB: choose a smaller size, a directory on another \
             file system (XFS has the largest files), or a device for the blocks (--data)",
            path.display(),
            bytes >> 30
        )),
        _ => Error::io(format!("sizing {} to {bytes} bytes", path.display()), e),
    })
}

fn zero_file(path: &Path, bytes: u64) -> Result<()> {
    let mut file = new_file(path)?;
    let zeros = vec![0; ZERO_BYTES as usize];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(ZERO_BYTES);
        file.write_all(&zeros[..part as usize]).map_err(|e| Error::io("filling the log with zeros", e))?;
        left -= part;
    }
    file.sync_all().map_err(|e| Error::io("filling the log with zeros", e))
}

/// Takes possession of the data area. It is held from the check of its signatures until the label is written. Data left
/// by an earlier attempt at the same volume is not a foreign signature.
fn write_label(path: &Path, volume_id: [u8; 16], on_signature: OnSignature, attempt: &Unfinished) -> Result<()> {
    let failed = |e| Error::io(format!("labelling {}", path.display()), e);
    let _alone = ExclusiveLock::of(path)?;
    let device = FileDevice::open_direct(path, true).map_err(failed)?;
    let found = signatures::find(&device).map_err(failed)?;
    let is_free = found.is_empty() || (found.len() == 1 && shows_own_label(&device, attempt));
    match on_signature {
        OnSignature::Refused if !is_free => return Err(in_the_way(path, &found)),
        _ => signatures::erase(&device, &found).map_err(failed)?,
    }
    let mut block = AlignedBuf::new(BLOCK_BYTES);
    block.copy_from_slice(&label::encode(volume_id));
    device.write_at(&block, 0).and_then(|()| device.flush()).map_err(failed)
}

fn shows_own_label(device: &FileDevice, attempt: &Unfinished) -> bool {
    let mut block = AlignedBuf::new(BLOCK_BYTES);
    device.read_at(&mut block, 0).is_ok() && attempt.is_own(&block)
}

/// The parts of a volume outside its directory: a raw device (the given one, if any), and the targets of links.
pub fn parts_outside(volume: &Path, data_device: Option<&Path>) -> Result<Vec<PathBuf>> {
    let mut parts = ownership::linked_parts(volume);
    let superblock = superblock_file::read(volume)?;
    if let DataPlace::Device(_) = superblock.data {
        parts.push(Paths { volume }.data(&superblock, data_device)?);
    }
    Ok(parts)
}

/// Opens the parts of a volume and takes its lock. A volume that is to be compressed gets the part for it, and its
/// superblock says so.
pub fn open(
    volume: &Path,
    superblock: Superblock,
    copies: Copies,
    kv_bytes_max: u64,
    compresses: bool,
    options: &OpenOptions,
) -> Result<(Superblock, Backend)> {
    let read_only = options.read_only;
    let paths = Paths { volume };
    let name = volume.display().to_string();
    for part in ownership::readable_by_others(volume) {
        let part = part.display();
        log::warn!("others can read {part}: chmod go-rwx {part}; what is in it they may know already");
    }
    let announcer = match &superblock.data {
        DataPlace::Objects(access) => match &options.when_held {
            WhenHeld::StandsBy(announcement) => Some(object_parts::announce(access, volume, announcement)?),
            _ => None,
        },
        _ => None,
    };
    let stands_by = announcer.is_some();
    let mut hold = ExclusiveLock::of_volume_when_free(&paths.part("lock"), &name, stands_by)?;
    type Open = fn(&Path, bool) -> io::Result<FileDevice>;
    let part = |path: PathBuf, open: Open| -> Result<Arc<dyn Device>> {
        match open(&path, !read_only) {
            Ok(device) => Ok(Arc::new(device)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(Error::corrupt(format!("the volume {name}"), format!("its part {} is missing", path.display())))
            }
            Err(e) => Err(Error::io(format!("opening {}", path.display()), e)),
        }
    };
    let given = options.data_device.as_deref();
    let data_path = paths.data(&superblock, given)?;
    if let DataPlace::Device(named) = &superblock.data
        && *named != data_path
    {
        if given.is_none() && !read_only {
            return Err(data_device::refuse_unasked(named, &data_path));
        }
        log::warn!("the blocks of {name} are on {} now, they were made on {}", data_path.display(), named.display());
    }
    let has_part = superblock.has_fragments || (compresses && !read_only);
    let mut records_in_objects = None;
    let (data, table, fragments, host, log) = match &superblock.data {
        DataPlace::Objects(access) => {
            let parts = object_parts::open(access, volume, superblock.volume_id, &options.when_held)?;
            drop(announcer);
            if let Some(terms) = omap_terms(&superblock, kv_bytes_max, read_only) {
                records_in_objects = Some(parts.open_records(terms)?);
            }
            hold.add_objects(parts.hold);
            check_label(&*parts.data, &data_path, superblock.volume_id)?;
            (parts.data, parts.table, Some(parts.fragments), Some(Host::Pools(parts.rooms)), parts.log)
        }
        place => {
            let data = part(data_path.clone(), FileDevice::open_both_ways)?;
            hold.add(&data_path)?;
            check_label(&*data, &data_path, superblock.volume_id)?;
            let table = part(paths.part("table"), FileDevice::open_buffered)?;
            hold.add(&paths.part("table"))?;
            if has_part && !superblock.has_fragments {
                make_fragments(volume, &*data)?;
            }
            let fragments = has_part.then(|| part(paths.part(FRAGMENTS), FileDevice::open_buffered)).transpose()?;
            let host = (*place == DataPlace::File).then(|| Host::Directory(volume.to_owned()));
            (data, table, fragments, host, None)
        }
    };
    let superblock = Superblock { has_fragments: has_part, ..superblock };
    let log = match log {
        Some(log) => log,
        None => {
            let log = part(paths.part("log"), FileDevice::open_direct)?;
            hold.add(&paths.part("log"))?;
            log
        }
    };
    let records = paths.part("records");
    let place = Place::of(volume, superblock.volume_id);
    let are_here = records_in_objects.is_none();
    if are_here && (!records.is_dir() || (!records.join("CURRENT").exists() && place.list().is_none())) {
        return Err(Error::corrupt(format!("the volume {name}"), format!("its part {} is missing", records.display())));
    }
    if !read_only {
        superblock_file::make_sound(volume, &superblock)?;
    }
    let ballast = Ballast::at(paths.part("ballast"));
    let open_records = || RocksKv::open(place.clone(), copies, kv_bytes_max, read_only);
    let kv: Arc<dyn Kv> = match records_in_objects {
        Some(kv) => Arc::new(kv),
        None if read_only => Arc::new(open_records()?),
        None => Arc::new(ballast.retry_releasing_reserve(open_records)?),
    };
    let advice = |name| if read_only { None } else { advice_file(&paths.part(name)) };
    let (hints, skipped) = (advice("hints"), advice("skipped"));
    let backend = Backend {
        data,
        table,
        fragments,
        log,
        log_bytes: superblock.log_bytes,
        kv,
        ballast,
        host,
        secret: superblock.secret,
        volume_id: superblock.volume_id,
        hints,
        skipped,
        // The load of a cluster cannot be seen.
        device_load: host_device(volume)
            .filter(|_| !matches!(superblock.data, DataPlace::Objects(_)))
            .map(|device| DeviceLoad::new(&options.machine, device)),
        turns: !matches!(superblock.data, DataPlace::Objects(_)) && device_claims::turns(&options.machine, &data_path),
        hold: Some(Box::new(hold)),
    };
    Ok((superblock, backend))
}

/// Makes the table of fragments, empty, and then notes that the volume may have some. A crash in between leaves an
/// empty file, which is used the next time.
fn make_fragments(volume: &Path, data: &dyn Device) -> Result<()> {
    let bytes = data.len().map_err(|e| Error::io("looking at the data area", e))?;
    if bytes > Blocks(FIRST_NUMBER).bytes() {
        let most = Size(Blocks(FIRST_NUMBER).bytes());
        return Err(Error::Invalid(format!(
            "a volume of more than {most} cannot be compressed: mount with -o compress=off"
        )));
    }
    match new_file(&volume.join(FRAGMENTS)) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
        other => drop(other?),
    }
    sync_directory(volume)?;
    superblock_file::allow_fragments(volume)
}

/// Removes the table of fragments, which has none, after it is noted that the volume has none: from then on earlier
/// versions open it. A crash in between leaves a file that nothing reads, which is used again with the next
/// compression.
pub fn remove_fragments(volume: &Path) -> Result<()> {
    if let DataPlace::Objects(_) = superblock_file::read(volume)?.data {
        // Its table of fragments is an image, and earlier versions know no volume in objects.
        return Ok(());
    }
    superblock_file::forbid_fragments(volume)?;
    match fs::remove_file(volume.join(FRAGMENTS)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing the table of fragments", e)),
        _ => sync_directory(volume),
    }
}

fn in_the_way(device: &Path, found: &[Signature]) -> Error {
    let found: Vec<String> = found.iter().take(SIGNATURES_TOLD_MAX).map(Signature::to_string).collect();
    let (device, found) = (device.display(), found.join(", "));
    Error::InTheWay(format!("{device} is in use or was: it shows {found}; --force makes the volume and destroys it"))
}

/// A file that may be missing, and that nothing depends on. Only background threads read and write it, so it may be in
/// the host's page cache.
fn advice_file(path: &Path) -> Option<Arc<dyn Device>> {
    let made = match new_file(path) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    };
    let opened = made.and_then(|()| {
        FileDevice::open_buffered(path, true).map_err(|e| Error::io(format!("opening {}", path.display()), e))
    });
    match opened {
        Ok(device) => Some(Arc::new(device)),
        Err(error) => {
            log::warn!("{} cannot be used ({error}): some duplicates will be missed", path.display());
            None
        }
    }
}

/// The device that holds the volume's directory.
fn host_device(volume: &Path) -> Option<u64> {
    fs::metadata(volume).ok().map(|metadata| metadata.dev())
}

fn check_label(data: &dyn Device, path: &Path, volume_id: [u8; 16]) -> Result<()> {
    let mut block = AlignedBuf::new(BLOCK_BYTES);
    match data.read_at(&mut block, 0) {
        Ok(()) => label::check(&block, volume_id).map_err(|e| match e {
            Error::Corrupt { what, detail } => Error::corrupt(format!("{what} on {}", path.display()), detail),
            other => other,
        }),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            let why = format!(
                "{} is empty; a device without a size is detached (losetup shows which are attached): attach it again, or \
                 name where the blocks are by now with -o data=DEVICE",
                path.display()
            );
            Err(Error::corrupt("the data area", why))
        }
        Err(e) => Err(Error::io("reading the label of the data area", e)),
    }
}

/// Refuses totals that contradict each other, and parts that are shorter than the totals say. Overcommitted
/// reservations are no reason to refuse: such a volume only accepts nothing new until enough is deleted.
pub fn check_sizes(data: &dyn Device, table: &dyn Device, totals: &Totals) -> Result<()> {
    let taken = totals.used.0.checked_add(totals.reserved.0);
    if totals.data.0 > DATA_BLOCKS_MAX || totals.used > totals.data || taken.is_none() {
        return Err(Error::corrupt("the volume's totals", format!("they contradict each other: {totals:?}")));
    }
    if let Some(lacking) = taken.and_then(|taken| taken.checked_sub(totals.data.0)).filter(|lacking| *lacking > 0) {
        log::warn!(
            "{lacking} more blocks are reserved than are free; new data is refused until enough files are deleted"
        );
    }
    let parts = [("the data area", data, totals.data.bytes()), ("the block table", table, table_bytes(totals.data))];
    for (what, device, expected) in parts {
        let found = device.len().map_err(|e| Error::io(format!("looking at {what}"), e))?;
        if found < expected {
            return Err(Error::corrupt(
                what,
                format!("it has {found} bytes, the volume needs {expected}: did the device or file shrink?"),
            ));
        }
    }
    Ok(())
}

/// Refuses a block table of another volume, and one that no checkpoint in `checkpoints` wrote: from the last one that
/// the records know of, to the end of the log. A table whose first page cannot be read is left to its readers.
pub fn check_table(table: &dyn Device, volume_id: [u8; 16], checkpoints: RangeInclusive<u64>) -> Result<()> {
    assert!(!checkpoints.is_empty(), "the table is of one of the checkpoints {checkpoints:?}");
    let mut bytes = [0; PAGE_BYTES];
    let page = table.read_at(&mut bytes, 0).ok().and_then(|()| Page::from_disk(0, &bytes).ok());
    let Some(page) = page else { return Ok(()) };
    let (id, written) = page.stamped().unwrap_or((volume_id, 0));
    if id != volume_id {
        return Err(Error::corrupt("the block table", "it belongs to another volume"));
    }
    if checkpoints.contains(&written) {
        return Ok(());
    }
    let (first, last) = checkpoints.into_inner();
    Err(Error::corrupt(
        "the block table",
        format!(
            "checkpoint {written} wrote it, but the records are those of checkpoint {first} and the log ends at group \
             {last}: they do not belong together"
        ),
    ))
}

/// Host space of the volume beside its data area: log, block table, records, ballast. A file with two names counts
/// once.
pub fn metadata_bytes(volume: &Path) -> u64 {
    fn of(directory: &Path, counted: &mut BTreeSet<u64>) -> u64 {
        let Ok(entries) = fs::read_dir(directory) else { return 0 };
        let mut taken = |entry: fs::DirEntry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => of(&entry.path(), counted),
            Ok(metadata) if entry.file_name() != "data" && counted.insert(metadata.ino()) => {
                metadata.blocks() * HOST_SECTOR_BYTES
            }
            _ => 0,
        };
        entries.flatten().map(&mut taken).sum()
    }
    of(volume, &mut BTreeSet::new())
}
