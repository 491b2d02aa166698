//! Measures a part, on limited devices if that is wanted.

use super::part::Part;
use super::reading::Readings;
use super::round::Round;
use super::{space, speed};
use crate::failure::Result;
use crate::throttle::{SLOW_DISK, Throttle};

/// Measures a part once.
pub fn measure(part: Part, round: &Round<'_>, readings: &mut Readings) -> Result<()> {
    let _limits = match part {
        Part::Writes | Part::Reads | Part::Duplicates if !round.args.throttle.is_empty() => {
            Some(Throttle::apply(SLOW_DISK, round.args.throttle.clone())?)
        }
        _ => None,
    };
    match part {
        Part::Synced => speed::synced(round, readings),
        Part::Writes => speed::writes(round, readings),
        Part::Reads => speed::reads(round, readings),
        Part::Duplicates => speed::duplicates(round, readings),
        Part::Savings => space::savings(round, readings),
        Part::Names => space::names(round, readings),
        Part::Deleted => space::deleted(round, readings),
        Part::Recovery => speed::recovery(round, readings),
        Part::Larger => space::larger(round, readings),
    }
}
