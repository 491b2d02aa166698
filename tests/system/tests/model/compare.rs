//! Whether the mount holds what the model holds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use oncefs_system_tests::sys;

use super::tree::{Id, Kind, Node, ROOT, Tree};

/// Requires that `root` holds exactly `tree`.
pub fn assert_equal(root: &Path, tree: &Tree, when: &str) {
    if let Some(difference) = difference(root, tree) {
        panic!("{when}, the mount differs from the model: {difference}");
    }
}

/// The first difference between `root` and `tree`.
pub fn difference(root: &Path, tree: &Tree) -> Option<String> {
    let mut inodes = BTreeMap::new();
    differs(root, tree, ROOT, &mut inodes).err()
}

type Same = Result<(), String>;

fn differs(path: &Path, tree: &Tree, id: Id, inodes: &mut BTreeMap<u64, Id>) -> Same {
    let attributes = fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let node = tree.node(id);
    expect(path, "inode's identity", inodes.entry(attributes.ino()).or_insert(id), &id)?;
    if id != ROOT {
        expect(path, "mode", &(attributes.mode() & 0o7777), &node.mode)?;
        expect(path, "owner", &(attributes.uid(), attributes.gid()), &node.owner)?;
    }
    expect(path, "link count", &attributes.nlink(), &tree.links(id))?;
    if let Some(modified) = node.modified {
        expect(path, "modification time", &(attributes.mtime(), attributes.mtime_nsec()), &modified)?;
    }
    same_xattrs(path, node)?;
    match &node.kind {
        Kind::Directory(names) => same_names(path, tree, names, inodes),
        Kind::File(content) => same_content(path, attributes.len(), content),
        Kind::Symlink(target) => {
            expect(path, "target", &fs::read_link(path).unwrap_or_default(), &Path::new(target).to_owned())
        }
        Kind::Fifo => expect(path, "type", &(attributes.mode() & libc::S_IFMT), &libc::S_IFIFO),
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(path: &Path, what: &str, got: &T, wanted: &T) -> Same {
    if got == wanted { Ok(()) } else { Err(format!("{}: {what} is {got:?}, not {wanted:?}", path.display())) }
}

fn same_names(path: &Path, tree: &Tree, names: &BTreeMap<String, Id>, inodes: &mut BTreeMap<u64, Id>) -> Same {
    let entries = fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut found: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    expect(path, "list of names", &found, &names.keys().cloned().collect())?;
    names.iter().try_for_each(|(name, id)| differs(&path.join(name), tree, *id, inodes))
}

fn same_content(path: &Path, len: u64, wanted: &[u8]) -> Same {
    expect(path, "length", &len, &(wanted.len() as u64))?;
    let found = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match found.iter().zip(wanted).position(|(got, wanted)| got != wanted) {
        Some(at) => Err(format!("{}: byte {at} of {len} is {}, not {}", path.display(), found[at], wanted[at])),
        None => expect(path, "length read", &found.len(), &wanted.len()),
    }
}

fn same_xattrs(path: &Path, node: &Node) -> Same {
    let names = sys::list_xattr(path).map_err(|error| format!("{}: {error}", path.display()))?;
    expect(path, "list of attributes", &names, &node.xattrs.keys().cloned().collect())?;
    for (name, wanted) in &node.xattrs {
        expect(path, name, &sys::get_xattr(path, name).unwrap_or_default(), wanted)?;
    }
    Ok(())
}
