//! Made file servers have what their specification states, and repeat with their seed.

use oncefs_toolbox::random::mix;

use super::*;
use crate::generate::{CORPORATE, ENGINEERING, FilerTwin, PHONE};
use crate::oracle::Truth;
use crate::trace::Recording;

const SCALE: u64 = 128;

/// Requests and blocks, written and read.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    writes: u64,
    written: u64,
    reads: u64,
    read: u64,
}

fn made(twin: FilerTwin, seed: u64) -> Recording {
    Recording::of(&mut Filer::new(twin.spec(SCALE, seed)).unwrap()).unwrap()
}

fn counts(recording: &Recording) -> Counts {
    let mut counts = Counts::default();
    let (mut source, mut last) = (recording.replay(), Duration::ZERO);
    while let Some(event) = source.next().unwrap() {
        assert!(event.time() >= last, "time goes on");
        last = event.time();
        match event {
            Event::Write(write) => {
                counts.writes += 1;
                counts.written += write.contents.len() as u64;
            }
            Event::Read(read) => {
                counts.reads += 1;
                counts.read += read.blocks;
            }
        }
    }
    counts
}

/// Whether a figure is as stated, within a share of it.
fn is_near(figure: f64, stated: f64, tolerance: f64) -> bool {
    (figure - stated).abs() <= tolerance * stated
}

#[test]
fn the_twins_have_what_the_papers_state() {
    for twin in [CORPORATE, ENGINEERING, PHONE] {
        let spec = twin.spec(SCALE, 1);
        let recording = made(twin, 1);
        let (counts, truth) = (counts(&recording), Truth::of(&recording));
        let name = twin.name;
        assert!(is_near(counts.written as f64, spec.written_blocks as f64, 0.06), "{name}: {counts:?}");
        let write_blocks = counts.written as f64 / counts.writes as f64;
        assert!(is_near(write_blocks, spec.write_blocks, 0.06), "{name}: {write_blocks} blocks a write");
        let duplicates = truth.duplicates as f64 / truth.written as f64;
        assert!(is_near(duplicates, spec.duplicates(), 0.06), "{name}: {duplicates} duplicates");
        let overwrites = 1.0 - truth.places_ever as f64 / truth.written as f64;
        assert!(is_near(overwrites, spec.overwrites, 0.1), "{name}: {overwrites} overwrites");
        if spec.read_blocks > 0 {
            assert!(is_near(counts.read as f64, spec.read_blocks as f64, 0.06), "{name}: {counts:?}");
            let read_blocks = counts.read as f64 / counts.reads as f64;
            assert!(is_near(read_blocks, spec.read_request_blocks, 0.06), "{name}: {read_blocks} blocks a read");
        }
    }
}

/// Lengths of the runs that repeat the contents of earlier places, in the order of these.
fn runs(recording: &Recording) -> Vec<u64> {
    let mut places = std::collections::HashMap::new();
    let (mut runs, mut source) = (Vec::new(), recording.replay());
    let mut last: Option<(Place, Place)> = None;
    while let Some(event) = source.next().unwrap() {
        let Event::Write(write) = event else { continue };
        for (place, content) in write.blocks() {
            let from = places.get(&content).copied();
            let goes_on = from.is_some() && last == from.map(|from: Place| (place, from));
            match (goes_on, from) {
                (true, _) => *runs.last_mut().unwrap() += 1,
                (false, Some(_)) => runs.push(1),
                (false, None) => (),
            }
            last = from.map(|from| (place.plus(1), from.plus(1)));
            places.entry(content).or_insert(place);
        }
    }
    runs
}

#[test]
fn runs_have_the_stated_lengths() {
    for twin in [CORPORATE, ENGINEERING] {
        let runs = runs(&made(twin, 2));
        let all: u64 = runs.iter().sum();
        let spec = twin.spec(SCALE, 2);
        let stated = [spec.short[0], spec.short[1], spec.short[2], spec.long].map(|share| share / spec.duplicates());
        for ((least, most), stated) in [(1, 1), (2, 3), (4, 7), (8, u64::MAX)].into_iter().zip(stated) {
            let blocks: u64 = runs.iter().filter(|run| (least..=most).contains(*run)).sum();
            let found = blocks as f64 / all as f64;
            assert!((found - stated).abs() < 0.06, "{}: {found} in runs of {least} on, not {stated}", twin.name);
        }
    }
}

#[test]
fn a_seed_repeats_its_trace_and_another_does_not() {
    let text = |seed| {
        let recording = made(ENGINEERING, seed);
        let (mut source, mut text) = (recording.replay(), Vec::new());
        while let Some(event) = source.next().unwrap() {
            crate::trace::write_lines(&event, crate::trace::Format::Fiu, &mut text).unwrap();
        }
        mix(text.iter().fold(0, |sum, byte| mix(sum ^ u64::from(*byte))))
    };
    let first = text(7);
    assert_eq!(text(7), first);
    assert_ne!(text(8), first);
}

#[test]
fn what_cannot_be_made_is_refused() {
    let spec = || CORPORATE.spec(SCALE, 1);
    for wrong in [
        FilerSpec { written_blocks: 0, ..spec() },
        FilerSpec { long: 0.9, ..spec() },
        FilerSpec { overwrites: -0.1, ..spec() },
        FilerSpec { write_blocks: 0.5, ..spec() },
        FilerSpec { long_run_blocks: 4.0, ..spec() },
    ] {
        assert!(Filer::new(wrong.clone()).is_err(), "{wrong:?}");
    }
}
