//! Blocks become fragments and come back; anything else becomes an error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use oncefs_compress::{BLOCK_BYTES, Coding, Compressor, Damaged, Expander, FRAGMENT_BYTES_MAX, Method, Probe};
use oncefs_toolbox::Random;

const METHODS: [Method; 4] = [Method::Lz4, Method::Zstd(1), Method::Zstd(3), Method::Zstd(19)];

/// A block in which every `nth` byte is random.
fn block(random: &mut Random, nth: usize) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| if at % nth == 0 { random.below(256) as u8 } else { (at / 64) as u8 }).collect()
}

#[test]
fn a_block_comes_back_as_it_was() {
    let mut random = Random::new(1);
    let mut expander = Expander::default();
    for method in METHODS {
        let mut compressor = Compressor::new(method);
        for nth in (2..40).chain([500, BLOCK_BYTES]) {
            let block = block(&mut random, nth);
            let Some(fragment) = compressor.compress(&block) else {
                assert!(nth < 8, "{method}: of every {nth} bytes one is random, and it stays");
                continue;
            };
            let mut back = vec![0xEE; BLOCK_BYTES];
            expander.expand(method.coding(), fragment, &mut back).unwrap();
            assert!(back == block, "{method}, every byte of {nth}");
        }
    }
}

#[test]
fn what_shrinks_by_less_than_an_eighth_stays() {
    let mut random = Random::new(2);
    for method in METHODS {
        let mut compressor = Compressor::new(method);
        assert_eq!(compressor.compress(&block(&mut random, 1)), None, "{method} and random bytes");
        let mut mostly_random = block(&mut random, 1);
        mostly_random[..500].fill(7);
        assert_eq!(compressor.compress(&mostly_random), None, "{method}, less than an eighth");
        mostly_random[..800].fill(7);
        let fragment = compressor.compress(&mostly_random).unwrap();
        assert!(fragment.len() <= FRAGMENT_BYTES_MAX, "{method}: {} bytes", fragment.len());
        assert!(compressor.compress(&[7; BLOCK_BYTES]).unwrap().len() < 32, "{method} after a block that stays");
    }
}

#[test]
fn a_probe_tells_random_bytes_from_what_shrinks() {
    let mut random = Random::new(3);
    let mut probe = Probe::default();
    for method in METHODS {
        for _ in 0..1_000 {
            assert!(!probe.shrinks(method, &block(&mut random, 1)), "{method} and random bytes");
        }
        for nth in [16, 100, BLOCK_BYTES] {
            assert!(probe.shrinks(method, &block(&mut random, nth)), "{method}: of every {nth} bytes one is random");
        }
    }
    // Random letters, as in Base64: nothing repeats.
    let letters: Vec<u8> = (0..BLOCK_BYTES).map(|_| b'0' + random.below(64) as u8).collect();
    assert!(probe.shrinks(Method::Zstd(1), &letters) && Compressor::new(Method::Zstd(1)).compress(&letters).is_some());
    assert!(!probe.shrinks(Method::Lz4, &letters) && Compressor::new(Method::Lz4).compress(&letters).is_none());
}

/// Every later version must read stored fragments, even if its compressor makes another fragment of the same block.
#[test]
fn golden_fragments_are_read() {
    let block: Vec<u8> = b"once upon a block ".iter().copied().cycle().take(BLOCK_BYTES).collect();
    let mut expander = Expander::default();
    for (coding, fragment) in [(Coding::Lz4, GOLDEN_LZ4), (Coding::Zstd, GOLDEN_ZSTD)] {
        let mut back = vec![0; BLOCK_BYTES];
        expander.expand(coding, fragment, &mut back).unwrap();
        assert!(back == block, "{coding:?}");
    }
}

/// 18 letters, a match 18 bytes back, and the last letters as they are.
const GOLDEN_LZ4: &[u8] = &[
    255, 3, 111, 110, 99, 101, 32, 117, 112, 111, 110, 32, 97, 32, 98, 108, 111, 99, 107, 32, 18, 0, 255, 255, 255,
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 228, 96, 32, 117, 112, 111, 110, 32,
];
/// A frame's descriptor and window, then one compressed block.
const GOLDEN_ZSTD: &[u8] = &[
    0, 16, 213, 0, 0, 144, 111, 110, 99, 101, 32, 117, 112, 111, 110, 32, 97, 32, 98, 108, 111, 99, 107, 32, 1, 0, 214,
    95, 254, 12, 3,
];

#[test]
fn no_bytes_panic_and_none_make_a_block_that_is_longer_or_shorter() {
    let mut random = Random::new(3);
    let mut expander = Expander::default();
    let mut back = vec![0; BLOCK_BYTES];
    for method in METHODS {
        let whole = Compressor::new(method).compress(&block(&mut random, 9)).unwrap().to_vec();
        for len in 0..whole.len() {
            assert_eq!(expander.expand(method.coding(), &whole[..len], &mut back), Err(Damaged), "{method}: {len}");
        }
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            // It may make another block, which the block's tag detects.
            let _ = expander.expand(method.coding(), &bytes, &mut back);
            let noise: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
            let _ = expander.expand(method.coding(), &noise, &mut back);
        }
        expander.expand(method.coding(), &whole, &mut back).unwrap();
    }
    let too_long = vec![0; FRAGMENT_BYTES_MAX + 1];
    assert_eq!(expander.expand(Method::Lz4.coding(), &too_long, &mut back), Err(Damaged));
}

#[test]
fn a_fragment_of_a_longer_content_is_damaged() {
    let mut expander = Expander::default();
    let mut back = vec![0; BLOCK_BYTES];
    let long = vec![7; BLOCK_BYTES + 1];
    let lz4 = lz4_flex::block::compress(&long);
    assert_eq!(expander.expand(Method::Lz4.coding(), &lz4, &mut back), Err(Damaged));
    let zstd = zstd::bulk::compress(&long, 1).unwrap();
    assert_eq!(expander.expand(Method::Zstd(1).coding(), &zstd[4..], &mut back), Err(Damaged));
}
