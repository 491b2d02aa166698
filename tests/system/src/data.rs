//! Contents and choices: incompressible, and the same for the same seed.

/// One step of SplitMix64, a generator whose outputs for different inputs are unrelated.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fills `out` with the bytes of stream `key` from byte `at` on.
pub fn fill(key: u64, at: u64, out: &mut [u8]) {
    let start = mix(key);
    let mut word = at / 8;
    let mut skip = (at % 8) as usize;
    let mut rest = out;
    while !rest.is_empty() {
        let bytes = mix(start ^ word).to_le_bytes();
        let len = rest.len().min(8 - skip);
        rest[..len].copy_from_slice(&bytes[skip..skip + len]);
        rest = &mut rest[len..];
        skip = 0;
        word += 1;
    }
}

/// `len` bytes of stream `key` from its beginning.
pub fn bytes(key: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    fill(key, 0, &mut out);
    out
}

/// A seed for one run: `ONCEFS_SEED` or the clock; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let seed = match std::env::var("ONCEFS_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("ONCEFS_SEED={text} is not a number")),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            mix(now.as_nanos() as u64) % 1_000_000_000
        }
    };
    println!("repeat with ONCEFS_SEED={seed}");
    seed
}

/// A source of choices.
pub struct Random(u64);

impl Random {
    /// The choices of one seed.
    pub fn new(seed: u64) -> Self {
        Random(mix(seed))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_reads_the_same_from_any_byte() {
        let whole = bytes(7, 100);
        let mut part = [0; 33];
        fill(7, 13, &mut part);
        assert_eq!(part, whole[13..46]);
        assert_ne!(whole, bytes(8, 100));
    }
}
