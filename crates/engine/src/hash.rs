//! Tags and fingerprints: the two hashes of a block, both keyed with the volume's secret.
//!
//! Owns the derivation of the two keys and the batched hashing. The derivation is part of the format, because tags and
//! fingerprints are stored. Other modules decide what they are compared with and when a fingerprint is worth its time.
//!
//! BLAKE3 cuts its input into chunks of 1 KiB and hashes several chunks at once, one per SIMD lane. A block has four,
//! which leaves most lanes of AVX2 and AVX-512 idle. So a batch puts chunk `c` of up to [`LANES`] blocks into the lanes
//! together. The entry point of the `blake3` crate that allows this has no promise of stability, so its version is
//! pinned in `Cargo.toml`, and the tests compare every batch with `blake3::keyed_hash`.

use blake3::IncrementCounter;
use blake3::platform::Platform;
use oncefs_dedup::{BLOCK_BYTES, Fingerprint, Tag};
use xxhash_rust::xxh3::xxh3_64_with_secret;

use crate::format::page::Entry;

const TAG_CONTEXT: &str = "oncefs volume secret to XXH3 secret of tags, version 1";
const LOG_ID_CONTEXT: &str = "oncefs volume secret to log id, version 1";
const FINGERPRINT_CONTEXT: &str = "oncefs volume secret to BLAKE3 key of fingerprints, version 1";
/// Bytes of the secret of tags.
pub const TAG_SECRET_BYTES: usize = 192;

/// Blocks hashed together: the lanes of AVX-512, BLAKE3's widest form.
const LANES: usize = 16;
const CHUNK_BYTES: usize = 1024;
const CHUNKS: usize = BLOCK_BYTES / CHUNK_BYTES;
const HASH_BYTES: usize = blake3::OUT_LEN;
const PAIR_BYTES: usize = 2 * HASH_BYTES;

/// Domain flags of BLAKE3, section 2.1 of its specification.
mod flag {
    pub const NONE: u8 = 0;
    pub const CHUNK_START: u8 = 1 << 0;
    pub const CHUNK_END: u8 = 1 << 1;
    pub const PARENT: u8 = 1 << 2;
    pub const ROOT: u8 = 1 << 3;
    pub const KEYED_HASH: u8 = 1 << 4;
}

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Whether every byte is zero, for at most one block.
pub fn is_zero(block: &[u8]) -> bool {
    block == &ZEROS[..block.len()]
}

/// The tag of a block in the volume that has this secret.
pub fn tag_with(secret: &[u8; TAG_SECRET_BYTES], block: &[u8]) -> Tag {
    Tag(xxh3_64_with_secret(block, secret))
}

/// The keyed hashes of one volume.
pub struct Hasher {
    tag_secret: [u8; TAG_SECRET_BYTES],
    fingerprint_key: [u8; 32],
    /// The same key in the form that the batched hash takes.
    fingerprint_words: [u32; 8],
    platform: Platform,
}

impl Hasher {
    /// Derives both keys from the volume's secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        let mut tag_secret = [0; TAG_SECRET_BYTES];
        let mut derivation = blake3::Hasher::new_derive_key(TAG_CONTEXT);
        derivation.update(secret).finalize_xof().fill(&mut tag_secret);
        let fingerprint_key = Self::derived_key(secret, FINGERPRINT_CONTEXT);
        Self {
            tag_secret,
            fingerprint_key,
            fingerprint_words: blake3::platform::words_from_le_bytes_32(&fingerprint_key),
            platform: Platform::detect(),
        }
    }

    /// The mark of log records. It is not the volume's identity, which is public, but a value that only the owner of
    /// the volume can compute, so that no user's data in the log can pass for a record.
    pub fn log_id(secret: &[u8; 32]) -> [u8; 16] {
        let id = Self::derived_key(secret, LOG_ID_CONTEXT);
        id[..16].try_into().expect("sixteen bytes of thirty-two")
    }

    /// A key derived from the volume's secret, for the purpose that `context` names.
    pub fn derived_key(secret: &[u8; 32], context: &str) -> [u8; 32] {
        blake3::derive_key(context, secret)
    }

    /// The secret of tags.
    pub fn tag_secret(&self) -> &[u8; TAG_SECRET_BYTES] {
        &self.tag_secret
    }

    /// The block's tag.
    pub fn tag(&self, block: &[u8]) -> Tag {
        tag_with(&self.tag_secret, block)
    }

    /// Appends the fingerprint of each block (of exactly [`BLOCK_BYTES`]), in order.
    ///
    /// Up to four remaining blocks are hashed one by one: their chunks fill the lanes as well as a padded batch of
    /// eight would. For the same reason machines with four lanes never batch.
    pub fn fingerprints(&self, blocks: &[&[u8]], out: &mut Vec<Fingerprint>) {
        let expected = out.len() + blocks.len();
        out.reserve(blocks.len());
        for batch in blocks.chunks(LANES) {
            if batch.len() <= CHUNKS || self.platform.simd_degree() <= CHUNKS {
                let hash = |block: &&[u8]| blake3::keyed_hash(&self.fingerprint_key, whole(block));
                out.extend(batch.iter().map(|block| fingerprint_of_hash(hash(block).as_bytes())));
            } else {
                let mut hashes = [0; LANES * HASH_BYTES];
                self.keyed_hashes(batch, &mut hashes);
                out.extend(hashes.chunks_exact(HASH_BYTES).take(batch.len()).map(fingerprint_of_hash));
            }
        }
        assert_eq!(out.len(), expected, "one fingerprint for each block");
    }

    /// Writes the keyed BLAKE3 hash of each block of a batch: four chunks, two parents, the root.
    /// Pads the batch to 8 or 16 lanes: one pass over padding is cheaper than narrow passes.
    fn keyed_hashes(&self, batch: &[&[u8]], out: &mut [u8; LANES * HASH_BYTES]) {
        let lanes = batch.len().next_power_of_two();
        debug_assert!((1..=LANES).contains(&lanes), "a batch of {} blocks", batch.len());
        let mut blocks = [&ZEROS; LANES];
        for (lane, block) in blocks.iter_mut().zip(batch) {
            *lane = whole(block);
        }
        let mut pairs = [[0; PAIR_BYTES]; LANES * 2];
        for chunk in 0..CHUNKS {
            let mut hashes = [0; LANES * HASH_BYTES];
            self.hash_chunks(&blocks[..lanes], chunk, &mut hashes);
            let half = (chunk % 2) * HASH_BYTES;
            for (lane, hash) in hashes.chunks_exact(HASH_BYTES).enumerate() {
                pairs[2 * lane + chunk / 2][half..half + HASH_BYTES].copy_from_slice(hash);
            }
        }
        let mut parents = [0; LANES * PAIR_BYTES];
        self.hash_pairs(&pairs[..2 * lanes], flag::NONE, &mut parents);
        self.hash_pairs(&parents.as_chunks().0[..lanes], flag::ROOT, out);
    }

    /// Hashes chunk number `chunk` of every block of a batch.
    fn hash_chunks(&self, batch: &[&[u8; BLOCK_BYTES]], chunk: usize, out: &mut [u8; LANES * HASH_BYTES]) {
        let mut inputs = [&[0; CHUNK_BYTES]; LANES];
        for (input, block) in inputs.iter_mut().zip(batch) {
            *input = &block.as_chunks().0[chunk];
        }
        self.platform.hash_many(
            &inputs[..batch.len()],
            &self.fingerprint_words,
            chunk as u64,
            IncrementCounter::No,
            flag::KEYED_HASH,
            flag::CHUNK_START,
            flag::CHUNK_END,
            out,
        );
    }

    /// Hashes pairs of hashes into their parents.
    fn hash_pairs(&self, pairs: &[[u8; PAIR_BYTES]], flags: u8, out: &mut [u8]) {
        let mut inputs = [&[0; PAIR_BYTES]; LANES * 2];
        for (input, pair) in inputs.iter_mut().zip(pairs) {
            *input = pair;
        }
        self.platform.hash_many(
            &inputs[..pairs.len()],
            &self.fingerprint_words,
            0,
            IncrementCounter::No,
            flag::KEYED_HASH | flag::PARENT | flags,
            flag::NONE,
            flag::NONE,
            out,
        );
    }

    /// Whether bytes are the content that an entry describes.
    pub fn is_sound(&self, entry: &Entry, bytes: &[u8]) -> bool {
        debug_assert_eq!(bytes.len(), BLOCK_BYTES, "only whole blocks have tags");
        self.tag(bytes) == entry.tag && entry.fingerprint.is_none_or(|known| known == self.fingerprint_of(bytes))
    }

    /// The fingerprint of one block.
    pub fn fingerprint_of(&self, bytes: &[u8]) -> Fingerprint {
        let mut fingerprints = Vec::with_capacity(1);
        self.fingerprints(&[bytes], &mut fingerprints);
        debug_assert_eq!(fingerprints.len(), 1, "fingerprints of one block");
        fingerprints[0]
    }
}

fn whole(block: &[u8]) -> &[u8; BLOCK_BYTES] {
    block.try_into().expect("fingerprints are of whole blocks")
}

/// The first half of a hash. An all-zero value is replaced, because on disk it means "not computed yet".
fn fingerprint_of_hash(hash: &[u8]) -> Fingerprint {
    let mut bytes: [u8; 16] = *hash.first_chunk().expect("a hash has 32 bytes");
    if bytes == [0; 16] {
        bytes[15] = 1;
    }
    Fingerprint(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = *b"a secret of exactly thirty-two b";

    fn random_blocks(count: usize) -> Vec<[u8; BLOCK_BYTES]> {
        let mut blocks = vec![[0; BLOCK_BYTES]; count];
        let mut bytes = blake3::Hasher::new().update(&(count as u64).to_le_bytes()).finalize_xof();
        blocks.iter_mut().for_each(|block| bytes.fill(block));
        blocks
    }

    fn fingerprints(hasher: &Hasher, blocks: &[[u8; BLOCK_BYTES]]) -> Vec<Fingerprint> {
        let slices: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        let mut out = Vec::new();
        hasher.fingerprints(&slices, &mut out);
        out
    }

    #[test]
    fn a_batch_of_any_size_equals_keyed_blake3_block_by_block() {
        let hasher = Hasher::new(&SECRET);
        let key = blake3::derive_key(FINGERPRINT_CONTEXT, &SECRET);
        for count in 0..=40 {
            let blocks = random_blocks(count);
            let expected: Vec<Fingerprint> =
                blocks.iter().map(|block| fingerprint_of_hash(blake3::keyed_hash(&key, block).as_bytes())).collect();
            assert_eq!(fingerprints(&hasher, &blocks), expected, "{count} blocks");
        }
    }

    #[test]
    fn fingerprints_are_appended() {
        let hasher = Hasher::new(&SECRET);
        let block = [7; BLOCK_BYTES];
        let mut out = vec![Fingerprint([9; 16])];
        hasher.fingerprints(&[&block], &mut out);
        assert_eq!(out, [Fingerprint([9; 16]), fingerprints(&hasher, &[block])[0]]);
    }

    #[test]
    #[should_panic(expected = "whole blocks")]
    fn a_partial_block_is_refused() {
        Hasher::new(&SECRET).fingerprints(&[&[0; 100]], &mut Vec::new());
    }

    #[test]
    fn the_hash_that_would_mean_not_computed_is_moved_aside() {
        let mut expected = [0; 16];
        expected[15] = 1;
        assert_eq!(fingerprint_of_hash(&[0; 32]), Fingerprint(expected));
        assert_eq!(fingerprint_of_hash(&[5; 32]), Fingerprint([5; 16]));
    }

    #[test]
    fn another_secret_gives_other_tags_and_other_fingerprints() {
        let (one, other) = (Hasher::new(&SECRET), Hasher::new(&[0; 32]));
        let block = random_blocks(1);
        assert_ne!(one.tag(&block[0]), other.tag(&block[0]));
        assert_ne!(fingerprints(&one, &block), fingerprints(&other, &block));
    }

    #[test]
    fn stored_hashes_keep_their_values() {
        let hasher = Hasher::new(&SECRET);
        let block = [1; BLOCK_BYTES];
        assert_eq!(hasher.tag(&block), Tag(10_367_308_022_027_219_029));
        let stored = 193_723_147_988_797_502_374_906_818_075_077_194_277_u128;
        assert_eq!(fingerprints(&hasher, &[block]), [Fingerprint(stored.to_be_bytes())]);
    }

    #[test]
    fn only_zeros_are_zero() {
        let mut block = [0; BLOCK_BYTES];
        assert!(is_zero(&block));
        for place in [0, 1, 63, 64, 2048, BLOCK_BYTES - 1] {
            block[place] = 0x80;
            assert!(!is_zero(&block), "byte {place}");
            block[place] = 0;
        }
    }
}
