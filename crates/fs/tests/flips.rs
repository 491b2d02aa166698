//! Flips single bytes of a volume's files, equally many in each structure, and counts the lost files: without copies as
//! before, with one copy and salvage, with two copies. The long run of 10,000 flips is a drill: `cargo test --release
//! -p oncefs-fs --test all flips:: -- --ignored --nocapture`, with `ONCEFS_FLIPS` for another number.

pub mod image;
pub mod volume;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use oncefs_engine::Profile;
use oncefs_toolbox::Random;
use volume::{Base, Mode, STRUCTURES};

/// The results of a number of flips.
#[derive(Debug, Default)]
struct Tally {
    flips: u64,
    lost: u64,
    lost_all: u64,
}

/// Flips `each` bytes of every structure for every mode, on all processors, with volumes in `scratch`.
fn run(each: u64, seed: u64, scratch: &str) -> BTreeMap<(Mode, &'static str), Tally> {
    println!("seed {seed}");
    let bases = Mode::ALL.map(|mode| Base::new(mode, Profile::Desktop, scratch));
    let work = bases.iter().flat_map(|base| STRUCTURES.map(|structure| (base, structure)));
    let (work, tallies) = (Mutex::new(work.zip(seed..)), Mutex::new(BTreeMap::new()));
    let next = || work.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(((base, structure), seed)) = next() {
                    let tally = tally(base, structure, each, seed);
                    println!("{:?} {structure}: {tally:?}", base.mode());
                    tallies.lock().unwrap().insert((base.mode(), structure), tally);
                }
            });
        }
    });
    tallies.into_inner().unwrap()
}

fn tally(base: &Base, structure: &str, flips: u64, seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    for _ in 0..flips {
        let lost = base.flip(structure, &mut random);
        tally.flips += 1;
        tally.lost += lost;
        tally.lost_all += u64::from(lost == base.files());
    }
    tally
}

/// A flipped byte of data costs its file. A byte of the log costs nothing, because it is corrected. Otherwise two
/// copies lose nothing, and one copy with salvage loses no more than the byte described.
fn assert_kept(tallies: &BTreeMap<(Mode, &'static str), Tally>) {
    for ((mode, structure), Tally { flips, lost, lost_all }) in tallies {
        match (mode, *structure) {
            (_, "log") => assert_eq!(*lost, 0, "{mode:?} log"),
            (Mode::Before, _) => {}
            (Mode::Two, "data") | (Mode::One, _) => {
                assert!(*lost_all == 0 && lost <= flips, "{mode:?} {structure}: {lost} lost");
            }
            (Mode::Two, _) => assert_eq!(*lost, 0, "{mode:?} {structure}"),
        }
    }
    let is_down = |((mode, _), tally): (&(Mode, &str), &Tally)| *mode == Mode::Before && tally.lost_all > 0;
    assert!(tallies.iter().any(is_down), "without copies some byte takes the volume down: else nothing is measured");
}

#[test]
fn a_flipped_byte_of_any_structure_costs_no_more_than_what_it_described() {
    assert_kept(&run(4, 1, "/var/tmp"));
}

#[test]
#[ignore = "a drill of half an hour"]
fn ten_thousand_flipped_bytes() {
    let flips: u64 = std::env::var("ONCEFS_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(10_000);
    // In memory, because each opening flushes.
    assert_kept(&run(flips.div_ceil(STRUCTURES.len() as u64), 13, "/dev/shm"));
}
