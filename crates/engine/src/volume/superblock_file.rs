//! The superblock lies in two files, `superblock` and `copies/superblock`. It changes when the volume gets its first
//! lazy clone, when it is first mounted to be compressed, and when nothing in it is compressed any more. While the two
//! differ, the volume has no such clone or no compressed block, so an intact one is right.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::format::superblock::Superblock;
use crate::kv::copies::Place;
use crate::kv::replace_file;
use crate::volume::{ownership, unfinished};
use crate::{Error, Result};

const NAME: &str = "superblock";

fn paths(volume: &Path) -> [PathBuf; 2] {
    [volume.join(NAME), volume.join(crate::kv::copies::FOLDER).join(NAME)]
}

/// Reads a volume's superblock, or its copy if it is damaged or missing.
pub fn read(volume: &Path) -> Result<Superblock> {
    match unfinished::is_marked(volume) {
        true => Err(Error::Unfinished(volume.display().to_string())),
        false => read_unfinished(volume),
    }
}

/// The same for a volume that is still being made.
pub fn read_unfinished(volume: &Path) -> Result<Superblock> {
    let [main, copy] = paths(volume);
    match read_one(volume, &main) {
        // A wrong byte may look like a newer version. With a really newer version, the copy has that version too.
        Err(error @ (Error::Corrupt { .. } | Error::NotAVolume(_) | Error::NewerFormat { .. } | Error::Io { .. })) => {
            let found = read_one(volume, &copy).map_err(|_| error)?;
            log::warn!("the superblock of {} is damaged: its copy is used", volume.display());
            Ok(found)
        }
        other => other,
    }
}

fn read_one(volume: &Path, path: &Path) -> Result<Superblock> {
    let name = volume.display().to_string();
    match fs::read(path) {
        Ok(bytes) => {
            ownership::refuse_if_others_can_change(volume)?;
            Superblock::decode(&bytes, &name)
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(Error::NotAVolume(name))
        }
        Err(e) => Err(Error::io(format!("opening the volume {name}"), e)),
    }
}

/// Notes in both that the volume may have lazy clones.
pub fn allow_clones(volume: &Path) -> Result<()> {
    replace_both(volume, &Superblock { has_clones: true, ..read(volume)? })
}

/// Notes in both that the volume may have compressed blocks.
pub fn allow_fragments(volume: &Path) -> Result<()> {
    replace_both(volume, &Superblock { has_clones: true, has_fragments: true, ..read(volume)? })
}

/// Notes in both that the volume has no compressed block.
pub fn forbid_fragments(volume: &Path) -> Result<()> {
    replace_both(volume, &Superblock { has_fragments: false, ..read(volume)? })
}

/// Replaces both, the copy first. A crash leaves each as it was or as it will be.
pub fn replace_both(volume: &Path, superblock: &Superblock) -> Result<()> {
    let failed = |e| Error::io("writing the superblock", e);
    let encoded = superblock.encode()?;
    Place::of(volume, superblock.volume_id).make_folder().map_err(failed)?;
    paths(volume).iter().rev().try_for_each(|path| replace_file(path, &encoded)).map_err(failed)
}

/// The one of the two that is missing or damaged, if the other is intact. Volumes of early versions have no folder of
/// copies.
pub fn damaged(volume: &Path) -> Option<PathBuf> {
    let [main, copy] = paths(volume);
    match (read_one(volume, &main), read_one(volume, &copy)) {
        (Err(_), Ok(_)) => Some(main),
        (Ok(_), Err(_)) if copy.parent().is_some_and(Path::exists) => Some(copy),
        _ => None,
    }
}

/// Writes the one of the two that is missing or damaged. A crash leaves the intact one as it is.
pub fn make_sound(volume: &Path, superblock: &Superblock) -> Result<()> {
    let failed = |e| Error::io("writing the second superblock", e);
    let encoded = superblock.encode()?;
    Place::of(volume, superblock.volume_id).make_folder().map_err(failed)?;
    for path in paths(volume) {
        if fs::read(&path).ok().as_deref() != Some(&encoded) {
            replace_file(&path, &encoded).map_err(failed)?;
        }
    }
    Ok(())
}
