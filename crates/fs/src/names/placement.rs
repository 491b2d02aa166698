//! The places of a directory at which a name may be.
//!
//! A name has 256 places in an order of its own. It is at the first of them that had room when the name was made. A
//! user cannot choose names that meet at one place, because the places come from a hash keyed with the volume's secret.
//! If too many names meet by chance, the place overflows: further names go to their next place, and no name is refused.
//!
//! A volume without a placement record (`format/placement`) is older. There the first place of a name comes from a hash
//! that a user can learn from cookies, and use to make names meet. The further places are keyed, so overflow keeps such
//! a volume usable, and its names stay in place.

use oncefs_engine::Store;

use crate::format::dirent::{self, Names, Place};
use crate::format::placement::{self, NamePlaces, PLACE_BITS_MAX, SEQUENCE_BITS};
use crate::names::siphash::{SipKey, siphash};
use crate::{Error, Ino, NAME_BYTES_MAX, Result};

const KEY_CONTEXT: &str = "oncefs volume secret to SipHash key of places of names, version 1";

/// Records read to find out how a volume without a placement record places its names.
const SAMPLE_RECORDS: usize = 64;

/// The rule by which the names of a volume get their places.
pub(crate) struct Placement {
    /// None: the volume is older than the record.
    places: Option<NamePlaces>,
    key: SipKey,
    /// Seeds the first place on an older volume.
    seed: u64,
}

/// The state of the placement record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// It is sound, or the volume is older and has none.
    Right,
    /// It is damaged or lost. The rule of new volumes applies.
    Lost,
}

impl Placement {
    fn of(store: &Store, places: Option<NamePlaces>) -> Self {
        let derived = store.derived_key(KEY_CONTEXT);
        let half = |from: usize| u64::from_le_bytes(derived[from..from + 8].try_into().expect("eight bytes"));
        let id = store.volume_id();
        let seed = id.iter().rev().fold(0, |seed, byte| (seed << 8) ^ u64::from(*byte) ^ (seed >> 56));
        Self { places, key: SipKey([half(0), half(8)]), seed }
    }

    /// The rule of a volume that is opened for use. A lost record is an error, because all names would seem to be
    /// missing.
    pub(crate) fn read(store: &Store) -> Result<Self> {
        let record = store.get(placement::KEY)?.map(|bytes| placement::decode(&bytes)).transpose()?;
        if record.is_none() && Self::is_keyed_by_its_names(store)? {
            return Err(Error::corrupt("placement of names", "its record is missing; run oncefs fsck"));
        }
        Ok(Self::of(store, record))
    }

    /// The rule of a volume that fsck checks. Without a record, its names show whether it is an older volume or lost
    /// the record.
    pub(crate) fn read_or_tell(store: &Store) -> Result<(Self, RecordState)> {
        let lost = (Self::of(store, Some(NamePlaces::default())), RecordState::Lost);
        Ok(match store.get(placement::KEY)?.map(|bytes| placement::decode(&bytes)) {
            Some(Ok(places)) => (Self::of(store, Some(places)), RecordState::Right),
            Some(Err(_)) => lost,
            None if Self::is_keyed_by_its_names(store)? => lost,
            None => (Self::of(store, None), RecordState::Right),
        })
    }

    /// Whether more names of a sample are where the record of new volumes puts them than where older volumes do.
    fn is_keyed_by_its_names(store: &Store) -> Result<bool> {
        let (older, keyed) = (Self::of(store, None), Self::of(store, Some(NamePlaces::default())));
        let (mut at_older, mut at_keyed) = (0, 0);
        for (key, value) in store.scan(&dirent::range(Ino(0)).0, &dirent::end(Ino(u64::MAX)), SAMPLE_RECORDS)? {
            let Some((parent, place)) = dirent::parse_key(&key) else { continue };
            let Ok(names) = Names::decode(parent, &value) else { continue };
            for dirent in names.iter() {
                at_older += u64::from(older.places(parent, &dirent.name).next() == Some(place));
                at_keyed += u64::from(keyed.places(parent, &dirent.name).next() == Some(place));
            }
        }
        Ok(at_keyed > at_older)
    }

    /// Names that a place takes before it overflows.
    pub(crate) fn names_max(&self) -> usize {
        self.places.map_or(1 << SEQUENCE_BITS, |places| usize::from(places.names_max))
    }

    /// The places of a name of the directory `parent`, in the order in which they are tried.
    pub(crate) fn places<'a>(&'a self, parent: Ino, name: &'a [u8]) -> impl Iterator<Item = Place> + 'a {
        let bits = self.places.map_or(PLACE_BITS_MAX, |places| places.bits);
        (0..=u8::MAX).map(move |attempt| match (self.places, attempt) {
            (None, 0) => Place::seeded(name, self.seed),
            _ => Place::of_hash(self.hash(parent, name, attempt), bits),
        })
    }

    fn hash(&self, Ino(parent): Ino, name: &[u8], attempt: u8) -> u64 {
        assert!(name.len() <= NAME_BYTES_MAX, "a name of {} bytes", name.len());
        // On the stack, because every lookup of a name begins here.
        let mut input = [0; 9 + NAME_BYTES_MAX];
        input[..8].copy_from_slice(&parent.to_le_bytes());
        input[8] = attempt;
        input[9..9 + name.len()].copy_from_slice(name);
        siphash(self.key, &input[..9 + name.len()])
    }
}
