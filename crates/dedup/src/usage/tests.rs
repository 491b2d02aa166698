//! Positions, counters, days and bytes of a file's usage.

use super::*;

const DAY: u32 = SECONDS_PER_DAY;
const NOW: Moment = Moment(1_790_000_000);

fn sequential(blocks: u32) -> Reads {
    Reads { sequential: blocks, random: 0 }
}

fn random(blocks: u32) -> Reads {
    Reads { sequential: 0, random: blocks }
}

/// What requests of one handle, first block and number of blocks each, count as together.
fn counted(requests: impl IntoIterator<Item = (u64, u32)>) -> (u32, u32) {
    let mut position = ReadPosition::default();
    requests
        .into_iter()
        .map(|(first, blocks)| position.read(first, blocks))
        .fold((0, 0), |counted, reads| (counted.0 + reads.sequential, counted.1 + reads.random))
}

#[test]
fn a_file_read_from_its_beginning_to_its_end_is_read_in_sequence_whatever_the_requests() {
    for blocks in [1, 2, 32, 256] {
        assert_eq!(counted((0..512 / blocks).map(|n| (u64::from(n * blocks), blocks))), (512, 0));
    }
    assert_eq!(counted([(0, 1)]), (1, 0), "a file of one block");
}

#[test]
fn a_file_read_backwards_is_read_in_sequence_but_for_the_block_where_it_begins() {
    for blocks in [1, 2, 32, 256] {
        let backwards = (0..512 / blocks).rev().map(|n| (u64::from(n * blocks), blocks));
        assert_eq!(counted(backwards), (511, 1), "requests of {blocks}");
    }
}

#[test]
fn reads_elsewhere_are_random_at_their_first_block_only() {
    assert_eq!(counted([(7, 1), (100, 1), (3, 1), (98, 1)]), (0, 4));
    assert_eq!(counted([(1_024, 256), (9_000, 256)]), (510, 2));
    assert_eq!(counted([(1, 1)]), (0, 1), "a new handle stands before block 0");
}

#[test]
fn requests_that_meet_within_a_block_follow_each_other() {
    assert_eq!(counted([(0, 2), (1, 2), (2, 2)]), (6, 0));
    assert_eq!(counted([(5, 1), (5, 1)]), (1, 1));
}

#[test]
fn a_request_for_nothing_counts_as_nothing_and_the_last_block_there_is_is_no_end() {
    assert_eq!(counted([(0, 4), (900, 0), (4, 4)]), (8, 0));
    assert_eq!(counted([(u64::MAX - 1, 2), (u64::MAX - 1, 1)]), (2, 1));
}

#[test]
fn a_read_is_an_access_and_a_write_is_both() {
    let mut usage = Usage::created(NOW);
    usage.read(NOW.plus_seconds(5), sequential(3));
    assert_eq!((usage.last_access(), usage.last_write()), (NOW.plus_seconds(5), NOW));
    usage.written(NOW.plus_seconds(9), false);
    assert_eq!((usage.last_access(), usage.last_write()), (NOW.plus_seconds(9), NOW.plus_seconds(9)));
    assert_eq!(usage.reads(), sequential(3), "counters are reset by ranking alone");
}

#[test]
fn a_write_makes_every_rank_new_and_a_read_only_a_cold_one() {
    for rank in Rank::ALL {
        let mut usage = Usage::created(NOW);
        usage.ranked(rank);
        let mut written = usage;
        usage.read(NOW, random(1));
        written.written(NOW, false);
        assert_eq!(usage.rank(), if rank == Rank::Cold { Rank::New } else { rank });
        assert_eq!(written.rank(), Rank::New);
    }
}

#[test]
fn both_counters_are_halved_when_one_is_full() {
    let mut usage = Usage::created(NOW);
    usage.read(NOW, Reads { sequential: COUNTER_MAX, random: 1_000_001 });
    assert_eq!(usage.reads(), Reads { sequential: COUNTER_MAX, random: 1_000_001 });
    usage.read(NOW, sequential(1));
    assert_eq!(usage.reads(), Reads { sequential: 1 << 23, random: 500_000 });
    usage.read(NOW, Reads { sequential: u32::MAX, random: u32::MAX });
    let Reads { sequential, random } = usage.reads();
    assert!(sequential > random && sequential <= COUNTER_MAX && random > COUNTER_MAX / 3, "{sequential} {random}");
}

#[test]
fn a_file_rewritten_on_two_days_is_update_heavy() {
    let midnight = Moment(NOW.0 / DAY * DAY);
    let mut usage = Usage::created(midnight);
    (0..DAY).step_by(3_600).for_each(|second| usage.written(midnight.plus_seconds(second), true));
    assert!(!usage.is_update_heavy(), "often, but on one day");
    usage.written(midnight.plus_seconds(DAY), false);
    assert!(!usage.is_update_heavy(), "appended to on the next");
    usage.written(midnight.plus_seconds(DAY), true);
    assert!(usage.is_update_heavy());
    (2..10).for_each(|day| usage.written(midnight.plus_seconds(day * DAY), true));
    assert!(usage.is_update_heavy());
}

#[test]
fn ranking_forgets_reads_and_rewritten_days_but_no_moment() {
    let mut usage = Usage::created(NOW);
    usage.written(NOW, true);
    usage.written(NOW.plus_seconds(DAY), true);
    usage.read(NOW.plus_seconds(2 * DAY), sequential(1_000));
    usage.ranked(Rank::Sequential);
    assert_eq!((usage.reads(), usage.is_update_heavy(), usage.rank()), (Reads::default(), false, Rank::Sequential));
    assert_eq!((usage.last_access(), usage.last_write()), (NOW.plus_seconds(2 * DAY), NOW.plus_seconds(DAY)));
}

#[test]
fn a_clock_that_jumped_back_leaves_nothing_in_the_future() {
    let then = Moment(NOW.0 - 365 * DAY);
    let ahead = Usage::created(NOW);
    let (mut read, mut written, mut clamped) = (ahead, ahead, ahead);
    read.read(then, sequential(1));
    written.written(then, true);
    assert!(clamped.clamp(then));
    for usage in [read, written, clamped] {
        assert_eq!((usage.last_access(), usage.last_write()), (then, then));
    }
    assert!(!clamped.clamp(then) && !clamped.clamp(NOW));
}

#[test]
fn the_bytes_are_these() {
    let mut usage = Usage::created(Moment(0x6AB1_3B81));
    usage.written(Moment(0x6AB1_3B80), true);
    usage.written(Moment(0x6AB2_8D02), true);
    usage.ranked(Rank::Random);
    usage.written(Moment(0x6AB2_8D03), true);
    usage.rank = Rank::Random;
    usage.read(Moment(0x6AB2_8D04), Reads { sequential: 0x01_02_03, random: 0xFF_FE_FD });
    // Rewritten on one day, 20,718 or 0x0EE modulo 4096; rank 2.
    let golden = [0x04, 0x8D, 0xB2, 0x6A, 0x03, 0x8D, 0xB2, 0x6A, 0x03, 0x02, 0x01, 0xFD, 0xFE, 0xFF, 0xE6, 0x0E];
    assert_eq!(usage.encode(), golden);
    assert_eq!(Usage::default().encode(), [0; 16]);
}

#[test]
fn whatever_can_be_known_of_a_file_survives_its_bytes() {
    let mut usages = vec![Usage::default(), Usage::created(Moment(u32::MAX))];
    for rank in Rank::ALL {
        for days in 0..4_100 {
            let mut usage = Usage::created(NOW);
            usage.ranked(rank);
            (0..days % 3).for_each(|day| usage.written(Moment((days + day) * DAY), true));
            usage.rank = rank;
            usage.read(NOW, Reads { sequential: days * 4_092, random: 7 });
            usages.push(usage);
        }
    }
    for usage in usages {
        assert_eq!(Usage::decode(&usage.encode()), usage);
    }
}

#[test]
fn any_bytes_are_a_usage_that_can_be_kept() {
    for marks in 0..=u16::MAX {
        let mut bytes = [0xFF; Usage::BYTES];
        bytes[14..].copy_from_slice(&marks.to_le_bytes());
        let usage = Usage::decode(&bytes);
        assert_eq!(usage.check(), Ok(()));
        assert_eq!(Usage::decode(&usage.encode()), usage);
    }
}

#[test]
fn ranks_have_the_numbers_of_the_paper() {
    let numbers: Vec<_> = (0..=4).map(Rank::from_number).collect();
    assert_eq!(numbers, [Some(Rank::New), Some(Rank::Sequential), Some(Rank::Random), Some(Rank::Cold), None]);
    assert!(Rank::ALL.iter().all(|rank| Rank::from_number(rank.number()) == Some(*rank)));
}
