//! The second part of an audit: inodes with all records that belong to them, in the order of their numbers.

use oncefs_engine::{FilePolicy, QueuePlace, Sorted};

use crate::attributes::policy::{COMPRESS_ATTRIBUTE, Overrides, POLICY_ATTRIBUTE};
use crate::format::inode::InodeRecord;
use crate::format::{orphan, symlink, xattr};
use crate::fsck::audit::maps::number_of;
use crate::fsck::audit::names::NameOf;
use crate::fsck::audit::records::Records;
use crate::fsck::audit::{Audit, NamePhase};
use crate::fsck::fault::{Count, Fault};
use crate::{FileKind, Ino, Result};

/// Everything keyed by inode, read side by side.
struct Streams<'a> {
    inodes: Records<'a>,
    orphans: Records<'a>,
    symlinks: Records<'a>,
    xattrs: Records<'a>,
    targets: Sorted<3>,
    directories: Sorted<3>,
    places: Sorted<1>,
}

/// The statements of all other records about an inode.
#[derive(Default)]
struct Seen {
    names: Vec<NameOf>,
    entries: u64,
    subdirectories: u64,
    xattrs: u64,
    overrides: Overrides,
    target_bytes: Option<u64>,
    orphan: bool,
    places: u64,
}

impl Streams<'_> {
    /// The lowest inode number that any stream has next.
    fn next_ino(&mut self) -> Result<Option<Ino>> {
        let records = [&mut self.inodes, &mut self.orphans, &mut self.symlinks, &mut self.xattrs];
        let mut least = None;
        for records in records {
            least = [least, records.next_ino()?].into_iter().flatten().min();
        }
        let sorted = [self.targets.peek()?, self.directories.peek()?];
        let sorted = sorted.into_iter().flatten().map(|[ino, ..]| Ino(ino));
        Ok(sorted.chain(least).min())
    }
}

impl Audit<'_> {
    /// Checks (1) to (7), (9) and (12), and (10) for everything but names.
    pub fn inodes(&mut self) -> Result<()> {
        let store = self.store;
        let mut streams = Streams {
            inodes: Records::of(store, b'i'),
            orphans: Records::of(store, b'o'),
            symlinks: Records::of(store, b's'),
            xattrs: Records::of(store, b'x'),
            targets: std::mem::take(&mut self.targets).sorted()?,
            directories: std::mem::take(&mut self.directories).sorted()?,
            places: std::mem::take(&mut self.places).sorted()?,
        };
        let (mut is_root_seen, mut previous) = (false, None);
        while let Some(ino) = streams.next_ino()? {
            debug_assert!(previous.is_none_or(|previous| previous < ino), "inode {} follows {previous:?}", ino.0);
            previous = Some(ino);
            let seen = self.seen(ino, &mut streams)?;
            is_root_seen |= ino == Ino::ROOT;
            (self.progress)(NamePhase::Inodes, ino.0, self.lease);
            let Some((key, value)) = streams.inodes.pop_of(ino)? else {
                self.missing(ino, &seen);
                continue;
            };
            self.newest = self.newest.max(ino.0);
            match InodeRecord::decode(ino, &value) {
                Ok(record) => self.inode(ino, &record, &seen)?,
                Err(_) if ino == Ino::ROOT => (self.found)(Fault::Root),
                Err(error) => (self.found)(Fault::Record { key, error: error.to_string() }),
            }
        }
        if !is_root_seen {
            (self.found)(Fault::Root);
        }
        for records in [streams.inodes, streams.orphans, streams.symlinks, streams.xattrs] {
            records.unknown.into_iter().for_each(|key| (self.found)(Fault::Key { key }));
        }
        Ok(())
    }

    /// Collects the statements of all other records about an inode.
    fn seen(&mut self, ino: Ino, streams: &mut Streams<'_>) -> Result<Seen> {
        let mut seen = Seen::default();
        while streams.targets.peek()?.is_some_and(|[target, ..]| target == ino.0) {
            seen.names.extend(streams.targets.pop()?.map(|item| NameOf::of_item(item).1));
        }
        while let Some([_, entries, subdirectories]) = streams.directories.peek()?.filter(|item| item[0] == ino.0) {
            streams.directories.pop()?;
            (seen.entries, seen.subdirectories) = (entries, subdirectories);
        }
        // Skips places of deleted inodes, which may be left.
        while streams.places.peek()?.is_some_and(|[file]| file <= ino.0) {
            seen.places += streams.places.pop()?.map_or(0, |[file]| u64::from(file == ino.0));
        }
        let mut damaged = |key: Vec<u8>, error: crate::Error| {
            (self.found)(Fault::Record { key, error: error.to_string() });
        };
        while let Some((key, value)) = streams.orphans.pop_of(ino)? {
            orphan::decode(ino, &value).map_or_else(|e| damaged(key, e), |_| seen.orphan = true);
        }
        while let Some((key, value)) = streams.symlinks.pop_of(ino)? {
            let decoded = symlink::decode(ino, &value);
            decoded.map_or_else(|e| damaged(key, e), |target| seen.target_bytes = Some(target.len() as u64));
        }
        while let Some((key, value)) = streams.xattrs.pop_of(ino)? {
            match xattr::decode(ino, &value) {
                Err(error) => damaged(key, error),
                Ok(value) => {
                    seen.xattrs += 1;
                    let names = [POLICY_ATTRIBUTE, COMPRESS_ATTRIBUTE];
                    if let Some(name) = names.into_iter().find(|name| key == xattr::key(ino, name)) {
                        seen.overrides.take_in(name, Some(&value));
                    }
                }
            }
        }
        Ok(seen)
    }

    /// Reports the remains of an inode without a record.
    fn missing(&mut self, ino: Ino, seen: &Seen) {
        if ino == Ino::ROOT {
            return (self.found)(Fault::Root);
        }
        if seen.entries > 0 || seen.target_bytes.is_some() {
            let kind = if seen.entries > 0 { FileKind::Directory } else { FileKind::Symlink };
            return (self.found)(Fault::Missing { ino, kind });
        }
        for name in &seen.names {
            (self.found)(Fault::Dangling { parent: name.parent, place: name.place.number(), ino });
        }
        if seen.xattrs > 0 || seen.orphan {
            (self.found)(Fault::Attachments { ino });
        }
    }

    fn inode(&mut self, ino: Ino, record: &InodeRecord, seen: &Seen) -> Result<()> {
        if record.is_directory() {
            self.directory(ino, record, seen);
        } else if ino == Ino::ROOT {
            (self.found)(Fault::Root);
        } else {
            self.file(ino, record, seen);
        }
        for name in seen.names.iter().filter(|name| name.kind != record.kind) {
            (self.found)(Fault::NameKind { parent: name.parent, place: name.place.number(), ino });
        }
        self.expect(ino, Count::Xattrs, record.xattrs.into(), seen.xattrs);
        self.target(ino, record, seen);
        let is_regular = record.kind == FileKind::Regular;
        if is_regular != (record.map.0 != 0) {
            (self.found)(Fault::HasMap { ino, map: record.map });
        }
        if is_regular && record.map.0 != 0 {
            let (rank, is_update_heavy) = (record.usage.rank(), record.usage.is_update_heavy());
            let overrides = seen.overrides.on(self.store);
            let policy = overrides.apply_to(FilePolicy { rank, is_update_heavy, ..FilePolicy::default() });
            self.owners_count += 1;
            self.owners.push([record.map.0, ino.0, record.blocks, number_of(&policy)])?;
        }
        let may_be_ranked = is_regular && record.nlink > 0 && ino < self.known_below;
        if may_be_ranked && seen.places == 0 && QueuePlace::of(&record.usage, ino.0).is_some() {
            (self.found)(Fault::NoPlace { ino });
        }
        Ok(())
    }

    /// Checks (1), (3), (4) and (5) for a directory.
    fn directory(&mut self, ino: Ino, record: &InodeRecord, seen: &Seen) {
        let is_root = ino == Ino::ROOT;
        if is_root && record.parent != Ino::ROOT {
            (self.found)(Fault::Root);
        }
        let kept = seen.names.iter().position(|name| name.parent == record.parent).unwrap_or(0);
        for (_, name) in seen.names.iter().enumerate().filter(|(n, _)| *n != kept || is_root) {
            (self.found)(Fault::SecondName { parent: name.parent, place: name.place.number(), ino });
        }
        let is_named = is_root || !seen.names.is_empty();
        match seen.names.get(kept).filter(|_| !is_root) {
            Some(name) if name.parent != record.parent => {
                (self.found)(Fault::Parent { ino, stored: record.parent, found: name.parent });
            }
            _ => {}
        }
        self.names_and_orphan(ino, record, seen, is_named);
        if is_named {
            self.expect(ino, Count::Links, record.nlink.into(), 2 + seen.subdirectories);
            self.tree.add(ino, record.parent);
        } else if seen.orphan {
            self.tree.add_orphan(ino);
        }
        self.expect(ino, Count::Entries, record.entries, seen.entries);
    }

    /// Checks (3), (4) and (5) for any other inode.
    fn file(&mut self, ino: Ino, record: &InodeRecord, seen: &Seen) {
        let is_named = !seen.names.is_empty();
        self.names_and_orphan(ino, record, seen, is_named);
        if is_named {
            self.expect(ino, Count::Links, record.nlink.into(), seen.names.len() as u64);
        }
        if seen.entries > 0 {
            (self.found)(Fault::NotADirectory { ino });
        }
        self.expect(ino, Count::Entries, record.entries, 0);
    }

    fn names_and_orphan(&mut self, ino: Ino, record: &InodeRecord, seen: &Seen, is_named: bool) {
        if is_named && seen.orphan {
            (self.found)(Fault::NamedOrphan { ino });
        }
        if !is_named && (record.nlink > 0 || !seen.orphan) {
            (self.found)(Fault::Nameless { ino });
        }
    }

    /// Checks (6).
    fn target(&mut self, ino: Ino, record: &InodeRecord, seen: &Seen) {
        match (record.kind == FileKind::Symlink, seen.target_bytes) {
            (true, Some(bytes)) => self.expect(ino, Count::Size, record.size, bytes),
            (true, None) => (self.found)(Fault::NoTarget { ino }),
            (false, Some(_)) => (self.found)(Fault::StrayTarget { ino }),
            (false, None) => {}
        }
    }

    /// Reports a count that differs from the number found.
    pub fn expect(&mut self, ino: Ino, count: Count, stored: u64, found: u64) {
        if stored != found {
            (self.found)(Fault::Count { ino, count, stored, found });
        }
    }
}
