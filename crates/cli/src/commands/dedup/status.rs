//! What `oncefs dedup --status` says.

use std::fmt::Write;

use oncefs_engine::DedupStatus;

use crate::text::duration;

/// Adds a line; writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $name:literal, $($arg:tt)*) => {
        writeln!($text, "{:<14}{}", $name, format_args!($($arg)*)).expect("writing to a string cannot fail")
    };
}

/// The status for people.
pub fn render(status: &DedupStatus) -> String {
    let mut text = String::new();
    let asked = if status.now { ", as asked for with --now" } else { "" };
    let paused = if status.paused && status.doing != "paused" { ", paused" } else { "" };
    line!(text, "worker", "{}{asked}{paused}", status.doing);
    line!(text, "left", "{}", left(status));
    if status.full_pass {
        line!(text, "full pass", "{} of {} blocks looked at", status.pass_blocks_done, status.pass_blocks);
    }
    if let Some(seconds) = status.eta_seconds {
        line!(text, "ready in", "{}", duration(seconds));
    }
    line!(text, "schedule", "{}", hours(status));
    line!(text, "so far", "{} blocks looked at, {} shared", status.blocks_looked_at, status.blocks_remapped);
    line!(text, "hint store", "{}", hint_store(status));
    let (share, limit) = (status.inline_percent, status.inline_limit_percent);
    line!(text, "in-line", "{share:.0} % of the requests, at most {limit:.0} %");
    line!(text, "gave way", "{}", gave_way(status));
    line!(text, "power", "{}", if status.supply.is_empty() { "unknown" } else { &status.supply });
    text
}

fn left(status: &DedupStatus) -> String {
    match (status.skipped_blocks, status.skipped_files) {
        (0, 0) if status.full_pass => "a full pass".into(),
        (0, 0) => "nothing".into(),
        (blocks, 0) => format!("{blocks} skipped blocks"),
        (blocks, files) => format!("{blocks} skipped blocks, {files} files as a whole"),
    }
}

/// The hours at which the worker may run.
pub fn hours(status: &DedupStatus) -> String {
    let begin = status.opens_in_seconds.map(|seconds| format!(", which begin in {}", duration(seconds)));
    let schedule = if status.schedule.is_empty() { "unknown" } else { &status.schedule };
    format!("{schedule}{}", begin.unwrap_or_default())
}

/// Of requests that came while the worker was at work: how long until it let go of the machine.
fn gave_way(status: &DedupStatus) -> String {
    match status.gave_way.count {
        0 => "no request came beside the work".into(),
        count => {
            let (mean, most) = (status.gave_way.mean_us() / 1e3, status.gave_way.percentile_us_max(1.0) as f64 / 1e3);
            format!("to {count} requests that came beside the work: within {mean:.1} ms, all below {most:.0} ms")
        }
    }
}

fn hint_store(status: &DedupStatus) -> String {
    if status.rebuild_pages_done < status.rebuild_pages {
        return format!(
            "being filled from the block table: {} of {} pages",
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
            inline_limit_percent: 57.0,
            schedule: "22:00-06:00".into(),
            opens_in_seconds: Some(3 * 3600 + 60),
            gave_way: Histogram {
                count: 2,
                nanoseconds: 5_000_000,
                classes: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
            },
            doing: "working".into(),
            now: true,
            supply: "mains".into(),
            ..DedupStatus::default()
        };
        let text = render(&status);
        for part in [
            "working, as asked for with --now",
            "12 skipped blocks, 3 files as a whole",
            "450 of 900 blocks",
            "1 min 15 s",
            "30 % of the requests, at most 57 %",
            "mains",
            "complete",
            "22:00-06:00, which begin in 3 h 1 min",
            "to 2 requests that came beside the work: within 2.5 ms, all below 4 ms",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        assert!(render(&DedupStatus::default()).contains("nothing"));
    }
}
