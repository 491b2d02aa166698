//! Renaming: one change moves a name, replaces or exchanges the target, and adjusts every count.

use std::sync::Arc;

use oncefs_engine::Change;
use oncefs_engine::sync::MutexGuard;

use crate::format::dirent::Dirent;
use crate::format::inode::{InodeRecord, put_inode};
use crate::inodes::cache::Inode;
use crate::inodes::numbers::BeingMade;
use crate::inodes::staged::Staged;
use crate::names::directory::{check_name, check_new_name};
use crate::names::name_change::NameChange;
use crate::{Caller, Error, FileKind, FileSystem, Ino, Result, Timestamp};

/// Most directories read on the way up with the rename lock held. With the other reads of a rename they stay below the
/// bound on reads under a lock.
const STEPS_LOCKED_MAX: u64 = 12;
/// How often a long path is walked up without the lock. After that the path is in memory, and is walked with the lock.
const TRIES_UNLOCKED_MAX: u32 = 8;

/// The treatment of an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// The rename is refused.
    NoReplace,
    /// It gets the old name. It must exist.
    Exchange,
}

/// A place for a name.
#[derive(Clone, Copy)]
struct Slot<'a> {
    parent: Ino,
    name: &'a [u8],
}

/// A whiteout that is about to be published.
struct Whiteout<'a> {
    ino: Ino,
    record: InodeRecord,
    _being_made: BeingMade<'a>,
}

/// How a name is moved.
#[derive(Clone, Copy)]
struct Manner<'a> {
    mode: RenameMode,
    /// The owner of the whiteout that takes the old name, if there is one.
    whiteout: Option<&'a Caller<'a>>,
}

impl FileSystem {
    /// Moves a name. Returns the inode that lost its last name, as [`FileSystem::unlink`] does. Does nothing if both names
    /// stand for the same inode.
    ///
    /// # Errors
    ///
    /// - `NotFound`: the old name does not exist; for `Exchange`, the new one does not; or `new_parent` was deleted.
    /// - `OperationNotPermitted`: a file or directory whose names would change is immutable or append-only, or it is the
    ///   directory of disks and snapshots ([`RESERVED_NAME`](crate::RESERVED_NAME)) or one of those that it is for.
    /// - `Exists`: the new name exists (`NoReplace`), or is `.` or `..`.
    /// - `NotADirectory`: a parent is not a directory, or a directory would replace a file.
    /// - `IsADirectory`: a file would replace a directory.
    /// - `NotEmpty`: the directory to be replaced has entries.
    /// - `Invalid`: a directory would move below itself, or a name is invalid.
    /// - `NameTooLong`: a name is longer than [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX).
    /// - `Stale`: a parent does not exist.
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn rename(
        &self,
        old_parent: Ino,
        old_name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        let (old, new) = (Slot { parent: old_parent, name: old_name }, Slot { parent: new_parent, name: new_name });
        self.move_name(old, new, Manner { mode, whiteout: None })
    }

    /// As [`FileSystem::rename`], but the old name stays and becomes a whiteout, a character device 0:0 of this owner.
    /// A whiteout tells overlayfs that the name in the lower layer is gone.
    ///
    /// # Errors
    ///
    /// - `Invalid`: also for `Exchange`, by which both names stay.
    /// - Otherwise as [`FileSystem::rename`].
    pub fn rename_leaving_whiteout(
        &self,
        old_parent: Ino,
        old_name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
        owner: &Caller<'_>,
    ) -> Result<Option<Ino>> {
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid("an exchange of two names leaves no whiteout: both names stay"));
        }
        let (old, new) = (Slot { parent: old_parent, name: old_name }, Slot { parent: new_parent, name: new_name });
        self.move_name(old, new, Manner { mode, whiteout: Some(owner) })
    }

    fn move_name(&self, old: Slot, new: Slot, manner: Manner) -> Result<Option<Ino>> {
        let _room = self.begin_change()?;
        check_name(old.name)?;
        check_new_name(new.name)?;
        let directories = [self.directory(old.parent)?, self.directory(new.parent)?];
        loop {
            check_alive(&directories[1].lock())?;
            if let Some(orphaned) = self.try_rename(&directories, old, new, manner)? {
                return Ok(orphaned);
            }
        }
    }

    /// Disks and snapshots are found by the names of their directory and of the one above it, so both keep their names.
    fn refuse_to_move_reserved(&self, parent: Ino, dirent: &Dirent) -> Result<()> {
        match parent == Ino::ROOT && self.is_reserved(dirent)? || self.is_reserved_below(parent, dirent)? {
            true => Err(Error::OperationNotPermitted),
            false => Ok(()),
        }
    }

    /// Renames once. None: the names changed between being read and being locked.
    fn try_rename(
        &self,
        directories: &[Arc<Inode>],
        old: Slot,
        new: Slot,
        manner: Manner,
    ) -> Result<Option<Option<Ino>>> {
        let mode = manner.mode;
        let source = self.find(old.parent, old.name)?.ok_or(Error::NotFound)?;
        let target = self.find(new.parent, new.name)?;
        self.refuse_to_move_reserved(old.parent, &source)?;
        if let (Some(target), RenameMode::Exchange) = (&target, mode) {
            self.refuse_to_move_reserved(new.parent, target)?;
        }
        if check_kinds(&source, target.as_ref(), mode)? == Outcome::Nothing {
            return Ok(Some(None));
        }
        // Not counting the name that moves, this directory could look empty.
        if mode != RenameMode::Exchange && target.as_ref().is_some_and(|target| target.ino == old.parent) {
            return Err(Error::NotEmpty);
        }
        let moves_directory = [Some(&source), target.as_ref()].into_iter().flatten().any(is_directory);
        let mut guard = None;
        if old.parent != new.parent && moves_directory {
            let back = target.as_ref().filter(|_| mode == RenameMode::Exchange).map(|target| (target, old.parent));
            let moves: Vec<_> = [(&source, new.parent)].into_iter().chain(back).collect();
            guard = Some(self.lock_moves(&moves)?);
        }
        let mut inodes = directories.to_vec();
        let mut replaced = None;
        for (parent, dirent) in [(old.parent, Some(&source)), (new.parent, target.as_ref())] {
            let Some(dirent) = dirent else { continue };
            let Some(inode) = self.inode_of(parent, dirent)? else { return Ok(None) };
            inodes.push(inode);
        }
        if let (Some(target), RenameMode::Replace) = (&target, mode) {
            let inode = inodes.last().expect("the target's comes last");
            directories[1].lock().check_changeable()?;
            inode.lock().check_changeable()?;
            replaced = Some((target.ino, self.first_entry(inode)?));
        }
        let mut staged = Staged::lock(&inodes);
        let unchanged =
            self.find(old.parent, old.name)?.as_ref() == Some(&source) && self.find(new.parent, new.name)? == target;
        if !unchanged {
            return Ok(None);
        }
        check_alive(staged.get(new.parent))?;
        staged.get(old.parent).check_changeable()?;
        staged.get(source.ino).check_changeable()?;
        staged.get(new.parent).check_grows()?;
        if let Some(target) = &target {
            staged.get(new.parent).check_changeable()?;
            staged.get(target.ino).check_changeable()?;
        }
        if let Some((ino, entry)) = replaced
            && !self.is_still_empty(&staged, ino, entry)?
        {
            return Ok(None);
        }
        let whiteout = manner.whiteout.map(|owner| self.make_whiteout(staged.get(old.parent), owner)).transpose()?;
        let (change, orphaned) =
            self.carry_out(&mut staged, (old, &source), (new, target.as_ref()), mode, whiteout.as_ref())?;
        if let Some(Whiteout { ino, record, .. }) = &whiteout {
            self.inodes.add(*ino, record.clone());
        }
        if let Some(moves) = &mut guard {
            **moves += 1;
        }
        let published = self.publish_orphaning(staged, change, orphaned);
        if let (Err(_), Some(whiteout)) = (&published, &whiteout) {
            self.inodes.remove(whiteout.ino);
        }
        published?;
        Ok(Some(orphaned))
    }

    /// A whiteout for the directory `above`. It has no permission bits, because it is never opened.
    fn make_whiteout(&self, above: &InodeRecord, owner: &Caller<'_>) -> Result<Whiteout<'_>> {
        self.check_host()?;
        let (ino, being_made) = self.numbers.take(&self.store)?;
        let mut record = InodeRecord::new(FileKind::CharDevice, 0, owner, self.clock.now(), self.generation);
        record.gid = if above.permissions & libc::S_ISGID != 0 { above.gid } else { record.gid };
        Ok(Whiteout { ino, record, _being_made: being_made })
    }

    fn carry_out(
        &self,
        staged: &mut Staged,
        (old, source): (Slot, &Dirent),
        (new, target): (Slot, Option<&Dirent>),
        mode: RenameMode,
        whiteout: Option<&Whiteout>,
    ) -> Result<(Change, Option<Ino>)> {
        debug_assert!(
            old.parent == new.parent || !is_directory(source) || self.rename_lock.is_locked(),
            "directory {} moves from {} to {} without the rename lock",
            source.ino.0,
            old.parent.0,
            new.parent.0
        );
        let now = self.clock.now();
        let mut change = Change::new();
        let mut names = NameChange::new(self);
        let mut orphaned = None;
        staged.entries_changed(old.parent, now);
        staged.entries_changed(new.parent, now);
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => {
                names.set(old.parent, old.name, target.ino, target.kind)?;
                move_inode(staged, target, new.parent, old.parent, now)?;
            }
            (_, target) => {
                if let Some(whiteout) = whiteout {
                    names.set(old.parent, old.name, whiteout.ino, FileKind::CharDevice)?;
                    put_inode(&mut change, whiteout.ino, &whiteout.record);
                } else {
                    names.remove(old.parent, old.name)?;
                    staged.remove_entry(old.parent)?;
                }
                if let Some(target) = target {
                    orphaned = self.drop_name(staged, &mut change, new.parent, target.ino, now)?;
                } else {
                    staged.edit(new.parent).entries += 1;
                }
            }
        }
        names.set(new.parent, new.name, source.ino, source.kind)?;
        move_inode(staged, source, old.parent, new.parent, now)?;
        names.finish(&mut change);
        Ok((change, orphaned))
    }

    /// Locks out other moves of directories, and refuses to move a directory below itself. The path up may be long and
    /// on the disk, and all other moves wait for this lock. So the path is walked without the lock, and the result
    /// counts if no directory has moved meanwhile. If one has, a short path is walked with the lock, and in the end a
    /// long one too. So a user who keeps moving directories cannot keep others from moving theirs.
    fn lock_moves(&self, moves: &[(&Dirent, Ino)]) -> Result<MutexGuard<'_, u64>> {
        let is_checked = |mut steps_left| -> Result<bool> {
            for (moved, into) in moves {
                if !self.check_no_cycle(moved, *into, &mut steps_left)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        for _ in 0..TRIES_UNLOCKED_MAX {
            let moved_before = *self.rename_lock.lock();
            let found = is_checked(u64::MAX);
            let guard = self.rename_lock.lock();
            if *guard == moved_before {
                return found.map(|_| guard);
            }
            if is_checked(STEPS_LOCKED_MAX)? {
                return Ok(guard);
            }
        }
        let guard = self.rename_lock.lock();
        is_checked(u64::MAX).map(|_| guard)
    }

    /// Refuses to move a directory below itself. False: the path up is longer than `steps_left`. With the rename lock
    /// no directory changes its parent, and `into` has a name, so every directory above it exists. If damage made a
    /// cycle of parents, the walk returns to a marked directory. The mark moves on at growing distances (Brent's
    /// algorithm).
    fn check_no_cycle(&self, moved: &Dirent, into: Ino, steps_left: &mut u64) -> Result<bool> {
        let (mut above, mut mark, mut steps, mut steps_max) = (into, Ino(0), 0_u64, 1_u64);
        while is_directory(moved) && above != Ino::ROOT {
            if above == moved.ino {
                return Err(Error::Invalid("cannot move a directory below itself"));
            }
            if above == mark {
                return Err(Error::corrupt(
                    format!("directory {}", into.0),
                    "it is not below the root; run oncefs fsck",
                ));
            }
            if steps == steps_max {
                (mark, steps, steps_max) = (above, 0, steps_max * 2);
            }
            let Some(left) = steps_left.checked_sub(1) else { return Ok(false) };
            *steps_left = left;
            steps += 1;
            above = self.directory(above)?.lock().parent;
        }
        Ok(true)
    }
}

/// Refuses a deleted directory, which takes no names.
fn check_alive(directory: &InodeRecord) -> Result<()> {
    if directory.nlink == 0 { Err(Error::NotFound) } else { Ok(()) }
}

/// Adjusts the counts and the parent of an inode that moves from one directory to another.
fn move_inode(staged: &mut Staged, dirent: &Dirent, from: Ino, to: Ino, now: Timestamp) -> Result<()> {
    staged.edit(dirent.ino).ctime = now;
    if is_directory(dirent) && from != to {
        staged.edit(dirent.ino).parent = to;
        staged.remove_link(from)?;
        staged.edit(to).nlink += 1;
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Move,
    /// Both names stand for one inode: rename(2) succeeds and does nothing.
    Nothing,
}

fn check_kinds(source: &Dirent, target: Option<&Dirent>, mode: RenameMode) -> Result<Outcome> {
    match (mode, target) {
        (RenameMode::NoReplace, Some(_)) => Err(Error::Exists),
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        (_, Some(target)) if target.ino == source.ino => Ok(Outcome::Nothing),
        (RenameMode::Replace, Some(target)) => match (is_directory(source), is_directory(target)) {
            (true, false) => Err(Error::NotADirectory),
            (false, true) => Err(Error::IsADirectory),
            _ => Ok(Outcome::Move),
        },
        _ => Ok(Outcome::Move),
    }
}

fn is_directory(dirent: &Dirent) -> bool {
    dirent.kind == FileKind::Directory
}
