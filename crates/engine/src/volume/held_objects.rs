//! The objects of an open volume, held for this process.

use std::sync::Arc;

use oncefs_rados::Hold as ObjectHold;

use crate::device::Device;
use crate::format::image::OBJECT_BYTES;
use crate::objects::held_lease::{HeldLease, Renewer};
use crate::objects::pool_room::ObjectRoom;
use crate::objects::pool_room_watch::RoomWatch;
use crate::{ClusterReport, PoolReport};

/// The lock in the cluster, the lease, and the devices that the objects are.
pub struct HeldObjects {
    hold: ObjectHold,
    epoch: u64,
    renewer: Option<Renewer>,
    devices: Vec<Arc<dyn Device>>,
    room: Arc<ObjectRoom>,
    room_watch: Option<RoomWatch>,
    /// The lock stays in the cluster.
    is_left: bool,
}

impl HeldObjects {
    /// Holds them until this is dropped.
    pub fn new(
        hold: ObjectHold,
        epoch: u64,
        renewer: Renewer,
        devices: Vec<Arc<dyn Device>>,
        room: Arc<ObjectRoom>,
    ) -> std::io::Result<Self> {
        let room_watch = Some(RoomWatch::start(room.clone())?);
        Ok(Self { hold, epoch, renewer: Some(renewer), devices, room, room_watch, is_left: false })
    }

    /// Who holds them, how the lease goes, and what the cluster tells of the pool.
    pub fn report(&self) -> ClusterReport {
        let renewals = self.renewer.as_ref().map(|renewer| renewer.lease().renewals());
        let waits = self.room.waits();
        let mut report = ClusterReport {
            holder: self.hold.holder().to_owned(),
            address: self.hold.address().to_owned(),
            epoch: self.epoch,
            has_taken_over: self.hold.has_fenced(),
            waits: waits.count,
            longest_wait_millis: waits.longest.as_millis() as u64,
            pool: self.room.space().map(|space| PoolReport::of(&space, OBJECT_BYTES)),
            ..ClusterReport::default()
        };
        if let Some(renewals) = renewals {
            report.lease_millis = renewals.length.as_millis() as u64;
            report.renewed_millis = renewals.last.as_millis() as u64;
            (report.renewals, report.renewals_failed) = (renewals.succeeded, renewals.failed);
        }
        report
    }

    /// Leaves the lock to the next process, which fences this one: changes may be under way that no flush waits for.
    pub fn leave(&mut self) {
        self.is_left = true;
        self.hold.leave_to_the_next();
    }

    /// The lease.
    pub fn lease(&self) -> Option<Arc<HeldLease>> {
        self.renewer.as_ref().map(|renewer| renewer.lease().clone())
    }
}

impl Drop for HeldObjects {
    /// No change may be under way when the lock is free: the next process fences nobody then, and the change could
    /// come after its own.
    fn drop(&mut self) {
        drop(self.room_watch.take());
        if self.is_left {
            return;
        }
        let failed = self.devices.iter().find_map(|device| device.flush().err());
        match (failed, self.renewer.take()) {
            (None, Some(renewer)) => renewer.release(),
            (Some(error), _) => {
                log::error!("changes of the objects may still be under way, so their lock stays: {error}");
                self.hold.leave_to_the_next();
            }
            (None, None) => {}
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    use oncefs_rados::{MemoryObjects, Objects};

    use super::*;
    use crate::device::{Fault, Faults, FaultyDevice, Lasts, MemoryDevice};
    use crate::format::head_record::{HeadRecord, HeadState};
    use crate::objects::head;

    /// It stands still, so no lease ends.
    fn clock() -> Duration {
        Duration::from_secs(1000)
    }

    #[test]
    fn lease_and_lock_are_given_up_after_the_last_change_is_durable_and_stay_if_it_fails() {
        for fails in [false, true] {
            let objects = MemoryObjects::default();
            let shared: Arc<dyn Objects> = Arc::new(objects.clone());
            let is_locked = Arc::new(AtomicBool::new(true));
            let lock = is_locked.clone();
            let hold = ObjectHold::of_twin("head", move || lock.store(false, SeqCst));
            let record = head::begin(&objects, HeadRecord::unbegun(), &[]).unwrap();
            let renewer = Renewer::start(shared.clone(), record, clock(), clock).unwrap();
            renewer.lease().reserve_for(Some("heir".to_owned()));
            let faults = Arc::new(Faults::default());
            let device = FaultyDevice::new(Arc::new(MemoryDevice::new(4096)), "data", faults.clone());
            if fails {
                faults.arm(faults.count(), Fault::Broken, Lasts::UntilMended);
            }
            let room = Arc::new(ObjectRoom::of(shared));
            drop(HeldObjects::new(hold, 1, renewer, vec![Arc::new(device)], room).unwrap());
            let state = head::last(&objects).unwrap().unwrap().state;
            let expected = if fails { (true, HeadState::Open) } else { (false, HeadState::Reserved) };
            assert_eq!((is_locked.load(SeqCst), state), expected);
        }
    }
}
