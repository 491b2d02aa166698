//! A part of an audit: the records of the rank queues. The part on inodes checks that each file has its place.

use crate::format::records::is_known;
use crate::format::{queue, ranking};
use crate::fsck::audit::Audit;
use crate::fsck::audit::records::Records;
use crate::fsck::fault::Fault;
use crate::{Ino, Result};

impl Audit<'_> {
    /// Checks (10) for places and the ranking. A damaged place counts as a place, so that one fault needs one fix.
    pub fn queues(&mut self) -> Result<()> {
        let mut places = Records::of(self.store, b'q');
        while let Some((key, value)) = places.pop()? {
            let Some(place) = queue::parse_key(&key) else {
                (self.found)(Fault::Key { key });
                continue;
            };
            self.places.push([place.file])?;
            if let Err(error) = queue::decode(Ino(place.file), &value) {
                (self.found)(Fault::Record { key, error: error.to_string() });
            }
        }
        let mut rankings = Records::of(self.store, ranking::KEY[0]);
        while let Some((key, value)) = rankings.pop()? {
            if !is_known(&key) {
                (self.found)(Fault::Key { key });
                continue;
            }
            match ranking::decode(&value) {
                Ok(ranking) => self.known_below = ranking.known_below,
                Err(error) => (self.found)(Fault::Record { key, error: error.to_string() }),
            }
        }
        Ok(())
    }
}
