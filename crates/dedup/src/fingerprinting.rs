//! Whether blocks are fingerprinted as they are written.
//!
//! Owns the choice between eager (every block) and lazy (only where a tag matches). A fingerprint
//! costs ten times as much as a tag. Without one a match has to be compared with the stored bytes, which
//! takes a read from the device. So fingerprints pay where duplicates are found.

/// Blocks over which the share of duplicates is averaged: 16 MiB of writes.
const WINDOW_BLOCKS: u64 = 4096;
/// At this share of duplicates lazy turns eager: a read saved for every 33 fingerprints.
const EAGER_SHARE_MIN: f64 = 0.03;
/// Below this share eager turns lazy; the gap keeps a steady share from switching back and forth.
const LAZY_SHARE_MAX: f64 = 0.015;

/// When written blocks are fingerprinted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fingerprinting {
    /// Every block.
    Eager,
    /// Only blocks whose tag matches a hint.
    Lazy,
    /// Eager while duplicates are being found.
    Auto(DuplicateShare),
}

/// The share of duplicates among recently written blocks, and whether that calls for eager fingerprints.
/// The default, without blocks, is lazy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DuplicateShare {
    share: f64,
    eager: bool,
}

impl Fingerprinting {
    /// Whether to fingerprint every block of the next batch.
    pub fn eager(&self) -> bool {
        match self {
            Self::Eager => true,
            Self::Lazy => false,
            Self::Auto(recent) => recent.eager,
        }
    }

    /// Learns that `duplicates` of `blocks` blocks just written were stored already.
    pub fn observe(&mut self, blocks: u64, duplicates: u64) {
        if let Self::Auto(recent) = self {
            recent.observe(blocks, duplicates);
        }
    }
}

impl DuplicateShare {
    /// The share of duplicates among recent blocks, 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    fn observe(&mut self, blocks: u64, duplicates: u64) {
        debug_assert!(duplicates <= blocks, "{duplicates} duplicates among {blocks} blocks");
        if blocks == 0 {
            return;
        }
        let weight = blocks.min(WINDOW_BLOCKS) as f64 / WINDOW_BLOCKS as f64;
        self.share += weight * (duplicates as f64 / blocks as f64 - self.share);
        self.eager = self.share >= if self.eager { LAZY_SHARE_MAX } else { EAGER_SHARE_MIN };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto() -> Fingerprinting {
        Fingerprinting::Auto(DuplicateShare::default())
    }

    /// Batches of 100 blocks until the answer is `eager`.
    fn blocks_until(eager: bool, fingerprinting: &mut Fingerprinting, duplicates: u64) -> u64 {
        let mut blocks = 0;
        while fingerprinting.eager() != eager {
            fingerprinting.observe(100, duplicates);
            blocks += 100;
            assert!(blocks < 1_000_000, "never at {duplicates} %");
        }
        blocks
    }

    #[test]
    fn auto_starts_lazy() {
        assert!(!auto().eager());
    }

    #[test]
    fn auto_turns_eager_soon_after_duplicates_appear_and_lazy_after_they_end() {
        let mut fingerprinting = auto();
        assert!(blocks_until(true, &mut fingerprinting, 25) < WINDOW_BLOCKS / 4);
        (0..1_000).for_each(|_| fingerprinting.observe(100, 25));
        assert!(blocks_until(false, &mut fingerprinting, 0) < 4 * WINDOW_BLOCKS);
    }

    #[test]
    fn a_steady_share_between_the_thresholds_changes_nothing() {
        let (mut from_lazy, mut from_eager) = (auto(), auto());
        blocks_until(true, &mut from_eager, 50);
        for _ in 0..10_000 {
            from_lazy.observe(100, 2);
            from_eager.observe(100, 2);
            assert!(!from_lazy.eager() && from_eager.eager());
        }
    }

    #[test]
    fn the_size_of_batches_does_not_matter_for_a_steady_share() {
        for blocks in [50, 100, 1_000, WINDOW_BLOCKS, 10 * WINDOW_BLOCKS] {
            let mut recent = DuplicateShare::default();
            (0..2_000).for_each(|_| recent.observe(blocks, blocks / 10));
            assert!((recent.share() - 0.1).abs() < 1e-3, "{} at {blocks}", recent.share());
        }
    }

    #[test]
    fn an_empty_batch_teaches_nothing() {
        let mut fingerprinting = auto();
        blocks_until(true, &mut fingerprinting, 100);
        let before = fingerprinting;
        fingerprinting.observe(0, 0);
        assert_eq!(fingerprinting, before);
    }

    #[test]
    fn fixed_modes_learn_nothing() {
        for mut fixed in [Fingerprinting::Eager, Fingerprinting::Lazy] {
            let before = fixed;
            fixed.observe(1 << 20, 1 << 19);
            assert_eq!(fixed, before);
        }
        assert!(Fingerprinting::Eager.eager() && !Fingerprinting::Lazy.eager());
    }
}
