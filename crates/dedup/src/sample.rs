//! The sample: which contents get hints.
//!
//! Owns the rule. Leaves it to `extend` to find the neighbours of a block with a hint in the block table, so that a long
//! run of duplicates needs one hint, not one for each of its blocks.

use std::num::NonZeroU32;

use crate::Tag;

/// One content in N, chosen by its tag: every copy of a content is in the sample or none is. The sample is spread
/// evenly among the tags of a group, because hints are grouped by a tag's leading bits and the trailing ones decide
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(NonZeroU32);

impl Sample {
    /// Every content.
    pub const ALL: Self = Self(NonZeroU32::MIN);

    /// One content in `number`; 0 counts as 1: every one.
    pub fn one_of(number: u32) -> Self {
        NonZeroU32::new(number).map_or(Self::ALL, Self)
    }

    /// N: one content in this many is in the sample.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// Whether the content with this tag is in the sample. Takes a whole tag, not the part that a [`crate::Hint`] keeps.
    pub fn has(self, tag: Tag) -> bool {
        tag.0.is_multiple_of(u64::from(self.number()))
    }

    /// Whether this sample contains the other one, so that hints complete for this one are complete for the other.
    pub fn covers(self, other: Self) -> bool {
        other.number().is_multiple_of(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hint, Pbn, TAG_BITS_KEPT};

    /// A tag as XXH3 spreads it.
    fn tag_of(content: u64) -> Tag {
        let mixed = (content + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Tag(mixed ^ mixed >> 32)
    }

    #[test]
    fn one_content_of_so_many_is_in_the_sample() {
        for number in [1, 2, 3, 64, 100, 1024] {
            let sample = Sample::one_of(number);
            let contents = 1_000 * u64::from(number);
            let found = (0..contents).filter(|content| sample.has(tag_of(*content))).count();
            assert!((900..=1_100).contains(&found), "{found} of {contents} in a sample of 1 of {number}");
        }
        assert_eq!((Sample::one_of(0), Sample::one_of(1)), (Sample::ALL, Sample::ALL));
    }

    #[test]
    fn what_hints_keep_of_a_tag_says_nothing_about_the_sample() {
        for number in [2, 3, 64, 1000, 1024] {
            let sample = Sample::one_of(number);
            for leading in (0..200).map(tag_of) {
                let kept = Hint::new(leading, Pbn(0)).tag.0;
                let span = 1_u64 << (u64::BITS - TAG_BITS_KEPT);
                let even = span / u64::from(number);
                let first = kept.div_ceil(u64::from(number)) * u64::from(number);
                let found = (kept + span - first).div_ceil(u64::from(number));
                assert!(sample.has(Tag(first)) && found.abs_diff(even) <= 1, "{found} of {span}, 1 of {number}");
            }
        }
    }

    #[test]
    fn a_sample_covers_those_that_leave_out_more() {
        let samples = [1, 2, 3, 6, 64, 1024].map(Sample::one_of);
        for (of, other) in samples.iter().flat_map(|of| samples.map(|other| (*of, other))) {
            let none_is_missed = (0..100_000).map(tag_of).all(|tag| of.has(tag) || !other.has(tag));
            assert_eq!(of.covers(other), none_is_missed, "{of:?} {other:?}");
        }
    }
}
