//! Calls of a user on deep and cold data. With the feature `checked`, a call panics if it holds a lock that others need
//! for more reads than the rule allows (docs/architecture.md, what a call may cost). Not covered: CPU time.

use oncefs_fs::{AtimePolicy, Error, FileSystem, Ino, RenameMode};

use crate::common::{Volume, contradictions, directory, file};

const DEPTH: usize = 200;

#[test]
fn a_directory_moves_within_a_deep_cold_tree_without_holding_up_other_moves() {
    let volume = Volume::new(AtimePolicy::Never);
    let cold = |act: &mut dyn FnMut(&FileSystem)| {
        let fs = volume.open();
        act(&fs);
        fs.close().unwrap();
    };
    let (mut chain, mut moved) = (vec![Ino::ROOT], Ino::ROOT);
    cold(&mut |fs| {
        (0..DEPTH).for_each(|_| chain.push(directory(fs, chain[chain.len() - 1], "down").ino));
        moved = directory(fs, Ino::ROOT, "moved").ino;
        file(fs, moved, "file");
        directory(fs, Ino::ROOT, "other");
    });
    let deepest = chain[DEPTH];
    cold(&mut |fs| {
        fs.rename(Ino::ROOT, b"moved", deepest, b"there", RenameMode::Replace).unwrap();
    });
    cold(&mut |fs| {
        let below_itself = fs.rename(chain[1], b"down", deepest, b"elsewhere", RenameMode::NoReplace);
        assert!(matches!(below_itself, Err(Error::Invalid(_))), "{below_itself:?}");
    });
    cold(&mut |fs| {
        fs.rename(deepest, b"there", Ino::ROOT, b"other", RenameMode::Exchange).unwrap();
        assert_eq!(fs.lookup(Ino::ROOT, b"other").unwrap().ino, moved);
        assert_eq!(contradictions(fs), [""; 0]);
    });
}
