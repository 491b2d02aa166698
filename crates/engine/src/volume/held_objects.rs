//! The objects of an open volume, held for this process.

use std::sync::Arc;

use oncefs_rados::Hold as ObjectHold;

use crate::device::Device;
use crate::format::image::OBJECT_BYTES;
use crate::objects::held_lease::{HeldLease, Renewer};
use crate::objects::pool_room::ObjectRoom;
use crate::objects::pool_room_watch::RoomWatch;
use crate::objects::pool_rooms::PoolRooms;
use crate::{ClusterReport, Error, PoolReport, Result};

/// The lock in the cluster, the lease, and the devices that the objects are.
pub struct HeldObjects {
    hold: ObjectHold,
    epoch: u64,
    renewer: Option<Renewer>,
    devices: Vec<Arc<dyn Device>>,
    rooms: PoolRooms,
    room_watch: Option<RoomWatch>,
    /// The lock stays in the cluster, or was given up.
    is_over: bool,
}

impl HeldObjects {
    /// Holds them until this is dropped.
    pub fn new(
        hold: ObjectHold,
        epoch: u64,
        renewer: Renewer,
        devices: Vec<Arc<dyn Device>>,
        rooms: PoolRooms,
    ) -> std::io::Result<Self> {
        let room_watch = Some(RoomWatch::start(rooms.clone())?);
        Ok(Self { hold, epoch, renewer: Some(renewer), devices, rooms, room_watch, is_over: false })
    }

    /// Who holds them, how the lease goes, and what the cluster tells of the pool.
    pub fn report(&self) -> ClusterReport {
        let renewals = self.renewer.as_ref().map(|renewer| renewer.lease().renewals());
        let waits = self.rooms.waits();
        let space = |room: &Arc<ObjectRoom>| room.space().map(|space| PoolReport::of(&space, OBJECT_BYTES));
        let mut report = ClusterReport {
            holder: self.hold.holder().to_owned(),
            address: self.hold.address().to_owned(),
            epoch: self.epoch,
            has_taken_over: self.hold.has_fenced(),
            waits: waits.count,
            longest_wait_millis: waits.longest.as_millis() as u64,
            pool: space(&self.rooms.own),
            data_pool: self.rooms.data.as_ref().and_then(space),
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
        self.is_over = true;
        self.hold.leave_to_the_next();
    }

    /// Notes that nothing is under way, and gives up the lock.
    ///
    /// # Errors
    ///
    /// Changes may still be under way, so the lock stays; or the note was not made, and nobody finds a reservation; or
    /// the cluster does not unlock.
    pub fn let_go(mut self) -> Result<()> {
        self.end()
    }

    /// No change may be under way when the lock is free: the next process fences nobody then, and the change could
    /// come after its own.
    fn end(&mut self) -> Result<()> {
        drop(self.room_watch.take());
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        if let Some(error) = self.devices.iter().find_map(|device| device.flush().err()) {
            self.hold.leave_to_the_next();
            return Err(Error::io("the lock stays, because changes of objects may be under way: flushing them", error));
        }
        let noted = self.renewer.take().map_or(Ok(()), Renewer::release);
        let unlocked = self.hold.give_up().map_err(|e| Error::io("giving up the lock", e.into()));
        noted.and(unlocked)
    }

    /// The lease.
    pub fn lease(&self) -> Option<Arc<HeldLease>> {
        self.renewer.as_ref().map(|renewer| renewer.lease().clone())
    }
}

impl Drop for HeldObjects {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log::warn!("the objects of the volume were not given up well: {error}");
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
            let hold = ObjectHold::of_twin("head", move || {
                lock.store(false, SeqCst);
                Ok(())
            });
            let record = head::begin(&objects, HeadRecord::unbegun(), &[]).unwrap();
            let renewer = Renewer::start(shared.clone(), record, clock(), clock).unwrap();
            renewer.lease().reserve_for(Some("heir".to_owned()));
            let faults = Arc::new(Faults::default());
            let device = FaultyDevice::new(Arc::new(MemoryDevice::new(4096)), "data", faults.clone());
            if fails {
                faults.arm(faults.count(), Fault::Broken, Lasts::UntilMended);
            }
            let room = PoolRooms::one(Arc::new(ObjectRoom::of(shared)));
            let held = HeldObjects::new(hold, 1, renewer, vec![Arc::new(device)], room).unwrap();
            assert_eq!(held.let_go().is_err(), fails);
            let state = head::last(&objects).unwrap().unwrap().state;
            let expected = if fails { (true, HeadState::Open) } else { (false, HeadState::Reserved) };
            assert_eq!((is_locked.load(SeqCst), state), expected);
        }
    }

    #[test]
    fn a_lock_that_the_cluster_does_not_give_up_is_told() {
        let objects = MemoryObjects::default();
        let shared: Arc<dyn Objects> = Arc::new(objects.clone());
        let hold = ObjectHold::of_twin("head", || Err(oncefs_rados::Error::Fenced));
        let record = head::begin(&objects, HeadRecord::unbegun(), &[]).unwrap();
        let renewer = Renewer::start(shared.clone(), record, clock(), clock).unwrap();
        let held =
            HeldObjects::new(hold, 1, renewer, Vec::new(), PoolRooms::one(Arc::new(ObjectRoom::of(shared)))).unwrap();
        let told = held.let_go().unwrap_err().to_string();
        assert!(told.contains("giving up the lock"), "{told}");
    }
}
