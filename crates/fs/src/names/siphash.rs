//! SipHash-2-4: a hash of 64 bits with a key of 128. Its values reveal nothing without the key, even to an attacker who
//! chooses the input and sees the hashes (Aumasson and Bernstein, 2012).

/// The two halves of a key.
#[derive(Clone, Copy)]
pub(crate) struct SipKey(pub(crate) [u64; 2]);

/// The hash of `bytes`.
pub(crate) fn siphash(key: SipKey, bytes: &[u8]) -> u64 {
    let SipKey([k0, k1]) = key;
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| take_in(&mut state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // The lowest byte of the length is the highest of the last word.
    last[7] = bytes.len() as u8;
    take_in(&mut state, u64::from_le_bytes(last));
    state[2] ^= 0xFF;
    (0..4).for_each(|_| round(&mut state));
    state.into_iter().fold(0, |hash, word| hash ^ word)
}

fn take_in(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32).wrapping_add(*d);
    *c = c.wrapping_add(*b);
    *d = d.rotate_left(21) ^ *a;
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The authors' test vectors: the key 00 01 ... 0f, and inputs 00 01 ... of growing length.
    #[test]
    fn the_vectors_of_the_authors_come_out() {
        let key = SipKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let input: Vec<u8> = (0..15).collect();
        for (len, hash) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            assert_eq!(siphash(key, &input[..len]), hash, "{len} bytes");
        }
    }
}
