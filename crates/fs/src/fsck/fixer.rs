//! The fix for each fault. Reads all records again, because an earlier fix may have changed them.

use oncefs_engine::{BLOCK_BYTES, Blocks, Change, FilePolicy, Lbn, MapId, QueuePlace, Store};

use crate::attributes::policy::{COMPRESS_ATTRIBUTE, Overrides, POLICY_ATTRIBUTE};
use crate::format::codec::after;
use crate::format::dirent::{self, Dirent, Names, Place};
use crate::format::inode::{self, InodeRecord, put_inode};
use crate::format::{lease, orphan, placement, queue, symlink, xattr};
use crate::fsck::fault::{Count, Fault};
use crate::inodes::numbers::generation_of;
use crate::names::name_change::NameChange;
use crate::names::name_table::NameTable;
use crate::names::placement::Placement;
use crate::{Caller, Error, FileKind, Ino, NamePlaces, Result, Timestamp};

/// The directory in the root in which inodes without a name get one.
const LOST_FOUND: &str = "lost+found";
/// Records removed in one publication.
const PORTION_RECORDS: usize = 64;
/// The owner of files that a fix creates.
const ROOT_USER: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };

/// Fixes faults of a volume.
pub struct Fixer<'a> {
    pub store: &'a Store,
    pub placement: Placement,
    pub now: Timestamp,
}

impl Fixer<'_> {
    /// Fixes one fault. False: the fault is gone, or another one must be fixed first.
    pub fn fix(&self, fault: &Fault) -> Result<bool> {
        match fault {
            Fault::Root => self.fix_root(),
            Fault::Lease { newest, .. } => {
                self.publish(|change| change.put(lease::KEY.to_vec(), lease::encode(Ino(newest.0 + 1))))
            }
            Fault::Key { key } | Fault::Record { key, .. } => self.publish(|change| change.delete(key.clone())),
            Fault::Missing { ino, kind } => self.recreate(*ino, *kind),
            Fault::Placement => {
                let record = placement::encode(NamePlaces::default())?;
                self.publish(|change| change.put(placement::KEY.to_vec(), record))
            }
            Fault::Passed { parent, place, found, .. } => self.set_passed(*parent, *place, *found),
            Fault::Place { parent, place, name } => self.move_name(*parent, *place, name),
            Fault::NameKind { parent, place, ino } => self.set_kind(*parent, *place, *ino),
            Fault::Dangling { parent, place, ino } | Fault::SecondName { parent, place, ino } => {
                self.remove_name(*parent, *place, *ino)
            }
            Fault::Parent { ino, found, .. } => self.edit(*ino, |record| record.parent = *found),
            Fault::Nameless { ino } => self.name_in_lost_found(*ino),
            Fault::CutOff { ino, parent } => self.move_below_root(*ino, *parent),
            Fault::Count { ino, count, found, .. } => self.set_count(*ino, *count, *found),
            Fault::NotADirectory { ino } => self.drop_entries(*ino),
            Fault::NamedOrphan { ino } => self.publish(|change| change.delete(orphan::key(*ino))),
            Fault::NoTarget { ino } => self.publish(|change| change.delete(inode::key(*ino))),
            Fault::StrayTarget { ino } => self.publish(|change| change.delete(symlink::key(*ino))),
            Fault::Attachments { ino } => self.drop_attachments(*ino),
            Fault::HasMap { ino, map: MapId(0) } => {
                let map = self.store.new_map();
                self.edit(*ino, |record| record.map = map)
            }
            Fault::HasMap { ino, .. } => self.edit(*ino, |record| record.map = MapId(0)),
            Fault::SharedMap { ino, map, .. } => self.give_own_map(*ino, *map),
            Fault::Policy { ino, map } => self.set_policy(*ino, *map),
            Fault::UnownedPolicy { map } => {
                self.publish(|change| self.store.first_policy(change, *map, FilePolicy::default()))
            }
            Fault::NoPlace { ino } => self.give_place(*ino),
            Fault::LostContent { ino, map, parts, .. } => self.lose_content(*ino, *map, parts),
            Fault::UnownedMap { map, blocks } => self.make_file(*map, blocks.unwrap_or_default()),
        }
    }

    fn publish(&self, fill: impl FnOnce(&mut Change)) -> Result<bool> {
        let mut change = Change::new();
        fill(&mut change);
        self.store.publish(change)?;
        Ok(true)
    }

    fn record(&self, ino: Ino) -> Result<Option<InodeRecord>> {
        let bytes = self.store.get(&inode::key(ino))?;
        Ok(bytes.and_then(|bytes| InodeRecord::decode(ino, &bytes).ok()))
    }

    fn edit(&self, ino: Ino, edit: impl FnOnce(&mut InodeRecord)) -> Result<bool> {
        let Some(mut record) = self.record(ino)? else { return Ok(false) };
        edit(&mut record);
        self.publish(|change| put_inode(change, ino, &record))
    }

    fn set_count(&self, ino: Ino, count: Count, found: u64) -> Result<bool> {
        self.edit(ino, |record| match count {
            Count::Links => record.nlink = found as u32,
            Count::Entries => record.entries = found,
            Count::Xattrs => record.xattrs = found as u32,
            Count::Size => record.size = found,
            Count::Blocks => record.blocks = found,
        })
    }

    fn give_place(&self, ino: Ino) -> Result<bool> {
        let usage = self.record(ino)?.map(|record| record.usage);
        let Some(place) = usage.and_then(|usage| QueuePlace::of(&usage, ino.0)) else { return Ok(false) };
        self.publish(|change| change.put(queue::key(&place), queue::encode(ino)))
    }

    /// Sets the policy in the engine from the file's attribute and its usage.
    fn set_policy(&self, ino: Ino, map: MapId) -> Result<bool> {
        let Some(usage) = self.record(ino)?.map(|record| record.usage) else { return Ok(false) };
        let mut overrides = Overrides::default();
        for name in [POLICY_ATTRIBUTE, COMPRESS_ATTRIBUTE] {
            let bytes = self.store.get(&xattr::key(ino, name))?;
            let value = bytes.and_then(|bytes| xattr::decode(ino, &bytes).ok());
            overrides.take_in(name, value.as_deref());
        }
        let (rank, is_update_heavy) = (usage.rank(), usage.is_update_heavy());
        let policy = overrides.on(self.store).apply_to(FilePolicy { rank, is_update_heavy, ..FilePolicy::default() });
        self.publish(|change| self.store.policy_change(change, map, policy))
    }

    /// Reading what is lost is an error from now on. The next round counts the blocks.
    fn lose_content(&self, ino: Ino, map: MapId, parts: &[u64]) -> Result<bool> {
        let Some(record) = self.record(ino)? else { return Ok(false) };
        let blocks = Blocks(record.size.div_ceil(BLOCK_BYTES as u64));
        for part in parts {
            self.store.lose_holes(map, *part, blocks)?;
            self.store.settle()?;
        }
        Ok(true)
    }

    fn new_inode(&self, kind: FileKind, permissions: u32) -> InodeRecord {
        InodeRecord::new(kind, permissions, &ROOT_USER, self.now, generation_of(self.store))
    }

    /// Makes the root a directory and its own parent. Its entries stay; its owner and permissions may be lost.
    fn fix_root(&self) -> Result<bool> {
        let whole = self.record(Ino::ROOT)?.filter(InodeRecord::is_directory);
        let mut root = whole.unwrap_or_else(|| self.new_inode(FileKind::Directory, 0o755));
        root.parent = Ino::ROOT;
        self.publish(|change| put_inode(change, Ino::ROOT, &root))
    }

    /// Recreates an inode that has only entries or a target left. Its owner, permissions and times are lost.
    fn recreate(&self, ino: Ino, kind: FileKind) -> Result<bool> {
        let record = self.new_inode(kind, if kind == FileKind::Directory { 0o700 } else { 0o777 });
        self.publish(|change| put_inode(change, ino, &record))
    }

    fn names(&self) -> NameTable<'_> {
        NameTable { store: self.store, placement: &self.placement }
    }

    fn names_at(&self, parent: Ino, place: Place) -> Result<Option<Names>> {
        let bytes = self.store.get(&dirent::key(parent, place))?;
        Ok(bytes.and_then(|bytes| Names::decode(parent, &bytes).ok()))
    }

    fn put_names(change: &mut Change, parent: Ino, place: Place, names: &Names) {
        let key = dirent::key(parent, place);
        if names.is_empty() { change.delete(key) } else { change.put(key, names.encode(parent)) }
    }

    fn move_name(&self, parent: Ino, place: u64, name: &[u8]) -> Result<bool> {
        let wrong = Place::of_cookie(place);
        let Some((ino, kind)) = self
            .names_at(parent, wrong)?
            .and_then(|names| names.into_entry(name))
            .map(|dirent| (dirent.ino, dirent.kind))
        else {
            return Ok(false);
        };
        // If one of the right places has the name already, lookups found that one, and it stays.
        let is_found = self.names().find(parent, name)?.is_some();
        let mut names = NameChange::of(self.names());
        names.remove_at(parent, wrong, name)?;
        if !is_found && !has_room(names.set(parent, name, ino, kind))? {
            return Ok(false);
        }
        self.publish(|change| names.finish(change))
    }

    fn set_passed(&self, parent: Ino, place: u64, found: u32) -> Result<bool> {
        let place = Place::of_cookie(place);
        let mut names = self.names().names_at(parent, place)?;
        names.set_passed(found);
        self.publish(|change| Self::put_names(change, parent, place, &names))
    }

    /// The name of an inode at a place.
    fn name_of(&self, parent: Ino, place: Place, ino: Ino) -> Result<Option<Dirent>> {
        let names = self.names_at(parent, place)?;
        Ok(names.and_then(|names| names.iter().find(|dirent| dirent.ino == ino).cloned()))
    }

    fn set_kind(&self, parent: Ino, place: u64, ino: Ino) -> Result<bool> {
        let place = Place::of_cookie(place);
        let Some(record) = self.record(ino)? else { return Ok(false) };
        let Some(mut names) = self.names_at(parent, place)? else { return Ok(false) };
        let wrong: Vec<Vec<u8>> =
            names.iter().filter(|d| d.ino == ino && d.kind != record.kind).map(|d| d.name.clone()).collect();
        for name in &wrong {
            names.set(name, ino, record.kind);
        }
        self.publish(|change| Self::put_names(change, parent, place, &names))
    }

    fn remove_name(&self, parent: Ino, place: u64, ino: Ino) -> Result<bool> {
        let place = Place::of_cookie(place);
        let Some(Dirent { name, kind, .. }) = self.name_of(parent, place, ino)? else { return Ok(false) };
        let mut names = NameChange::of(self.names());
        names.remove_at(parent, place, &name)?;
        let directory = self.record(parent)?;
        self.publish(|change| {
            names.finish(change);
            if let Some(mut directory) = directory {
                directory.entries = directory.entries.saturating_sub(1);
                directory.nlink = directory.nlink.saturating_sub(u32::from(kind == FileKind::Directory));
                put_inode(change, parent, &directory);
            }
        })
    }

    fn drop_entries(&self, ino: Ino) -> Result<bool> {
        let (from, to) = dirent::range(ino);
        self.drop_records(from, &to)?;
        Ok(true)
    }

    fn drop_attachments(&self, ino: Ino) -> Result<bool> {
        let (from, to) = xattr::range(ino);
        self.drop_records(from, &to)?;
        self.publish(|change| change.delete(orphan::key(ino)))
    }

    /// Removes all records of a range, in portions, because one commit group may not hold them all. After a crash the
    /// next run of fsck removes the rest.
    fn drop_records(&self, mut from: Vec<u8>, to: &[u8]) -> Result<()> {
        loop {
            let portion = self.store.scan(&from, to, PORTION_RECORDS)?;
            let Some((last, _)) = portion.last() else { return Ok(()) };
            from = after(last);
            self.publish(|change| portion.into_iter().for_each(|(key, _)| change.delete(key)))?;
            self.store.settle()?;
        }
    }

    /// Gives an inode without a name one in `lost+found`.
    fn name_in_lost_found(&self, ino: Ino) -> Result<bool> {
        let Some(mut record) = self.record(ino)? else { return Ok(false) };
        let directory = self.lost_found()?;
        if !record.is_directory() {
            record.nlink = 1;
        } else {
            record.nlink = record.nlink.max(2);
            record.parent = directory;
        }
        self.add_lost(directory, ino, record, ino.0, |change| change.delete(orphan::key(ino)))
    }

    /// Moves a directory that is not below the root to `lost+found`.
    fn move_below_root(&self, ino: Ino, parent: Ino) -> Result<bool> {
        let (mut from, to) = dirent::range(parent);
        while let Some((key, value)) = self.store.scan(&from, &to, 1)?.pop() {
            let names = Names::decode(parent, &value).ok();
            if let Some((_, place)) = dirent::parse_key(&key)
                && names.is_some_and(|names| names.iter().any(|dirent| dirent.ino == ino))
            {
                self.remove_name(parent, place.number(), ino)?;
            }
            from = after(&key);
        }
        self.name_in_lost_found(ino)
    }

    /// Makes a file of a map without one. Its size is that of the mapped blocks.
    fn make_file(&self, map: MapId, blocks: Blocks) -> Result<bool> {
        let Lbn(end) = self.store.end_of_map(map)?;
        let mut record = self.new_inode(FileKind::Regular, 0o600);
        (record.map, record.blocks, record.size) = (map, blocks.0, end * BLOCK_BYTES as u64);
        let directory = self.lost_found()?;
        let ino = self.new_number()?;
        self.add_lost(directory, ino, record, map.0, |_| ())
    }

    /// Gives the second file of a map its own map, with the same blocks.
    fn give_own_map(&self, ino: Ino, map: MapId) -> Result<bool> {
        let Some(mut record) = self.record(ino)?.filter(|record| record.map == map) else { return Ok(false) };
        let end = self.store.end_of_map(map)?;
        record.map = self.store.new_map();
        if end == Lbn(0) {
            return self.publish(|change| put_inode(change, ino, &record));
        }
        let own = record.map;
        let mut at = 0;
        while at < end.0 {
            let blocks = self.store.clone_part((map, Lbn(at)), (own, Lbn(at)), Blocks(end.0 - at))?.0;
            let is_last = at + blocks == end.0;
            let with = |_, change: &mut Change| {
                if is_last {
                    put_inode(change, ino, &record);
                }
            };
            self.store.clone_blocks(map, Lbn(at), own, Lbn(at), Blocks(blocks), with)?;
            at += blocks;
        }
        Ok(true)
    }

    fn new_number(&self) -> Result<Ino> {
        let bytes = self.store.get(lease::KEY)?;
        let next = bytes.map(|bytes| lease::decode(&bytes)).transpose()?;
        let next = next.ok_or_else(|| Error::corrupt("inode number lease", "it is missing"))?;
        assert!(next > Ino::ROOT, "the lease begins with inode {}", next.0);
        self.publish(|change| change.put(lease::KEY.to_vec(), lease::encode(Ino(next.0 + 1))))?;
        Ok(next)
    }

    /// The directory `lost+found`, created if it does not exist.
    fn lost_found(&self) -> Result<Ino> {
        for name in numbered(LOST_FOUND) {
            let Some(there) = self.names().find(Ino::ROOT, name.as_bytes())? else {
                let ino = self.new_number()?;
                let record = InodeRecord { parent: Ino::ROOT, ..self.new_inode(FileKind::Directory, 0o700) };
                self.add_name(Ino::ROOT, name.as_bytes(), ino, record, |_| ())?;
                return Ok(ino);
            };
            if self.record(there.ino)?.is_some_and(|record| record.is_directory() && record.parent == Ino::ROOT) {
                return Ok(there.ino);
            }
        }
        unreachable!("the names are numbered without end")
    }

    /// Adds an inode to `lost+found`, under the name `#number`.
    fn add_lost(
        &self,
        directory: Ino,
        ino: Ino,
        record: InodeRecord,
        number: u64,
        also: impl FnOnce(&mut Change),
    ) -> Result<bool> {
        for name in numbered(&format!("#{number}")) {
            if self.names().find(directory, name.as_bytes())?.is_none() {
                return self.add_name(directory, name.as_bytes(), ino, record, also);
            }
        }
        unreachable!("the names are numbered without end")
    }

    /// Adds a new name with the inode's record, and counts it.
    fn add_name(
        &self,
        directory: Ino,
        name: &[u8],
        ino: Ino,
        record: InodeRecord,
        also: impl FnOnce(&mut Change),
    ) -> Result<bool> {
        let Some(mut parent) = self.record(directory)? else { return Ok(false) };
        let mut names = NameChange::of(self.names());
        if !has_room(names.set(directory, name, ino, record.kind))? {
            return Ok(false);
        }
        parent.entries += 1;
        parent.nlink += u32::from(record.is_directory());
        self.publish(|change| {
            names.finish(change);
            put_inode(change, directory, &parent);
            put_inode(change, ino, &record);
            also(change);
        })
    }
}

/// Whether a name could be added. If not, the directory is full, and the fault stays.
fn has_room(set: Result<()>) -> Result<bool> {
    match set {
        Err(Error::NoSpace) => Ok(false),
        other => other.map(|()| true),
    }
}

/// The name, then the name with `.1`, `.2` and so on.
fn numbered(name: &str) -> impl Iterator<Item = String> + '_ {
    std::iter::once(name.to_owned()).chain((1_u64..).map(move |n| format!("{name}.{n}")))
}
