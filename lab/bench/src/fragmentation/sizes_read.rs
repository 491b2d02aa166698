//! Sizes of the requests that read files from the device, as `oncefs stats` counts them.

use serde::Serialize;

use crate::failure::Result;
use crate::side::Side;

/// Requests by size: class `i` has those for at most 2^i blocks that did not fit below; the last has all larger ones.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SizesRead {
    classes: Vec<u64>,
    blocks: u64,
}

impl SizesRead {
    /// Since the side was mounted.
    pub fn take(side: &Side) -> Result<SizesRead> {
        let figures = side.stats()?;
        Ok(SizesRead {
            classes: figures.numbers_at(&["device", "read_sizes", "classes"])?,
            blocks: figures.number_at(&["device", "read_sizes", "blocks"])?,
        })
    }

    /// Requests in all.
    pub fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Mean in blocks.
    pub fn mean(&self) -> f64 {
        self.blocks as f64 / self.requests().max(1) as f64
    }

    /// Share of the requests for at most 2^`class` blocks, in percent.
    pub fn percent_up_to(&self, class: usize) -> f64 {
        let small: u64 = self.classes.iter().take(class + 1).sum();
        small as f64 * 100.0 / self.requests().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_from_the_smallest_requests() {
        let sizes = SizesRead { classes: vec![1, 0, 1, 2], blocks: 20 };
        assert_eq!((sizes.requests(), sizes.mean()), (4, 5.0));
        assert_eq!([0, 1, 2, 3].map(|class| sizes.percent_up_to(class)), [25.0, 25.0, 50.0, 100.0]);
    }
}
