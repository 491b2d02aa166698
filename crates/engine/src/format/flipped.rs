//! One flipped bit of a log record: a Hamming code finds it, so that the record is neither lost nor mistaken for a write
//! that a crash cut off.
//!
//! The code is the XOR of the places of all set bits. A flipped bit changes it by its own place; a torn write changes it
//! by anything. The record's checksum tells whether the bit at that place was the only wrong one.

/// For each of the 6 bits of a place within a word, the places with that bit set.
const PLACES_WITH: [u64; 6] = [
    0xAAAA_AAAA_AAAA_AAAA,
    0xCCCC_CCCC_CCCC_CCCC,
    0xF0F0_F0F0_F0F0_F0F0,
    0xFF00_FF00_FF00_FF00,
    0xFFFF_0000_FFFF_0000,
    0xFFFF_FFFF_0000_0000,
];
const WORD_BYTES: usize = 8;

/// The XOR of the places of all set bits in `covered`, counted from one word before it, so that no place is 0. Places
/// are unique up to 512 MiB.
pub fn places(covered: &[u8]) -> u32 {
    let (mut all, mut places) = (0, 0);
    let mut add = |word: u64, number: usize| {
        all ^= word;
        let is_odd = word.count_ones() % 2;
        places ^= ((number as u32 + 1) << 6) & 0u32.wrapping_sub(is_odd);
    };
    let (words, rest) = covered.as_chunks::<WORD_BYTES>();
    words.iter().enumerate().for_each(|(number, word)| add(u64::from_le_bytes(*word), number));
    let mut last = [0; WORD_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    add(u64::from_le_bytes(last), words.len());
    let within = PLACES_WITH.iter().enumerate().map(|(bit, with)| ((all & with).count_ones() % 2) << bit);
    within.fold(places, |places, bit| places | bit)
}

/// Flips the bit at a place. False: the place is outside.
pub fn flip(covered: &mut [u8], place: u32) -> bool {
    let Some(bit) = (place as usize).checked_sub(WORD_BYTES * 8) else { return false };
    let Some(byte) = covered.get_mut(bit / 8) else { return false };
    *byte ^= 1 << (bit % 8);
    true
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;

    #[test]
    fn a_flipped_bit_changes_the_places_by_its_own_and_is_put_right() {
        let mut random = Random::new(1);
        for len in [1, 7, 8, 9, 64, 1000, 4001] {
            let whole: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
            for bit in 0..len * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let place = places(&whole) ^ places(&flipped);
                assert!(flip(&mut flipped, place));
                assert!(flipped == whole, "bit {bit} of {len} bytes");
            }
        }
    }

    #[test]
    fn nothing_is_flipped_outside() {
        let mut bytes = [0; 16];
        assert!(!flip(&mut bytes, 0) && !flip(&mut bytes, 63) && !flip(&mut bytes, 64 + 128));
        assert!(flip(&mut bytes, 64 + 127));
        assert_eq!(bytes[15], 0x80);
    }
}
