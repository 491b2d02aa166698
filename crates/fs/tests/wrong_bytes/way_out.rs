//! The actions of an administrator on a damaged volume: mounts it, checks it, and runs the repair that the messages
//! name.

use std::path::Path;
use std::sync::Arc;

use oncefs_engine::{Remedy, Store};
use oncefs_fs::format::proves_itself;
use oncefs_fs::{Caller, FileSystem, Ino, SystemClock, WriteOrigin, check_names, fix_names};

use super::judge::MADE_AFTERWARDS;
use super::look::View;
use super::truth::Tree;
use super::world::{mounted, options};
use crate::unreadable_sectors::Unreadable;

const ROOT: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };

/// The first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It is mounted and used, and repaired afterwards.
    Mount,
    /// It is salvaged before anything else.
    Salvage,
}

/// Mounts a volume and reads all of it, then makes a file in it and unmounts it. None: it does not open.
pub fn use_it(volume: &Path, tree: &Tree) -> Option<View> {
    let fs = mounted(Store::open(volume, &options()).ok()?)?;
    let view = View::of(&fs, tree.names.keys());
    drop(make(&fs));
    drop(fs.close());
    Some(view)
}

fn make(fs: &FileSystem) -> oncefs_fs::Result<()> {
    let made = fs.lookup(Ino::ROOT, MADE_AFTERWARDS);
    let ino = match made {
        Ok(made) => made.ino,
        Err(_) => fs.mknod(Ino::ROOT, MADE_AFTERWARDS, libc::S_IFREG | 0o600, 0, &ROOT)?.ino,
    };
    fs.write(ino, 0, &[7; 9_000], WriteOrigin::PageCache)?;
    fs.store().commit()?;
    Ok(())
}

/// Repairs as `fsck -p` or `fsck -y` does. Returns the faults left, except in the content of blocks, or the reason why
/// the volume does not open.
fn repair(volume: &Path, limit: Remedy) -> Result<Vec<String>, String> {
    let store = Store::open_for_fsck(volume, &options()).map_err(|error| error.to_string())?;
    let repaired = repair_open(&store, limit).map_err(|error| error.to_string());
    store.close().map_err(|error| error.to_string())?;
    repaired
}

fn repair_open(store: &Arc<Store>, limit: Remedy) -> oncefs_fs::Result<Vec<String>> {
    let files = store.check_record_files(true)?;
    store.repair(limit, &mut |_, _, _| ())?;
    fix_names(store, &SystemClock, limit, &mut |_, _, _| ())?;
    let blocks = store.audit(true, &mut |_, _, _| ())?;
    let names = check_names(store, &mut |_, _, _| ())?;
    let is_content = |problem: &String| problem.ends_with("[rule 5]");
    let problems = blocks.problems.into_iter().filter(|problem| !is_content(problem));
    Ok(files.left.into_iter().chain(problems).chain(names.left).collect())
}

/// The repair that helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mended {
    /// Safe repairs were enough.
    Safely,
    /// It took `fsck -y`.
    Asked,
    /// It took `fsck --salvage`.
    Salvaged,
    /// It took `fsck --cut-log`.
    LogCut,
}

/// Repairs a volume. An unreadable sector becomes readable once it is cut from the log or overwritten. An error says
/// why no repair helped.
pub fn mend(volume: &Path, first: First, rotten: &mut Option<Unreadable>) -> Result<Mended, String> {
    if first == First::Mount {
        for (limit, mended) in [(Remedy::Safe, Mended::Safely), (Remedy::Asked, Mended::Asked)] {
            if repair(volume, limit).is_ok_and(|left| left.is_empty()) {
                return Ok(mended);
            }
        }
    }
    let salvaged = Store::salvage(volume, &proves_itself, &[]).map_err(|error| format!("salvage: {error}"));
    let after = repair(volume, Remedy::Asked);
    if after.as_ref().is_ok_and(Vec::is_empty) && salvaged.is_ok() {
        return Ok(Mended::Salvaged);
    }
    let cut =
        if after.is_ok() { Ok(None) } else { Store::cut_log(volume).map_err(|error| format!("cut-log: {error}")) };
    let was_rotten = rotten.take().is_some();
    match (repair(volume, Remedy::Asked), cut) {
        (Ok(left), Ok(Some(_))) if left.is_empty() => Ok(Mended::LogCut),
        (Ok(left), _) if left.is_empty() && was_rotten => Ok(Mended::Asked),
        (left, cut) => Err(format!("{salvaged:?}, then {after:?}, then {cut:?} and {left:?}")),
    }
}
