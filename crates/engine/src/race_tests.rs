//! Single interleavings, forced by a data area that calls a hook before it writes or flushes.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::core::Core;
use crate::crash_tests::{Devices, Random};
use crate::device::{Device, MemoryDevice};
use crate::{BLOCK_BYTES, MapId};

/// How long a hook waits for something that must not happen.
const A_WHILE: Duration = Duration::from_millis(200);

type Hook = Mutex<Option<Call>>;
type Call = Box<dyn FnOnce() -> io::Result<()> + Send>;

#[derive(Default)]
struct HookedDevice {
    inner: Arc<MemoryDevice>,
    before_write: Hook,
    before_flush: Hook,
}

fn call(hook: &Hook) -> io::Result<()> {
    let hook = hook.lock().take();
    hook.map_or(Ok(()), |hook| hook())
}

impl Device for HookedDevice {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.inner.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        call(&self.before_write)?;
        self.inner.write_at(bytes, at)
    }

    fn flush(&self) -> io::Result<()> {
        call(&self.before_flush)?;
        self.inner.flush()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.inner.punch(at, len)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(at)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.inner.grow(len)
    }
}

fn volume() -> (Devices, Arc<HookedDevice>, Arc<Core>) {
    let devices = Devices::new();
    let data = Arc::new(HookedDevice { inner: devices.data.clone(), ..HookedDevice::default() });
    let core = Arc::new(devices.open_with(data.clone()));
    (devices, data, core)
}

fn unique(blocks: usize, seed: u64) -> Vec<u8> {
    let mut filler = Random(seed);
    (0..blocks * BLOCK_BYTES / 8).flat_map(|_| filler.next().to_le_bytes()).collect()
}

/// Nothing that was not flushed survives, and what the commit acknowledged is there all the same.
fn assert_survives(devices: &Devices, map: MapId, data: &[u8]) {
    let core = devices.after_power_cut_of_all().open();
    assert!(core.read(map, 0, data.len()).unwrap().iter().eq(data), "acknowledged data is lost");
}

/// A hook that says that it was reached and waits until it may go on, at most a while.
fn waiting_hook(result: io::Result<()>) -> (Call, Receiver<()>, Sender<()>) {
    let (reached, is_reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let hook = Box::new(move || {
        reached.send(()).unwrap();
        let _ = may_go_on.recv_timeout(A_WHILE);
        result
    });
    (hook, is_reached, go_on)
}

#[test]
fn a_flush_that_began_before_a_write_ended_does_not_count_for_it() {
    let (devices, data, core) = volume();
    let bytes = unique(64, 1);
    core.write(MapId(1), 0, &unique(64, 2), |_, _| ()).unwrap();
    let flusher = core.clone();
    *data.before_write.lock() = Some(Box::new(move || {
        flusher.flush_data().unwrap();
        Ok(())
    }));
    core.write(MapId(2), 0, &bytes, |_, _| ()).unwrap();
    core.commit().unwrap();
    assert_survives(&devices, MapId(2), &bytes);
}

#[test]
fn a_commit_waits_for_a_flush_under_way_that_covers_its_data() {
    let (devices, data, core) = volume();
    let bytes = unique(64, 1);
    core.write(MapId(1), 0, &bytes, |_, _| ()).unwrap();
    let (hook, is_reached, go_on) = waiting_hook(Ok(()));
    *data.before_flush.lock() = Some(hook);
    thread::scope(|scope| {
        scope.spawn(|| core.flush_data().unwrap());
        is_reached.recv().unwrap();
        core.commit().unwrap();
        assert_survives(&devices, MapId(1), &bytes);
        drop(go_on);
    });
}

#[test]
fn a_commit_fails_if_a_write_out_of_its_blocks_fails() {
    let (_, data, core) = volume();
    let (hook, is_reached, go_on) = waiting_hook(Err(io::Error::other("the disk is gone")));
    *data.before_write.lock() = Some(hook);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..2_000).try_for_each(|n| core.write(MapId(1), n * BLOCK_BYTES as u64, &unique(1, n), |_, _| ()))
        });
        is_reached.recv().unwrap();
        assert!(core.commit().is_err(), "the group has blocks that are in no data area");
        drop(go_on);
        assert!(writer.join().unwrap().is_err());
    });
}
