//! The limit that a busy CPU puts on in-line work (SmartDedup, section 3.4).
//!
//! Owns the rule; `inline_admission` applies it. The paper names the disk as well as the CPU. In-line dedup relieves a
//! busy disk, so here only the out-of-line worker yields to the disk (`pace`).

/// CPU share from which the CPU counts as fully busy.
const CPU_FULL: f64 = 0.95;
/// The limit's floor, step down and step up per observation: the paper's values for its rate.
const FLOOR: f64 = 0.30;
const STEP_DOWN: f64 = 0.10;
const STEP_UP: f64 = 0.30;

/// A limit that falls by a step while the CPU is fully busy and rises again afterwards (SmartDedup, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadLimit {
    share: f64,
}

impl Default for LoadLimit {
    fn default() -> Self {
        Self { share: 1.0 }
    }
}

impl LoadLimit {
    /// Learns the CPU's busy share, 0 to 1, about once a second. Returns the limit.
    pub fn observe(&mut self, cpu_busy: f64) -> f64 {
        let stepped = if cpu_busy >= CPU_FULL { self.share - STEP_DOWN } else { self.share + STEP_UP };
        self.share = stepped.clamp(FLOOR, 1.0);
        self.share
    }

    /// The limit, from 0.3 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cpu_lowers_the_ceiling_slowly_to_its_floor_and_a_free_one_raises_it_fast() {
        let mut limit = LoadLimit::default();
        assert_eq!(limit.observe(0.5), 1.0);
        assert!((limit.observe(1.0) - 0.9).abs() < 1e-9);
        (0..20).for_each(|_| _ = limit.observe(0.99));
        assert_eq!(limit.share(), FLOOR);
        let recovered = (1..).find(|_| limit.observe(0.2) == 1.0);
        assert_eq!(recovered, Some(3));
    }
}
