//! Calls that change a volume and its expected content together.

use std::sync::Arc;

use oncefs_fs::{
    Attributes, Caller, FileKind, FileSystem, Ino, Privileges, RenameMode, SetAttributes, WriteOrigin, XattrMode,
};

use super::truth::{History, Thing, Tree};

/// The name of an access control list.
pub const ACL: &[u8] = b"system.posix_acl_access";

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

/// A volume in use, its content, and its content after each call.
pub struct Users<'a> {
    /// The volume.
    pub fs: &'a FileSystem,
    /// Its content.
    pub tree: Tree,
    /// Its content after each call since the beginning: a crash leaves one of them.
    pub states: Vec<Tree>,
    /// All content ever written.
    pub history: &'a mut History,
}

impl<'a> Users<'a> {
    /// Continues with a volume that holds `tree`.
    pub fn new(fs: &'a FileSystem, tree: Tree, history: &'a mut History) -> Self {
        Self { fs, states: vec![tree.clone()], tree, history }
    }

    fn ino(&self, path: &[u8]) -> Ino {
        if path.is_empty() { Ino::ROOT } else { self.tree.names[path] }
    }

    /// The directory of a path, and the name in it.
    fn slot<'p>(&self, path: &'p [u8]) -> (Ino, &'p [u8]) {
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (self.ino(&path[..at]), &path[at + 1..]),
            None => (Ino::ROOT, path),
        }
    }

    fn caller(uid: u32) -> Caller<'static> {
        Caller { uid, gid: uid + 10, umask: 0, labels: &[] }
    }

    fn add(&mut self, path: &[u8], made: &Attributes, content: Vec<u8>) {
        let Attributes { ino, kind, permissions, uid, gid, .. } = *made;
        let content = Arc::new(content);
        let thing = Thing { kind, permissions, uid, gid, mtime: 0, xattrs: Default::default(), content };
        self.tree.things.insert(ino, Arc::new(thing));
        self.tree.names.insert(path.to_vec(), ino);
        self.changed(&[path]);
    }

    fn edit(&mut self, path: &[u8], edit: impl FnOnce(&mut Thing)) {
        let ino = self.ino(path);
        edit(Arc::make_mut(self.tree.things.get_mut(&ino).unwrap()));
        self.changed(&[path]);
    }

    /// Notes the end of a call that changed these things and their directories.
    fn changed(&mut self, paths: &[&[u8]]) {
        let directories = paths.iter().map(|path| self.slot(path).0);
        let things = paths.iter().filter_map(|path| self.tree.names.get(*path)).copied();
        for ino in directories.chain(things).filter(|ino| *ino != Ino::ROOT).collect::<Vec<_>>() {
            let mtime = self.fs.getattr(ino).unwrap().mtime.seconds;
            Arc::make_mut(self.tree.things.get_mut(&ino).unwrap()).mtime = mtime;
        }
        self.states.push(self.tree.clone());
    }

    pub fn mkdir(&mut self, path: &[u8], uid: u32, permissions: u32) {
        let (parent, name) = self.slot(path);
        let made = self.fs.mkdir(parent, name, permissions, &Self::caller(uid)).unwrap();
        self.add(path, &made, Vec::new());
    }

    pub fn symlink(&mut self, path: &[u8], uid: u32, target: &[u8]) {
        let (parent, name) = self.slot(path);
        let made = self.fs.symlink(parent, name, target, &Self::caller(uid)).unwrap();
        self.add(path, &made, target.to_vec());
    }

    pub fn create(&mut self, path: &[u8], uid: u32) {
        let (parent, name) = self.slot(path);
        let made = self.fs.mknod(parent, name, libc::S_IFREG | 0o644, 0, &Self::caller(uid)).unwrap();
        self.add(path, &made, Vec::new());
    }

    /// Writes content that was never written before.
    pub fn write(&mut self, path: &[u8], at: usize, len: usize) {
        let uid = self.tree.at(path).uid;
        let bytes = self.history.unique(path, uid, len);
        self.write_bytes(path, at, &bytes);
    }

    pub fn write_bytes(&mut self, path: &[u8], at: usize, bytes: &[u8]) {
        self.fs.write(self.ino(path), at as u64, bytes, BY_CALLER).unwrap();
        self.edit(path, |thing| {
            let content = Arc::make_mut(&mut thing.content);
            content.resize(content.len().max(at + bytes.len()), 0);
            content[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }

    fn set(&mut self, path: &[u8], set: SetAttributes) {
        self.fs.setattr(self.ino(path), &set).unwrap();
    }

    pub fn truncate(&mut self, path: &[u8], size: usize) {
        self.set(path, SetAttributes { size: Some(size as u64), ..SetAttributes::default() });
        self.edit(path, |thing| Arc::make_mut(&mut thing.content).resize(size, 0));
    }

    pub fn chmod(&mut self, path: &[u8], permissions: u32) {
        self.set(path, SetAttributes { permissions: Some(permissions), ..SetAttributes::default() });
        self.edit(path, |thing| thing.permissions = permissions);
    }

    pub fn chown(&mut self, path: &[u8], uid: u32) {
        let gid = Self::caller(uid).gid;
        self.set(path, SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() });
        self.edit(path, |thing| (thing.uid, thing.gid) = (uid, gid));
    }

    pub fn set_xattr(&mut self, path: &[u8], name: &[u8], value: &[u8]) {
        self.fs.setxattr(self.ino(path), name, value, XattrMode::Any, false).unwrap();
        self.edit(path, |thing| drop(thing.xattrs.insert(name.to_vec(), value.to_vec())));
    }

    pub fn remove_xattr(&mut self, path: &[u8], name: &[u8]) {
        self.fs.removexattr(self.ino(path), name).unwrap();
        self.edit(path, |thing| drop(thing.xattrs.remove(name)));
    }

    /// Lets one more user read.
    pub fn set_acl(&mut self, path: &[u8], reader: u32) {
        let entries =
            [(1_u16, 6_u16, u32::MAX), (2, 4, reader), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
        let entry = |(tag, permissions, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let value = [2_u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(entry).collect()].concat();
        self.fs.setxattr(self.ino(path), ACL, &value, XattrMode::Any, false).unwrap();
        self.edit(path, |thing| {
            thing.xattrs.insert(ACL.to_vec(), value);
            thing.permissions = 0o640;
        });
    }

    pub fn link(&mut self, path: &[u8], new: &[u8]) {
        let (ino, (parent, name)) = (self.ino(path), self.slot(new));
        self.fs.link(ino, parent, name).unwrap();
        self.tree.names.insert(new.to_vec(), ino);
        self.changed(&[new]);
    }

    pub fn unlink(&mut self, path: &[u8]) {
        let (parent, name) = self.slot(path);
        let unlinked = self.fs.unlink(parent, name).unwrap();
        let ino = self.tree.names.remove(path).unwrap();
        if self.tree.names_of(ino).next().is_none() {
            self.tree.things.remove(&ino);
        }
        if let Some(ino) = unlinked {
            self.fs.forget(ino).unwrap();
        }
        self.changed(&[path]);
    }

    pub fn rename(&mut self, old: &[u8], new: &[u8]) {
        let ((from, name), (to, new_name)) = (self.slot(old), self.slot(new));
        assert!(
            self.tree.things[&self.tree.names[old]].kind == FileKind::Regular && !self.tree.names.contains_key(new)
        );
        self.fs.rename(from, name, to, new_name, RenameMode::NoReplace).unwrap();
        let ino = self.tree.names.remove(old).unwrap();
        self.tree.names.insert(new.to_vec(), ino);
        self.changed(&[old, new]);
    }
}
