//! Records that are read from the sorted state while other threads publish: no thread waits for the disk, and a read
//! returns the last published value.

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::kv::{Kv, KvMemory, MemoryKv, Put};
use crate::volume::assembly::Volume;
use crate::{Change, Result};

const KEY: &[u8] = b"\x10one";
/// Work that nothing delays ends within this time on any machine.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// A sorted state that calls one hook before it looks up a record, and another one after it.
#[derive(Default)]
struct HookedKv {
    inner: Arc<MemoryKv>,
    before_get: Hook,
    after_get: Hook,
    scans: AtomicU64,
}

impl Kv for HookedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        call(&self.before_get).unwrap();
        let found = self.inner.get(key);
        call(&self.after_get).unwrap();
        found
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.scans.fetch_add(1, Relaxed);
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

fn publish(volume: &Volume, value: u8) {
    let mut change = Change::new();
    change.put(KEY.to_vec(), vec![value]);
    volume.publisher.publish(change).unwrap();
}

/// A volume with one record, which is only in the sorted state.
fn one_record() -> (Arc<HookedKv>, Arc<Volume>) {
    let devices = Devices::new(Blocks(700), one_level());
    let kv = Arc::new(HookedKv { inner: devices.kv.clone(), ..HookedKv::default() });
    let volume = Arc::new(devices.open_medium(crate::Backend { kv: kv.clone(), ..devices.backend() }));
    publish(&volume, 1);
    volume.commits.checkpoint().unwrap();
    (kv, volume)
}

/// Does this on a thread of its own. The hook waits as long as that can take, and reports whether it was done by then.
fn meanwhile(hook: &Hook, volume: &Arc<Volume>, work: impl FnOnce(&Volume) + Send + 'static) -> Receiver<bool> {
    let (told, is_done) = mpsc::channel();
    let volume = volume.clone();
    *hook.lock() = Some(Box::new(move || {
        let (done, wait) = mpsc::channel();
        thread::spawn(move || {
            work(&volume);
            let _ = done.send(());
        });
        told.send(wait.recv_timeout(ENDS_WITHIN).is_ok()).unwrap();
        Ok(())
    }));
    is_done
}

#[test]
fn nobody_waits_while_a_record_is_read_from_the_disk() {
    let (kv, volume) = one_record();
    let is_done = meanwhile(&kv.before_get, &volume, |volume| {
        volume.write(MapId(1), 0, &unique(1, 1), |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
        volume.commits.checkpoint().unwrap();
    });
    assert_eq!(volume.metadata.get(KEY).unwrap(), Some(vec![1]));
    assert!(is_done.recv().unwrap(), "a write, its commit and a checkpoint wait for a look-up");
}

#[test]
fn a_record_that_is_published_while_it_is_looked_up_is_read_as_it_is_now() {
    let (kv, volume) = one_record();
    let is_done = meanwhile(&kv.after_get, &volume, |volume| publish(volume, 2));
    assert_eq!(
        volume.metadata.get(KEY).unwrap(),
        Some(vec![2]),
        "its old value was read, and a new one published since"
    );
    assert!(is_done.recv().unwrap());
}

/// Then memory lacks it before and after, and the sorted state was queried before it had it.
#[test]
fn a_record_that_a_checkpoint_takes_out_of_memory_while_it_is_looked_up_is_read_as_it_is_now() {
    let (kv, volume) = one_record();
    let is_done = meanwhile(&kv.after_get, &volume, |volume| {
        publish(volume, 2);
        volume.commits.checkpoint().unwrap();
    });
    assert_eq!(volume.metadata.get(KEY).unwrap(), Some(vec![2]), "its old value was read before the checkpoint");
    assert!(is_done.recv().unwrap());
    let (kv, volume) = one_record();
    let is_done = meanwhile(&kv.after_get, &volume, |volume| {
        let mut change = Change::new();
        change.delete(KEY.to_vec());
        volume.publisher.publish(change).unwrap();
        volume.commits.checkpoint().unwrap();
    });
    assert_eq!(volume.metadata.get(KEY).unwrap(), None, "it was removed");
    assert!(is_done.recv().unwrap());
}

/// A directory was emptied, and a reader checks whether it is empty.
#[test]
fn many_removed_records_are_passed_over_in_few_rounds() {
    let (kv, volume) = one_record();
    let mut change = Change::new();
    for number in 0..20_000_u32 {
        change.delete([KEY, &number.to_be_bytes()].concat());
    }
    volume.publisher.publish(change).unwrap();
    for (to, found) in [(&b"\x10p"[..], 0), (b"\x11", 0)] {
        kv.scans.store(0, Relaxed);
        let from = [KEY, &[0]].concat();
        assert_eq!(volume.metadata.scan(&from, to, 1).unwrap().len(), found);
        let scans = kv.scans.load(Relaxed);
        assert!((1..40).contains(&scans), "{scans} rounds");
    }
    let mut change = Change::new();
    change.put(b"\x10z".to_vec(), vec![3]);
    volume.publisher.publish(change).unwrap();
    assert_eq!(volume.metadata.scan(&[KEY, &[0]].concat(), b"\x11", 1).unwrap(), [(b"\x10z".to_vec(), vec![3])]);
}

/// Yielding work does not delay programs that look up records on the disk.
#[test]
fn a_look_up_of_a_program_counts_as_its_request_if_it_asks_the_disk() {
    let (_, volume) = one_record();
    let ask = |look: &dyn Fn()| {
        volume.base.foreground.watch();
        look();
        volume.base.foreground.unwatch().is_some()
    };
    let before = Instant::now();
    assert!(ask(&|| assert_eq!(volume.metadata.get_for_program(KEY).unwrap(), Some(vec![1]))));
    assert!(ask(&|| assert_eq!(volume.metadata.scan_for_program(KEY, b"\x11", 9).unwrap().len(), 1)));
    assert!(!ask(&|| assert_eq!(volume.metadata.get(KEY).unwrap(), Some(vec![1]))), "the daemon's own");
    assert!(
        !ask(&|| volume.base.foreground.aside(|| drop(volume.metadata.get_for_program(KEY).unwrap()))),
        "the daemon's own"
    );
    publish(&volume, 2);
    assert!(!ask(&|| assert_eq!(volume.metadata.get_for_program(KEY).unwrap(), Some(vec![2]))), "it is in memory");
    assert!(volume.base.foreground.last().unwrap() <= before.elapsed() + volume.base.foreground.now());
}
