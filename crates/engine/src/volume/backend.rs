//! The storage that a volume is opened on, and the volume's driver if it has no threads.

use std::sync::Arc;

use crate::device::Device;
use crate::kv::Kv;
use crate::objects::held_lease::HeldLease;
use crate::pace::load::DeviceLoad;
use crate::pace::stopwatch::Stopwatch;
use crate::signals::requests::Committer;
use crate::space::ballast::Ballast;
use crate::space::host::Host;
use crate::{ClusterReport, Result};

/// Keeps other openers away from a volume while it lives, and lets them in when it is dropped.
pub trait Hold: Send + Sync {
    /// The lease without which no request may be answered. None: the volume cannot be taken over.
    fn lease(&self) -> Option<Arc<HeldLease>> {
        None
    }

    /// The cluster with the volume's objects. None: they are elsewhere.
    fn cluster(&self) -> Option<ClusterReport> {
        None
    }

    /// Lets another machine open the volume, before this is dropped. The caller has closed the volume.
    ///
    /// # Errors
    ///
    /// The other may have to wait.
    fn let_go(&self) -> Result<()> {
        Ok(())
    }

    /// Leaves the lock as a dead process does, whatever happens to this: the next opener keeps this process off first.
    /// Changes may still be under way.
    fn leave(&self) {}
}

/// The devices, the sorted state and the lock of a volume, wherever they are.
pub struct Backend {
    /// The data area.
    pub data: Arc<dyn Device>,
    /// The block table.
    pub table: Arc<dyn Device>,
    /// The block table's pages of fragments. None: the volume has none.
    pub fragments: Option<Arc<dyn Device>>,
    /// The log.
    pub log: Arc<dyn Device>,
    /// Size of the log.
    pub log_bytes: u64,
    /// The sorted state.
    pub kv: Arc<dyn Kv>,
    /// Space set aside on the host.
    pub ballast: Ballast,
    /// The provider of the data area's space, unless it is a raw device.
    pub host: Option<Host>,
    /// The volume's secret.
    pub secret: [u8; 32],
    /// The volume.
    pub volume_id: [u8; 16],
    /// The file of hints. None if the volume is read-only.
    pub hints: Option<Arc<dyn Device>>,
    /// The file of skipped blocks. None if the volume is read-only.
    pub skipped: Option<Arc<dyn Device>>,
    /// The load of the host's device, if it can be seen.
    pub device_load: Option<DeviceLoad>,
    /// Whether the device with the data says that it turns, and is believed.
    pub turns: bool,
    /// The volume's lock. None: no other opener can reach it.
    pub hold: Option<Box<dyn Hold>>,
}

/// The driver of a volume without threads, and the bounds that it changes.
#[derive(Default)]
pub struct TestHooks {
    /// Commits between the publications of one operation. None: nothing does.
    pub committer: Option<Committer>,
    /// A change of a range of more leaves goes into several groups. None: follows from the log's size.
    pub gated_leaves_max: Option<u64>,
    /// Times the requests to the device.
    pub stopwatch: Stopwatch,
}

#[cfg(any(test, feature = "testing"))]
impl Backend {
    /// A medium in memory for a volume of `data` blocks (the label included), for examples and tests: sparse devices
    /// of zeros with a fixed secret. It needs [`crate::Store::format_on`] before it is opened, and is gone when
    /// dropped.
    pub fn in_memory(data: crate::Blocks) -> Self {
        use crate::device::MemoryDevice;

        // That of the smallest volume on disk.
        const LOG_BYTES: u64 = 4 << 20;
        let device = |bytes| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(bytes)) };
        Self {
            data: device(data.bytes()),
            table: device(crate::format::page::table_bytes(data)),
            fragments: Some(device(0)),
            log: device(LOG_BYTES),
            log_bytes: LOG_BYTES,
            kv: Arc::new(crate::kv::MemoryKv::default()),
            ballast: Ballast::none(),
            host: None,
            secret: [0; 32],
            volume_id: [0; 16],
            hints: Some(device(0)),
            skipped: Some(device(0)),
            device_load: None,
            turns: false,
            hold: None,
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::device::{Fault, Faults, Lasts};
    use crate::kv::{FaultyKv, MemoryKv};
    use crate::{Blocks, OpenOptions, Store};

    /// Notes whether nothing else had the sorted state when it was dropped.
    struct Watched(Arc<MemoryKv>, Arc<AtomicBool>);

    impl Hold for Watched {}

    impl Drop for Watched {
        fn drop(&mut self) {
            self.1.store(Arc::strong_count(&self.0) == 1, Relaxed);
        }
    }

    #[test]
    fn a_volume_holds_its_lock_until_all_its_parts_are_gone() {
        let (kv, was_last) = (Arc::new(MemoryKv::default()), Arc::new(AtomicBool::new(false)));
        let backend = Backend { kv: kv.clone(), ..Backend::in_memory(Blocks(4096)) };
        Store::format_on(&backend, Blocks(4096)).unwrap();
        let hold = Some(Box::new(Watched(kv, was_last.clone())) as Box<dyn Hold>);
        let store = Store::open_on(Backend { hold, ..backend }, &OpenOptions::new(32 << 20)).unwrap();
        let shared = store.clone();
        drop(store);
        assert!(!was_last.load(Relaxed));
        drop(shared);
        assert!(was_last.load(Relaxed));
    }

    /// Notes whether the lock was left to the next opener.
    struct Leaving(Arc<AtomicBool>);

    impl Hold for Leaving {
        fn leave(&self) {
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn the_lock_stays_if_the_last_checkpoint_fails_because_its_changes_may_be_under_way() {
        for fails in [false, true] {
            let (faults, is_left) = (Arc::new(Faults::default()), Arc::new(AtomicBool::new(false)));
            let medium = Backend::in_memory(Blocks(4096));
            let kv = Arc::new(FaultyKv::new(medium.kv.clone(), faults.clone()));
            let backend = Backend { kv, ..medium };
            Store::format_on(&backend, Blocks(4096)).unwrap();
            let hold = Some(Box::new(Leaving(is_left.clone())) as Box<dyn Hold>);
            let store = Store::open_on(Backend { hold, ..backend }, &OpenOptions::new(32 << 20)).unwrap();
            if fails {
                faults.arm(faults.count(), Fault::Broken, Lasts::UntilMended);
            }
            assert_eq!((store.close().is_err(), is_left.load(Relaxed)), (fails, fails));
        }
    }
}
