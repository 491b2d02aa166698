//! Draws the sizes of the synthetic files, with table 4's range, count and sum.
//!
//! The paper draws the distribution (figure 8) and does not state it. Ours is a bounded Pareto distribution, as files
//! are: most are small, most bytes are in large ones. Its exponent is the one with which the files have the sum.

use crate::content::Random;

/// The longest file, 32 MiB, in blocks.
const BLOCKS_MAX: f64 = 8192.0;
/// Exponents between which the right one lies; more makes files shorter.
const EXPONENTS: (f64, f64) = (0.01, 4.0);
/// Halvings of that range.
const STEPS: usize = 50;

/// Blocks of each of `files` files, together `blocks` but for rounding, in random order.
pub fn draw(files: usize, blocks: usize, random: &mut Random) -> Vec<usize> {
    let (mut low, mut high) = EXPONENTS;
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        let sum: f64 = quantiles(files, middle).sum();
        if sum > blocks as f64 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let sizes: Vec<usize> = quantiles(files, low).map(|size| size.round() as usize).collect();
    random.permutation(files).into_iter().map(|index| sizes[index]).collect()
}

/// The middle of each of `files` equal shares of the distribution, in blocks.
fn quantiles(files: usize, exponent: f64) -> impl Iterator<Item = f64> {
    let share_beyond_max = BLOCKS_MAX.powf(-exponent);
    (0..files).map(move |index| {
        let share = (index as f64 + 0.5) / files as f64;
        (1.0 - share * (1.0 - share_beyond_max)).powf(-1.0 / exponent).min(BLOCKS_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_thousand_files_of_4_kib_to_32_mib_have_2_5_gb() {
        let sizes = draw(5_000, 655_360, &mut Random::new(3));
        let sum: usize = sizes.iter().sum();
        assert!(sum.abs_diff(655_360) < 2_000, "{sum} blocks");
        assert_eq!(sizes.iter().copied().min(), Some(1));
        assert!(sizes.iter().all(|blocks| *blocks <= 8_192) && sizes.iter().any(|blocks| *blocks > 7_500));
    }

    #[test]
    fn fewer_files_keep_the_mean() {
        let sum: usize = draw(100, 13_107, &mut Random::new(3)).iter().sum();
        assert!(sum.abs_diff(13_107) < 100, "{sum} blocks");
    }
}
