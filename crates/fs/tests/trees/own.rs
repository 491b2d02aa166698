//! What only one tree has, counted from maps and references.

use oncefs_engine::{ComparedState, Lbn};

use super::*;

/// Blocks that only this tree has. Files that are counted by themselves: once each.
fn own(fs: &FileSystem, top: Ino) -> u64 {
    let (mut blocks, mut left, mut apart) = (0, vec![top], BTreeMap::new());
    while let Some(directory) = left.pop() {
        let mut from = Some(0);
        while let Some(after) = from {
            let portion = fs.own_blocks(directory, after, &|| true).unwrap().unwrap();
            blocks += portion.blocks;
            left.extend(portion.directories);
            apart.extend(portion.apart);
            from = portion.next;
        }
    }
    for ino in apart.into_keys() {
        let compared = fs.compare(ino, None, Lbn(0)).unwrap();
        assert_eq!(compared.next, None);
        let of = compared.runs.iter().filter(|run| run.state == ComparedState::Own);
        blocks += of.map(|run| run.blocks).sum::<u64>();
    }
    blocks
}

/// Blocks with contents that occur nowhere else.
fn unique(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK)
        .map(|at| if at % BLOCK < 2 { ((at / BLOCK) >> (8 * (at % BLOCK))) as u8 } else { seed })
        .collect()
}

#[test]
fn a_tree_has_for_itself_what_nothing_else_refers_to() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = directory(&fs, Ino::ROOT, "top").ino;
    let inner = directory(&fs, top, "inner").ino;
    // Over several portions, with empty files, a large one, and one with two names.
    for number in 0..300 {
        let small = file(&fs, inner, &format!("small{number}")).ino;
        if number % 3 == 0 {
            fs.write(small, 0, &unique(1, 10 + (number / 3) as u8), BY_CALLER).unwrap();
        }
    }
    let large = file(&fs, top, "large").ino;
    fs.write(large, 0, &unique(300, 1), BY_CALLER).unwrap();
    let named = file(&fs, top, "one").ino;
    fs.write(named, 0, &unique(7, 2), BY_CALLER).unwrap();
    fs.link(named, inner, b"other").unwrap();
    fs.symlink(top, b"link", b"inner", &ROOT).unwrap();
    let all = 100 + 300 + 7;
    assert_eq!(own(&fs, top), all);
    let snapshot = copy(&fs, top, Ino::ROOT, b"snapshot", CopyKind::Snapshot);
    assert_eq!((own(&fs, top), own(&fs, snapshot)), (0, 0));
    fs.write(large, 5 * BLOCK as u64, &unique(2, 3), BY_CALLER).unwrap();
    let small = fs.lookup(inner, b"small0").unwrap().ino;
    fs.write(small, 0, &unique(1, 4), BY_CALLER).unwrap();
    assert_eq!((own(&fs, top), own(&fs, snapshot)), (3, 3), "three blocks were written over");
    assert_eq!(fs.own_blocks(top, 0, &|| false).unwrap(), None, "it was ended");
    assert!(matches!(fs.own_blocks(large, 0, &|| true), Err(Error::NotADirectory)));
}
