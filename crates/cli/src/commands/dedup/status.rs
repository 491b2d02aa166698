//! The output of `oncefs dedup --status`.

use oncefs_engine::{Blocks, DedupStatus};
use oncefs_toolbox::{Column, Table};

use crate::commands::unknown_blocks;
use crate::size::Size;
use crate::text::duration;

/// The status for people.
pub fn render(status: &DedupStatus) -> String {
    let mut table = Table::of([Column::left(12), Column::left(0)]);
    let mut line = |name: &str, text: String| table.row(vec![name.to_owned(), text]);
    let asked = if status.now { ", requested with --now" } else { "" };
    let paused = if status.paused && status.doing != "paused" { ", paused" } else { "" };
    line("worker", format!("{}{asked}{paused}", status.doing));
    line("left", left(status));
    if status.full_pass {
        line("full pass", format!("{} of {} examined", size(status.pass_blocks_done), size(status.pass_blocks)));
    }
    if let Some(seconds) = status.eta_seconds {
        line("time left", duration(seconds));
    }
    line("schedule", hours(status));
    line(
        "so far",
        format!("{} examined, {} of it now shared", size(status.blocks_revisited), size(status.blocks_remapped)),
    );
    line("hint store", hint_store(status));
    let (share, limit) = (status.inline_percent, status.inline_percent_max);
    line("in-line", format!("{share:.0} % of the requests are looked up, at most {limit:.0} %"));
    line("yield time", yield_time(status));
    if !matches!(status.compression.as_str(), "" | "off") {
        line("compression", status.compression.clone());
    }
    line("power", power(&status.power).to_owned());
    let left_alone = unknown_blocks::lines(&status.unknown, &status.passed_over);
    table.plain() + &left_alone.iter().map(|line| format!("{line}\n")).collect::<String>()
}

fn size(blocks: u64) -> String {
    Size(Blocks(blocks).bytes()).to_string()
}

fn left(status: &DedupStatus) -> String {
    match (status.skipped_blocks, status.skipped_files) {
        (0, 0) if status.full_pass => "a full pass".into(),
        (0, 0) => "nothing".into(),
        (blocks, 0) => size(blocks),
        (blocks, files) => format!("{}, {files} whole files", size(blocks)),
    }
}

/// The hours at which the worker may run.
pub fn hours(status: &DedupStatus) -> String {
    let begin = status.opens_in_seconds.map(|seconds| format!(", next window in {}", duration(seconds)));
    let schedule = if status.schedule.is_empty() { "unknown" } else { &status.schedule };
    format!("{schedule}{}", begin.unwrap_or_default())
}

fn power(supply: &str) -> &str {
    match supply {
        "" => "unknown",
        "mains" => "AC power",
        battery => battery,
    }
}

/// How long the worker took to yield to requests that arrived during its work.
fn yield_time(status: &DedupStatus) -> String {
    match status.yield_time.count {
        0 => "no request came while the worker worked".into(),
        count => {
            let (mean, most) =
                (status.yield_time.mean_us() / 1e3, status.yield_time.percentile_us_max(1.0) as f64 / 1e3);
            format!("{mean:.1} ms on average, at most {most:.0} ms, for {count} requests during the work")
        }
    }
}

fn hint_store(status: &DedupStatus) -> String {
    if status.rebuild_pages_done < status.rebuild_pages {
        return format!(
            "filling from the block table: {} of {} pages",
            status.rebuild_pages_done, status.rebuild_pages
        );
    }
    "complete".into()
}

#[cfg(test)]
mod tests {
    use oncefs_engine::Histogram;

    use super::*;

    #[test]
    fn the_status_says_what_is_done_what_is_left_and_how_long_it_takes() {
        let status = DedupStatus {
            skipped_blocks: 12,
            skipped_files: 3,
            full_pass: true,
            pass_blocks: 900,
            pass_blocks_done: 450,
            eta_seconds: Some(75),
            inline_percent: 30.2,
            inline_percent_max: 57.0,
            schedule: "22:00-06:00".into(),
            opens_in_seconds: Some(3 * 3600 + 60),
            yield_time: Histogram {
                count: 2,
                nanoseconds: 5_000_000,
                classes: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
            },
            doing: "working".into(),
            now: true,
            power: "mains".into(),
            compression: "by the worker".into(),
            ..DedupStatus::default()
        };
        let text = render(&status);
        for part in [
            "working, requested with --now",
            "48.0 KiB, 3 whole files",
            "1.76 MiB of 3.52 MiB examined",
            "1 min 15 s",
            "30 % of the requests are looked up, at most 57 %",
            "AC power",
            "by the worker",
            "complete",
            "22:00-06:00, next window in 3 h 1 min",
            "2.5 ms on average, at most 4 ms, for 2 requests during the work",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        assert!(render(&DedupStatus::default()).contains("nothing"));
        let passed_over = vec!["a record is damaged".to_owned()];
        let text = render(&DedupStatus { passed_over, ..DedupStatus::default() });
        assert!(text.contains("skipped: a record is damaged\n") && text.contains("oncefs fsck -y"), "{text}");
    }
}
