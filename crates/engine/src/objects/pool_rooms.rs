//! The room of the pools below a volume: one with all of its objects, or one for its data and one for the rest.

use std::sync::Arc;

use oncefs_rados::Waits;

use super::pool_room::ObjectRoom;
use crate::BLOCK_BYTES;
use crate::format::page::{PAGE_BYTES, PAGE_ENTRIES};

/// Bytes of blocks for each byte that their entries take in the block table.
const DATA_FOR_TABLE: u64 = PAGE_ENTRIES * BLOCK_BYTES as u64 / PAGE_BYTES as u64;

/// The pools. Clones are of the same.
#[derive(Clone)]
pub struct PoolRooms {
    /// The pool with all that is no data, and with the data if there is no other.
    pub own: Arc<ObjectRoom>,
    /// The pool with the data area alone.
    pub data: Option<Arc<ObjectRoom>>,
}

impl PoolRooms {
    /// One pool for everything.
    pub fn one(own: Arc<ObjectRoom>) -> Self {
        Self { own, data: None }
    }

    /// The room of the data area.
    pub fn of_data(&self) -> &Arc<ObjectRoom> {
        self.data.as_ref().unwrap_or(&self.own)
    }

    /// Both, or the one.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ObjectRoom>> {
        [&self.own].into_iter().chain(&self.data)
    }

    /// Bytes that programs' data may still take, with the margin of every host. The largest number: no bound is known.
    pub fn look(&self, margin_bytes: u64) -> u64 {
        let Some(data) = &self.data else { return self.own.look() };
        // The table has an entry for each block; names and maps come to that.
        let for_table = self.own.look().checked_sub(margin_bytes);
        let by_own = for_table.map_or(0, |left| left.saturating_mul(DATA_FOR_TABLE).saturating_add(margin_bytes));
        data.look().min(by_own)
    }

    /// Takes bytes for programs' data, which will be written soon.
    pub fn take(&self, bytes: u64) {
        self.of_data().take(bytes);
    }

    /// Whether later figures may show room for data that `look` does not. It comes within twenty seconds, or not at all.
    /// Nothing is taken of the other pool by what is only expected, so its figures are as good as later ones.
    pub fn may_turn_out_larger(&self, margin_bytes: u64) -> bool {
        let has_own = self.data.is_none() || self.own.look() > margin_bytes;
        has_own && self.of_data().may_turn_out_larger(margin_bytes)
    }

    /// Whether one of them refused a write, and has not been seen to have room since.
    pub fn is_full(&self) -> bool {
        self.all().any(|room| room.is_full())
    }

    /// Whether requests wait for a cluster that does not answer.
    pub fn is_silent(&self) -> bool {
        self.own.is_silent()
    }

    /// Requests that waited for long.
    pub fn waits(&self) -> Waits {
        self.own.waits()
    }

    /// Asks the cluster for the figures. Waits for the answers.
    pub fn ask(&self) {
        self.all().for_each(|room| room.ask());
    }

    /// Asks whether those that refused a write take data again. Waits for the answers.
    pub fn ask_whether_full(&self) {
        self.all().for_each(|room| room.ask_whether_full());
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use oncefs_rados::{MemoryObjects, PoolSpace};

    use super::*;
    use crate::objects::pool_room::RESERVE_BYTES;

    const GIB: u64 = 1 << 30;
    const MARGIN: u64 = 64 << 20;

    fn pool() -> (MemoryObjects, Arc<ObjectRoom>) {
        let objects = MemoryObjects::default();
        (objects.clone(), Arc::new(ObjectRoom::of(Arc::new(objects))))
    }

    fn set(objects: &MemoryObjects, left: u64) {
        let osds_left_bytes = RESERVE_BYTES + MARGIN + left;
        objects.set_space(Some(PoolSpace { osds_left_bytes, ..PoolSpace::default() }));
    }

    #[test]
    fn data_is_bounded_by_its_pool_and_by_the_entries_that_the_other_has_room_for() {
        let ((own, own_room), (data, data_room)) = (pool(), pool());
        let rooms = PoolRooms { own: own_room, data: Some(data_room) };
        let left = || {
            rooms.ask();
            rooms.look(MARGIN).checked_sub(MARGIN)
        };
        assert_eq!(left(), Some(u64::MAX - MARGIN), "nothing is known");
        set(&own, GIB);
        set(&data, 4 * GIB);
        assert_eq!(left(), Some(4 * GIB));
        rooms.take(GIB);
        assert_eq!(rooms.look(MARGIN) - MARGIN, 3 * GIB, "data is taken of its pool");
        set(&own, 1 << 20);
        assert_eq!(left(), Some(128 << 20), "a byte of the table is there for 128 of data");
        rooms.take(GIB);
        rooms.ask();
        assert!(rooms.may_turn_out_larger(MARGIN), "the figures may have it already");
        own.set_space(Some(PoolSpace { osds_left_bytes: RESERVE_BYTES, ..PoolSpace::default() }));
        assert_eq!(left(), None);
        assert!(!rooms.may_turn_out_larger(MARGIN), "no figures of the data's pool make room in the other");
        set(&own, GIB);
        data.set_full(true);
        rooms.of_data().note_full();
        rooms.ask();
        assert!(rooms.is_full() && !rooms.own.is_full());
    }
}
