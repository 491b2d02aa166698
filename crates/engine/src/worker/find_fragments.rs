//! Searches the packs of an open volume for fragments whose entries are damaged, so that they can be read before fsck
//! rebuilds the entries. It reads a block of each pack, in turns of the worker, once for all that is damaged by then.

use crate::Result;
use crate::base::part;
use crate::damage::lost_places::{LostPlaces, Search};
use crate::sync::{LockRank, Mutex};

part! {
    /// Finds fragments again.
    pub struct FragmentFinder {
        base: damage;
        lost_places: LostPlaces
    } own {
        /// The search under way.
        search: Mutex<Option<Search>> = Mutex::new(LockRank::Leaf, None)
    }
}

impl FragmentFinder {
    /// One turn. Returns how many blocks it read. None: no entry of a fragment is known to be damaged that was not
    /// searched for.
    pub fn find_some(&self) -> Result<Option<u64>> {
        let under_way = self.search.lock().take();
        let mut search = match under_way {
            Some(search) => search,
            None => Search::new(self.damage.table().begin_search().into_iter().collect()),
        };
        if search.lost().is_empty() {
            return Ok(None);
        }
        let read = self.lost_places.search_some(&mut search)?;
        if read.is_some() {
            *self.search.lock() = Some(search);
            return Ok(read);
        }
        let places = self.lost_places.sound(&search);
        log::warn!(
            "found {} of at most {} fragments with damaged entries in their packs: they can be read again; unmount and \
             run oncefs fsck -y",
            places.len(),
            search.lost().len()
        );
        self.damage.table().add_found(places.into_iter());
        Ok(Some(0))
    }
}
