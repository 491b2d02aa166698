//! Seeded choices: the same seed gives the same choices on every machine and in every later version.
//!
//! The generator is SplitMix64, written out here. Published figures, crash workloads and fuzz runs are repeated from
//! their seeds. Random number crates do not promise that: a new version may draw other numbers.

/// The step of SplitMix64: 2^64 divided by the golden ratio, and odd.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a word so that every output bit depends on every input bit. A bijection that maps 0 to 0.
pub fn finish(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The first word of the generator with this seed: for contents that depend on a number alone.
pub fn mix(word: u64) -> u64 {
    finish(word.wrapping_add(GOLDEN))
}

/// The generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Begins with a mixed seed, and with the second word that it gives. The simulator's traces depend on this.
    pub fn mixed(seed: u64) -> Self {
        Self(mix(seed).wrapping_add(GOLDEN))
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        finish(self.0)
    }

    /// A number below `bound`, which is not 0: the remainder of a word.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// A number below `bound`, which is not 0: a word scaled down. Seeds of the simulator and of the benchmarks depend
    /// on it, and those of the crash explorer and of the fuzzer on `below`.
    pub fn scaled(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `len`, which is not 0: a word scaled down.
    pub fn index(&mut self, len: usize) -> usize {
        self.scaled(len as u64) as usize
    }

    /// True in one of `count` cases.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of these values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// The indices below `count` in random order.
    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.index(last + 1));
        }
        order
    }

    /// Bytes without a pattern.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.word().to_le_bytes());
        words.flatten().take(len).collect()
    }

    /// Uniform above 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// Normally distributed with mean 0 and deviation 1 (Box and Muller's cosine).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.fraction().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }

    /// A whole number, at least 1, geometrically distributed with this mean (at least 1).
    pub fn geometric(&mut self, mean: f64) -> u64 {
        if mean <= 1.0 {
            return 1;
        }
        1 + (self.fraction().ln() / (1.0 - 1.0 / mean).ln()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draws: impl Iterator<Item = f64>) -> f64 {
        let (sum, count) = draws.fold((0.0, 0), |(sum, count), draw| (sum + draw, count + 1));
        sum / f64::from(count)
    }

    /// Vigna's reference implementation gives these.
    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let words = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(words.map(|_| random.word()), words);
        assert_eq!(mix(1_234_567), words[0]);
        let mut unmixed = Random::new(words[0]);
        unmixed.word();
        assert_eq!(Random::mixed(1_234_567).word(), unmixed.word());
    }

    #[test]
    fn distributions_have_the_means_they_promise() {
        let mut random = Random::new(1);
        let draws = 200_000;
        assert!((mean((0..draws).map(|_| random.fraction())) - 0.5).abs() < 0.005);
        assert!(mean((0..draws).map(|_| random.normal())).abs() < 0.01);
        assert!((mean((0..draws).map(|_| random.normal().powi(2))) - 1.0).abs() < 0.02);
        assert!((mean((0..draws).map(|_| random.geometric(4.0) as f64)) - 4.0).abs() < 0.05);
        assert!((mean((0..draws).map(|_| random.scaled(10) as f64)) - 4.5).abs() < 0.05);
        assert!((mean((0..draws).map(|_| random.below(10) as f64)) - 4.5).abs() < 0.05);
        assert!((mean((0..draws).map(|_| f64::from(u8::from(random.chance(0.2))))) - 0.2).abs() < 0.005);
        assert!((mean((0..draws).map(|_| f64::from(u8::from(random.one_in(5))))) - 0.2).abs() < 0.005);
    }

    #[test]
    fn a_geometric_mean_of_one_is_always_one() {
        let mut random = Random::new(2);
        assert!((0..1_000).all(|_| random.geometric(1.0) == 1));
    }

    #[test]
    fn a_permutation_has_every_index_once() {
        let order = Random::new(3).permutation(1_000);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1_000));
        assert_ne!(order, Random::new(4).permutation(1_000));
        assert!(order.contains(&Random::new(5).pick(&order)));
    }

    #[test]
    fn bytes_are_as_many_as_asked_for_and_begin_alike() {
        assert_eq!(Random::new(6).bytes(13), Random::new(6).bytes(100)[..13]);
    }
}
