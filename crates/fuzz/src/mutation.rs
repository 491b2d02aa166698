//! Inputs from a seed: random bytes, or an input of the corpus changed in a few places.

use oncefs_toolbox::Random;

/// Makes inputs: the same seed gives the same ones on every machine.
pub struct Mutator(Random);

impl Mutator {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    /// Uses a word for each byte, because the sequences of seeds depend on it.
    fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.below(len_max + 1);
        (0..len).map(|_| self.0.word() as u8).collect()
    }

    /// An input: one in four is made of random bytes, the others are changed ones of `corpus`.
    pub fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        const FRESH_BYTES_MAX: usize = 1024;
        if corpus.is_empty() || self.below(4) == 0 {
            return self.bytes(FRESH_BYTES_MAX);
        }
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut input, corpus);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        const INSERTED_BYTES_MAX: usize = 16;
        let at = self.below(input.len() + 1);
        let end = at + self.below(input.len() - at + 1).min(INSERTED_BYTES_MAX);
        match self.below(6) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = [0, 1, 0x7F, 0x80, 0xFF][self.below(5)],
            2 => drop(input.drain(at..end)),
            3 => {
                let other = &corpus[self.below(corpus.len())];
                input.splice(at.., other[self.below(other.len() + 1)..].iter().copied());
            }
            4 => {
                let fresh = self.bytes(end - at);
                input[at..at + fresh.len()].copy_from_slice(&fresh);
            }
            _ => {
                let fresh = self.bytes(INSERTED_BYTES_MAX);
                input.splice(at..at, fresh);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_inputs_and_changes_of_any_corpus_are_possible() {
        for corpus in [vec![], vec![vec![]], vec![vec![1], vec![2; 300]]] {
            let (mut one, mut two) = (Mutator::new(5), Mutator::new(5));
            for _ in 0..2000 {
                assert_eq!(one.input(&corpus), two.input(&corpus));
            }
        }
    }
}
