//! Every target: its corpus, then a fixed number of inputs from a seed, in the gate a fifth of the drill's.
//! `ONCEFS_FUZZ_EXECUTIONS` sets another number.

use oncefs_fuzz::{plain, target};
use oncefs_toolbox::counts::{gate_or_drill, seed};

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

fn run(name: &str, executions: u64) {
    let target = target(name).unwrap_or_else(|| panic!("there is no target {name}"));
    let of_run = || gate_or_drill(executions / 5, executions);
    plain::run(target, number_from_environment("ONCEFS_FUZZ_EXECUTIONS").unwrap_or_else(of_run), seed());
}

#[test]
fn decoders_take_any_bytes() {
    run("decoders", 5_000_000);
}

#[test]
fn damaged_volumes_are_refused_or_read() {
    run("volumes", 4_000);
}

#[test]
fn calls_have_the_same_effect_as_on_the_model() {
    run("calls", 8_000);
}

#[test]
fn no_program_takes_a_nearly_full_volume_down() {
    run("full", 300);
}

#[test]
fn record_files_are_read_as_far_as_they_make_sense() {
    run("tables", 2_000);
}

#[test]
fn messages_of_the_kernel_are_refused_or_are_what_they_say() {
    run("messages", 2_000_000);
}

#[test]
fn streams_are_refused_or_come_back_as_they_were() {
    run("streams", 500_000);
}
