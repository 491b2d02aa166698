//! Damages one or two bytes or a sector of a volume, in any structure and any state: every answer is right or an error,
//! no superseded content comes back, and a repair costs no more than `docs/fsck.md` says. The drill: `scripts/flips`.

mod judge;
mod look;
mod strike;
mod truth;
mod user;
mod way_out;
mod workload;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use judge::{Verdict, judge};
use look::View;
use oncefs_engine::Profile;
use oncefs_toolbox::Random;
use oncefs_toolbox::counts::seed;
use strike::{Harm, STRUCTURES, parts, places, strike};
use way_out::{First, Mended, mend, use_it};
use world::{PROFILES, State, World};

/// The damage to a volume.
#[derive(Clone, Copy, Debug)]
struct Case {
    number: u64,
    structure: &'static str,
    state: State,
    harm: Harm,
    first: First,
}

impl Case {
    fn of(number: u64, random: &mut Random) -> Self {
        Self {
            number,
            structure: STRUCTURES[number as usize % STRUCTURES.len()],
            state: random.pick(&[State::Unmounted, State::Killed]),
            harm: random.pick(&[Harm::OneByte, Harm::TwoBytes, Harm::OneByte, Harm::TwoBytes, Harm::Sector]),
            first: if (number / STRUCTURES.len() as u64).is_multiple_of(2) { First::Mount } else { First::Salvage },
        }
    }

    fn label(&self, world: &World) -> String {
        let Self { number, structure, state, harm, first } = self;
        format!("case {number}: {harm:?} of {structure}, {:?}, {state:?}, {first:?} first", world.profile)
    }
}

/// The results of flips of one kind.
#[derive(Debug, Default)]
struct Tally {
    flips: u64,
    /// Files lost in use, before a repair.
    lost_in_use: u64,
    lost: u64,
    most: u64,
    refused: u64,
    mended: BTreeMap<Mended, u64>,
}

/// The result of one flip.
struct Outcome {
    in_use: Option<Verdict>,
    mended: Result<Mended, String>,
    afterwards: Option<Verdict>,
}

/// The verdict on the state that was left, of those that a damaged log may leave.
fn best(world: &World, case: &Case, view: &View) -> Verdict {
    let states = world.states(case.state);
    let from = if case.structure == "log" { 0 } else { states.len() - 1 };
    let verdicts = states[from..].iter().rev().map(|tree| judge(tree, view, &world.history));
    let weight = |verdict: &Verdict| (verdict.wrong.len(), verdict.lost.len());
    let mut best: Option<Verdict> = None;
    for verdict in verdicts {
        if best.as_ref().is_none_or(|best| weight(&verdict) < weight(best)) {
            best = Some(verdict);
        }
        if best.as_ref().is_some_and(|best| weight(best) == (0, 0)) {
            break;
        }
    }
    best.unwrap()
}

fn run_case(world: &World, case: &Case, random: &mut Random) -> (String, Outcome) {
    let volume = world.copy(case.state);
    let places = places(&parts(world, case.state, &volume, case.structure), case.harm, random);
    let mut rotten = strike(&places, case.harm, random);
    let place = |(path, at): &strike::Spot| format!("{} at {at}", path.strip_prefix(&volume).unwrap().display());
    let places: Vec<String> = places.iter().map(place).collect();
    let truth = world.states(case.state).last().unwrap();
    let in_use = (case.first == First::Mount).then(|| use_it(&volume, truth)).flatten();
    let in_use = in_use.map(|view| best(world, case, &view));
    let mended = mend(&volume, case.first, &mut rotten);
    let afterwards = use_it(&volume, truth).map(|view| best(world, case, &view));
    drop(rotten);
    std::fs::remove_dir_all(&volume).unwrap();
    (places.join(", "), Outcome { in_use, mended, afterwards })
}

/// The broken promises, in words.
fn violations(world: &World, case: &Case, outcome: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    for (when, verdict) in [("in use", &outcome.in_use), ("afterwards", &outcome.afterwards)] {
        let Some(verdict) = verdict else { continue };
        found.extend(verdict.wrong.iter().map(|wrong| format!("{when}: {wrong}")));
        let is_kept = world.has_copies() && !["data", "log"].contains(&case.structure);
        if is_kept && !verdict.lost.is_empty() {
            found.push(format!("{when}: {} are lost", verdict.lost.len()));
        }
    }
    if let Err(why) = &outcome.mended {
        found.push(format!("no way out: {why}"));
    }
    if outcome.afterwards.is_none() {
        found.push("it does not open afterwards".to_owned());
    }
    found
}

/// Makes flips of all kinds in volumes of these profiles, and fails if a promise is broken. The last profile has one
/// copy of its metadata.
fn run(
    profiles: &[Profile],
    flips: u64,
    seed: u64,
    is_wanted: &(dyn Fn(&World, &Case) -> bool + Sync),
) -> (BTreeMap<(String, &'static str), Tally>, Vec<String>) {
    let worlds: Vec<World> = profiles.iter().map(|profile| World::new(*profile, "/dev/shm")).collect();
    let (alone, twice) = worlds.split_last().unwrap();
    let (next, tallies, found) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= flips {
                        return;
                    }
                    let mut random = Random::mixed(seed ^ number << 20);
                    let case = Case::of(number, &mut random);
                    // Half of them hit volumes with one copy of metadata.
                    let world = if random.one_in(2) { alone } else { &twice[random.index(twice.len())] };
                    if !is_wanted(world, &case) {
                        continue;
                    }
                    let label = case.label(world);
                    let ran = catch_unwind(AssertUnwindSafe(|| run_case(world, &case, &mut random)));
                    let Ok((places, outcome)) = ran else {
                        found.lock().unwrap().push(format!("{label}: it panics"));
                        continue;
                    };
                    let violations = violations(world, &case, &outcome);
                    for violation in violations.iter().take(3) {
                        println!("WRONG {label}: {places}: {violation} (of {})", violations.len());
                    }
                    found.lock().unwrap().extend(violations.iter().map(|v| format!("{label}: {places}: {v}")));
                    let kind = (format!("{:?}", world.profile), case.structure);
                    add(tallies.lock().unwrap().entry(kind).or_default(), &outcome);
                }
            });
        }
    });
    (tallies.into_inner().unwrap(), found.into_inner().unwrap())
}

fn add(tally: &mut Tally, outcome: &Outcome) {
    let count = |verdict: &Option<Verdict>| verdict.as_ref().map_or(0, |verdict| verdict.lost.len() as u64);
    tally.flips += 1;
    tally.lost_in_use += count(&outcome.in_use);
    tally.lost += count(&outcome.afterwards);
    tally.most = tally.most.max(count(&outcome.afterwards));
    match &outcome.mended {
        Ok(mended) => *tally.mended.entry(*mended).or_default() += 1,
        Err(_) => tally.refused += 1,
    }
}

/// With one copy, the search for the wrong byte of a record file takes seconds, so `flips` tests that.
#[test]
fn a_hundred_flips_show_nothing_wrong_and_leave_a_way_out() {
    let is_quick = |world: &World, case: &Case| world.has_copies() || !case.structure.starts_with("record ");
    let (_, found) = run(&[Profile::Desktop, Profile::Edge], 110, 1, &is_quick);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
#[ignore = "a drill: scripts/flips"]
fn thousands_of_flips() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let only: Option<u64> = number("ONCEFS_CASE");
    let is_wanted = |_: &World, case: &Case| only.is_none_or(|only| only == case.number);
    let (tallies, found) = run(&PROFILES, number("ONCEFS_FLIPS").unwrap_or(3_000), seed(), &is_wanted);
    for ((profile, structure), tally) in &tallies {
        println!("{profile} {structure}: {tally:?}");
    }
    let sum = |of: fn(&Tally) -> u64| tallies.values().map(of).sum::<u64>();
    let mended = |how| tallies.values().filter_map(|tally| tally.mended.get(&how)).sum::<u64>();
    println!(
        "{} flips: {} things lost in use and {} afterwards; mended: {} safely, {} when asked, {} by salvage, {} by cutting the \
         log; {} refused; {} answers wrong",
        sum(|tally| tally.flips),
        sum(|tally| tally.lost_in_use),
        sum(|tally| tally.lost),
        mended(Mended::Safely),
        mended(Mended::Asked),
        mended(Mended::Salvaged),
        mended(Mended::LogCut),
        sum(|tally| tally.refused),
        found.len()
    );
    assert!(found.is_empty(), "{} wrong", found.len());
}
