//! Runs of oncefs's model: across requests, through the block table, and within each file's budget.

use std::time::Duration;

use oncefs_dedup::{Eviction, PieceCost, Slowdown};

use super::*;
use crate::trace::{Content, Place, Read, Write};

fn oncefs(threshold: Threshold, extends: bool) -> Oncefs {
    let (memory, eviction) = (16 << 20, Eviction::ColdOfGroups);
    let (directory_beside, prefix_bits, two_levels) = (false, None, true);
    Oncefs::new(OncefsOptions { memory, directory_beside, eviction, prefix_bits, threshold, two_levels, extends })
}

fn fixed(run_blocks_min: u32) -> Oncefs {
    oncefs(Threshold::Fixed(run_blocks_min), false)
}

/// Writes these contents to a file at a time.
fn write_at(design: &mut Oncefs, seconds: u64, file: u64, lbn: u64, numbers: std::ops::Range<u64>) {
    let contents: Vec<Content> = numbers.map(Content::numbered).collect();
    design.write(&Write { time: Duration::from_secs(seconds), place: Place { file, lbn }, contents: &contents });
    design.volume.check();
}

/// Where a file's blocks lie, and how often each is referred to.
fn shared(design: &Oncefs, file: u64) -> Vec<bool> {
    let pbns = design.volume.lbns(file).into_iter().map(|lbn| design.volume.at(Place { file, lbn: lbn.0 }));
    pbns.map(|pbn| design.volume.count(pbn.unwrap()) > 1).collect()
}

#[test]
fn a_run_is_shared_whose_parts_come_with_several_requests() {
    let mut design = fixed(8);
    write_at(&mut design, 0, 1, 0, 0..20);
    for part in 0..5 {
        write_at(&mut design, 0, 2, part * 2, part * 2..part * 2 + 2);
        assert_eq!(design.outcome.found_inline, if part < 3 { 0 } else { part * 2 + 2 }, "part {part}");
    }
    assert_eq!((shared(&design, 2), design.volume.used(), design.outcome.remapped), (vec![true; 10], 20, 6));
}

#[test]
fn a_run_that_is_open_at_a_commit_is_refused() {
    let mut design = fixed(8);
    write_at(&mut design, 0, 1, 0, 0..20);
    write_at(&mut design, 10, 2, 0, 0..6);
    write_at(&mut design, 20, 2, 6, 6..8);
    assert_eq!((design.outcome.found_inline, design.volume.used()), (0, 28));
    design.check();
}

#[test]
fn a_run_ends_where_the_next_request_does_not_go_on() {
    let mut design = fixed(4);
    write_at(&mut design, 0, 1, 0, 0..20);
    write_at(&mut design, 0, 2, 0, 0..3);
    write_at(&mut design, 0, 2, 50, 900..903);
    write_at(&mut design, 0, 2, 3, 3..6);
    assert_eq!(design.outcome.found_inline, 0);
}

#[test]
fn what_goes_on_behind_a_shared_run_is_part_of_it() {
    let mut design = fixed(8);
    write_at(&mut design, 0, 1, 0, 0..20);
    write_at(&mut design, 0, 2, 0, 0..16);
    write_at(&mut design, 60, 2, 16, 16..19);
    assert_eq!(design.outcome.found_inline, 19);
}

#[test]
fn refused_blocks_are_further_holders_and_none_of_the_workers_business() {
    let mut design = fixed(4);
    write_at(&mut design, 0, 1, 0, 0..20);
    write_at(&mut design, 0, 2, 0, 5..7);
    write_at(&mut design, 10, 3, 0, 100..101);
    assert_eq!(design.hints.len(), 23);
    design.idle();
    assert_eq!((design.outcome.found_out_of_line, shared(&design, 2)), (0, vec![false; 2]));
}

#[test]
fn the_worker_shares_long_runs_only() {
    for (blocks, found) in [(3, 0), (6, 6)] {
        let mut design = fixed(4);
        write_at(&mut design, 0, 1, 0, 0..20);
        // As if the hints had been evicted when the file was written.
        for number in 0..20 {
            let content = Content::numbered(number);
            let pbn = design.volume.at(Place { file: 1, lbn: number }).unwrap();
            assert!(design.hints.remove(content.tag(), pbn));
        }
        write_at(&mut design, 0, 2, 0, 0..blocks);
        for number in 0..20 {
            let pbn = design.volume.at(Place { file: 1, lbn: number }).unwrap();
            design.hints.insert(Content::numbered(number).tag(), pbn);
        }
        design.idle();
        // File 2's blocks find file 1's, and the other way round: one of each pair goes.
        assert_eq!(design.outcome.found_out_of_line, found, "{blocks} blocks");
        design.check();
    }
}

#[test]
fn one_hint_is_enough_where_runs_are_extended() {
    for (extends, found) in [(false, 0), (true, 16)] {
        let mut design = oncefs(Threshold::Fixed(4), extends);
        write_at(&mut design, 0, 1, 0, 0..20);
        for number in (0..20).filter(|number| *number != 7) {
            let pbn = design.volume.at(Place { file: 1, lbn: number }).unwrap();
            assert!(design.hints.remove(Content::numbered(number).tag(), pbn));
        }
        write_at(&mut design, 0, 2, 0, 2..18);
        assert_eq!(design.outcome.found_inline, found, "extends: {extends}");
    }
}

#[test]
fn what_is_stored_while_it_is_open_is_no_holder_of_itself() {
    let mut design = oncefs(Threshold::Fixed(4), true);
    write_at(&mut design, 0, 1, 0, 0..20);
    // Extension is needed to know of block 0.
    assert!(design.hints.remove(Content::numbered(0).tag(), design.volume.at(Place { file: 1, lbn: 0 }).unwrap()));
    write_at(&mut design, 0, 2, 0, 900..901);
    write_at(&mut design, 0, 2, 1, 0..2);
    // Extension goes on behind block 900, where the open blocks were stored.
    write_at(&mut design, 0, 2, 3, 901..903);
    assert_eq!((design.outcome.found_inline, design.volume.used()), (0, 25));
}

/// A file of which every third block is a duplicate that stands alone, written at once.
fn write_scattered(design: &mut Oncefs) {
    write_at(design, 0, 1, 0, 0..400);
    for at in 0..100 {
        write_at(design, 0, 2, at * 3, at * 4..at * 4 + 1);
        write_at(design, 0, 2, at * 3 + 1, 1_000 + at * 2..1_002 + at * 2);
    }
}

fn budget(percent: u32, piece_blocks: f64) -> Oncefs {
    let (slowdown, cost) = (Slowdown(percent), PieceCost::of_blocks(piece_blocks));
    oncefs(Threshold::Budget { slowdown, cost }, true)
}

#[test]
fn as_many_pieces_are_shared_as_the_file_s_blocks_pay_for() {
    for (percent, piece_blocks, found, of_both) in
        [(100, 3.0, 100, 100), (100, 6.0, 50, 100), (10, 6.0, 5, 11), (0, 6.0, 1, 1)]
    {
        let mut design = budget(percent, piece_blocks);
        write_scattered(&mut design);
        let told = format!("{percent} % where a piece costs {piece_blocks}");
        assert_eq!(design.outcome.found_inline, found, "{told}");
        design.idle();
        assert_eq!(design.outcome.found(), of_both, "{told}: the other file's blocks pay for pieces of it");
        design.check();
    }
}

#[test]
fn a_copy_of_a_whole_file_costs_nothing() {
    let mut design = budget(0, 100.0);
    write_at(&mut design, 0, 1, 0, 0..400);
    (0..4).for_each(|part| write_at(&mut design, 0, 2, part * 100, part * 100..part * 100 + 100));
    assert_eq!((design.outcome.found_inline, design.volume.used()), (400, 400));
}

#[test]
fn what_the_file_has_elsewhere_costs_nothing() {
    let mut design = budget(0, 100.0);
    write_at(&mut design, 0, 1, 0, 0..100);
    (0..50).for_each(|at| write_at(&mut design, 0, 1, 100 + at, at * 37 % 100..at * 37 % 100 + 1));
    assert_eq!(design.outcome.found_inline, 50);
}

#[test]
fn the_worker_spends_what_the_later_blocks_of_a_file_pay_for() {
    let mut design = budget(100, 10.0);
    write_at(&mut design, 0, 1, 0, 0..400);
    (0..20).for_each(|at| write_at(&mut design, 0, 2, at, at * 10..at * 10 + 1));
    write_at(&mut design, 0, 2, 20, 5_000..5_180);
    let inline = design.outcome.found_inline;
    assert!(inline < 5, "{inline}");
    design.idle();
    assert_eq!(design.outcome.found(), 20);
}

#[test]
fn a_file_that_turns_out_to_be_read_at_random_has_no_limit() {
    let mut design = budget(10, 6.0);
    write_scattered(&mut design);
    design.idle();
    assert_eq!(design.outcome.found(), 11);
    for at in 0..200 {
        let place = Place { file: 2, lbn: at * 7 % 300 };
        design.read(&Read { time: Duration::from_secs(200), place, blocks: 1 });
    }
    design.idle();
    assert_eq!(design.outcome.found(), 100);
    design.check();
}
