//! The monitor's state: ranges as blocks, moments, rewrites, positions of handles, noted reads.

use super::*;

#[test]
fn a_range_is_counted_in_blocks_begun() {
    assert_eq!((blocks_of(0..1), blocks_of(0..4096), blocks_of(4095..4097)), ((0, 1), (0, 1), (0, 2)));
    assert_eq!(blocks_of(3 << 20..4 << 20), (768, 256));
}

#[test]
fn times_without_a_moment_get_the_nearest_one() {
    let of = |seconds, offset| moment(seconds, offset).0;
    assert_eq!((of(1000, 0), of(1000, 500), of(1000, -500)), (1000, 1500, 500));
    assert_eq!((of(-5, 0), of(1000, -1001), of(i64::MIN, -1)), (0, 0, 0));
    assert_eq!((of(1 << 32, 0), of((1 << 32) - 1, 0), of(i64::MAX, 1)), (u32::MAX, u32::MAX, u32::MAX));
}

#[test]
fn what_goes_on_where_the_file_ends_replaces_nothing() {
    assert!(!replaces(0, 0..10_000, 3));
    assert!(!replaces(5000, 5000..6000, 0));
    assert!(!replaces(5000, 4096..12_288, 1), "the page cache writes the last page as a whole");
    assert!(!replaces(8192, 8192..9000, 1));
    assert!(!replaces(100, 0..4096, 0), "a file within one block looks appended to");
}

#[test]
fn what_is_written_over_is_replaced_also_where_the_file_grows_by_it() {
    assert!(replaces(8192, 4096..8192, 0));
    assert!(replaces(8192, 0..100, 0));
    assert!(replaces(8192, 4096..12_288, 1));
    assert!(replaces(5000, 0..12_288, 1));
    assert!(replaces(1 << 20, 0..8192, -2), "by zeros");
}

#[test]
fn filling_holes_replaces_nothing() {
    assert!(!replaces(2 << 20, 0..1 << 20, 256));
    assert!(!replaces(2 << 20, 0..1 << 20, 255), "with a block of zeros among them");
    assert!(!replaces(1 << 20, 4096..8192, 1));
}

#[test]
fn two_handles_that_read_in_turns_are_each_in_sequence() {
    let positions = Positions::default();
    let (one, other) = (positions.new_handle(), positions.new_handle());
    for at in 0..100 {
        assert_eq!(positions.read(one, at, 1).random, 0, "block {at}");
        assert_eq!(positions.read(other, 1000 + at, 1).random, u32::from(at == 0), "block {at}");
    }
}

#[test]
fn a_handle_whose_slot_was_taken_starts_over() {
    let positions = Positions::default();
    let old = positions.new_handle();
    positions.read(old, 0, 256);
    let new = (0..SLOTS).map(|_| positions.new_handle()).last().unwrap();
    assert_eq!(positions.read(new, 0, 1), Reads { sequential: 1, random: 0 });
    assert_eq!(positions.read(old, 256, 256), Reads { sequential: 255, random: 1 });
    assert_eq!(positions.read(old, 512, 256), Reads { sequential: 256, random: 0 });
}

const READS: Reads = Reads { sequential: 3, random: 1 };
const ACCESS: Reads = Reads { sequential: 0, random: 0 };

fn noted(last: u32, reads: Reads) -> NotedReads {
    NotedReads { reads, last: Moment(last) }
}

#[test]
fn a_table_takes_no_more_than_its_bound_says() {
    let mut files = Files::new();
    files.extend((0..FILES_PER_PART_MAX as u64).map(|number| (Ino(number), NotedReads::default())));
    assert_eq!(files.capacity(), FILES_PER_PART_MAX, "a table of {SLOTS_PER_PART_MAX} slots");
}

#[test]
fn a_full_part_is_handed_out_whole_after_reporting_half_full() {
    let noted = Noted::new();
    let (mut half, mut full) = (0, 0);
    for number in 0..FILES_PER_PART_MAX as u64 {
        match noted.add(Ino(number * PARTS as u64), Moment(5), READS) {
            Filled::Little => assert_eq!((half, full), (0, 0)),
            Filled::Half => half += 1,
            Filled::Full(files) => full = files.len(),
        }
    }
    assert_eq!((half, full), (FILES_PER_PART_MAX - FILES_PER_PART_MANY, FILES_PER_PART_MAX));
    assert_eq!(noted.take_parts().map(|files| files.len()).sum::<usize>(), 0);
}

#[test]
fn reads_of_a_file_add_up_until_they_are_taken() {
    let all = Noted::new();
    for now in [10, 20, 15] {
        all.add(Ino(7), Moment(now), READS);
    }
    let expected = noted(15, Reads { sequential: 9, random: 3 });
    assert_eq!((all.get(Ino(7)), all.take(Ino(7)), all.get(Ino(7))), (Some(expected), Some(expected), None));
}

#[test]
fn a_read_noted_before_a_write_and_published_after_it_changes_no_moment() {
    let mut usage = Usage::created(Moment(10));
    usage.written(Moment(30), false);
    assert!(noted(20, READS).add_to(&mut usage, Moment(50)));
    assert_eq!((usage.last_access(), usage.last_write(), usage.reads()), (Moment(30), Moment(30), READS));
}

#[test]
fn no_moment_is_in_the_future_after_the_clock_jumped_back() {
    let mut usage = Usage::created(Moment(1_000));
    assert!(noted(900, READS).add_to(&mut usage, Moment(500)));
    assert_eq!((usage.last_access(), usage.last_write()), (Moment(500), Moment(500)));
    // Also without a read, and if the access itself is not new.
    let mut usage = Usage::created(Moment(1_000));
    assert!(noted(1_000, ACCESS).add_to(&mut usage, Moment(500)));
    assert_eq!((usage.last_access(), usage.last_write()), (Moment(500), Moment(500)));
}

#[test]
fn an_access_alone_counts_once_an_hour_and_whenever_the_file_is_cold() {
    let known = Usage::created(Moment(10_000));
    let mut usage = known;
    assert!(!noted(13_599, ACCESS).add_to(&mut usage, Moment(20_000)));
    assert_eq!(usage, known);
    assert!(noted(13_600, ACCESS).add_to(&mut usage, Moment(20_000)));
    assert_eq!(usage.last_access(), Moment(13_600));
    usage.ranked(Rank::Cold);
    assert!(noted(13_601, ACCESS).add_to(&mut usage, Moment(20_000)));
    assert_eq!((usage.rank(), usage.last_access()), (Rank::New, Moment(13_601)));
}
