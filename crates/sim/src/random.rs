//! Seeded choices: the only randomness of the simulator, so that a seed repeats a run exactly.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finisher: a bijection whose every output bit depends on every input bit.
pub fn mix(word: u64) -> u64 {
    let mut word = word.wrapping_add(GOLDEN);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
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

    #[test]
    fn distributions_have_the_means_they_promise() {
        let mut random = Random::new(1);
        let draws = 200_000;
        assert!((mean((0..draws).map(|_| random.fraction())) - 0.5).abs() < 0.005);
        assert!(mean((0..draws).map(|_| random.normal())).abs() < 0.01);
        assert!((mean((0..draws).map(|_| random.normal().powi(2))) - 1.0).abs() < 0.02);
        assert!((mean((0..draws).map(|_| random.geometric(4.0) as f64)) - 4.0).abs() < 0.05);
        assert!((mean((0..draws).map(|_| random.below(10) as f64)) - 4.5).abs() < 0.05);
    }

    #[test]
    fn a_geometric_mean_of_one_is_always_one() {
        let mut random = Random::new(2);
        assert!((0..1_000).all(|_| random.geometric(1.0) == 1));
    }
}
