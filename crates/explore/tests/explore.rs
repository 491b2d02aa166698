//! The exploration of the gate, and tests that it is repeatable and covers all crash points.

use std::time::Instant;

use oncefs_explore::effect::{Effect, Pages};
use oncefs_explore::explore::Explorer;
use oncefs_explore::image::Part;
use oncefs_explore::live::Recording;
use oncefs_explore::plan::{self, Plan};
use oncefs_explore::tape::Recorded;
use oncefs_explore::workload::{Base, Workload, directed};
use oncefs_explore::{report, setups};
use oncefs_toolbox::counts::{gate_or_drill, seed};

/// Least number of distinct crash states to recover and judge: in the gate by workloads that are directed, of one
/// operation, or interrupted; in the drill also by those of two operations. Random workloads add the rest.
const STATES: (u64, u64) = (20_000, 100_000);

/// Crash points that the drill must keep when code or workloads change.
const POINTS: [&str; 81] = [
    "receive: change, begins",
    "place: change, data written",
    "place: change, fragments grown",
    "map: change, published",
    "commit: commit, begins",
    "commit: commit, data written",
    "commit: commit, data flushed",
    "commit: commit, log written",
    "commit: commit, log flushed",
    "commit: commit, acknowledged",
    "commit: commit within an operation, log written",
    "commit: commit within an operation, log flushed",
    "commit: commit within an operation, data flushed",
    "commit: checkpoint, begins",
    "commit: checkpoint, data written",
    "commit: checkpoint, data flushed",
    "commit: checkpoint, log written",
    "commit: checkpoint, log flushed",
    "commit: checkpoint, table written",
    "commit: checkpoint, table punched",
    "commit: checkpoint, table flushed",
    "commit: checkpoint, records written",
    "commit: checkpoint, records flushed",
    "commit: checkpoint, acknowledged",
    "commit: release, published",
    "commit: grow, begins",
    "commit: grow, data grown",
    "commit: grow, table grown",
    "commit: grow, data flushed",
    "commit: grow, log written",
    "commit: grow, log flushed",
    "commit: grow, acknowledged",
    "revisit: fill hints, hints written",
    "revisit: fill hints, hints flushed",
    "revisit: remap, begins",
    "revisit: remap, hints written",
    "revisit: remap, hints punched",
    "revisit: remap, published",
    "revisit: compress, begins",
    "revisit: compress, fragments grown",
    "revisit: compress, data written",
    "revisit: compress, published",
    "revisit: repack, begins",
    "revisit: repack, data written",
    "revisit: repack, published",
    "revisit: expand, begins",
    "revisit: expand, data written",
    "revisit: expand, published",
    "revisit: rank, begins",
    "revisit: rank, data written",
    "revisit: rank, published",
    "revisit: merge hints, hints written",
    "revisit: merge hints, published",
    "revisit: sweep hints, hints written",
    "revisit: sweep hints, hints punched",
    "revisit: sweep hints, published",
    "revisit: scrub, begins",
    "revisit: scrub, data written",
    "revisit: scrub, data flushed",
    "revisit: scrub, log written",
    "revisit: scrub, log flushed",
    "revisit: scrub, acknowledged",
    "revisit: save skipped, skipped grown",
    "revisit: save skipped, skipped written",
    "revisit: save skipped, skipped flushed",
    "revisit: save skipped, published",
    "revisit: reclaim, begins",
    "revisit: reclaim, published",
    "revisit: take leaves, published",
    "revisit: punch, data punched",
    "revisit: punch, published",
    "revisit: leave, data written",
    "revisit: leave, log written",
    "revisit: leave, table written",
    "revisit: leave, records written",
    "revisit: leave, records flushed",
    "revisit: leave, hints written",
    "revisit: leave, skipped grown",
    "revisit: leave, skipped written",
    "revisit: leave, skipped flushed",
    "revisit: leave, acknowledged",
];

#[test]
fn every_planned_crash_state_is_survived() {
    let began = Instant::now();
    let (states, is_drill) = (gate_or_drill(STATES.0, STATES.1) as usize, gate_or_drill(0, 1) == 1);
    let plan = Plan { pairs: is_drill, states, seed: seed().saturating_sub(1), threads: 2 };
    let explorer = plan.run(&mut |_, _| ()).unwrap();
    println!("{}in {:.0} s", report::counts(&explorer), began.elapsed().as_secs_f64());
    let failures: String = explorer.failures().iter().map(report::failure).collect();
    assert!(failures.is_empty(), "{failures}");
    assert!(explorer.distinct() >= states, "only {} states", explorer.distinct());
    if is_drill {
        assert_eq!(report::not_visited(&explorer, &POINTS), Vec::<String>::new(), "crash points that were not visited");
    }
}

/// Explores some workloads, each of which must survive.
fn survive(names: &[&str]) -> Explorer {
    let explorer = Explorer::default();
    for name in names {
        let (base, workload) = plan::named(name).unwrap();
        explorer.explore_one(&base, &workload);
    }
    let failures: String = explorer.failures().iter().map(report::failure).collect();
    assert!(failures.is_empty(), "{failures}");
    explorer
}

#[test]
fn a_file_without_a_name_is_an_orphan_or_gone_after_every_crash() {
    survive(&["one-level/unlink-open,commit", "one-level/tmpfile,checkpoint"]);
}

#[test]
fn a_copy_of_a_tree_is_there_whole_or_not_at_all_and_a_removed_snapshot_goes() {
    survive(&[
        "one-level/clone-tree,commit",
        "one-level/interrupted:clone-tree",
        "one-level/snapshot,checkpoint",
        "one-level/interrupted:snapshot",
        "one-level/interrupted:remove-snapshot",
    ]);
}

#[test]
fn compressed_files_keep_their_content_after_every_crash() {
    let explorer = survive(&["compressed/directed:compress", "compressed/directed:repack"]);
    let is_of_them = |point: &&&str| point.contains(" compress,") || point.contains(" repack,");
    let points = POINTS.iter().filter(is_of_them).copied().collect::<Vec<_>>();
    assert_eq!(report::not_visited(&explorer, &points), Vec::<String>::new());
}

#[test]
fn random_work_on_compressed_files_is_survived() {
    survive(&["compressed/random:3", "compressed-in-line/random:4"]);
}

#[test]
fn a_volume_in_objects_survives_the_loss_of_any_part_of_a_request() {
    survive(&["objects/directed:grow", "objects/directed:reuse"]);
}

#[test]
fn records_in_objects_survive_a_checkpoint_that_stops_between_any_two_of_them() {
    survive(&["records-in-objects/directed:many-names", "records-in-objects/directed:leave"]);
}

#[test]
fn a_clone_with_records_in_objects_is_whole_or_absent_whatever_objects_have_its_parts() {
    survive(&["records-in-objects/directed:lazy-clone", "records-in-objects/directed:compress"]);
}

#[test]
fn a_checkpoint_record_that_comes_before_the_others_is_found_out() {
    let base = Base::make(setups::named("records-in-objects").unwrap()).unwrap();
    let workload = Workload::named("directed:many-names").unwrap();
    // The first object has the checkpoint record. The others do not keep what was awaited.
    let first = oncefs_engine::format::records_index::object(0);
    let recording = workload.run(&base).unwrap();
    let lies = |step: Recorded| match &step.effect {
        Effect::KeysDurable(object, _) if **object != *first && object.contains('.') => {
            Recorded { effect: Effect::Mark("awaiting ignored"), ..step }
        }
        _ => step,
    };
    let recording = Recording { steps: recording.steps.into_iter().map(lies).collect(), ..recording };
    let explorer = Explorer::default();
    explorer.explore_recording(base.setup, "liar".to_owned(), &recording, workload.effort);
    assert!(!explorer.failures().is_empty(), "{} states were survived", explorer.distinct());
}

#[test]
fn expanded_files_keep_their_content_after_every_crash() {
    let explorer = survive(&["compressed/directed:expand"]);
    let points = POINTS.iter().filter(|point| point.contains("expand,")).copied().collect::<Vec<_>>();
    assert_eq!(report::not_visited(&explorer, &points), Vec::<String>::new());
}

#[test]
fn what_is_compressed_as_it_is_written_is_there_whole_or_not_at_all() {
    survive(&["compressed-in-line/directed:compress-in-line"]);
}

#[test]
fn a_change_of_a_range_that_goes_in_pieces_is_there_whole_or_not_at_all() {
    survive(&["one-level/interrupted:directed:range-in-pieces"]);
}

#[test]
fn a_checkpoint_of_several_batches_is_there_whole_or_not_at_all() {
    survive(&["long-log/directed:records-in-batches"]);
}

#[test]
fn a_deleted_file_is_freed_wherever_its_reclaim_is_cut() {
    survive(&["one-level/interrupted:directed:reclaim-in-portions"]);
}

#[test]
fn a_lazy_clone_is_whole_or_absent_wherever_it_and_what_it_takes_later_are_cut() {
    survive(&["one-level/lazy-clone,commit", "one-level/directed:lazy-clone"]);
    survive(&["one-level/interrupted:directed:lazy-clone"]);
}

#[test]
fn data_is_durable_before_the_group_that_names_it() {
    survive(&["one-level/write-large,unlink,checkpoint", "one-level/directed:ride-in-the-log"]);
}

#[test]
fn space_is_there_before_the_volume_counts_on_it() {
    survive(&["one-level/grow,commit"]);
}

#[test]
fn a_change_that_goes_into_several_groups_is_there_in_parts_that_are_whole() {
    survive(&["many-groups/directed:range-in-pieces", "many-groups/interrupted:directed:range-in-pieces"]);
    survive(&["many-groups/directed:range-in-parts", "many-groups/interrupted:directed:range-in-parts"]);
}

#[test]
fn a_torn_page_of_the_table_is_redone_by_sectors() {
    survive(&["one-level/write-large,unlink,checkpoint", "one-level/directed:reuse"]);
}

#[test]
fn a_file_has_its_rank_its_place_and_its_policy_wherever_ranking_is_cut() {
    survive(&["ranks/directed:ranks", "ranks/interrupted:directed:ranks"]);
}

/// A summary that distinguishes recordings.
fn outline(steps: &[Recorded]) -> Vec<String> {
    let hashes =
        |pages: &Pages| -> Vec<u128> { pages.iter().map(|page| page.as_ref().map_or(0, |page| page.hash())).collect() };
    let line = |step: &Recorded| match &step.effect {
        Effect::Write { part, first, pages, .. } => format!("{part:?} {first} {:?}", hashes(pages)),
        Effect::Batch(batch) => format!("{batch:?}"),
        other => format!("{:?} {other}", step.doing),
    };
    steps.iter().map(line).collect()
}

#[test]
fn a_workload_does_the_same_each_time() {
    for setup in setups::all() {
        let bases = [Base::make(setup).unwrap(), Base::make(setup).unwrap()];
        let fitting = directed().into_iter().filter(|workload| workload.runs_on(setup));
        for workload in fitting.chain((0..4).map(Workload::random)) {
            let [first, second] = [0, 1].map(|at| outline(&workload.run(&bases[at]).unwrap().steps));
            let differs = first.iter().zip(&second).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{}/{}: step of the first difference", setup.name, workload.name);
        }
    }
}

/// Selects the flushes that do nothing.
type Lie = fn(&Effect) -> bool;

/// A recording in which a disk or the sorted state does not flush.
fn with_a_liar(recording: Recording, lies: Lie) -> Recording {
    let ignored = |step: Recorded| match lies(&step.effect) {
        true => Recorded { effect: Effect::Mark("flush ignored"), ..step },
        false => step,
    };
    Recording { steps: recording.steps.into_iter().map(ignored).collect(), ..recording }
}

#[test]
fn a_device_that_does_not_flush_is_found_out() {
    let base = Base::make(&setups::all()[0]).unwrap();
    let short = "write-large,create,checkpoint,unlink,commit";
    // A sorted state that does not flush does harm only after the log has wrapped.
    let long = "directed:log-wraps";
    let liars: [(&str, &str, Lie); 5] = [
        ("none", short, |_| false),
        ("data", short, |effect| matches!(effect, Effect::Flush(Part::Data))),
        ("log", short, |effect| matches!(effect, Effect::Flush(Part::Log))),
        ("table", short, |effect| matches!(effect, Effect::Flush(Part::Table))),
        ("records", long, |effect| matches!(effect, Effect::FlushRecords)),
    ];
    for (name, workload, lies) in liars {
        let workload = Workload::named(workload).unwrap();
        let explorer = Explorer::default();
        let recording = with_a_liar(workload.run(&base).unwrap(), lies);
        explorer.explore_recording(base.setup, name.to_owned(), &recording, workload.effort);
        let failures: String = explorer.failures().iter().map(report::failure).collect();
        println!("{name}: {} distinct states\n{failures}", explorer.distinct());
        assert_eq!(failures.is_empty(), name == "none", "who does not flush: {name}");
    }
}
