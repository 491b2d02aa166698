//! Locks of one rank, taken in the order of their numbers. Built with the feature `checked`, a thread that takes them
//! in another order panics; without it the work comes out right in any order, unless two threads meet.

use crate::tests::fixture::{Devices, one_level, unique};
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId};

#[test]
fn two_files_are_locked_in_one_order_whichever_is_copied_from() {
    let volume = Devices::new(Blocks(1_000), one_level()).open();
    let [low, high] = [unique(4, 1), unique(4, 2)];
    volume.write(MapId(1), 0, &low, |_, _| ()).unwrap();
    volume.write(MapId(2), 0, &high, |_, _| ()).unwrap();
    let copy =
        |from, to| volume.clone_blocks((MapId(from), Lbn(0)), (MapId(to), Lbn(4)), Blocks(4), |_, _| ()).unwrap();
    copy(1, 2);
    copy(2, 1);
    for (map, content) in [(1, [&low[..], &high]), (2, [&high, &low])] {
        let found = volume.reader.read(MapId(map), 0, 8 * BLOCK_BYTES).unwrap();
        assert!(*found == *content.concat(), "map {map} differs");
    }
}
