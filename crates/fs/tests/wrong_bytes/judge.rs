//! Compares the view of a volume with its true content: finds losses and wrong answers.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use oncefs_fs::{FileKind, Ino};

use super::look::{Shown, View};
use super::truth::{BLOCK, History, Thing, Tree, text};

/// The name of the file that a test makes after the damage.
pub const MADE_AFTERWARDS: &[u8] = b"made after the damage";
const LOST_FOUND: &[u8] = b"lost+found";

/// The result for a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Things that are not complete under each of their names.
    pub lost: BTreeSet<Ino>,
    /// Wrong answers.
    pub wrong: Vec<String>,
}

/// Judges a view of a volume that holds `tree`.
pub fn judge(tree: &Tree, view: &View, history: &History) -> Verdict {
    let mut verdict = Verdict { wrong: view.wrong.clone(), ..Verdict::default() };
    for (path, ino) in &tree.names {
        if view.names.get(path) != Some(ino) {
            verdict.lost.insert(*ino);
        }
    }
    let current = LazyCell::new(|| current_blocks(tree));
    for (path, ino) in &view.names {
        if path.starts_with(LOST_FOUND) {
            if path.len() > LOST_FOUND.len() {
                found_lost(tree, (path, *ino), view, &current, history, &mut verdict);
            }
        } else if path == MADE_AFTERWARDS {
            continue;
        } else if tree.names.get(path) == Some(ino) {
            compare(&tree.things[ino], (path, *ino), &view.things[ino], history, &mut verdict);
        } else {
            verdict.wrong.push(format!("{} is a name of inode {}, and was not", text(path), ino.0));
        }
    }
    verdict
}

fn current_blocks(tree: &Tree) -> BTreeSet<&[u8]> {
    let files = tree.things.values().filter(|thing| thing.kind == FileKind::Regular);
    files.flat_map(|file| file.content.chunks(BLOCK)).collect()
}

/// Whether fsck may have made this inode of a name or of entries: it belongs to root, and no other user may use it.
fn is_made_by_fsck(shown: &Shown) -> bool {
    let permissions = if shown.attributes.kind == FileKind::Symlink { 0o777 } else { 0o700 };
    let owner = (shown.attributes.uid, shown.attributes.gid);
    shown.attributes.kind != FileKind::Regular && owner == (0, 0) && shown.attributes.permissions == permissions
}

fn compare(thing: &Thing, (path, ino): (&[u8], Ino), shown: &Shown, history: &History, verdict: &mut Verdict) {
    let name = text(path);
    let lost_before = verdict.lost.len();
    compare_attributes(thing, (&name, ino), shown, verdict);
    compare_xattrs(thing, (&name, ino), shown, verdict);
    match thing.kind {
        FileKind::Regular => compare_blocks(thing, (&name, ino), shown, history, verdict),
        FileKind::Symlink => match &shown.blocks[..] {
            [Some(target)] if *target == *thing.content => {}
            [Some(target)] => verdict.wrong.push(format!("{name} leads to {}", text(target))),
            _ => drop(verdict.lost.insert(ino)),
        },
        _ => {}
    }
    assert!(verdict.lost.len() <= lost_before + 1, "one thing is lost at most");
}

fn compare_attributes(thing: &Thing, (name, ino): (&str, Ino), shown: &Shown, verdict: &mut Verdict) {
    let is = &shown.attributes;
    if is.kind != thing.kind {
        verdict.wrong.push(format!("{name} is a {:?}", is.kind));
        return;
    }
    if (is.uid, is.gid, is.permissions) != (thing.uid, thing.gid, thing.permissions) {
        verdict.lost.insert(ino);
        if !is_made_by_fsck(shown) {
            let (is, was) = ((is.uid, is.gid, is.permissions), (thing.uid, thing.gid, thing.permissions));
            verdict.wrong.push(format!("{name} is of {is:?} instead of {was:?} (user, group, permissions)"));
        }
    } else if is.mtime.seconds != thing.mtime && thing.kind == FileKind::Regular {
        verdict.wrong.push(format!("{name} was written at {} instead of {}", is.mtime.seconds, thing.mtime));
    }
    if thing.kind == FileKind::Regular && is.size != thing.content.len() as u64 {
        verdict.wrong.push(format!("{name} has {} bytes instead of {}", is.size, thing.content.len()));
    }
}

fn compare_xattrs(thing: &Thing, (name, ino): (&str, Ino), shown: &Shown, verdict: &mut Verdict) {
    for (attribute, value) in &shown.xattrs {
        if thing.xattrs.get(attribute) != Some(value) {
            verdict.wrong.push(format!("{name} has {} = {}", text(attribute), text(value)));
        }
    }
    if thing.xattrs.keys().any(|attribute| !shown.xattrs.contains_key(attribute)) {
        verdict.lost.insert(ino);
    }
}

fn compare_blocks(thing: &Thing, (name, ino): (&str, Ino), shown: &Shown, history: &History, verdict: &mut Verdict) {
    for (at, (is, was)) in shown.blocks.iter().zip(thing.content.chunks(BLOCK)).enumerate() {
        match is {
            Some(is) if is == was => {}
            Some(is) => {
                verdict.lost.insert(ino);
                verdict.wrong.push(format!("{name}, block {at}: {}", history.tell(is)));
            }
            None => drop(verdict.lost.insert(ino)),
        }
    }
    if shown.blocks.len() != thing.content.len().div_ceil(BLOCK) {
        verdict.lost.insert(ino);
    }
}

/// Judges an entry of `lost+found`: a complete inode, or the content of a map, which belongs to root.
fn found_lost(
    tree: &Tree,
    (path, ino): (&[u8], Ino),
    view: &View,
    current: &BTreeSet<&[u8]>,
    history: &History,
    verdict: &mut Verdict,
) {
    let shown = &view.things[&ino];
    let is = &shown.attributes;
    let name = text(path);
    // A map's content is in a file that fsck made, whose number may be that of a lost inode.
    let is_of_map = (is.uid, is.gid, is.permissions, is.kind) == (0, 0, 0o600, FileKind::Regular);
    if !is_of_map {
        match tree.things.get(&ino) {
            Some(thing) => compare(thing, (path, ino), shown, history, verdict),
            None => verdict.wrong.push(format!("{name} was deleted")),
        }
        return;
    }
    for (at, block) in shown.blocks.iter().enumerate() {
        let is_current = |block: &&Vec<u8>| {
            let end = block.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            let mut tail = current.range(&block[..end]..);
            end == 0 || current.contains(&block[..]) || tail.next().is_some_and(|tail| block.starts_with(tail))
        };
        if let Some(block) = block.as_ref().filter(|block| !is_current(block)) {
            verdict.wrong.push(format!("{name}, block {at}: {}", history.tell(block)));
        }
    }
}
