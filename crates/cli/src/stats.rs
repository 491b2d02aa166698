//! `oncefs stats`: the daemon's report, as JSON or as answers to what people ask.

use std::fmt::Write;

use oncefs_engine::{Report, Stage};

use crate::commands::StatsArgs;
use crate::control::Request;
use crate::failure::{OrFail, Outcome, exit};
use crate::size::Size;
use crate::target::Target;

/// Shows a volume's figures.
pub fn run(arguments: StatsArgs) -> Outcome {
    let answer = Target::daemon(&arguments.target)?.ask(Request::Stats).or_fail(exit::FAILED)?;
    if arguments.json {
        println!("{answer:#}");
        return Ok(());
    }
    let report: Report =
        serde_json::from_value(answer).or_fail_doing(exit::FAILED, "the daemon's figures make no sense")?;
    print!("{}", described(&report));
    Ok(())
}

fn described(report: &Report) -> String {
    [space(report), stages(report), caches(report), counters(report), settings(report)]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Adds a line; writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => {
        writeln!($text, $($arg)*).expect("writing to a string cannot fail")
    };
}

/// The figures that have sentences of their own.
const TOLD: [&str; 4] = ["mapped_bytes", "used_bytes", "data_bytes", "available_bytes"];

/// Logical bytes are what the files hold, stored ones what the data area holds for them.
fn space(report: &Report) -> String {
    let bytes = |name: &str| report.space.get(name).copied().unwrap_or(0);
    let (logical, stored, total) = (bytes("mapped_bytes"), bytes("used_bytes"), bytes("data_bytes"));
    let saved = logical.saturating_sub(stored);
    let mut text = String::new();
    line!(text, "{:<12}{:>12}", "logical", shown(logical));
    line!(
        text,
        "{:<12}{:>12}  {} of the data area's {}",
        "stored",
        shown(stored),
        percent(stored, total),
        shown(total)
    );
    line!(text, "{:<12}{:>12}  {} of the logical bytes", "saved", shown(saved), percent(saved, logical));
    line!(text, "{:<12}{:>12}  unique bytes that can still be written", "available", shown(bytes("available_bytes")));
    for (name, bytes) in report.space.iter().filter(|(name, _)| !TOLD.contains(&name.as_str())) {
        line!(text, "{:<12}{:>12}", name.trim_end_matches("_bytes"), shown(*bytes));
    }
    text
}

fn stages(report: &Report) -> String {
    let mut text = String::from("stage          blocks    batches       mean        p50        p95      p99.5\n");
    for stage in Stage::ALL {
        let Some(figures) = report.stages.get(stage.name()).filter(|f| f.latency.count > 0) else {
            continue;
        };
        let latency = &figures.latency;
        let at_most = |share| format!("<{}", microseconds(latency.percentile_us_max(share) as f64));
        line!(
            text,
            "{:<9}{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}",
            stage.name(),
            figures.blocks,
            latency.count,
            microseconds(latency.mean_us()),
            at_most(0.5),
            at_most(0.95),
            at_most(0.995)
        );
    }
    text
}

fn caches(report: &Report) -> String {
    if report.caches.is_empty() {
        return String::new();
    }
    let mut text = String::from("cache            held      bound   hit ratio\n");
    for (name, cache) in &report.caches {
        let ratio =
            if cache.hits + cache.misses == 0 { "-".into() } else { format!("{:.1} %", cache.hit_ratio() * 100.0) };
        line!(text, "{name:<9}{:>12}{:>11}{ratio:>12}", shown(cache.bytes), shown(cache.bytes_max));
    }
    text
}

fn counters(report: &Report) -> String {
    let mut text = String::new();
    for (name, value) in report.counters.iter().filter(|(_, value)| **value > 0) {
        let readable = if name.contains("bytes") { format!("  {}", Size(*value)) } else { String::new() };
        line!(text, "{name:<24}{value:>18}{readable}");
    }
    text
}

fn settings(report: &Report) -> String {
    let mut text = String::new();
    for (name, value) in &report.settings {
        line!(text, "{name:<24}{value:>18}");
    }
    text
}

fn shown(bytes: u64) -> String {
    Size(bytes).to_string()
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

fn microseconds(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use oncefs_engine::{CacheReport, Histogram, StageReport};

    use super::*;

    fn report() -> Report {
        let names = [
            ("mapped_bytes", 300 << 20),
            ("used_bytes", 100 << 20),
            ("data_bytes", 1 << 30),
            ("available_bytes", 924 << 20),
            ("metadata_bytes", 3 << 20),
        ];
        Report {
            space: names.map(|(name, bytes)| (name.to_owned(), bytes)).into(),
            stages: BTreeMap::from([(
                "tag".to_owned(),
                StageReport {
                    blocks: 256,
                    latency: Histogram { count: 2, nanoseconds: 3_000_000, classes: vec![0, 0, 1, 0, 1] },
                },
            )]),
            caches: BTreeMap::from([(
                "read".to_owned(),
                CacheReport { bytes: 1 << 20, bytes_max: 2 << 20, hits: 3, misses: 1 },
            )]),
            counters: BTreeMap::from([("blocks_shared".to_owned(), 42), ("barriers".to_owned(), 0)]),
            settings: BTreeMap::new(),
        }
    }

    #[test]
    fn the_first_lines_answer_what_was_saved() {
        let text = space(&report());
        assert!(text.contains("saved            200 MiB  66.7 % of the logical bytes"), "{text}");
        assert!(text.contains("metadata        3.00 MiB"), "{text}");
    }

    #[test]
    fn stages_show_mean_and_percentiles_and_leave_out_what_never_ran() {
        let text = stages(&report());
        assert!(text.contains("1.5 ms") && text.contains("<4 us") && text.contains("<16 us"), "{text}");
        assert!(!text.contains("commit"), "{text}");
    }

    #[test]
    fn counters_at_zero_are_left_out() {
        assert_eq!(counters(&report()), "blocks_shared                           42\n");
    }

    #[test]
    fn caches_show_their_hit_ratio() {
        assert!(caches(&report()).contains("75.0 %"));
    }
}
