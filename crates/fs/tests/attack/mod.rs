//! The attack of a user on volumes without a placement record, which place names by XXH3 of the name with a seed. The
//! seed leaks, because XXH3 of a short name can be inverted.
#![allow(dead_code, reason = "each test program that has it uses some of it")]

/// The parts of XXH3's default secret that it combines with the seed, for names of 1 to 3 and of 4 to 8 bytes.
const FLIP_TO_3: u64 = 0x396c_feb8 ^ 0xbe4b_a423;
const FLIP_TO_8: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;
/// Its multipliers.
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_MX: u64 = 0x9FB2_1C65_1E98_DF25;
/// Bits of a hash that its place does not reveal.
const HIDDEN_BITS: u32 = 9;

/// The seed, computed from the cookies of names of one byte each. None: no seed gives these cookies.
pub fn seed_from(listed: &[(Vec<u8>, u64)]) -> Option<u64> {
    let short: Vec<(u8, u64)> =
        listed.iter().filter(|(name, _)| name.len() == 1).map(|(name, cookie)| (name[0], cookie & !0xFF)).collect();
    assert!(short.len() >= 3, "names of one byte to tell the seed from: {}", short.len());
    let (first, place) = short[0];
    let candidates = (0..1_u64 << HIDDEN_BITS).map(|hidden| {
        let keyed = undo_avalanche(place << 1 | hidden);
        (keyed ^ combined(first)).wrapping_sub(FLIP_TO_3)
    });
    candidates.into_iter().find(|seed| short.iter().all(|(name, place)| place_of(hash_of_byte(*name, *seed)) == *place))
}

/// Names of eight bytes with the same place as `target`, which has four to eight bytes.
pub fn names_beside(target: &[u8], seed: u64) -> Vec<Vec<u8>> {
    let hash = hash_to_8(target, seed) >> HIDDEN_BITS << HIDDEN_BITS;
    let names = (0..1_u64 << HIDDEN_BITS).map(|hidden| {
        let input = undo_mix(hash | hidden, 8) ^ flip_to_8(seed);
        input.rotate_left(32).to_le_bytes().to_vec()
    });
    names.filter(|name| !name.contains(&0) && !name.contains(&b'/') && name != target).collect()
}

fn place_of(hash: u64) -> u64 {
    (hash >> 1) & !0xFF
}

fn combined(byte: u8) -> u64 {
    let byte = u64::from(byte);
    byte << 16 | byte << 24 | byte | 1 << 8
}

fn hash_of_byte(byte: u8, seed: u64) -> u64 {
    let mut hash = combined(byte) ^ FLIP_TO_3.wrapping_add(seed);
    hash = (hash ^ hash >> 33).wrapping_mul(PRIME_2);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIME_3);
    hash ^ hash >> 32
}

fn undo_avalanche(hash: u64) -> u64 {
    let mut hash = undo_shift(hash, 32).wrapping_mul(inverse(PRIME_3));
    hash = undo_shift(hash, 29).wrapping_mul(inverse(PRIME_2));
    undo_shift(hash, 33)
}

fn flip_to_8(seed: u64) -> u64 {
    FLIP_TO_8.wrapping_sub(seed ^ u64::from((seed as u32).swap_bytes()) << 32)
}

fn hash_to_8(name: &[u8], seed: u64) -> u64 {
    let word = |from: usize| u64::from(u32::from_le_bytes(name[from..from + 4].try_into().unwrap()));
    let mut hash = (word(name.len() - 4) + (word(0) << 32)) ^ flip_to_8(seed);
    hash = turned(hash).wrapping_mul(PRIME_MX);
    hash = (hash ^ ((hash >> 35) + name.len() as u64)).wrapping_mul(PRIME_MX);
    hash ^ hash >> 28
}

fn undo_mix(hash: u64, len: u64) -> u64 {
    let mut hash = undo_shift(hash, 28).wrapping_mul(inverse(PRIME_MX));
    hash = (hash ^ ((hash >> 35) + len)).wrapping_mul(inverse(PRIME_MX));
    // Applying `turned` 64 times is the identity: over GF(2), (1 + x^24 + x^49)^64 is 1 if x^64 is 1.
    (0..63).fold(hash, |hash, _| turned(hash))
}

fn turned(hash: u64) -> u64 {
    hash ^ hash.rotate_left(49) ^ hash.rotate_left(24)
}

fn undo_shift(mut hash: u64, bits: u32) -> u64 {
    let shifted = hash;
    for _ in 0..64 / bits {
        hash = shifted ^ hash >> bits;
    }
    hash
}

/// The multiplicative inverse of an odd number (Newton's method: each step doubles the number of right bits).
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |found, _| found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found))))
}
