//! The parts of a volume that lie in objects of a cluster: the data area, the block table with its pages of fragments,
//! the log, and the records with the superblock if they were put there. All else stays in the volume's directory. The
//! data area may lie in a pool of its own, in the namespace of the same name; lock, fence and epoch are those of the
//! other, whose client writes to both.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use oncefs_rados::{Change, Cluster, Error as ObjectError, Hold, KeyedObjects, Objects, Pool, PoolKind, WhenFull};

use crate::device::Device;
use crate::format::head_record::{HeadRecord, HeadState};
use crate::format::image::{self, ImageHeader, OBJECT_BYTES};
use crate::format::page::table_bytes;
use crate::format::sealed_superblock::{self, SealedSuperblock};
use crate::kv::omap::{OmapKv, OmapTerms};
use crate::objects::announcer::Announcer;
use crate::objects::device::ObjectDevice;
use crate::objects::epoch::Epoch;
use crate::objects::head;
use crate::objects::held_lease::{Renewer, boot_clock};
use crate::objects::pool_room::ObjectRoom;
use crate::objects::pool_rooms::PoolRooms;
use crate::volume::held_objects::HeldObjects;
use crate::volume::unfinished::{OnSignature, Unfinished};
use crate::{Announcement, Blocks, DataPlace, Error, ObjectAccess, Result, WhenHeld};

/// The image of the data area.
const DATA: &str = "data";
/// The image of the block table.
const TABLE: &str = "table";
/// The images. That of the data is made after the others and removed before them: if it is there, the block table is.
const IMAGES: [&str; 3] = [DATA, TABLE, "fragments"];
/// The image of the log, whose objects are guarded by the head's epoch. Volumes of early versions have the log in their
/// directory.
const LOG: &str = "log";
/// The object with the superblock. Volumes whose records are in their directory have none.
pub const SUPERBLOCK: &str = "superblock";
/// The length of a head's lease.
const LEASE_MILLIS: u32 = 5000;

/// The opened parts.
pub struct ObjectParts {
    /// The data area.
    pub data: Arc<dyn Device>,
    /// The block table.
    pub table: Arc<dyn Device>,
    /// The block table's pages of fragments.
    pub fragments: Arc<dyn Device>,
    /// The log. None: it is in the volume's directory.
    pub log: Option<Arc<dyn Device>>,
    /// Whether the pools have room.
    pub rooms: PoolRooms,
    /// Held while the volume is open.
    pub hold: HeldObjects,
    /// The objects themselves.
    objects: Arc<dyn KeyedObjects>,
    /// The number of this head.
    epoch: Epoch,
}

impl ObjectParts {
    /// Makes an empty store of records.
    pub fn make_records(&self, volume_id: [u8; 16]) -> Result<()> {
        OmapKv::create(&*self.objects, volume_id)
    }

    /// Replaces the superblock in the cluster, unless another head has begun since. It is durable on return.
    pub fn write_superblock(&self, bytes: &[u8]) -> Result<()> {
        write_superblock(&*self.objects, self.epoch, bytes)
    }

    /// Opens the store of records.
    pub fn open_records(&self, terms: OmapTerms) -> Result<OmapKv> {
        OmapKv::open(self.objects.clone(), self.rooms.own.clone(), terms)
    }
}

/// Loads library, configuration and key. Returns the ports of the cluster.
pub fn prepare(access: &ObjectAccess) -> Result<Vec<u16>> {
    Cluster::prepare(access).map_err(failed(access))
}

/// Makes the images of a volume with `data` blocks and a log of `log_bytes`. Objects that an earlier attempt at the same volume left are
/// removed; all others are in the way.
pub fn make(
    access: &ObjectAccess,
    data: Blocks,
    log_bytes: u64,
    volume_id: [u8; 16],
    on_signature: OnSignature,
    attempt: &mut Unfinished,
) -> Result<ObjectParts> {
    let failed = failed(access);
    let pools = Pools::open(access)?;
    attempt.keep_connected(Cluster::connect(access).map_err(&failed)?);
    pools.check_kinds(access).map_err(&failed)?;
    let place = place_of(attempt.volume())?;
    let hold = head::take(&pools.own, &place, &WhenHeld::Refused, boot_clock)?;
    let mut found = Vec::new();
    for (pool, access) in pools.with_access(access) {
        let names = pool.names().map_err(&failed)?;
        if !names.iter().all(is_lock) && on_signature == OnSignature::Refused && !is_own(pool, attempt) {
            return Err(Error::InTheWay(format!(
                "{} objects are in the namespace {} of the pool {}: choose another name, or --force makes the volume \
                 and destroys them",
                names.len(),
                access.namespace,
                access.pool
            )));
        }
        refuse_data_of_another(&pools.own, pool, attempt, &access)?;
        found.push((pool, names));
    }
    let left = data_left(&pools.own, access)?;
    // The superblock first: from then on no machine finds a volume in what is left.
    let superblock = found.iter().take(1).filter(|(_, names)| names.iter().any(|name| name == SUPERBLOCK));
    superblock.clone().try_for_each(|(pool, _)| pool.change(SUPERBLOCK, Change::Remove)).map_err(&failed)?;
    left.iter().try_for_each(remove_left)?;
    // The pool of the data before that of the table.
    for (pool, names) in found.iter().rev() {
        let is_first = |name: &&String| *name == DATA;
        let is_other = |name: &&String| !is_lock(name) && *name != SUPERBLOCK && *name != DATA;
        for name in names.iter().filter(is_first).chain(names.iter().filter(is_other)) {
            pool.change(name, Change::Remove).map_err(&failed)?;
        }
    }
    let images = IMAGES.into_iter().zip([data.bytes(), table_bytes(data), 0]).rev();
    for (name, len) in images.chain([(LOG, log_bytes)]) {
        let header = ImageHeader { volume_id, len, object_bytes: OBJECT_BYTES };
        ObjectDevice::create(pools.of(name), name, header).map_err(&failed)?;
    }
    parts(pools, access, volume_id, hold)
}

/// Data without its block table, where a volume with its other objects in `own` would have its data, is that of a volume
/// whose other objects, and so its lock, are in another pool: nothing here tells whether it is mounted. `--force` does
/// not destroy it.
fn refuse_data_of_another(
    own: &dyn Objects,
    of_data: &dyn Objects,
    attempt: &Unfinished,
    access: &ObjectAccess,
) -> Result<()> {
    match (header_if_sound(of_data, DATA)?, header_if_sound(own, TABLE)?) {
        (Some(data), table)
            if !attempt.is_own_id(data.volume_id) && table.is_none_or(|table| table.volume_id != data.volume_id) =>
        {
            Err(Error::InTheWay(format!(
                "the pool {} has, in the namespace {}, the data of a volume whose other objects are in another pool: \
                 choose another name. If that volume is no more: {}",
                access.pool,
                access.namespace,
                removal(access)
            )))
        }
        _ => Ok(()),
    }
}

/// The pool with the data of the volume that had the name, if the new one does not have it: then nothing else removes it.
fn data_left(own: &dyn Objects, access: &ObjectAccess) -> Result<Option<(ObjectAccess, [u8; 16])>> {
    let shown = format!("rados://{}/{}", access.pool, access.namespace);
    // Volumes with records in their directory have no superblock here.
    let (Ok(Some(found)), Some(table)) = (read_superblock(own, &shown), header_if_sound(own, TABLE)?) else {
        return Ok(None);
    };
    let DataPlace::Objects(former) = &found.superblock.data else { return Ok(None) };
    let left = former.data_pool.clone().filter(|pool| Some(pool) != access.data_pool.as_ref() && *pool != access.pool);
    Ok(left.map(|pool| {
        let there = ObjectAccess { pool, data_pool: None, record_keys_max: None, ..access.clone() };
        (there, table.volume_id)
    }))
}

/// Removes data that is left. A key may have no rights there: then the error says what to do, and the next mkfs finds
/// none of it.
fn remove_left((access, volume_id): &(ObjectAccess, [u8; 16])) -> Result<()> {
    let pool = Cluster::connect(access).and_then(|cluster| Pool::open(&cluster, access));
    match pool.and_then(|pool| remove_data(&pool, *volume_id)) {
        Ok(()) | Err(ObjectError::NoPool(_)) => Ok(()),
        Err(error) => Err(Error::InTheWay(format!(
            "the data of the volume that had this name stays in the pool {}: {error}. Remove it with: {}; then repeat \
             the command",
            access.pool,
            removal(access)
        ))),
    }
}

/// Removes the data of a volume, if it is that one's, the header last: what is left by an error is still known as its.
fn remove_data(objects: &dyn Objects, volume_id: [u8; 16]) -> std::result::Result<(), ObjectError> {
    match objects.content(DATA, image::BYTES)?.map(|bytes| ImageHeader::decode(&bytes, DATA)) {
        Some(Ok(header)) if header.volume_id == volume_id => {}
        _ => return Ok(()),
    }
    let of_data = format!("{DATA}.");
    let names = objects.names()?;
    let parts = names.iter().map(String::as_str).filter(|name| name.starts_with(&of_data));
    parts.chain([DATA]).try_for_each(|name| objects.change(name, Change::Remove))
}

/// The command that removes a namespace's objects.
fn removal(ObjectAccess { pool, namespace, .. }: &ObjectAccess) -> String {
    format!("rados -p {pool} -N {namespace} ls | xargs -n 1 rados -p {pool} -N {namespace} rm")
}

/// The header of an image, if there is one and it is not damaged.
fn header_if_sound(objects: &dyn Objects, image: &str) -> Result<Option<ImageHeader>> {
    match ObjectDevice::header(objects, image) {
        Err(Error::Corrupt { .. }) => Ok(None),
        found => found,
    }
}

fn is_lock(name: &String) -> bool {
    name == oncefs_rados::LOCK_OBJECT
}

/// The namespaces with a volume's objects, over one connection.
struct Pools {
    own: Pool,
    /// That of the data area, if it has one of its own.
    data: Option<Pool>,
}

impl Pools {
    fn open(access: &ObjectAccess) -> Result<Self> {
        let own = connect(access)?;
        let data = access.of_data().map(|access| connect(&access)).transpose()?;
        Ok(Self { own, data })
    }

    /// The pool with the objects of an image.
    fn of(&self, image: &str) -> &Pool {
        self.data.as_ref().filter(|_| image == DATA).unwrap_or(&self.own)
    }

    fn with_access<'a>(&'a self, access: &ObjectAccess) -> impl Iterator<Item = (&'a Pool, ObjectAccess)> {
        let of_data = self.data.as_ref().zip(access.of_data());
        [(&self.own, access.clone())].into_iter().chain(of_data)
    }

    /// Refuses pools that cannot keep what is to lie in them.
    fn check_kinds(&self, access: &ObjectAccess) -> std::result::Result<(), ObjectError> {
        let pool = &access.pool;
        if let PoolKind::ErasureCoded { .. } = self.own.kind()? {
            return Err(ObjectError::Unfit(format!(
                "the pool {pool} is erasure-coded and has no keys (omap): name a replicated pool, and give this one \
                 with --data-pool {pool}"
            )));
        }
        match self.data.as_ref().map(Pool::kind).transpose()? {
            Some(PoolKind::ErasureCoded { takes_overwrites: false }) => {
                let pool = access.data_pool.as_deref().unwrap_or_default();
                Err(ObjectError::Unfit(format!(
                    "the pool {pool} is erasure-coded and takes no writes of parts of objects: ceph osd pool set {pool} \
                     allow_ec_overwrites true"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Connects to the cluster, takes the objects for this process, and opens the images. A log in a file of the directory
/// has no guard against an earlier head, so such a volume is not taken over.
pub fn open(access: &ObjectAccess, volume: &Path, volume_id: [u8; 16], when_held: &WhenHeld) -> Result<ObjectParts> {
    let pools = Pools::open(access)?;
    let place = place_of(volume)?;
    let when_held = if has_guarded_log(&pools.own)? { when_held } else { &WhenHeld::Refused };
    let hold = head::take(&pools.own, &place, when_held, boot_clock)?;
    parts(pools, access, volume_id, hold)
}

/// Whether the log lies in objects, which the epoch of the head guards.
pub fn has_guarded_log(objects: &dyn Objects) -> Result<bool> {
    ObjectDevice::header(objects, LOG).map(|header| header.is_some())
}

/// Says in the cluster that this process waits for the volume, until the value is dropped or `announcement` is ended.
pub fn announce(access: &ObjectAccess, volume: &Path, announcement: &Announcement) -> Result<Announcer> {
    let announcer = Announcer::start(connect(access)?, place_of(volume)?, announcement);
    announcer.map_err(|e| Error::io("starting the thread that announces this process", e))
}

/// The objects of an address, through a connection that ends with them.
pub fn connect(access: &ObjectAccess) -> Result<Pool> {
    Cluster::connect(access).and_then(|cluster| Pool::open(&cluster, access)).map_err(failed(access))
}

/// The superblock in the cluster. None: there is none, or a crash came before its content. `name` is for messages.
pub fn read_superblock(objects: &dyn Objects, name: &str) -> Result<Option<SealedSuperblock>> {
    let content = objects.content(SUPERBLOCK, sealed_superblock::BYTES + 1);
    let content = content.map_err(|e| Error::io(format!("reading the superblock of {name}"), e.into()))?;
    content.map_or(Ok(None), |bytes| SealedSuperblock::decode(&bytes, name))
}

/// Whether the objects have a volume, or a part of one.
pub fn has_volume(objects: &dyn Objects) -> Result<bool> {
    let found = IMAGES.iter().map(|image| ObjectDevice::header(objects, image).map(|header| header.is_some()));
    found.reduce(|found, other| Ok(found? || other?)).unwrap_or(Ok(false))
}

fn write_superblock(objects: &dyn Objects, epoch: Epoch, bytes: &[u8]) -> Result<()> {
    let epoch = epoch.bytes();
    // In the reserve: a volume of a full pool is moved too.
    let change = Change::WriteFull { bytes };
    let written = objects.begin(SUPERBLOCK, change, Some(Epoch::guard(&epoch)), WhenFull::UsesReserve).wait();
    written.map_err(|e| Error::io("writing the superblock into the cluster", e.into()))
}

/// A text that tells a volume's directory from others of the same machine, also from one that came to its path since. A new
/// directory may get the inode of one that was removed while the volume was open, but not its time of birth.
fn place_of(volume: &Path) -> Result<String> {
    let found = volume.canonicalize().and_then(|path| Ok((fs::metadata(&path)?, path)));
    let (about, path) = found.map_err(|e| Error::io(format!("looking at {}", volume.display()), e))?;
    let born = about.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(format!("{} (inode {}, born {}.{:09})", path.display(), about.ino(), born.as_secs(), born.subsec_nanos()))
}

fn parts(pools: Pools, access: &ObjectAccess, volume_id: [u8; 16], hold: Hold) -> Result<ObjectParts> {
    let has_superblock = access.record_keys_max.is_some();
    let kind = pools.data.as_ref().map(Pool::kind).transpose().map_err(failed(access))?;
    let keyed: Arc<dyn KeyedObjects> = Arc::new(pools.own);
    let objects: Arc<dyn Objects> = keyed.clone();
    let room = Arc::new(ObjectRoom::of_pool(objects.clone(), &access.pool));
    let of_data = pools.data.zip(access.data_pool.as_deref()).map(|(pool, name)| {
        let objects: Arc<dyn Objects> = Arc::new(pool);
        let room = Arc::new(ObjectRoom::of_pool(objects.clone(), name));
        (objects, room)
    });
    let damaged = |name: &str, why: &str| Error::corrupt(format!("the image {name}"), why);
    let header_of = |objects: &dyn Objects, name: &str| -> Result<Option<ImageHeader>> {
        match ObjectDevice::header(objects, name)? {
            Some(header) if header.volume_id != volume_id => Err(damaged(name, "it belongs to another volume")),
            found => Ok(found),
        }
    };
    let open = |name: &'static str| -> Result<Arc<dyn Device>> {
        let own = (objects.clone(), room.clone());
        let (objects, room) = of_data.as_ref().filter(|_| name == DATA).unwrap_or(&own);
        let header = header_of(&**objects, name)?.ok_or_else(|| damaged(name, "its header is missing"))?;
        let device = ObjectDevice::new(objects.clone(), name, header, room.clone());
        let is_erasure_coded = name == DATA && matches!(kind, Some(PoolKind::ErasureCoded { .. }));
        Ok(Arc::new(if is_erasure_coded { device.erasure_coded() } else { device }))
    };
    let [data, table, fragments] = IMAGES.map(open);
    let log = header_of(&*objects, LOG)?;
    let mut guarded = log.as_ref().map(|header| ObjectDevice::objects_of(LOG, header)).unwrap_or_default();
    guarded.extend(has_superblock.then(|| SUPERBLOCK.to_owned()));
    let record = HeadRecord {
        volume_id,
        epoch: 0,
        renewals: 0,
        lease_millis: LEASE_MILLIS,
        state: HeadState::Open,
        address: hold.address().to_owned(),
        owner: hold.holder().to_owned(),
    };
    let sent = boot_clock();
    let record = head::begin(&*objects, record, &guarded)?;
    let epoch = Epoch(record.epoch);
    let renewer = Renewer::start(objects.clone(), record, sent, boot_clock);
    let renewer = renewer.map_err(|e| Error::io("starting the thread that renews the lease", e))?;
    let log = log.map(|header| -> Arc<dyn Device> {
        Arc::new(ObjectDevice::guarded(objects.clone(), LOG, header, room.clone(), Some(epoch)))
    });
    let (data, table, fragments) = (data?, table?, fragments?);
    let devices = [&data, &table, &fragments].into_iter().chain(&log).cloned().collect();
    let rooms = PoolRooms { own: room, data: of_data.map(|(_, room)| room) };
    let hold = HeldObjects::new(hold, epoch.0, renewer, devices, rooms.clone());
    let hold = hold.map_err(|e| Error::io("starting the thread that asks for the pool's room", e))?;
    Ok(ObjectParts { data, table, fragments, log, rooms, hold, objects: keyed, epoch })
}

/// Whether the objects were made by an attempt at the same volume.
fn is_own(objects: &dyn Objects, attempt: &Unfinished) -> bool {
    let is_own =
        |image| matches!(ObjectDevice::header(objects, image), Ok(Some(found)) if attempt.is_own_id(found.volume_id));
    IMAGES.into_iter().any(is_own)
}

fn failed(access: &ObjectAccess) -> impl Fn(oncefs_rados::Error) -> Error {
    let what = format!("using the objects rados://{}/{}", access.pool, access.namespace);
    move |error| Error::io(&what, error.into())
}

#[cfg(test)]
mod tests {
    use oncefs_rados::MemoryObjects;

    use super::*;
    use crate::volume::cluster_superblock::sample;

    fn content(seed: u8) -> Vec<u8> {
        sample(seed).encode().unwrap()
    }

    /// The epoch begins in the object, which may be empty until its first content.
    fn head(objects: &MemoryObjects, epoch: u64) -> Epoch {
        Epoch(epoch).begin_in(objects, &[SUPERBLOCK.to_owned()]).unwrap();
        Epoch(epoch)
    }

    fn found(objects: &MemoryObjects) -> Option<SealedSuperblock> {
        read_superblock(objects, "rados://data/home").unwrap()
    }

    #[test]
    fn a_superblock_of_an_earlier_head_does_not_replace_that_of_a_later_one() {
        let objects = MemoryObjects::default();
        assert_eq!(found(&objects), None);
        let first = head(&objects, 1);
        assert_eq!(found(&objects), None, "an empty object is none yet");
        write_superblock(&objects, first, &content(1)).unwrap();
        let second = head(&objects, 2);
        assert_eq!(found(&objects), Some(sample(1)), "a new epoch changes no content");
        write_superblock(&objects, second, &content(2)).unwrap();
        let refused = write_superblock(&objects, first, &content(3)).unwrap_err().to_string();
        assert!(refused.contains("another machine took over"), "{refused}");
        assert_eq!(found(&objects), Some(sample(2)));
    }

    fn with_image(objects: &MemoryObjects, image: &str, volume: u8) {
        let header = ImageHeader { volume_id: [volume; 16], len: 16 << 20, object_bytes: OBJECT_BYTES };
        ObjectDevice::create(objects, image, header).unwrap();
    }

    /// Its lock is in a pool that nobody looks at.
    #[test]
    fn data_of_a_volume_whose_other_objects_are_elsewhere_is_refused_with_the_command_that_removes_it() {
        let scratch = tempfile::tempdir().unwrap();
        let attempt = Unfinished::begin(&scratch.path().join("volume"), [9; 16]).unwrap();
        let access = ObjectAccess::parse("rados://coded/home").unwrap();
        let refusal = |own: &MemoryObjects, data: &MemoryObjects| {
            refuse_data_of_another(own, data, &attempt, &access).err().map(|error| error.to_string())
        };
        let (own, data) = (MemoryObjects::default(), MemoryObjects::default());
        assert_eq!(refusal(&own, &data), None, "nothing is there");
        with_image(&own, TABLE, 1);
        assert_eq!(refusal(&own, &data), None, "the data was elsewhere");
        with_image(&data, DATA, 1);
        assert_eq!(refusal(&own, &data), None, "one volume");
        let other = MemoryObjects::default();
        with_image(&other, DATA, 2);
        for own in [&own, &MemoryObjects::default(), &other] {
            let told = refusal(own, &other).expect("data of another");
            assert!(told.contains("rados -p coded -N home ls | xargs -n 1 rados -p coded -N home rm"), "{told}");
        }
        let earlier = MemoryObjects::default();
        with_image(&earlier, DATA, 9);
        assert_eq!(refusal(&own, &earlier), None, "an earlier attempt's");
    }

    #[test]
    fn data_of_the_volume_that_had_the_name_is_found_in_its_pool_and_removed() {
        let own = MemoryObjects::default();
        let parsed = |address: &str| ObjectAccess::parse(address).unwrap();
        let left = |new: &str| data_left(&own, &parsed(new)).unwrap().map(|(access, id)| (access.to_string(), id));
        assert_eq!(left("rados://data/home"), None, "no volume");
        let mut superblock = sample(1);
        superblock.superblock.data = DataPlace::Objects(parsed("rados://data/home?id=a&records=1000&data=coded"));
        own.change(SUPERBLOCK, Change::WriteFull { bytes: &superblock.encode().unwrap() }).unwrap();
        with_image(&own, TABLE, 1);
        let coded = Some((parsed("rados://coded/home?id=b").to_string(), [1; 16]));
        assert_eq!(left("rados://data/home?id=b"), coded);
        assert_eq!(left("rados://data/home?id=b&data=other"), coded);
        assert_eq!(left("rados://data/home?id=b&data=coded"), None, "it is removed with the rest");
        let data = MemoryObjects::default();
        with_image(&data, DATA, 1);
        data.change("data.0000000000000003", Change::WriteFull { bytes: b"x" }).unwrap();
        data.change("letter", Change::WriteFull { bytes: b"dear" }).unwrap();
        remove_data(&data, [2; 16]).unwrap();
        assert_eq!(data.names().unwrap().len(), 3, "that of another volume stays");
        remove_data(&data, [1; 16]).unwrap();
        assert_eq!(data.names().unwrap(), ["letter"]);
    }

    #[test]
    fn a_crash_leaves_the_superblock_as_it_was_or_as_it_will_be() {
        let objects = MemoryObjects::default();
        let bytes = Epoch(1).bytes();
        let guard = Epoch::guard(&bytes);
        let begin = |change, guard| objects.begin(SUPERBLOCK, change, guard, WhenFull::Fails);
        let _unawaited = [
            begin(Change::SetAttribute { guard }, None),
            begin(Change::WriteFull { bytes: &content(1) }, Some(guard)),
            begin(Change::WriteFull { bytes: &content(2) }, Some(guard)),
        ];
        for (survive, left) in [(0, None), (1, None), (2, Some(1)), (3, Some(2))] {
            let crashed = objects.after_crash(|_, _| survive);
            assert_eq!(found(&crashed), left.map(sample), "{survive} changes survive");
            let next = head(&crashed, 2);
            write_superblock(&crashed, next, &content(4)).unwrap();
            assert_eq!(found(&crashed), Some(sample(4)));
        }
    }
}
