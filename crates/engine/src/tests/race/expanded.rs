//! Fragments of a file are expanded while others change it.

use oncefs_dedup::Compress;

use super::partial::assert_nothing_is_lost;
use super::*;
use crate::format::fragment::is_fragment;
use crate::tests::compress::{assert_content, compress_all, pbns_of, text, written, zstd};
use crate::worker::expand::Moved;
use crate::{Conversion, Error, MapCursor};

const BLOCK: u64 = BLOCK_BYTES as u64;
const START: MapCursor = MapCursor { map: 0, leaf: 0 };

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
    let done = volume.converter.expand_portion(Some(MapId(1)), START, 1_024, &mut Moved::default()).unwrap();
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

#[test]
fn no_command_begins_to_expand_while_a_portion_of_another_is_under_way_however_long_it_takes() {
    let devices = Devices::new(Blocks(700), Settings { compress: Compress::Off, ..zstd() });
    let files = [(MapId(1), text(100, 1))];
    {
        let volume = written(&devices, &files);
        let asked = |what| volume.converter.convert(what, Some(MapId(1)), START).unwrap();
        let command = asked(Conversion::BeginCompress { command: None }).command;
        asked(Conversion::Compress { command });
        volume.commits.checkpoint().unwrap();
    }
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    let begin = |volume: &Volume, hour: u64| {
        let clock = || Duration::from_secs(hour * 3_600);
        volume.converter.convert_by(&clock, Conversion::BeginExpand { command: None }, None, START)
    };
    let others = volume.clone();
    *data.before_write.lock() = Some(Box::new(move || {
        assert!(matches!(begin(&others, 1), Err(Error::Invalid(_))));
        Ok(())
    }));
    let expand = Conversion::Expand { command: begin(&volume, 0).unwrap().command };
    let expanded = volume.converter.convert_by(&|| Duration::from_secs(3_600), expand, Some(MapId(1)), START).unwrap();
    assert!(data.before_write.lock().is_none(), "blocks are written");
    assert_eq!(expanded.converted, 100);
    assert!(begin(&volume, 1).is_err(), "its time counts from the end of the portion");
    begin(&volume, 2).unwrap();
    assert_content(&volume, &files);
}
