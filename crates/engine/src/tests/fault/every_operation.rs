//! Every operation of the workload goes wrong, in every way possible for its kind.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::drill::{Drill, Outcome};
use super::*;

/// A fault of one operation, by its number in the workload.
type Case = (usize, Fault, Lasts);

/// The parts and kinds of all operations of the workload without a fault.
fn trace() -> Vec<(&'static str, Access)> {
    let mut drill = Drill::new(None);
    let before = drill.faults.count();
    drill.work();
    let trace = drill.faults.seen().split_off(before);
    assert_eq!(drill.finish(), Outcome::GoesOn);
    trace
}

fn cases_of(number: usize, access: Access) -> Vec<Case> {
    let mut faults = vec![Fault::Broken];
    if access.is_change() {
        faults.push(Fault::Full);
    }
    if matches!(access, Access::Read | Access::Write) {
        faults.push(Fault::CutShort);
    }
    let lasting = |fault| [(number, fault, Lasts::Once), (number, fault, Lasts::UntilMended)];
    faults.into_iter().flat_map(lasting).collect()
}

/// The operation that a case hits, and the outcome, or the message of a panic.
fn run((number, fault, lasts): Case) -> ((&'static str, Access), std::result::Result<Outcome, String>) {
    let mut drill = Drill::new(Some((number, fault, lasts)));
    let faults = drill.faults.clone();
    let whole = std::panic::AssertUnwindSafe(|| {
        drill.work();
        let outcome = drill.finish();
        let hit = faults.hit().expect("the operation comes again in each run");
        assert_outcome(hit.0, hit.1, lasts, outcome);
        outcome
    });
    let outcome = std::panic::catch_unwind(whole).map_err(|panic| match panic.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => format!("{:?}", panic.downcast_ref::<&str>()),
    });
    (faults.hit().unwrap_or(("none", Access::Len)), outcome)
}

/// The permitted outcomes of a fault.
fn assert_outcome(part: &str, access: Access, lasts: Lasts, outcome: Outcome) {
    let what = format!("{part} {access:?} {lasts:?}: {outcome:?}");
    match part {
        "hints" | "skipped" => assert_eq!(outcome, Outcome::GoesOn, "advice is nobody's error: {what}"),
        _ if !access.is_change() && lasts == Lasts::Once => {
            assert!(outcome <= Outcome::NotOpened, "a failed read is an error to who asked: {what}");
        }
        "log" if access.is_change() => {
            // Recovery writes the last group again before anything is built on it.
            assert!(matches!(outcome, Outcome::ReadOnly | Outcome::NotOpened), "{what}");
        }
        "table" if matches!(access, Access::Write | Access::Flush) => {
            assert_eq!(outcome, Outcome::ReadOnly, "{what}");
        }
        RECORDS if access.is_change() => assert_eq!(outcome, Outcome::ReadOnly, "{what}"),
        "data" if access == Access::Flush => assert_eq!(outcome, Outcome::ReadOnly, "{what}"),
        "data" if access == Access::Write => assert!(outcome >= Outcome::Error, "{what}"),
        _ => {}
    }
}

#[test]
fn every_operation_can_fail_and_nothing_acknowledged_is_lost() {
    let trace = trace();
    assert_comes_everywhere(&trace);
    let cases: Vec<Case> = trace.iter().enumerate().flat_map(|(n, (_, access))| cases_of(n, *access)).collect();
    let (next, outcomes, wrong) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)).copied() {
            let (hit, outcome) = run(case);
            match outcome {
                Ok(outcome) => {
                    let (part, access) = hit;
                    let key = (part, access, fault_name(case.1), lasts_name(case.2), outcome);
                    *outcomes.lock().unwrap().entry(key).or_insert(0usize) += 1;
                }
                Err(what) => wrong.lock().unwrap().push(format!("{case:?} {hit:?}: {what}")),
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} cases are wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    let outcomes = outcomes.into_inner().unwrap();
    for ((part, access, fault, lasts, outcome), count) in &outcomes {
        println!("{part:8} {access:12?} {fault:10} {lasts:6} {outcome:9?} {count}");
    }
    let done: usize = outcomes.values().sum();
    println!("{} operations, {done} cases", trace.len());
    assert_eq!(done, cases.len());
}

/// Notices if the workload loses an operation that it must contain.
fn assert_comes_everywhere(trace: &[(&'static str, Access)]) {
    use Access::*;
    let expected: [(&str, &[Access]); 6] = [
        ("data", &[Read, Write, Flush, Punch, Len, Grow]),
        ("table", &[Read, Write, Flush, Punch, NextData, Len, Grow]),
        ("log", &[Read, Write, Flush, Len]),
        ("hints", &[Read, Write, Flush, NextData, Len]),
        ("skipped", &[Read, Write, Flush, Len, Grow]),
        (RECORDS, &[Get, Scan, Put, FlushRecords]),
    ];
    for (part, kinds) in expected {
        for kind in kinds {
            assert!(trace.contains(&(part, *kind)), "the workload has no {kind:?} of {part}");
        }
    }
    assert!(trace.len() > 300, "the workload has only {} operations", trace.len());
}

fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::Broken => "EIO",
        Fault::Full => "ENOSPC",
        Fault::CutShort => "cut short",
        Fault::Flip { .. } => "flipped",
        Fault::Slow(_) => "slow",
    }
}

fn lasts_name(lasts: Lasts) -> &'static str {
    match lasts {
        Lasts::Once => "once",
        Lasts::UntilMended => "lasts",
    }
}
