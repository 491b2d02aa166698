//! How much dedup the energy supply allows (SmartDedup, section 3.4).
//!
//! Owns the rule: the rate is proportional to the remaining charge, and dedup is off in low-power mode. Leaves reading
//! the charge to the engine (`pace/system_load.rs`).

use crate::out_of_range::{RangeError, within};

/// The machine's energy supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// Mains, or no known battery.
    Mains,
    /// Discharging batteries.
    Battery {
        /// Charge in percent, 0 to 100. More counts as 100.
        percent: u8,
    },
}

/// How much dedup a battery allows (SmartDedup, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnergyRule {
    /// Dedup is off at or below this charge, in percent, 0 to 100. 100: only on mains.
    pub battery_percent_min: u8,
}

impl Default for EnergyRule {
    /// Phones enter low-power mode at 20 % (the paper's figure 11 ends there).
    fn default() -> Self {
        Self { battery_percent_min: 20 }
    }
}

impl EnergyRule {
    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), RangeError> {
        within("battery_percent_min", f64::from(self.battery_percent_min), 0.0, 100.0)
    }

    /// The share of its full rate that dedup may use, 0 (off) to 1.
    pub fn share(&self, supply: Supply) -> f64 {
        match supply {
            Supply::Mains => 1.0,
            Supply::Battery { percent } if percent <= self.battery_percent_min => 0.0,
            Supply::Battery { percent } => f64::from(percent.min(100)) / 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_at(percent: u8) -> f64 {
        EnergyRule::default().share(Supply::Battery { percent })
    }

    #[test]
    fn mains_allow_everything_whatever_the_rule() {
        for battery_percent_min in [0, 20, 100] {
            assert_eq!(EnergyRule { battery_percent_min }.share(Supply::Mains), 1.0);
        }
    }

    #[test]
    fn the_share_is_that_of_the_charge_down_to_low_power_mode() {
        assert_eq!((share_at(100), share_at(50), share_at(21)), (1.0, 0.5, 0.21));
        assert_eq!((share_at(20), share_at(5), share_at(0)), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_battery_that_claims_more_than_full_is_full() {
        assert_eq!(share_at(103), 1.0);
    }

    #[test]
    fn the_bounds_of_the_rule_are_never_and_always_on_battery() {
        let only_on_mains = EnergyRule { battery_percent_min: 100 };
        assert_eq!(only_on_mains.share(Supply::Battery { percent: 100 }), 0.0);
        let until_empty = EnergyRule { battery_percent_min: 0 };
        assert_eq!(until_empty.share(Supply::Battery { percent: 1 }), 0.01);
        assert_eq!(until_empty.share(Supply::Battery { percent: 0 }), 0.0);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(EnergyRule { battery_percent_min: 100 }.check(), Ok(()));
        assert_eq!(EnergyRule { battery_percent_min: 101 }.check().unwrap_err().max, 100.0);
    }
}
