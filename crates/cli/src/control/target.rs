//! Finds the volume of a command, by any path inside its mount or by its own directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use oncefs_engine::Store;
use serde::de::DeserializeOwned;

use crate::control::answers::{FileNames, NamesFound, OpenForWriting};
use crate::control::client::Connection;
use crate::control::protocol::Request;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table;
use crate::names::{Name, shown};
use crate::process::descriptors;

/// Bytes of names that a command keeps at a time.
const NAMES_BYTES_MAX: usize = 16 << 20;

/// The meaning of a path.
pub enum Target {
    /// A volume that is mounted.
    Mounted(Daemon),
    /// A directory that may be a volume and is not mounted.
    Offline(PathBuf),
}

impl Target {
    /// Resolves a path.
    pub fn find(path: &Path) -> Outcome<Self> {
        let real = mount_table::resolve(path).or_fail_doing(exit::FAILED, shown(path))?;
        let mount = mount_table::containing(&real).or_fail(exit::FAILED)?;
        if let Some(user) = mount.as_ref().and_then(mount_table::Mount::foreign_user) {
            // Reading it might block forever.
            let text = format!("{} is in a mount of user {user}, not in an oncefs mount", shown(path));
            return Err(Failure::new(exit::FAILED, text));
        }
        let mount = mount.filter(mount_table::Mount::is_oncefs);
        let daemon = Daemon { volume: mount.as_ref().map_or(&real, |m| &m.source).clone() };
        match (daemon.connect()?, mount) {
            (Some(_), _) => Ok(Self::Mounted(daemon)),
            (None, Some(mount)) => Err(dead(&mount)),
            (None, None) => Ok(Self::Offline(real)),
        }
    }
}

/// The daemon of a mounted volume, for any number of requests. Each has a connection of its own.
pub struct Daemon {
    /// The volume's directory.
    pub volume: PathBuf,
}

impl Daemon {
    /// The daemon of a mounted volume. Refuses other paths.
    pub fn find(path: &Path) -> Outcome<Self> {
        match Target::find(path)? {
            Target::Mounted(daemon) => Ok(daemon),
            Target::Offline(real) => {
                let shown = shown(path);
                let text = match Store::profile_of(&real) {
                    Ok(_) => format!("the volume {shown} is not mounted: mount it first (oncefs mount {shown} DIR)"),
                    Err(_) => format!("{shown} is not in a mounted oncefs volume: mount one (oncefs mount VOLUME DIR)"),
                };
                Err(Failure::new(exit::FAILED, text))
            }
        }
    }

    /// The daemon of a mount.
    pub fn of(mount: &mount_table::Mount) -> Outcome<Self> {
        let daemon = Self { volume: mount.source.clone() };
        match daemon.connect()? {
            Some(_) => Ok(daemon),
            None => Err(dead(mount)),
        }
    }

    /// Asks and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&self, request: Request) -> Outcome<T> {
        let connection = self.connect()?.ok_or_else(|| match mount_table::of_volume(&self.volume) {
            Ok(Some(mount)) => dead(&mount),
            _ => {
                let text = format!("{} was unmounted meanwhile: mount it and try again", shown(&self.volume));
                Failure::new(exit::FAILED, text)
            }
        })?;
        let answer = connection.ask(request).map_err(|why| self.with_way_out(why)).or_fail(exit::FAILED)?;
        let doing = || {
            let volume = shown(&self.volume);
            format!("the daemon of {volume} has another version (mount it again, or use the oncefs that mounted it)")
        };
        serde_json::from_value(answer).or_fail_doing(exit::FAILED, doing())
    }

    /// The engine says "opened read-only" or "no space left"; this says what to do.
    fn with_way_out(&self, why: String) -> String {
        let volume = shown(&self.volume);
        if why.contains("it was opened read-only") {
            format!("{volume} is mounted read-only: unmount it, and mount it without ro")
        } else if why.ends_with("no space left") {
            format!("{why} in {volume}: delete something, or enlarge it (oncefs grow {volume} +SIZE)")
        } else {
            why
        }
    }

    /// The names of files by map, portion by portion, up to a bound. Omits the files beyond it.
    pub fn names(&self, mut maps: BTreeSet<u64>) -> Outcome<BTreeMap<u64, FileNames>> {
        let (mut names, mut bytes) = (BTreeMap::new(), 0);
        while !maps.is_empty() && bytes < NAMES_BYTES_MAX {
            let found: NamesFound = self.ask(Request::FileNames { maps: maps.iter().copied().collect() })?;
            bytes += found.files.values().flat_map(|file| &file.paths).map(Name::bytes).sum::<usize>();
            names.extend(found.files);
            maps = found.next.map_or_else(BTreeSet::new, |next| maps.split_off(&next));
        }
        Ok(names)
    }

    /// Writes the kernel's dirty pages back, because the command covers them too. An earlier failed write gives only a
    /// message: fsync and close reported it to its writer.
    pub fn write_back(&self) -> Outcome {
        let Some(mount) = mount_table::of_volume(&self.volume).or_fail(exit::FAILED)? else { return Ok(()) };
        let dir = shown(&mount.dir);
        let root = File::open(&mount.dir).or_fail_doing(exit::FAILED, format!("cannot open {dir}"))?;
        let of_all = descriptors::sync_what_is_there(&root, libc::syncfs);
        let of_all = of_all.or_fail_doing(exit::FAILED, format!("cannot sync {dir}"))?;
        let of_open = self.sync_open_files(&root)?;
        if let Some(earlier) = of_all.or(of_open) {
            tell!("oncefs: an earlier write to a file in {dir} had failed ({earlier}); what is there now is written");
        }
        Ok(())
    }

    /// Waits for the answers to what is on its way to the daemon: syncfs(2) only sends it, in kernels before 6.16 and
    /// after 6.18. Returns the error of an earlier write.
    fn sync_open_files(&self, root: &File) -> Outcome<Option<io::Error>> {
        let (mut earlier, mut from) = (None, Some(0));
        while let Some(first) = from {
            let open: OpenForWriting = self.ask(Request::OpenForWriting { from: first })?;
            for (inode, generation) in open.inodes {
                let failed = || format!("cannot sync the file with inode number {inode}");
                // A file that has gone since has nothing left to write.
                let Some(file) =
                    descriptors::open_inode(root, inode, generation).or_fail_doing(exit::FAILED, failed())?
                else {
                    continue;
                };
                let found = descriptors::sync_what_is_there(&file, libc::fdatasync);
                earlier = earlier.or(found.or_fail_doing(exit::FAILED, failed())?);
            }
            from = open.next;
        }
        Ok(earlier)
    }

    fn connect(&self) -> Outcome<Option<Connection>> {
        Connection::open(&self.volume).map_err(|error| {
            let way_out = match error.kind() {
                io::ErrorKind::PermissionDenied => " (only root may do this: use sudo)",
                _ => "",
            };
            Failure::new(exit::FAILED, format!("cannot reach the daemon of {}: {error}{way_out}", shown(&self.volume)))
        })
    }
}

fn dead(mount: &mount_table::Mount) -> Failure {
    let (dir, way_back) = (shown(&mount.dir), mount_table::way_back(&mount.source, &mount.dir));
    Failure::new(exit::FAILED, format!("the daemon of the mount on {dir} has died: {way_back}"))
}
