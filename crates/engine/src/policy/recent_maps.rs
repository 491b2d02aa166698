//! A value for each recently used map, in bounded memory. Maps with the same hash share a set, and the least recently
//! used map of a set makes room.
//!
//! Owns where a map's value lies. Leaves the locks to its users: each has `PARTS` of them, and may protect other data
//! with them too.

use crate::MapId;

/// Parts with a lock of their own.
pub const PARTS: usize = 16;
/// Maps that share a set.
const WAYS: usize = 8;

/// A map and its value. No map has id 0: it marks a free place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<T> {
    map: MapId,
    value: T,
}

/// The values of one part. In a set, the most recently used comes first.
pub struct RecentMaps<T> {
    sets: Box<[[Place<T>; WAYS]]>,
}

/// The part of a map.
pub fn part_of(map: MapId) -> usize {
    (hash_of(map) >> 60) as usize % PARTS
}

fn hash_of(map: MapId) -> u64 {
    // Fibonacci hashing: ids are consecutive.
    map.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<T: Copy + Default> RecentMaps<T> {
    /// An empty part. It has room for as many values as fit into this many bytes, and for at least a few.
    pub fn of_part(bytes_max: u64) -> Self {
        let sets = (bytes_max as usize / size_of::<[Place<T>; WAYS]>() / PARTS).max(1);
        Self { sets: vec![[Place::default(); WAYS]; sets].into_boxed_slice() }
    }

    /// The value of a map. The map becomes the most recently used.
    pub fn get(&mut self, map: MapId) -> Option<&mut T> {
        let set = self.set_of(map);
        let at = set.iter().position(|place| place.map == map && map.0 > 0)?;
        set[..=at].rotate_right(1);
        Some(&mut set[0].value)
    }

    /// The same. An unknown map gets the default value, in the place of the least recently used one.
    pub fn get_or_default(&mut self, map: MapId) -> &mut T {
        let set = self.set_of(map);
        let found = set.iter().position(|place| place.map == map);
        set[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
        if found.is_none() {
            set[0] = Place { map, value: T::default() };
        }
        &mut set[0].value
    }

    /// The value of a map. Does not count as a use.
    pub fn peek(&self, map: MapId) -> Option<&T> {
        self.sets[self.place_of(map)].iter().find(|place| place.map == map).map(|place| &place.value)
    }

    /// Removes a map.
    pub fn forget(&mut self, map: MapId) {
        if let Some(place) = self.set_of(map).iter_mut().find(|place| place.map == map) {
            *place = Place::default();
        }
    }

    /// How many maps can be known.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn places(&self) -> usize {
        self.sets.len() * WAYS
    }

    fn set_of(&mut self, map: MapId) -> &mut [Place<T>; WAYS] {
        let at = self.place_of(map);
        &mut self.sets[at]
    }

    fn place_of(&self, map: MapId) -> usize {
        let hash = hash_of(map) & (u64::MAX >> 4);
        let at = (u128::from(hash) * self.sets.len() as u128) >> 60;
        debug_assert!((at as usize) < self.sets.len(), "set {at} of {}", self.sets.len());
        at as usize
    }
}
