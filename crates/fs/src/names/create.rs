//! Creation of files, directories, special files, symbolic links and hard links.

use oncefs_engine::{Change, FilePolicy, MapId};

use crate::attributes::policy::Overrides;
use crate::attributes::xattr::SECURITY;
use crate::format::acl::{self, Acl};
use crate::format::inode::{InodeRecord, put_inode};
use crate::format::{orphan, symlink, xattr};
use crate::inodes::orphans::Nameless;
use crate::inodes::staged::Staged;
use crate::names::directory::check_new_name;
use crate::names::name_change::NameChange;
use crate::{
    Attributes, Caller, Error, FileKind, FileSystem, Ino, LABELS_BYTES_MAX, LINKS_MAX, Label, NAME_BYTES_MAX, Result,
    SYMLINK_BYTES_MAX,
};

/// The inode to create.
struct Node<'a> {
    kind: FileKind,
    permissions: u32,
    rdev: u32,
    target: &'a [u8],
}

/// The first attributes of a new inode: its labels, and the access control lists and policies that it inherits from its
/// directory.
#[derive(Default)]
struct FirstAttributes<'a> {
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
    overrides: Overrides,
    labels: &'a [Label<'a>],
}

impl FirstAttributes<'_> {
    fn count(&self) -> u32 {
        let Overrides { dedup, compress } = self.overrides;
        let inherited = [self.access.is_some(), self.default.is_some(), dedup.is_some(), compress.is_some()];
        inherited.map(u32::from).iter().sum::<u32>() + self.labels.len() as u32
    }
}

impl FileSystem {
    /// Creates a file that is neither a directory nor a symbolic link. The type bits of `mode` give its kind (none: a
    /// regular file), `rdev` the number of a device file.
    ///
    /// # Errors
    ///
    /// - `Invalid`: `mode` has another kind, `name` is empty or contains a slash or a NUL byte, or the caller's labels are
    ///   not attributes in `security.`, one of each name.
    /// - `TooBig`: the caller's labels take more than [`LABELS_BYTES_MAX`] bytes.
    /// - `Exists`: the directory has the name already.
    /// - `NotADirectory`, `Stale`: `parent` is not a directory, or does not exist.
    /// - `NotFound`: `parent` was deleted.
    /// - `OperationNotPermitted`: `parent` is immutable.
    /// - `NameTooLong`: `name` is longer than [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX).
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoSpace`: the host's file system is full, or the directory is full: it has more than a billion names.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn mknod(&self, parent: Ino, name: &[u8], mode: u32, rdev: u32, caller: &Caller<'_>) -> Result<Attributes> {
        let kind = match FileKind::from_mode(mode) {
            None if mode & libc::S_IFMT == 0 => FileKind::Regular,
            None | Some(FileKind::Directory | FileKind::Symlink) => {
                return Err(Error::Invalid(
                    "mknod cannot create this kind of file: use mkdir for directories, symlink for symbolic links",
                ));
            }
            Some(kind) => kind,
        };
        let rdev = if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) { rdev } else { 0 };
        self.create(parent, name, &Node { kind, permissions: mode & 0o7777, rdev, target: b"" }, caller)
    }

    /// Creates a directory with the permission bits in `mode`.
    ///
    /// # Errors
    ///
    /// As [`FileSystem::mknod`].
    pub fn mkdir(&self, parent: Ino, name: &[u8], mode: u32, caller: &Caller<'_>) -> Result<Attributes> {
        let node = Node { kind: FileKind::Directory, permissions: mode & 0o7777, rdev: 0, target: b"" };
        self.create(parent, name, &node, caller)
    }

    /// Creates a symbolic link to `target`, at most [`SYMLINK_BYTES_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// - `NameTooLong`: `name` or `target` is too long.
    /// - `Invalid`: `target` is empty or contains a NUL byte, or `name` is invalid.
    /// - Otherwise as [`FileSystem::mknod`].
    pub fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], caller: &Caller<'_>) -> Result<Attributes> {
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("invalid target of a symbolic link: it is empty, or contains a NUL byte"));
        }
        self.create(parent, name, &Node { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target }, caller)
    }

    /// The target of a symbolic link. Sets the time of last access.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the inode is not a symbolic link.
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        if inode.lock().kind != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        self.touch_atime(&inode);
        let bytes = self.store.get(&symlink::key(ino))?;
        symlink::decode(
            ino,
            &bytes.ok_or_else(|| {
                Error::corrupt(format!("symbolic link {}", ino.0), "its target is missing; run oncefs fsck")
            })?,
        )
    }

    /// Refuses a new name if the host is full: it takes room at the next checkpoint, and deletions need the room that
    /// is left.
    pub(crate) fn check_host(&self) -> Result<()> {
        if self.store.is_host_full() { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Refuses a new name if its directory was removed, has that name already or may not change, and on a full host.
    /// The caller has locked the directory.
    pub(crate) fn check_takes_name(&self, directory: &InodeRecord, parent: Ino, name: &[u8]) -> Result<()> {
        if directory.nlink == 0 {
            return Err(Error::NotFound);
        }
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        directory.check_grows()?;
        self.check_host()
    }

    fn create(&self, parent: Ino, name: &[u8], node: &Node, caller: &Caller<'_>) -> Result<Attributes> {
        let _room = self.begin_change()?;
        check_new_name(name)?;
        let directory = [self.directory(parent)?];
        let mut staged = Staged::lock(&directory);
        self.check_takes_name(staged.get(parent), parent, name)?;
        let (ino, _being_made) = self.numbers.take(&self.store)?;
        let (record, first) = self.plan(parent, staged.get(parent), node, caller)?;
        let mut change = self.change_with_node(ino, &record, node, first);
        let mut names = NameChange::new(self);
        names.set(parent, name, ino, node.kind)?;
        names.finish(&mut change);
        let changed = staged.entries_changed(parent, record.ctime);
        changed.entries += 1;
        changed.nlink += u32::from(record.is_directory());
        let attributes = record.attributes(ino);
        self.inodes.add(ino, record);
        staged.publish(&self.store, change).inspect_err(|_| self.inodes.remove(ino))?;
        Ok(attributes)
    }

    /// Creates a regular file without a name in the directory `parent`, whose access control list and policy it
    /// inherits. It can get its first name by [`FileSystem::link`]. Without one, [`FileSystem::forget`] or the next
    /// mount deletes it like a file that lost its last name.
    ///
    /// # Errors
    ///
    /// - `NotADirectory`, `Stale`: `parent` is not a directory, or does not exist.
    /// - `NotFound`: `parent` was deleted.
    /// - `OperationNotPermitted`: `parent` is immutable.
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn tmpfile(&self, parent: Ino, mode: u32, caller: &Caller<'_>) -> Result<Attributes> {
        let _room = self.begin_change()?;
        let directory = [self.directory(parent)?];
        let staged = Staged::lock(&directory);
        if staged.get(parent).nlink == 0 {
            return Err(Error::NotFound);
        }
        staged.get(parent).check_grows()?;
        self.check_host()?;
        let (ino, _being_made) = self.numbers.take(&self.store)?;
        let node = Node { kind: FileKind::Regular, permissions: mode & 0o7777, rdev: 0, target: b"" };
        let (mut record, first) = self.plan(parent, staged.get(parent), &node, caller)?;
        record.nlink = 0;
        let mut change = self.change_with_node(ino, &record, &node, first);
        self.put_orphan(&mut change, ino);
        let attributes = record.attributes(ino);
        self.inodes.add(ino, record);
        staged.publish(&self.store, change).inspect_err(|_| self.inodes.remove(ino))?;
        self.orphans.add(ino, Nameless::NeverNamed);
        Ok(attributes)
    }

    /// A change with a new inode and its first policy.
    fn change_with_node(&self, ino: Ino, record: &InodeRecord, node: &Node, first: FirstAttributes<'_>) -> Change {
        let mut change = Change::new();
        if first.overrides != Overrides::default() && node.kind == FileKind::Regular {
            let policy = first.overrides.apply_to(FilePolicy::default());
            self.store.first_policy(&mut change, record.map, policy);
        }
        put_node(&mut change, ino, record, node, first);
        change
    }

    /// The record of a new inode in the directory `parent`.
    fn plan<'a>(
        &self,
        parent: Ino,
        above: &InodeRecord,
        node: &Node,
        caller: &Caller<'a>,
    ) -> Result<(InodeRecord, FirstAttributes<'a>)> {
        check_labels(caller.labels)?;
        let mut permissions = node.permissions;
        let mut first = self.inherit_acl(parent, above, node.kind, caller.umask, &mut permissions)?;
        first.overrides = self.inherit_overrides(parent, above, node.kind)?;
        first.labels = caller.labels;
        let mut record = InodeRecord::new(node.kind, permissions, caller, self.clock.now(), self.generation);
        if above.permissions & libc::S_ISGID != 0 {
            record.gid = above.gid;
            record.permissions |= if record.is_directory() { libc::S_ISGID } else { 0 };
        }
        record.rdev = node.rdev;
        record.size = node.target.len() as u64;
        match node.kind {
            FileKind::Regular => (record.map, record.usage) = (self.store.new_map(), self.monitor.usage_of_new()),
            FileKind::Directory => record.parent = parent,
            _ => record.map = MapId(0),
        }
        record.xattrs = first.count();
        Ok((record, first))
    }

    /// Applies the directory's default ACL, which replaces the umask (acl(5)).
    fn inherit_acl<'a>(
        &self,
        parent: Ino,
        above: &InodeRecord,
        kind: FileKind,
        umask: u32,
        permissions: &mut u32,
    ) -> Result<FirstAttributes<'a>> {
        if kind == FileKind::Symlink {
            return Ok(FirstAttributes::default());
        }
        let Some(default) = self.read_acl(parent, above, acl::DEFAULT)? else {
            *permissions &= !umask;
            return Ok(FirstAttributes::default());
        };
        let handed_down = (kind == FileKind::Directory).then(|| default.encode());
        let access = Some(default.inherit(permissions)).filter(|access| !access.is_only_mode());
        Ok(FirstAttributes {
            access: access.as_ref().map(Acl::encode),
            default: handed_down,
            ..FirstAttributes::default()
        })
    }

    /// Adds the name `name` in the directory `parent` to an existing file. A file that was made without a name stops
    /// being an orphan. If the ranker has passed it, it gets a place in a rank queue in the same commit group.
    ///
    /// # Errors
    ///
    /// - `OperationNotPermitted`: the inode is a directory, immutable or append-only.
    /// - `TooManyLinks`: the file has [`LINKS_MAX`] names.
    /// - `NotFound`: the file has lost its last name, or `parent` was deleted.
    /// - Otherwise as [`FileSystem::mknod`].
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let _room = self.begin_change()?;
        check_new_name(name)?;
        let inodes = [self.directory(parent)?, self.inode(ino)?];
        let mut staged = Staged::lock(&inodes);
        let target = staged.get(ino);
        if target.is_directory() {
            return Err(Error::OperationNotPermitted);
        }
        let is_first = target.nlink == 0;
        if is_first && !self.orphans.may_be_named(ino) || staged.get(parent).nlink == 0 {
            return Err(Error::NotFound);
        }
        if target.nlink >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        target.check_changeable()?;
        staged.get(parent).check_grows()?;
        self.check_host()?;
        let kind = target.kind;
        let now = self.clock.now();
        staged.entries_changed(parent, now).entries += 1;
        let target = staged.edit(ino);
        target.nlink += 1;
        debug_assert!((1..=LINKS_MAX).contains(&target.nlink), "inode {} has {} names", ino.0, target.nlink);
        target.ctime = now;
        let attributes = target.attributes(ino);
        let mut change = Change::new();
        let mut names = NameChange::new(self);
        names.set(parent, name, ino, kind)?;
        names.finish(&mut change);
        if is_first {
            change.delete(orphan::key(ino));
            self.add_place_of_named(&mut change, ino, &staged.get(ino).usage);
            // Taken before the name exists, so that a concurrent `forget` does not delete the file.
            self.orphans.take(ino);
        }
        let published = staged.publish(&self.store, change);
        if is_first && published.is_err() {
            self.orphans.add(ino, Nameless::NeverNamed);
        }
        published?;
        Ok(attributes)
    }
}

/// Refuses invalid labels, duplicates, and labels too large for the room that a creation claims.
fn check_labels(labels: &[Label<'_>]) -> Result<()> {
    let is_label =
        |name: &[u8]| name.starts_with(SECURITY) && (SECURITY.len() + 1..=NAME_BYTES_MAX).contains(&name.len());
    let comes_twice = |at: usize| labels[..at].iter().any(|other| other.name == labels[at].name);
    if (0..labels.len()).any(|at| !is_label(labels[at].name) || comes_twice(at)) {
        return Err(Error::Invalid("invalid label of a new file: not one attribute of each name, in `security.`"));
    }
    let bytes: usize = labels.iter().map(|label| label.name.len() + label.value.len()).sum();
    if bytes > LABELS_BYTES_MAX { Err(Error::TooBig) } else { Ok(()) }
}

/// Adds a new inode to a change, with its target and its first attributes.
fn put_node(change: &mut Change, ino: Ino, record: &InodeRecord, node: &Node, first: FirstAttributes<'_>) {
    assert_eq!(record.xattrs, first.count(), "inode {} miscounts its first attributes", ino.0);
    debug_assert_eq!(
        record.kind == FileKind::Symlink,
        !node.target.is_empty(),
        "inode {}, a {:?}, has a target of {} bytes",
        ino.0,
        record.kind,
        node.target.len()
    );
    put_inode(change, ino, record);
    if node.kind == FileKind::Symlink {
        change.put(symlink::key(ino), symlink::encode(ino, node.target));
    }
    let mut put = |name: &[u8], value: &[u8]| change.put(xattr::key(ino, name), xattr::encode(ino, value));
    let lists = [(acl::ACCESS, first.access), (acl::DEFAULT, first.default)];
    for (name, value) in lists.into_iter().chain(first.overrides.attributes()) {
        if let Some(value) = value {
            put(name, &value);
        }
    }
    first.labels.iter().for_each(|label| put(label.name, label.value));
}
