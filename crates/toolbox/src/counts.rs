//! The amount of work in a test: little in the gate, which runs for every change, and all of it in the drill.
//!
//! Nothing here depends on the clock: the gate does the same each time, and the drill depends on its seed.

/// Asks for the counts of the drill when it is "full".
const COUNTS: &str = "ONCEFS_COUNTS";
/// Another seed than the gate's.
const SEED: &str = "ONCEFS_SEED";
/// The gate's seed.
const SEED_OF_GATE: u64 = 1;

/// The count of a test's repetitions: `gate`, or `drill` with `ONCEFS_COUNTS=full`.
///
/// # Panics
/// `ONCEFS_COUNTS` has another value.
pub fn gate_or_drill(gate: u64, drill: u64) -> u64 {
    if is_drill(std::env::var(COUNTS).ok().as_deref()) { drill } else { gate }
}

fn is_drill(counts: Option<&str>) -> bool {
    match counts {
        None | Some("") => false,
        Some("full") => true,
        Some(other) => panic!("{COUNTS}={other} means nothing: it is full, or not set"),
    }
}

/// The seed of a random test, `ONCEFS_SEED` or the gate's; printed, so that a failure can be repeated.
///
/// # Panics
/// `ONCEFS_SEED` is not a number.
pub fn seed() -> u64 {
    let seed = seed_from(std::env::var(SEED).ok().as_deref());
    println!("repeat with {SEED}={seed}");
    seed
}

fn seed_from(text: Option<&str>) -> u64 {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{SEED}={text} is not a number"));
    text.map_or(SEED_OF_GATE, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_full_asks_for_the_drill() {
        assert!(!is_drill(None) && !is_drill(Some("")) && is_drill(Some("full")));
        for wrong in ["1", "all", "FULL"] {
            assert!(std::panic::catch_unwind(|| is_drill(Some(wrong))).is_err(), "{wrong} is taken");
        }
    }

    #[test]
    fn a_seed_is_the_one_that_is_given_or_always_the_same() {
        assert_eq!((seed_from(None), seed_from(None), seed_from(Some("77"))), (SEED_OF_GATE, SEED_OF_GATE, 77));
        assert!(std::panic::catch_unwind(|| seed_from(Some("now"))).is_err());
    }
}
