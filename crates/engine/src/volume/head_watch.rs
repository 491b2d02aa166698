//! Watches from outside who has a volume in objects, and who waits for it.

use std::path::Path;

use oncefs_rados::{Objects, Pool, Standbys};

use crate::format::head_record::{self, HeadState};
use crate::objects::head;
use crate::volume::{object_parts, superblock_file};
use crate::{DataPlace, Error, Result};

/// A connection to the objects of a volume. It opens nothing.
pub struct HeadWatch(Pool);

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heads {
    /// The number of the last head. 0: there was none.
    pub epoch: u64,
    /// Its machine and directory, or those for which it reserved the volume.
    pub owner: String,
    /// How far it is. None: there was none.
    pub state: Option<HeadState>,
    /// Machine and directory of each process that waits.
    pub waiting: Vec<String>,
}

impl Heads {
    /// Whether the owner is `holder`, as a lock names it. The record keeps the begin of a long name.
    pub fn is_owned_by(&self, holder: &str) -> bool {
        head_record::is_kept_of(&self.owner, holder)
    }
}

impl HeadWatch {
    /// Connects to the cluster of a volume that another machine can take over.
    pub fn of(volume: &Path) -> Result<Self> {
        let refused = |why: &str| {
            let volume = volume.display();
            Err(Error::Invalid(format!("{volume} cannot move to another machine: {why}")))
        };
        let DataPlace::Objects(access) = superblock_file::read(volume)?.data else {
            return refused("its blocks lie on this one, not in a cluster");
        };
        let pool = object_parts::connect(&access)?;
        if !object_parts::has_guarded_log(&pool)? {
            return refused("an early version made it with its log on this one, so its lease guards nothing");
        }
        Ok(Self(pool))
    }

    /// Looks once.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`]: the cluster or the record of the head cannot be read.
    pub fn look(&self) -> Result<Heads> {
        look(&self.0, &self.0)
    }
}

fn look(objects: &dyn Objects, standbys: &dyn Standbys) -> Result<Heads> {
    let mut waiting = standbys.waiting().map_err(|e| Error::io("looking who waits for the volume", e.into()))?;
    let Some(record) = head::last(objects)? else {
        return Ok(Heads { epoch: 0, owner: String::new(), state: None, waiting });
    };
    // A head that was a standby until now may be listed for a moment.
    let has_it = matches!(record.state, HeadState::Open | HeadState::Serves);
    waiting.retain(|one| !(has_it && record.is_owner(one)));
    Ok(Heads { epoch: record.epoch, owner: record.owner, state: Some(record.state), waiting })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncefs_rados::MemoryObjects;

    use super::*;
    use crate::format::head_record::HeadRecord;

    #[test]
    fn a_look_shows_the_last_head_and_who_waits() {
        let objects = MemoryObjects::default();
        let found = look(&objects, &objects).unwrap();
        assert_eq!((found.epoch, found.state, found.waiting.len()), (0, None, 0));
        for place in ["first:/srv", "second:/srv"] {
            objects.announce(place, Duration::from_secs(10)).unwrap();
        }
        let record = HeadRecord { owner: "first:/srv".to_owned(), ..HeadRecord::unbegun() };
        head::begin(&objects, record, &[]).unwrap();
        let found = look(&objects, &objects).unwrap();
        let (owner, waiting) = ("first:/srv".to_owned(), vec!["second:/srv".to_owned()]);
        assert_eq!(found, Heads { epoch: 1, owner, state: Some(HeadState::Open), waiting });
    }
}
