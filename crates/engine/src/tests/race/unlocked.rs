//! Leaves that are read without their map's lock, as by the worker and the rule of runs, while other threads change the
//! map and a checkpoint ends.

use std::sync::Arc;

use super::*;
use crate::kv::{Kv, KvMemory, Put};
use crate::volume::assembly::Volume;
use crate::volume::backend::Backend;
use crate::{Lbn, Result};

/// A sorted state that calls a hook after a read, before the reader has the answer.
struct HookedKv {
    inner: Arc<dyn Kv>,
    after_get: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Kv for HookedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.inner.get(key);
        let hook = self.after_get.lock().take();
        hook.into_iter().for_each(|hook| hook());
        found
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.inner.scan(from, to, limit)
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.inner.write(batch)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn memory(&self) -> KvMemory {
        self.inner.memory()
    }
}

const OTHER: MapId = MapId(2);
const OTHER_LEAVES: u64 = 400;

/// Fills the cache of clean leaves with those of another map.
fn push_out(volume: &Volume) {
    (0..OTHER_LEAVES).for_each(|leaf| drop(volume.metadata.leaf(LeafKey { map: OTHER, leaf }).unwrap()));
}

#[test]
fn a_leaf_that_was_read_before_others_changed_it_does_not_stay_in_the_cache() {
    let devices = Devices::new(Blocks(40_000), one_level());
    let kv = Arc::new(HookedKv { inner: devices.kv.clone(), after_get: Mutex::default() });
    let volume = Arc::new(devices.open_medium(Backend { kv: kv.clone(), ..devices.backend() }));
    // Every second block is a hole, so that the other map's leaves fill the cache.
    let mut patchy = unique(64, 1);
    patchy.chunks_exact_mut(BLOCK_BYTES).step_by(2).for_each(|block| block.fill(0));
    for leaf in 0..OTHER_LEAVES {
        volume.write(OTHER, leaf * 256 * BLOCK_BYTES as u64, &patchy, |_, _| ()).unwrap();
    }
    volume.write(MapId(1), 0, &unique(4, 2), |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    push_out(&volume);
    let others = volume.clone();
    let (old, new) = (unique(4, 2), unique(4, 3));
    let written = new.clone();
    *kv.after_get.lock() = Some(Box::new(move || {
        others.write(MapId(1), 0, &written, |_, _| ()).unwrap();
        others.commits.checkpoint().unwrap();
        push_out(&others);
    }));
    // Without the map's lock: this asks for the end of a file.
    volume.metadata.next_stored(MapId(1), Lbn(0), Lbn(256)).unwrap();
    assert!(kv.after_get.lock().is_none(), "the sorted state has to be read");
    let read = volume.reader.read(MapId(1), 0, new.len()).unwrap();
    assert!(!read.iter().eq(&old), "the file is what it was before it was written");
    assert!(read.iter().eq(&new));
}
