//! The ranking record: which files have been put into the rank queues, and how many of them have which rank.

use oncefs_engine::Rank;

use crate::format::codec::{Reader, damaged, seal, unseal};
use crate::{Ino, Result};

/// Key of the one ranking record.
pub(crate) const KEY: &[u8] = b"r";

const WHAT: &str = "ranking";
const RANKS: usize = Rank::ALL.len();

/// The files in the rank queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranking {
    /// Every regular file below this number has got a place, unless it was cold.
    pub known_below: Ino,
    /// Number of regular files below that number, by rank. Approximate after a crash.
    pub files: [u64; RANKS],
}

impl Default for Ranking {
    /// The record of a volume that was never ranked.
    fn default() -> Self {
        Self { known_below: Ino::ROOT, files: [0; RANKS] }
    }
}

impl Ranking {
    /// Adds the files up to a higher number.
    pub(crate) fn with(mut self, found: &Self) -> Self {
        self.known_below = found.known_below;
        self.files.iter_mut().zip(found.files).for_each(|(files, more)| *files = files.saturating_add(more));
        self
    }
}

pub(crate) fn encode(ranking: &Ranking) -> Vec<u8> {
    let mut body = ranking.known_below.0.to_le_bytes().to_vec();
    ranking.files.iter().for_each(|files| body.extend_from_slice(&files.to_le_bytes()));
    debug_assert_eq!(body.len(), 8 * (1 + RANKS), "a ranking of {RANKS} ranks takes {} bytes", body.len());
    seal(body, 0)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Ranking> {
    parse(unseal(WHAT, 0, bytes)?).ok_or_else(|| damaged(WHAT, 0, "its length is wrong"))
}

fn parse(body: &[u8]) -> Option<Ranking> {
    let mut reader = Reader::new(body);
    let mut ranking = Ranking { known_below: Ino(reader.u64()?), ..Ranking::default() };
    for files in &mut ranking.files {
        *files = reader.u64()?;
    }
    reader.is_empty().then_some(ranking)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    const SAMPLE: Ranking = Ranking { known_below: Ino(0x0102), files: [1, 2, 3, 0x0405] };

    #[test]
    fn the_bytes_of_a_ranking_never_change() {
        assert_eq!(
            hex(&encode(&SAMPLE)),
            "02010000000000000100000000000000020000000000000003000000000000000504000000000000cd385aed"
        );
    }

    #[test]
    fn a_ranking_survives_encoding_and_damage_is_noticed() {
        assert_eq!(decode(&encode(&SAMPLE)).unwrap(), SAMPLE);
        assert_damage_is_noticed(&encode(&SAMPLE), |bytes| decode(bytes).is_ok());
    }
}
