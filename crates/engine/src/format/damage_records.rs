//! Records about damaged blocks: bad blocks and their replacements, replicas, the scrub's progress.

use super::{sealed, unsealed};
use crate::{Pbn, Tag};

const BAD_SEED: u64 = 0x6261_6462;
const COPY_SEED: u64 = 0x636F_7079;
const SCRUB_SEED: u64 = 0x7363_7275;

/// A bad block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its replacement, which is read in its place. None: no good copy of its content is known.
    pub replacement: Option<Pbn>,
    /// The tag of the content that it should have.
    pub tag: Tag,
}

impl BadRecord {
    /// The record's value. pbn 0, the label, stands for no replacement.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&[self.replacement.map_or(0, |replacement| replacement.0), self.tag.0], BAD_SEED)
    }

    /// Decodes the record's value. None: it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [replacement, tag] = unsealed(bytes, BAD_SEED)?;
        Some(Self { replacement: (replacement > 0).then_some(Pbn(replacement)), tag: Tag(tag) })
    }
}

/// The value of the record that names a replica.
pub fn encode_replica(copy: Pbn) -> Vec<u8> {
    sealed(&[copy.0], COPY_SEED)
}

/// Decodes it. None: it is damaged.
pub fn decode_replica(bytes: &[u8]) -> Option<Pbn> {
    let [copy] = unsealed(bytes, COPY_SEED)?;
    Some(Pbn(copy))
}

/// The state of the scrub's last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubState {
    /// No pass ever ran.
    #[default]
    Never,
    /// It is running.
    Running,
    /// It is paused.
    Paused,
    /// It was cancelled.
    Stopped,
    /// Every block was read.
    Finished,
}

impl ScrubState {
    const ALL: [Self; 5] = [Self::Never, Self::Running, Self::Paused, Self::Stopped, Self::Finished];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        ["never", "running", "paused", "stopped", "finished"][self as usize]
    }
}

/// The scrub's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// The state of the pass.
    pub state: ScrubState,
    /// The first pbn that is not read yet.
    pub next: Pbn,
    /// Blocks read in this pass.
    pub blocks: u64,
    /// Bad blocks found in this pass.
    pub found: u64,
    /// Maximum bytes per second. 0: as the load allows.
    pub rate: u64,
    /// Microseconds spent on the pass.
    pub spent: u64,
    /// Passes finished in the volume's life.
    pub passes: u64,
    /// Blocks that the pass passed over because their entries in the block table are damaged.
    pub unknown: u64,
}

impl ScrubRecord {
    /// The record's value.
    pub fn encode(&self) -> Vec<u8> {
        let state = self.state as u64;
        let numbers = [state, self.next.0, self.blocks, self.found, self.rate, self.spent, self.passes, self.unknown];
        sealed(&numbers, SCRUB_SEED)
    }

    /// Decodes the record's value, also of a record that ends before `unknown`. None: it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let shorter = || unsealed(bytes, SCRUB_SEED).map(|[a, b, c, d, e, f, g]| [a, b, c, d, e, f, g, 0]);
        let [state, next, blocks, found, rate, spent, passes, unknown] =
            unsealed(bytes, SCRUB_SEED).or_else(shorter)?;
        let state = *ScrubState::ALL.get(usize::try_from(state).ok()?)?;
        Some(Self { state, next: Pbn(next), blocks, found, rate, spent, passes, unknown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub() -> ScrubRecord {
        ScrubRecord {
            state: ScrubState::Paused,
            next: Pbn(3),
            blocks: 4,
            found: 5,
            rate: 6,
            spent: 7,
            passes: 8,
            unknown: 9,
        }
    }

    #[test]
    fn a_record_from_before_it_had_unknown_blocks_has_none() {
        let earlier = sealed(&[2, 3, 4, 5, 6, 7, 8], SCRUB_SEED);
        assert_eq!(ScrubRecord::decode(&earlier), Some(ScrubRecord { unknown: 0, ..scrub() }));
    }

    #[test]
    fn records_have_their_golden_bytes_and_come_back() {
        let bad = BadRecord { replacement: Some(Pbn(0x0102)), tag: Tag(9) };
        assert_eq!(bad.encode()[..16], [2, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(BadRecord::decode(&bad.encode()), Some(bad));
        let lost = BadRecord { replacement: None, ..bad };
        assert_eq!(BadRecord::decode(&lost.encode()), Some(lost));
        assert_eq!(encode_replica(Pbn(7))[..8], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_replica(&encode_replica(Pbn(7))), Some(Pbn(7)));
        assert_eq!(scrub().encode().iter().step_by(8).take(7).copied().collect::<Vec<u8>>(), [2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ScrubRecord::decode(&scrub().encode()), Some(scrub()));
        ScrubState::ALL.iter().enumerate().for_each(|(n, state)| assert_eq!(*state as usize, n));
    }

    #[test]
    fn any_flipped_bit_is_noticed_and_none_is_taken_for_another() {
        let bad = BadRecord { replacement: None, tag: Tag(1) }.encode();
        for (bytes, name) in [(bad, "bad"), (encode_replica(Pbn(1)), "copy"), (scrub().encode(), "scrub")] {
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(BadRecord::decode(&flipped), None, "{name}, bit {bit}");
                assert_eq!(decode_replica(&flipped), None, "{name}, bit {bit}");
                assert_eq!(ScrubRecord::decode(&flipped), None, "{name}, bit {bit}");
            }
        }
    }
}
