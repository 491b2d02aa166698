//! How compressed files lie: explained by the places of their fragments, and defragmented by them.

use crate::layout::fragmentation::{FileLayout, LayoutCursor};
use crate::tests::compress::{assert_content, compress_all, pbns_of, text, written, zstd};
use crate::tests::fixture::Devices;
use crate::{BLOCK_BYTES, Blocks, DefragOptions, Lbn, MapId};

#[test]
fn fragments_in_a_row_are_one_extent_whatever_their_numbers_and_are_explained_by_their_place() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), text(250, 1))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let dry = DefragOptions { run_blocks_min: Some(300), dry_run: true, ..DefragOptions::default() };
    let outcome = volume.defragmenter.defrag(MapId(1), &dry).unwrap();
    assert_eq!((outcome.extents_before, outcome.blocks_moved), (1, 0));
    let layout = volume.referrer_search.layout(LayoutCursor::default()).unwrap();
    assert_eq!(layout.files, [FileLayout { map: 1, runs: 1, blocks: 250 }]);
    let explained = volume.explainer.explain(MapId(1), Lbn(0)).unwrap();
    let compressed: Vec<_> = explained.runs.iter().map(|run| run.compressed.clone().expect("all are")).collect();
    assert_eq!(compressed.iter().map(|run| run.lengths.len()).sum::<usize>(), 250);
    let pbns = pbns_of(&volume, MapId(1));
    let places = volume.metadata.known_places(pbns.iter().copied());
    let mut at = 0;
    for run in &compressed {
        let mut byte = run.at;
        for bytes in &run.lengths {
            let place = places[&pbns[at]];
            assert_eq!((place.at, place.bytes), (byte, *bytes));
            (byte, at) = (byte + u64::from(*bytes), at + 1);
        }
    }
    assert_eq!(explained.runs[0].part(3, 2).compressed.unwrap().at, places[&pbns[3]].at);
}

#[test]
fn a_scattered_compressed_file_is_defragmented_within_the_space_allowed() {
    let devices = Devices::new(Blocks(3_000), zstd());
    let volume = written(&devices, &[(MapId(1), text(200, 1))]);
    // File 2 has every other block of file 1, from its end on.
    for n in 0..50 {
        volume.clone_blocks((MapId(1), Lbn(198 - 4 * n)), (MapId(2), Lbn(n)), Blocks(1), |_, _| ()).unwrap();
    }
    let scattered = volume.reader.read(MapId(2), 0, 50 * BLOCK_BYTES).unwrap().to_vec();
    compress_all(&volume);
    volume.commits.commit().unwrap();
    let options = |space| DefragOptions { run_blocks_min: Some(64), space: Blocks(space), ..DefragOptions::default() };
    let outcome = volume.defragmenter.defrag(MapId(2), &options(0)).unwrap();
    let pieces = |volume: &crate::volume::assembly::Volume| {
        let layout = volume.referrer_search.layout(LayoutCursor::default()).unwrap();
        layout.files.iter().find(|file| file.map == 2).map(|file| file.runs)
    };
    assert_eq!(pieces(&volume), Some(outcome.extents_before), "they are counted as defrag counts them");
    assert!(outcome.extents_before > 10 && outcome.blocks_moved == 0 && outcome.left.space_limit > 0, "{outcome:?}");
    let outcome = volume.defragmenter.defrag(MapId(2), &options(100)).unwrap();
    assert_eq!((outcome.extents_after, outcome.blocks_moved), (1, 50), "{outcome:?}");
    assert_content(&volume, &[(MapId(1), text(200, 1)), (MapId(2), scattered)]);
}
