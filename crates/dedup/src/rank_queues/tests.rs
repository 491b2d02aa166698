//! The decisions about places: the paper's figure 6, and every small case.

use super::*;
use crate::Reads;

const HOUR: u32 = 3_600;
const DAY: u32 = 24 * HOUR;
const NOW: Moment = Moment(1_790_000_000);
const RULE: RankRule =
    RankRule { hot_seconds_max: 14 * DAY, evaluation_seconds_min: 2 * DAY, evaluation_reads_min: 100 };
const FILE: u64 = 7;

fn ago(seconds: u32) -> Moment {
    Moment(NOW.0 - seconds)
}

fn ranked(rank: Rank, written: Moment, read: Moment, sequential: u32) -> Usage {
    let mut usage = Usage::created(written);
    usage.ranked(rank);
    usage.read(read, Reads { sequential, random: 0 });
    usage
}

fn place(rank: Rank, touched: Moment) -> QueuePlace {
    QueuePlace { rank, touched, file: FILE }
}

fn look(place: QueuePlace, usage: &Usage) -> AtTail {
    look_at(&place, Some(usage), &RULE, NOW)
}

#[test]
fn the_order_of_places_is_by_queue_then_oldest_first() {
    let new = QueuePlace { rank: Rank::New, touched: NOW, file: 1 };
    let older = QueuePlace { touched: ago(1), file: 9, ..new };
    let random = QueuePlace { rank: Rank::Random, touched: Moment(0), file: 0 };
    let mut places = [random, new, older];
    places.sort();
    assert_eq!(places, [older, new, random]);
}

#[test]
fn a_file_belongs_where_its_rank_and_last_access_say() {
    let usage = ranked(Rank::Random, ago(9), ago(3), 1);
    assert_eq!(QueuePlace::of(&usage, FILE), Some(place(Rank::Random, ago(3))));
    let mut cold = usage;
    cold.ranked(Rank::Cold);
    assert_eq!(QueuePlace::of(&cold, FILE), None);
    assert_eq!(look(place(Rank::Random, ago(3)), &cold), AtTail::Drop);
    assert_eq!(look_at(&place(Rank::New, NOW), None, &RULE, NOW), AtTail::Drop);
}

#[test]
fn a_new_file_is_judged_two_days_after_it_was_written() {
    let written = ranked(Rank::New, ago(2 * DAY - 1), ago(0), 1_000);
    let at_creation = place(Rank::New, ago(2 * DAY - 1));
    assert_eq!(look(at_creation, &written), AtTail::Wait { until: NOW.plus_seconds(1) });
    let written = ranked(Rank::New, ago(2 * DAY), ago(0), 1_000);
    assert_eq!(look(place(Rank::New, ago(2 * DAY)), &written), AtTail::Rank(Rank::Sequential), "though read now");
}

#[test]
fn a_file_that_is_rewritten_daily_is_never_ranked() {
    let rewritten = ranked(Rank::New, ago(DAY), ago(DAY), 1_000);
    assert_eq!(look(place(Rank::New, ago(5 * DAY)), &rewritten), AtTail::Move(place(Rank::New, ago(DAY))));
    assert_eq!(look(place(Rank::New, ago(DAY)), &rewritten), AtTail::Wait { until: NOW.plus_seconds(DAY) });
}

#[test]
fn a_file_with_too_few_reads_goes_to_the_top_of_queue_0_until_it_is_cold() {
    let seldom_read = ranked(Rank::New, ago(9 * DAY), ago(DAY), 99);
    assert_eq!(look(place(Rank::New, ago(9 * DAY)), &seldom_read), AtTail::Move(place(Rank::New, NOW)));
    assert_eq!(look(place(Rank::New, NOW), &seldom_read), AtTail::Wait { until: NOW.plus_seconds(2 * DAY) });
    let not_read = ranked(Rank::New, ago(15 * DAY), ago(14 * DAY), 99);
    assert_eq!(look(place(Rank::New, ago(2 * DAY)), &not_read), AtTail::Rank(Rank::Cold));
}

#[test]
fn ranked_files_wait_until_they_are_cold_and_move_if_they_were_read() {
    for rank in [Rank::Sequential, Rank::Random] {
        let usage = ranked(rank, ago(30 * DAY), ago(14 * DAY - 1), 10_000);
        assert_eq!(look(place(rank, ago(14 * DAY - 1)), &usage), AtTail::Wait { until: NOW.plus_seconds(1) });
        assert_eq!(look(place(rank, ago(20 * DAY)), &usage), AtTail::Move(place(rank, ago(14 * DAY - 1))));
        let usage = ranked(rank, ago(30 * DAY), ago(14 * DAY), 10_000);
        assert_eq!(look(place(rank, ago(14 * DAY)), &usage), AtTail::Rank(Rank::Cold));
    }
}

#[test]
fn a_place_in_another_queue_than_its_files_moves_there() {
    let written = ranked(Rank::New, ago(DAY), ago(DAY), 0);
    assert_eq!(look(place(Rank::Sequential, ago(9 * DAY)), &written), AtTail::Move(place(Rank::New, ago(DAY))));
    let random = ranked(Rank::Random, ago(9 * DAY), ago(DAY), 0);
    assert_eq!(look(place(Rank::New, ago(9 * DAY)), &random), AtTail::Move(place(Rank::Random, ago(DAY))));
}

#[test]
fn places_of_the_future_come_back_when_the_clock_has_jumped() {
    let future = NOW.plus_seconds(365 * DAY);
    for rank in [Rank::New, Rank::Sequential, Rank::Random] {
        let stale_too = ranked(rank, future, future, 1_000);
        assert_eq!(look(place(rank, future), &stale_too), AtTail::Move(place(rank, NOW)));
        let read_since = ranked(rank, ago(DAY), ago(HOUR), 1_000);
        assert_eq!(look(place(rank, future), &read_since), AtTail::Move(place(rank, ago(HOUR))));
    }
}

/// What must hold of the answer for any place. `now` is also when the place is checked again.
fn check_answer(place: &QueuePlace, usage: &Usage, rule: &RankRule, now: Moment) {
    let told = format!("{place:?} {usage:?} {rule:?} {now:?}");
    let mut clamped = *usage;
    clamped.clamp(now);
    match look_at(place, Some(usage), rule, now) {
        AtTail::Drop => assert_eq!(usage.rank(), Rank::Cold, "{told}"),
        AtTail::Wait { until } => {
            assert!(until > now && place.rank == usage.rank() && place.touched <= now, "{told}");
            let before = Moment(until.0 - 1);
            assert!(!matches!(look_at(place, Some(&clamped), rule, before), AtTail::Rank(_)), "{told}");
        }
        AtTail::Rank(rank) => {
            let right = if place.rank == Rank::New { rule.rank(&clamped, now) } else { Rank::Cold };
            assert!(rank == right && rank != Rank::New && place.rank == usage.rank(), "{told}");
            assert!(rank != Rank::Cold || rule.is_cold(&clamped, now), "{told}");
        }
        AtTail::Move(right) => {
            assert!(right != *place && right.rank == usage.rank() && right.file == place.file, "{told}");
            assert!(right.touched <= now, "{told}");
            // A round ends: a place that moved moves at most once more, up to the top of queue 0.
            if let AtTail::Move(again) = look_at(&right, Some(usage), rule, now) {
                assert!(again.rank == Rank::New && again.touched > right.touched, "{told}");
                let then = look_at(&again, Some(usage), rule, now);
                assert!(matches!(then, AtTail::Wait { .. }), "{told}: {then:?}");
            }
        }
    }
}

#[test]
fn every_small_case_is_answered_so_that_a_turn_ends_and_no_file_is_lost() {
    let now = Moment(10);
    let moments = || [0, 4, 5, 6, 9, 10, 11, 15].map(Moment);
    let mut cases = 0;
    for (evaluation, hot) in [(0, 0), (0, 5), (1, 5), (5, 1), (5, 5), (6, 9), (9, 20)] {
        for reads_min in [0, 1, 3] {
            let rule =
                RankRule { hot_seconds_max: hot, evaluation_seconds_min: evaluation, evaluation_reads_min: reads_min };
            for (rank, place_rank) in Rank::ALL.into_iter().flat_map(|rank| Rank::ALL.map(|place| (rank, place))) {
                for (written, read) in moments().into_iter().flat_map(|written| moments().map(|read| (written, read))) {
                    for (sequential, random) in [(0, 0), (1, 0), (0, 1), (1, 2), (2, 2), (2, 1)] {
                        for touched in moments() {
                            let mut usage = Usage::created(written);
                            usage.read(read, Reads { sequential, random });
                            let usage = with_rank(usage, rank);
                            check_answer(&place(place_rank, touched), &usage, &rule, now);
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(cases > 1_000_000, "{cases}");
}

/// The usage with another rank, all else unchanged, as reads after ranking leave it.
fn with_rank(usage: Usage, rank: Rank) -> Usage {
    let mut bytes = usage.encode();
    bytes[14] = bytes[14] & !3 | rank.number();
    Usage::decode(&bytes)
}
