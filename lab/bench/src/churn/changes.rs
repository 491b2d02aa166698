//! The changes of a round: which blocks of which files are rewritten, and which files are deleted or made. They follow
//! from the seed and the names, so two equal trees stay equal.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use oncefs_toolbox::Random;

use crate::aligned::BLOCK_BYTES;
use crate::failure::{During, Result};
use crate::files::fill_at;
use crate::signal;

/// One file in so many is deleted.
const DELETED: u64 = 10;
/// Beside one in so many of the others a new one is made.
const MADE: u64 = 10;
/// One block in so many of all that stay is rewritten.
const REWRITTEN: u64 = 2;

/// Changes all files below `root`. Gives the bytes written: rewritten blocks count as a whole.
pub fn change(root: &Path, seed: u64) -> Result<u64> {
    let mut random = Random::new(seed);
    let mut written = 0;
    for file in files_below(root)? {
        signal::check()?;
        let path = root.join(file);
        if random.one_in(DELETED) {
            fs::remove_file(&path).during(|| format!("cannot remove {}", path.display()))?;
            continue;
        }
        if random.one_in(MADE) {
            written += make_beside(&path, seed, &mut random)?;
        }
        written += rewrite(&path, &mut random)?;
    }
    Ok(written)
}

/// Puts a new line into blocks of a file.
fn rewrite(path: &Path, random: &mut Random) -> Result<u64> {
    let during = || format!("cannot rewrite {}", path.display());
    let file = OpenOptions::new().read(true).write(true).open(path).during(during)?;
    let blocks = file.metadata().during(during)?.len().div_ceil(BLOCK_BYTES as u64);
    let (mut block, mut written) = ([0; BLOCK_BYTES], 0);
    for at in (0..blocks).map(|block| block * BLOCK_BYTES as u64) {
        if !random.one_in(REWRITTEN) {
            continue;
        }
        let length = fill_at(&file, &mut block, at).during(during)?;
        put_line(&mut block[..length], random);
        file.write_all_at(&block[..length], at).during(during)?;
        written += length as u64;
    }
    Ok(written)
}

/// Makes a file with the content of another, and a new line in each block. Gives the bytes written.
fn make_beside(path: &Path, seed: u64, random: &mut Random) -> Result<u64> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{seed}"));
    let during = || format!("cannot make {}", Path::new(&name).display());
    let mut content = fs::read(path).during(during)?;
    content.chunks_mut(BLOCK_BYTES).for_each(|block| put_line(block, random));
    fs::write(&name, &content).during(during)?;
    Ok(content.len() as u64)
}

/// Puts a new line at the beginning of a block.
fn put_line(block: &mut [u8], random: &mut Random) {
    let line = format!("/* line {} of {} */\n", random.below(1_000_000), random.below(1_000_000));
    let part = line.len().min(block.len());
    block[..part].copy_from_slice(&line.as_bytes()[..part]);
}

/// The regular files below a directory, as paths from there, in the order of their names.
pub fn files_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    add(root, Path::new(""), &mut files)?;
    files.sort_unstable();
    Ok(files)
}

fn add(root: &Path, place: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let directory = root.join(place);
    let during = || format!("cannot list {}", directory.display());
    for entry in fs::read_dir(&directory).during(during)? {
        let entry = entry.during(during)?;
        let place = place.join(entry.file_name());
        let kind = entry.file_type().during(during)?;
        if kind.is_dir() {
            add(root, &place, files)?;
        } else if kind.is_file() {
            files.push(place);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_trees_stay_equal_and_about_half_of_their_blocks_change() {
        let trees = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for tree in &trees {
            fs::create_dir(tree.path().join("sub")).unwrap();
            (0..40).for_each(|n| fs::write(tree.path().join(format!("sub/file{n}")), vec![n; 20_000]).unwrap());
            std::os::unix::fs::symlink("sub/file1", tree.path().join("link")).unwrap();
        }
        let written = trees.each_ref().map(|tree| change(tree.path(), 7).unwrap());
        assert!(written[0] == written[1] && (250_000..600_000).contains(&written[0]), "{written:?}");
        let files = trees.each_ref().map(|tree| files_below(tree.path()).unwrap());
        let made = files[0].iter().filter(|file| file.to_string_lossy().ends_with(".7")).count();
        let kept = files[0].len() - made;
        assert!(files[0] == files[1] && (25..40).contains(&kept) && made > 1, "{kept} files and {made} new ones");
        for file in &files[0] {
            let [one, other] = trees.each_ref().map(|tree| fs::read(tree.path().join(file)).unwrap());
            assert!(one == other && one.len() == 20_000, "{}", file.display());
        }
    }
}
