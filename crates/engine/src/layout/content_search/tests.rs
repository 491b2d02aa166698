//! Blocks are found by the tags of their contents, also where no hint names them, and nothing else is.

use super::*;
use crate::tests::fixture::{Devices, one_level, unique};
use crate::volume::assembly::Volume;
use crate::{Blocks, MapId};

fn found(volume: &Volume, contents: &[u8]) -> Vec<bool> {
    let tags: Vec<Tag> = contents.chunks(BLOCK_BYTES).map(|block| volume.base.hasher.tag(block)).collect();
    let blocks = volume.content_search.blocks_by_tag(&tags);
    assert_eq!(blocks.len(), tags.len());
    let is_it = |(block, content): (&Option<Vec<u8>>, &[u8])| block.as_deref().is_some_and(|block| block == content);
    blocks.iter().zip(contents.chunks(BLOCK_BYTES)).map(is_it).collect()
}

#[test]
fn contents_that_are_stored_are_found_and_others_are_not() {
    let volume = Devices::new(Blocks(40_000), one_level()).open();
    let (stored, other) = (unique(40, 1), unique(40, 2));
    volume.write(MapId(1), 0, &stored, |_, _| ()).unwrap();
    assert_eq!(found(&volume, &stored), [true; 40]);
    assert_eq!(found(&volume, &other), [false; 40]);
    let mixed = [&stored[..3 * BLOCK_BYTES], &other[..BLOCK_BYTES], &stored[9 * BLOCK_BYTES..11 * BLOCK_BYTES]];
    assert_eq!(found(&volume, &mixed.concat()), [true, true, true, false, true, true]);
    assert_eq!(found(&volume, &[]), [false; 0]);
    volume.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap();
    assert_eq!(found(&volume, &stored), [false; 40], "what is freed is found no more");
}
