//! The objects of an open volume, held for this process.

use std::sync::Arc;

use oncefs_rados::Hold as ObjectHold;

use crate::device::Device;
use crate::objects::held_lease::{HeldLease, Renewer};

/// The lock in the cluster, the lease, and the devices that the objects are.
pub struct HeldObjects {
    hold: ObjectHold,
    renewer: Option<Renewer>,
    devices: Vec<Arc<dyn Device>>,
}

impl HeldObjects {
    /// Holds them until this is dropped.
    pub fn new(hold: ObjectHold, renewer: Renewer, devices: Vec<Arc<dyn Device>>) -> Self {
        Self { hold, renewer: Some(renewer), devices }
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
