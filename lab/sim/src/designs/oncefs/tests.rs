//! oncefs's model on tiny traces, and against the oracle on made ones.

use std::time::Duration;

use oncefs_dedup::Eviction;

use super::*;
use crate::designs::{Full, Inline};
use crate::generate::{Distance, Mixed, MixedSpec};
use crate::oracle::{Oracle, Truth};
use crate::replay::{Idle, replay};
use crate::testing::{replayed, write};

const AMPLE: u64 = 64 << 20;
/// Holds a few hundred hints.
const SCANT: u64 = 48 << 10;

fn oncefs(memory: u64, two_levels: bool) -> Oncefs {
    with_eviction(memory, two_levels, Eviction::ColdOfGroups)
}

fn with_eviction(memory: u64, two_levels: bool, eviction: Eviction) -> Oncefs {
    let (prefix_bits, threshold, directory_beside) = (None, Threshold::Fixed(1), false);
    Oncefs::new(OncefsOptions {
        memory,
        directory_beside,
        eviction,
        prefix_bits,
        threshold,
        two_levels,
        extends: false,
    })
}

/// A made trace of 40,000 blocks through a design.
fn made(design: &mut dyn Design) -> (Truth, Outcome) {
    let spec = MixedSpec {
        blocks: 40_000,
        duplicates: 0.4,
        overwrites: 0.3,
        reuse: Distance::LogNormal { median: 3_000.0, sigma: 2.0 },
        age: Distance::LogNormal { median: 3_000.0, sigma: 2.0 },
        run_blocks: 3.0,
        request_blocks_max: 8,
        duration: Duration::from_secs(86_400),
        seed: 11,
    };
    let mut oracle = Oracle::default();
    let mut source = Mixed::new(spec).unwrap();
    replay(&mut source, &mut [&mut *design], Some(&mut oracle), Idle::Every(Duration::from_secs(3_600))).unwrap();
    design.check();
    (oracle.truth(), design.outcome())
}

#[test]
fn duplicates_are_found_as_they_are_written() {
    let outcome = replayed(&mut oncefs(AMPLE, true), &[1, 2, 1, 3, 2]);
    assert_eq!((outcome.found_inline, outcome.stored, outcome.entries), (2, 3, 3));
}

#[test]
fn a_block_equal_to_what_its_place_holds_changes_nothing() {
    let mut design = oncefs(AMPLE, true);
    write(&mut design, 0, &[1, 2, 3]);
    write(&mut design, 0, &[1, 9, 3]);
    let outcome = design.outcome();
    assert_eq!((outcome.found_inline, outcome.stored), (2, 3));
    design.check();
}

#[test]
fn zeros_become_holes() {
    let mut design = oncefs(AMPLE, true);
    write(&mut design, 0, &[1, 2]);
    let contents = [Content::ZERO; 2];
    design.write(&Write { time: Duration::ZERO, place: Place { file: 1, lbn: 0 }, contents: &contents });
    let outcome = design.outcome();
    assert_eq!((outcome.found_inline, outcome.stored, outcome.entries), (0, 0, 0));
}

#[test]
fn the_hint_of_a_freed_block_leaves_memory_at_once() {
    let mut design = oncefs(AMPLE, true);
    write(&mut design, 0, &[1]);
    write(&mut design, 0, &[2]);
    write(&mut design, 1, &[1]);
    let outcome = design.outcome();
    assert_eq!((outcome.found_inline, outcome.refused, outcome.entries), (0, 0, 2));
}

#[test]
fn short_runs_are_stored_anew_when_they_are_not_worth_sharing() {
    let options = OncefsOptions { threshold: Threshold::Fixed(3), ..oncefs(AMPLE, true).options };
    let mut design = Oncefs::new(options);
    write(&mut design, 0, &[1, 2, 3, 4]);
    write(&mut design, 10, &[1, 2]);
    assert_eq!(design.outcome().found_inline, 0);
    write(&mut design, 20, &[2, 3, 4]);
    assert_eq!(design.outcome().found_inline, 3);
}

#[test]
fn a_request_that_repeats_itself_is_found_out_of_line() {
    let mut design = oncefs(AMPLE, true);
    write(&mut design, 0, &[7, 7]);
    assert_eq!(design.outcome().found_inline, 0);
    design.idle();
    let outcome = design.outcome();
    assert_eq!((outcome.found_out_of_line, outcome.stored), (1, 1));
    design.check();
}

#[test]
fn what_left_memory_is_found_on_disk_when_it_is_quiet() {
    let numbers: Vec<u64> = (0..20_000).chain(0..20_000).collect();
    let mut one = oncefs(SCANT, false);
    let lost = replayed(&mut one, &numbers);
    assert!(lost.stored > 35_000, "memory held it: {lost:?}");
    for eviction in [Eviction::Groups, Eviction::ColdOfGroups, Eviction::Singles] {
        let mut two = with_eviction(SCANT, true, eviction);
        replayed(&mut two, &numbers);
        two.idle();
        two.check();
        let outcome = two.outcome();
        assert_eq!(outcome.found(), 20_000, "{eviction:?}: {outcome:?}");
        assert_eq!(outcome.stored, 20_000, "{eviction:?}");
        assert!(outcome.demoted > 0 && outcome.disk_reads > 0 && outcome.disk_writes > 0);
    }
}

#[test]
fn with_ample_memory_it_stores_what_an_exact_index_stores() {
    let (truth, exact) = made(&mut Inline::new(Full::default()));
    assert_eq!((exact.found_inline, exact.stored), (truth.duplicates, truth.contents));
    let (_, outcome) = made(&mut oncefs(AMPLE, true));
    assert!(outcome.found() >= truth.duplicates * 99 / 100, "{} of {}", outcome.found(), truth.duplicates);
    assert_eq!(outcome.stored, truth.contents);
    assert_eq!(outcome.demoted, 0);
}

#[test]
fn with_scant_memory_it_stores_nearly_that_and_keeps_its_bound() {
    for eviction in [Eviction::Groups, Eviction::ColdOfGroups, Eviction::Singles] {
        let (truth, outcome) = made(&mut with_eviction(SCANT, true, eviction));
        assert!(outcome.stored <= truth.contents * 103 / 100, "{eviction:?}: {} of {}", outcome.stored, truth.contents);
        assert!(outcome.memory_bytes <= SCANT * 105 / 100, "{eviction:?}: {} bytes", outcome.memory_bytes);
        let (_, inline) = made(&mut with_eviction(SCANT, false, eviction));
        assert!(inline.found() < outcome.found(), "{eviction:?}: {} of {}", inline.found(), outcome.found());
    }
}
