//! Freed blocks are reused only after the group that freed them, and after their readers. No other blocks are free
//! here, so every allocation gets these.

use std::sync::Arc;

use super::*;
use crate::Result;
use crate::volume::assembly::Volume;

/// Takes all free blocks.
fn take_all(volume: &Volume) {
    let totals = volume.free_blocks.totals();
    let mut load = |region| volume.free_blocks.load_region(region);
    volume.base.space.allocate((totals.data - totals.used).0, &mut load).unwrap();
}

/// A volume on which one file has 64 blocks that no log record carries, and nothing else is free.
fn full_volume() -> (Devices, Arc<HookedDevice>, Arc<Volume>, Vec<u8>) {
    let (devices, data, volume) = volume();
    let content = unique(64, 1);
    volume.write(MapId(1), 0, &content, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    (devices, data, volume, content)
}

/// The concurrent work: it writes as much as was freed.
fn write_as_much(volume: &Arc<Volume>) -> Result<()> {
    volume.groups.release_waiting();
    volume.write(MapId(2), 0, &unique(64, 2), |_, _| ())
}

#[test]
fn blocks_are_not_handed_out_before_the_group_that_freed_them_is_durable() {
    let (devices, data, volume, content) = full_volume();
    // Not flushed: the next commit does that first.
    volume.write(MapId(3), 0, &unique(64, 3), |_, _| ()).unwrap();
    take_all(&volume);
    volume.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap();
    let (devices, cut) = (Arc::new(devices), Arc::new(Mutex::new(None)));
    let (others, inner, devices_then, cut_then) = (volume.clone(), data.inner.clone(), devices.clone(), cut.clone());
    *data.before_flush.lock() = Some(Box::new(move || {
        // Without room they are refused.
        let _ = thread::spawn(move || write_as_much(&others)).join().expect("they do not panic");
        inner.flush()?;
        *cut_then.lock() = Some(devices_then.after_power_cut_of_all());
        Ok(())
    }));
    volume.commits.commit().unwrap();
    let cut = cut.lock().take().expect("the commit flushes the data area");
    let read = cut.open().reader.read(MapId(1), 0, content.len()).unwrap();
    assert!(read.iter().eq(&content), "the last durable group had the file's content");
    write_as_much(&volume).expect("when the group is durable, its blocks are free");
    assert!(volume.reader.read(MapId(2), 0, content.len()).unwrap().iter().eq(&unique(64, 2)));
}

#[test]
fn blocks_that_a_reader_looked_up_are_not_handed_out_before_it_is_done() {
    let (_devices, data, volume, content) = full_volume();
    take_all(&volume);
    let others = volume.clone();
    *data.before_read.lock() = Some(Box::new(move || {
        let work = move || {
            others.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap();
            others.commits.commit().unwrap();
            let _ = write_as_much(&others);
        };
        thread::spawn(work).join().expect("they do not panic");
        Ok(())
    }));
    let read = volume.reader.read(MapId(1), 0, content.len()).unwrap();
    assert!(data.before_read.lock().is_none(), "the device has to be read");
    assert!(read.iter().eq(&content), "the reader got others' content");
    drop(read);
    write_as_much(&volume).expect("when the reader is done, its blocks are free");
}
