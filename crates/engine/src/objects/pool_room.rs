//! Whether the pool below a volume has room. A cluster refuses growth when one of its OSDs reaches the full ratio, or
//! the pool its quota.
//!
//! The write that learns it was acknowledged to a program before, or is part of a checkpoint. So it is repeated in the
//! reserve that the cluster keeps above that ratio, and from then on programs' writes find no room. What they had in
//! flight bounds what the reserve takes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_rados::Objects;

use crate::sync::AtomicBool;

/// The room of a pool.
pub struct ObjectRoom {
    objects: Arc<dyn Objects>,
    is_full: AtomicBool,
}

impl ObjectRoom {
    /// The room for these objects. It is not known to be full.
    pub fn of(objects: Arc<dyn Objects>) -> Self {
        Self { objects, is_full: AtomicBool::new(false) }
    }

    /// The cluster refused a write.
    pub fn note_full(&self) {
        if !self.is_full.swap(true, Relaxed) {
            log::warn!("the pool of this volume is full: writes of new data are refused until it has room");
        }
    }

    /// Whether the cluster refused a write, and has not been seen to have room since.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Whether requests wait for a cluster that does not answer.
    pub fn is_silent(&self) -> bool {
        self.objects.is_silent()
    }

    /// Bytes that the pool can still take: none, or no known bound. Asks the cluster again if it was full.
    pub fn look(&self) -> u64 {
        if !self.is_full() {
            return u64::MAX;
        }
        match self.objects.has_room() {
            Ok(true) => {
                self.is_full.store(false, Relaxed);
                log::info!("the pool of this volume has room again");
                u64::MAX
            }
            Ok(false) => 0,
            Err(error) => {
                log::warn!("cannot see whether the pool has room: {error}");
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oncefs_rados::MemoryObjects;

    use super::*;

    #[test]
    fn a_full_pool_has_no_room_until_the_cluster_takes_data_again() {
        let objects = MemoryObjects::default();
        let room = ObjectRoom::of(Arc::new(objects.clone()));
        assert_eq!(room.look(), u64::MAX);
        objects.set_full(true);
        assert_eq!(room.look(), u64::MAX, "nothing was refused yet");
        room.note_full();
        assert_eq!((room.is_full(), room.look()), (true, 0));
        objects.set_full(false);
        assert_eq!((room.look(), room.is_full()), (u64::MAX, false));
    }
}
