//! Corpora: directory trees as they are, or traces recorded of them.

use std::path::{Path, PathBuf};

use oncefs_sim::{Reader, Recording, Source, Tree};

use super::failure::{Failure, exit};
use super::input::{FormatName, open};

/// Looks at directory trees.
pub fn tree(roots: &[PathBuf]) -> Result<Tree, Failure> {
    Tree::below(roots).map_err(|error| Failure::new(exit::FAILED, error))
}

/// Says on stderr what was left out of a tree that was played to its end.
pub fn tell_left_out(tree: &Tree) {
    tree.left_out().iter().for_each(|told| eprintln!("left out: {told}"));
}

/// The whole of a directory tree, or of a trace in a file.
pub fn recording(path: &Path, format: FormatName) -> Result<Recording, Failure> {
    if path.is_dir() {
        let mut tree = tree(&[path.to_owned()])?;
        let recording = written(&mut tree, path)?;
        tell_left_out(&tree);
        return Ok(recording);
    }
    written(&mut Reader::new(open(path)?, format.into()), path)
}

fn written(source: &mut impl Source, path: &Path) -> Result<Recording, Failure> {
    let recording = Recording::of(source).map_err(|error| Failure::with(path.display(), error))?;
    if recording.blocks() == 0 {
        return Err(Failure::with(path.display(), "nothing is written there: is --format right?"));
    }
    Ok(recording)
}

/// What a corpus is called: the last part of its path, without the ending.
pub fn name(path: &Path) -> String {
    path.file_stem().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
