//! Random programs of an unprivileged user on a volume that others have almost filled. Any call may fail for lack of
//! room. After each program the volume opens, is clean, takes a write, and has all its room again once the user's files
//! are gone.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use oncefs_engine::BackgroundStep;
use oncefs_fs::{AllocateMode, Error, FileKind, FileSystem, Ino, Privileges, Result, SetAttributes, XattrMode};
use oncefs_fs::{NamePlaces, RenameMode, Whence};

use crate::base::{BY_CALLER, ROOT, bytes};
use crate::input::Input;
use crate::volume::{DATA, Parts, Volume};

const BLOCK: u64 = 4096;
const CALLS_MAX: usize = 60;
/// The smallest log that a volume may have.
const LOG_BYTES: u64 = 4 << 20;
/// Blocks that the others leave free.
const FREE_BLOCKS: u64 = 300;
/// References that the user has to one block.
const CLONES: u64 = 6000;
/// Bytes of calls after which a checkpoint is made: no thread makes one when a group has used its share of the log.
const CALL_BYTES_MAX: usize = 256 << 10;
/// Bytes that a call counts besides its data.
const CALL_BYTES: usize = 24 << 10;
const NAMES: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"clones", b"held", b"sub"];
const WORK: [BackgroundStep; 9] = [
    BackgroundStep::Reclaim,
    BackgroundStep::Release,
    BackgroundStep::FillHints,
    BackgroundStep::Revisit { blocks_max: 256 },
    BackgroundStep::Rank,
    BackgroundStep::MergeHints,
    BackgroundStep::SaveSkipped,
    BackgroundStep::Punch,
    BackgroundStep::Scrub { blocks_max: 256 },
];

/// The volume before a program, and the blocks that are free when the user has no file.
static BASE: LazyLock<(Parts, u64)> = LazyLock::new(|| {
    let volume = Volume::with(LOG_BYTES, NamePlaces::default());
    let file_system = volume.open(false).expect("a sound volume opens");
    let free = fill(&file_system).expect("the volume has room for it");
    drop(file_system);
    (volume.parts(), free)
});

/// Lets others reserve most of the volume, and gives the user a file with many references to one block.
fn fill(fs: &FileSystem) -> Result<u64> {
    let others = fs.mkdir(Ino::ROOT, b"others", 0o755, &ROOT)?.ino;
    let held = fs.mknod(others, b"held", libc::S_IFREG | 0o600, 0, &ROOT)?.ino;
    let reserve = AllocateMode::Reserve { keep_size: false };
    let most = (fs.statfs().available - FREE_BLOCKS) * BLOCK;
    fs.fallocate(held, 0, most, reserve, Privileges::Kept)?;
    let user = fs.mkdir(Ino::ROOT, b"user", 0o755, &ROOT)?.ino;
    settle(fs)?;
    let free = fs.statfs().available;
    let clones = fs.mknod(user, b"clones", libc::S_IFREG | 0o600, 0, &ROOT)?.ino;
    fs.write(clones, 0, &bytes(1, BLOCK as usize), BY_CALLER)?;
    let mut there = 1;
    while there < CLONES {
        let more = there.min(CLONES - there);
        fs.copy_file_range(clones, 0, clones, there * BLOCK, more * BLOCK, Privileges::Kept)?;
        there += more;
    }
    settle(fs)?;
    Ok(free)
}

/// Does all waiting work.
fn settle(fs: &FileSystem) -> Result<()> {
    while fs.store().run(BackgroundStep::Reclaim)? {}
    for step in [BackgroundStep::Checkpoint, BackgroundStep::Release, BackgroundStep::Checkpoint] {
        fs.store().run(step)?;
    }
    Ok(())
}

/// The target: a program.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let volume = Volume::of(&BASE.0);
    let file_system = Some(volume.open(false).expect("a sound volume opens"));
    let mut run = Run { file_system, volume, called: 0, bytes: Cell::default() };
    while !input.is_empty() && run.called < CALLS_MAX {
        run.called += 1;
        run.volume.clock.set(run.called as i64);
        if let Err(error) = run.call(&mut input) {
            assert!(is_an_answer(&error), "call {}: {error}", run.called);
        }
    }
    run.end(&mut input);
}

/// Whether a program may get this error of a sound volume.
fn is_an_answer(error: &Error) -> bool {
    !matches!(error, Error::ReadOnly(_) | Error::Engine(_))
}

struct Run {
    volume: Volume,
    file_system: Option<Arc<FileSystem>>,
    called: usize,
    bytes: Cell<usize>,
}

impl Run {
    fn fs(&self) -> &FileSystem {
        self.file_system.as_ref().expect("it is closed only while it is reopened")
    }

    fn user(&self) -> Result<Ino> {
        Ok(self.fs().lookup(Ino::ROOT, b"user")?.ino)
    }

    /// The user's directory, or the one below.
    fn directory(&self, input: &mut Input<'_>) -> Result<Ino> {
        let user = self.user()?;
        if input.one_in(4) { self.fs().lookup(user, b"sub").map(|found| found.ino) } else { Ok(user) }
    }

    /// A file of the user, created if necessary.
    fn file(&self, input: &mut Input<'_>) -> Result<Ino> {
        let (parent, name) = (self.directory(input)?, input.pick(&NAMES[..6]));
        match self.fs().lookup(parent, name) {
            Err(Error::NotFound) => Ok(self.fs().mknod(parent, name, libc::S_IFREG | 0o644, 0, &ROOT)?.ino),
            found => found.map(|attributes| attributes.ino),
        }
    }

    /// An offset, often at a block's edge, mostly near the start, rarely where only a hole can be.
    fn offset(input: &mut Input<'_>) -> u64 {
        let at = match input.byte() % 8 {
            0 => input.edge() % (1 << 44),
            1..4 => input.below(FREE_BLOCKS * 2 * BLOCK),
            _ => input.below(DATA.bytes()),
        };
        if input.one_in(2) { at / BLOCK * BLOCK } else { at }
    }

    fn length(input: &mut Input<'_>) -> u64 {
        match input.byte() % 6 {
            0 => 1 + input.edge() % (1 << 40),
            1 | 2 => 1 + input.below(FREE_BLOCKS * BLOCK),
            3 => BLOCK * (1 + input.below(FREE_BLOCKS + 20)),
            _ => 1 + input.below(DATA.bytes()),
        }
    }

    /// Makes room before a call with `bytes` bytes.
    fn make_room(&self, bytes: usize) -> Result<()> {
        self.bytes.set(self.bytes.get() + bytes);
        if self.bytes.get() > CALL_BYTES_MAX {
            self.bytes.set(bytes);
            self.fs().store().run(BackgroundStep::Checkpoint)?;
        }
        Ok(())
    }

    fn call(&mut self, input: &mut Input<'_>) -> Result<()> {
        self.make_room(CALL_BYTES)?;
        match input.byte() % 32 {
            0..6 => self.write(input),
            6 | 7 => self.write_apart(input),
            8..12 => self.fallocate(input),
            12..16 => self.copy(input),
            16..18 => self.truncate(input),
            18 | 19 => self.xattrs(input),
            20 => self.make(input),
            21 => self.remove(input),
            22 => self.rename(input),
            23 => self.link(input),
            24 => self.read(input),
            25 => Ok(self.fs().store().commit()?),
            26 => Ok(self.fs().store().run(BackgroundStep::Checkpoint).map(drop)?),
            27..30 => Ok(self.fs().store().run(input.pick(&WORK)).map(drop)?),
            30 => {
                self.leave();
                Ok(())
            }
            _ => {
                self.power_cut(&mut || input.one_in(2));
                Ok(())
            }
        }
    }

    fn write(&self, input: &mut Input<'_>) -> Result<()> {
        let (ino, at) = (self.file(input)?, Self::offset(input));
        let len = 1 + input.below(40 * BLOCK) as usize;
        self.make_room(len)?;
        self.fs().write(ino, at, &bytes(input.byte() % 7, len), BY_CALLER).map(drop)
    }

    /// Writes single blocks that are not adjacent: the most changes that a request can make.
    fn write_apart(&self, input: &mut Input<'_>) -> Result<()> {
        let (ino, at, apart) = (self.file(input)?, Self::offset(input), 2 + input.below(2000));
        let content = bytes(input.byte() % 7, BLOCK as usize);
        for number in 0..1 + input.below(64) {
            self.make_room(content.len())?;
            self.fs().write(ino, at + number * apart * BLOCK, &content, BY_CALLER)?;
        }
        Ok(())
    }

    fn fallocate(&self, input: &mut Input<'_>) -> Result<()> {
        let (ino, at, len) = (self.file(input)?, Self::offset(input), Self::length(input));
        let keep_size = input.one_in(2);
        let modes =
            [AllocateMode::Reserve { keep_size }, AllocateMode::PunchHole, AllocateMode::ZeroRange { keep_size }];
        self.fs().fallocate(ino, at, len, input.pick(&modes), Privileges::Kept)
    }

    fn copy(&self, input: &mut Input<'_>) -> Result<()> {
        let (source, from) = (self.file(input)?, Self::offset(input));
        let (target, to) = (self.file(input)?, Self::offset(input));
        let (len, is_cloned) = (Self::length(input), (from ^ to) % BLOCK == 0);
        // Data that cannot be cloned is written, without a commit in between.
        let len = if is_cloned { len } else { len % CALL_BYTES_MAX as u64 };
        self.make_room(if is_cloned { 0 } else { len as usize })?;
        self.fs().copy_file_range(source, from, target, to, len, Privileges::Kept).map(drop)
    }

    fn truncate(&self, input: &mut Input<'_>) -> Result<()> {
        let (ino, size) = (self.file(input)?, if input.one_in(3) { 100 } else { Self::offset(input) });
        self.fs().setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).map(drop)
    }

    fn xattrs(&self, input: &mut Input<'_>) -> Result<()> {
        let (ino, len) = (self.file(input)?, input.below(65_537) as usize);
        let value = bytes(input.byte(), len);
        let first = input.below(200);
        for number in first..=first + input.below(32) {
            let name = format!("user.{number}");
            self.make_room(value.len())?;
            match input.one_in(8) {
                true => self.fs().removexattr(ino, name.as_bytes())?,
                false => self.fs().setxattr(ino, name.as_bytes(), &value, XattrMode::Any, false)?,
            }
        }
        Ok(())
    }

    fn make(&self, input: &mut Input<'_>) -> Result<()> {
        let user = self.user()?;
        match input.one_in(2) {
            true => self.fs().mkdir(user, b"sub", 0o755, &ROOT).map(drop),
            false => self.fs().symlink(user, input.pick(&NAMES), &[b'x'; 4000], &ROOT).map(drop),
        }
    }

    /// Deletes a name, and the file if it is not open.
    fn remove(&self, input: &mut Input<'_>) -> Result<()> {
        let (parent, name) = (self.directory(input)?, input.pick(&NAMES));
        let gone = if name == b"sub" { self.fs().rmdir(parent, name)? } else { self.fs().unlink(parent, name)? };
        gone.map_or(Ok(()), |ino| self.fs().forget(ino))
    }

    fn rename(&self, input: &mut Input<'_>) -> Result<()> {
        let old = (self.directory(input)?, input.pick(&NAMES));
        let new = (self.directory(input)?, input.pick(&NAMES));
        let mode = input.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let gone = self.fs().rename(old.0, old.1, new.0, new.1, mode)?;
        gone.map_or(Ok(()), |ino| self.fs().forget(ino))
    }

    fn link(&self, input: &mut Input<'_>) -> Result<()> {
        let ino = self.file(input)?;
        self.fs().link(ino, self.directory(input)?, input.pick(&NAMES)).map(drop)
    }

    fn read(&self, input: &mut Input<'_>) -> Result<()> {
        let (ino, at) = (self.file(input)?, Self::offset(input));
        self.fs().read(ino, at, 1 << 20, true)?;
        self.fs().lseek(ino, at, input.pick(&[Whence::Data, Whence::Hole])).map(drop)
    }

    fn leave(&mut self) {
        let left = self.fs().store().run(BackgroundStep::LeaveCleanly);
        left.unwrap_or_else(|error| panic!("call {}: unmounting: {error}", self.called));
        self.volume = Volume::of(&self.volume.parts());
        self.open_again();
    }

    fn power_cut(&mut self, is_kept: &mut dyn FnMut() -> bool) {
        self.volume = Volume::of(&self.volume.after_power_cut(is_kept));
        self.open_again();
    }

    /// Opens it first for a check with all its data, then for use.
    fn open_again(&mut self) {
        self.file_system = None;
        let failed = |error: Error| -> ! { panic!("opened after call {}: {error}", self.called) };
        let read_only = self.volume.open(true).unwrap_or_else(|error| failed(error));
        let mut found = Vec::new();
        let blocks = read_only.store().check(true, &mut |_, _| {}).unwrap_or_else(|error| failed(error.into()));
        read_only.check(&mut |line| found.push(line)).unwrap_or_else(|error| failed(error));
        assert!(found.is_empty() && blocks.is_clean(), "after call {}: {found:?} {:?}", self.called, blocks.problems);
        drop(read_only);
        let opened = self.volume.open(false).unwrap_or_else(|error| failed(error));
        opened.reclaim_left_behind().unwrap_or_else(|error| failed(error));
        self.file_system = Some(opened);
    }

    /// Checks the assertions after a program.
    fn end(&mut self, input: &mut Input<'_>) {
        if input.one_in(2) {
            self.leave()
        } else {
            self.power_cut(&mut || input.one_in(2))
        }
        let free = self.without_the_user().unwrap_or_else(|error| panic!("the user's files go: {error}"));
        assert_eq!(free, BASE.1, "blocks are free without the user's files, and were before");
        self.takes_a_write().unwrap_or_else(|error| panic!("a write afterwards: {error}"));
        self.leave();
    }

    /// Deletes all files of the user. Returns the free blocks after that.
    fn without_the_user(&self) -> Result<u64> {
        self.empty(self.user()?)?;
        settle(self.fs())?;
        Ok(self.fs().statfs().available)
    }

    fn empty(&self, directory: Ino) -> Result<()> {
        const AFTER_DOTS: u64 = 2;
        let mut entries = Vec::new();
        self.fs().readdir(directory, AFTER_DOTS, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            true
        })?;
        for (name, ino, kind) in entries {
            let gone = if kind == FileKind::Directory {
                self.empty(ino)?;
                self.fs().rmdir(directory, &name)?
            } else {
                self.fs().unlink(directory, &name)?
            };
            gone.map_or(Ok(()), |ino| self.fs().forget(ino))?;
        }
        Ok(())
    }

    fn takes_a_write(&self) -> Result<()> {
        let ino = self.fs().mknod(self.user()?, b"after", libc::S_IFREG | 0o644, 0, &ROOT)?.ino;
        let content = bytes(77, 2 * BLOCK as usize);
        self.fs().write(ino, 0, &content, BY_CALLER)?;
        self.fs().store().commit()?;
        assert!(*self.fs().read(ino, 0, content.len(), false)? == content[..], "it reads as it was written");
        Ok(())
    }
}
