//! Contents without a pattern, the same for the same key.

use oncefs_toolbox::random::mix;

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
