//! Fragments of a file are expanded while others change it.

use super::partial::assert_nothing_is_lost;
use super::*;
use crate::format::fragment::is_fragment;
use crate::tests::compress::{assert_content, compress_all, pbns_of, text, written, zstd};
use crate::{Conversion, MapCursor};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file is expanded, and `work` done before its blocks are written.
fn expand_beside(work: impl FnOnce(&Volume) + Send + 'static) -> (Devices, Arc<Volume>, u64) {
    let devices = Devices::new(Blocks(700), zstd());
    {
        let volume = written(&devices, &[(MapId(1), text(100, 1))]);
        compress_all(&volume);
        volume.commits.checkpoint().unwrap();
    }
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    let others = volume.clone();
    *data.before_write.lock() = Some(Box::new(move || {
        work(&others);
        Ok(())
    }));
    let start = MapCursor { map: 0, leaf: 0 };
    let done = volume.converter.convert_portion(Conversion::Expand, Some(MapId(1)), start, 1_024).unwrap();
    assert!(data.before_write.lock().is_none(), "blocks are written");
    (devices, volume, done.converted)
}

#[test]
fn what_is_written_while_fragments_are_expanded_stays_and_the_rest_becomes_blocks() {
    let (devices, volume, converted) = expand_beside(|volume| {
        volume.write(MapId(1), 10 * BLOCK, &unique(3, 7), |_, _| ()).unwrap();
        volume.range_changes.truncate(MapId(1), 90 * BLOCK, |_, _| ()).unwrap();
    });
    assert_eq!(converted, 87);
    assert!(pbns_of(&volume, MapId(1)).iter().all(|pbn| !is_fragment(*pbn)));
    let mut content = text(100, 1)[..90 * BLOCK_BYTES].to_vec();
    content[10 * BLOCK_BYTES..13 * BLOCK_BYTES].copy_from_slice(&unique(3, 7));
    let files = [(MapId(1), content)];
    assert_content(&volume, &files);
    assert_nothing_is_lost(&volume);
    assert_content(&devices.after_power_cut_of_all().open(), &files);
}
