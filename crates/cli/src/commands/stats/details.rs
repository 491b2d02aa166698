//! The figures beyond the ten lines: how duplicates were found, stages, caches, the device, counters and settings.

use oncefs_engine::{CacheReport, Report, Stage};
use oncefs_toolbox::{Column, Table};

use crate::figures::of_mount::Snapshot;
use crate::size::Size;

/// All parts that have figures.
pub fn text(snapshot: &Snapshot) -> String {
    let report = &snapshot.report;
    let parts = [
        space(report),
        compression(snapshot),
        dedup(report),
        ranks(report),
        stages(report),
        caches(report),
        device(report),
        cluster(report),
        counters(report),
        settings(report),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A table of figures: the name, the figure, and its meaning.
fn figures(name_width_min: u16, figure_width_min: u16) -> Table {
    Table::of([Column::left(name_width_min), Column::right(figure_width_min), Column::left(0)])
}

/// A row of `figures`.
fn figure(name: &str, figure: impl ToString, meaning: impl Into<String>) -> Vec<String> {
    vec![name.to_owned(), figure.to_string(), meaning.into()]
}

/// The figures of space that the ten lines do not have.
fn space(report: &Report) -> String {
    let mut table = figures(10, 12);
    for name in ["reserved", "staged", "bad"] {
        if let Some(bytes) = report.space.get(&format!("{name}_bytes")) {
            table.row(figure(name, Size(*bytes), ""));
        }
    }
    table.plain()
}

/// When blocks are compressed, unless they are not.
fn compression(snapshot: &Snapshot) -> String {
    match snapshot.worker.compression.as_str() {
        "" | "off" => String::new(),
        when => format!("compression {when}\n"),
    }
}

/// The counters that `dedup` shows.
const SHOWN_BY_DEDUP: [&str; 8] = [
    "write_requests",
    "write_requests_not_admitted",
    "blocks_not_admitted",
    "blocks_remapped",
    "hints_demoted",
    "hints_promoted",
    "hints_stale",
    "blocks_read_shared",
];

/// How duplicates were found, and with what memory. Omits lines without figures.
fn dedup(report: &Report) -> String {
    let count = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    let mut table = figures(16, 8);
    if report.counters.contains_key("blocks_not_admitted") {
        let written = count("blocks_written");
        let looked_up = percent(written.saturating_sub(count("blocks_not_admitted")), written);
        let skipped =
            format!("{} of {} requests skipped", count("write_requests_not_admitted"), count("write_requests"));
        table.row(figure("in-line", looked_up, format!("of the written blocks were looked up; {skipped}")));
    }
    if report.counters.contains_key("blocks_remapped") {
        let (remapped, read) = (count("blocks_remapped"), count("blocks_read_shared"));
        table.row(figure("out-of-line", remapped, "blocks shared after they were written"));
        table.row(figure("read shared", read, "blocks of one file served from another file's cached blocks"));
    }
    if let Some(hints) = report.caches.get("hints") {
        table.row(figure("hints in memory", Size(hints.bytes), bound(hints)));
    }
    if let Some(hints) = report.caches.get("hints_on_disk") {
        let [demoted, promoted, stale] = ["hints_demoted", "hints_promoted", "hints_stale"].map(count);
        let moved = format!("{demoted} demoted, {promoted} promoted, {stale} stale");
        table.row(figure("hints on disk", Size(hints.bytes), moved));
    }
    if let Some(skipped) = report.caches.get("skipped") {
        table.row(figure("skipped buffer", Size(skipped.bytes), bound(skipped)));
    }
    table.plain()
}

fn bound(cache: &CacheReport) -> String {
    format!("of at most {}", Size(cache.bytes_max))
}

/// Files by rank, and how long the next one of each queue has waited. Empty if files are not ranked.
fn ranks(report: &Report) -> String {
    if report.ranks.is_empty() {
        return String::new();
    }
    let columns = [Column::left(12), Column::right(12), Column::right(9), Column::right(17)];
    let mut table = Table::of(columns).with_head(&["rank", "files", "ranked", "next in the queue"]);
    for (name, rank) in &report.ranks {
        let waits = rank.waits_seconds.map_or("-".into(), |seconds| format!("{:.1} days", seconds as f64 / 86_400.0));
        table.row(vec![name.clone(), rank.files.to_string(), rank.ranked.to_string(), waits]);
    }
    table.plain()
}

fn stages(report: &Report) -> String {
    let time = Column::right(9);
    let columns = [Column::left(7), Column::right(12), Column::right(9), time, time, time, time];
    let mut table = Table::of(columns).with_head(&["stage", "blocks", "batches", "mean", "p50", "p95", "p99.5"]);
    for stage in Stage::ALL {
        let Some(figures) = report.stages.get(stage.name()).filter(|f| f.latency.count > 0) else {
            continue;
        };
        let latency = &figures.latency;
        let at_most = |share| format!("<{}", microseconds(latency.percentile_us_max(share) as f64));
        table.row(vec![
            stage.name().to_owned(),
            figures.blocks.to_string(),
            latency.count.to_string(),
            microseconds(latency.mean_us()),
            at_most(0.5),
            at_most(0.95),
            at_most(0.995),
        ]);
    }
    table.plain()
}

fn caches(report: &Report) -> String {
    if report.caches.is_empty() {
        return String::new();
    }
    let columns = [Column::left(12), Column::right(12), Column::right(9), Column::right(10)];
    let mut table = Table::of(columns).with_head(&["cache", "used", "maximum", "hit ratio"]);
    for (name, cache) in &report.caches {
        let ratio =
            if cache.hits + cache.misses == 0 { "-".into() } else { format!("{:.1} %", cache.hit_ratio() * 100.0) };
        table.row(vec![name.clone(), Size(cache.bytes).to_string(), Size(cache.bytes_max).to_string(), ratio]);
    }
    table.plain()
}

/// The cost of a separate piece, and the sizes of requests that read file blocks. Empty if nothing was read.
fn device(report: &Report) -> String {
    let sizes = &report.device.read_sizes;
    if sizes.count == 0 {
        return String::new();
    }
    let how = if report.device.piece_is_measured { "measured" } else { "estimated, not measured yet" };
    let mut table = figures(16, 8);
    let (piece, mean) = (format!("{:.1}", report.device.piece_blocks), format!("{:.1}", sizes.mean()));
    table.row(figure("cost of a piece", piece, format!("blocks ({how})")));
    table.row(figure("device reads", mean, format!("blocks on average in {} requests", sizes.count)));
    let mut so_far = 0;
    for (class, count) in sizes.classes.iter().enumerate().filter(|(_, count)| **count > 0) {
        so_far += count;
        let is_last = class + 1 == sizes.classes.len();
        let bound = if is_last { format!("> {}", 1 << (class - 1)) } else { format!("<= {}", 1_u64 << class) };
        let requests = if *count == 1 { "request" } else { "requests" };
        table.row(figure(&format!("  {bound}"), percent(so_far, sizes.count), format!("{count} {requests}")));
    }
    table.plain()
}

/// The cluster with the volume's objects: the holder, its lease, waits, and the pool. Empty if they lie elsewhere.
fn cluster(report: &Report) -> String {
    let Some(cluster) = &report.cluster else { return String::new() };
    let seconds = |millis: u64| format!("{:.1} s", millis as f64 / 1e3);
    let mut table = figures(16, 8);
    let how = if cluster.has_taken_over { "; the head before it had not closed the volume" } else { "" };
    table.row(figure("head", cluster.epoch, format!("{} at {}{how}", cluster.holder, cluster.address)));
    let renewals = format!(
        "since the lease of {} was renewed; {} renewals, {} failed",
        seconds(cluster.lease_millis),
        cluster.renewals,
        cluster.renewals_failed
    );
    table.row(figure("lease", seconds(cluster.renewed_millis), renewals));
    let longest =
        format!("requests waited for more than a second, the longest for {}", seconds(cluster.longest_wait_millis));
    table.row(figure("waits", cluster.waits, longest));
    for (name, pool) in [("pool", &cluster.pool), ("data pool", &cluster.data_pool)] {
        let Some(pool) = pool else { continue };
        let used = format!(
            "free; {} stored, {} with copies, {} objects",
            Size(pool.stored_bytes),
            Size(pool.used_bytes),
            pool.objects
        );
        table.row(figure(name, Size(pool.left_bytes), used));
    }
    table.plain()
}

fn counters(report: &Report) -> String {
    let mut table = figures(24, 16);
    let is_shown = |name: &str| SHOWN_BY_DEDUP.contains(&name);
    for (name, value) in report.counters.iter().filter(|(name, value)| **value > 0 && !is_shown(name)) {
        let readable = if name.contains("bytes") { Size(*value).to_string() } else { String::new() };
        table.row(figure(name, value, readable));
    }
    table.plain()
}

fn settings(report: &Report) -> String {
    let mut table = figures(24, 16);
    for (name, value) in &report.settings {
        table.row(figure(name, value, ""));
    }
    table.plain()
}

/// A share for people.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// A time for people.
pub fn microseconds(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use oncefs_engine::{
        CacheReport, ClusterReport, DeviceReport, Histogram, PoolReport, RankReport, Sizes, StageReport,
    };

    use super::*;

    fn report() -> Report {
        let names = [
            ("mapped_bytes", 300 << 20),
            ("used_bytes", 100 << 20),
            ("data_bytes", 1 << 30),
            ("available_bytes", 924 << 20),
            ("staged_bytes", 3 << 20),
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
            device: DeviceReport {
                piece_blocks: 6.1,
                piece_is_measured: true,
                read_sizes: Sizes { count: 40, blocks: 2_000, classes: vec![10, 0, 0, 0, 0, 0, 0, 0, 29, 1] },
            },
            counters: BTreeMap::from([("blocks_shared".to_owned(), 42), ("barriers".to_owned(), 0)]),
            ranks: BTreeMap::from([
                ("0 new".to_owned(), RankReport { files: 1_200, ranked: 0, waits_seconds: Some(129_600) }),
                ("3 cold".to_owned(), RankReport { files: 90_000, ranked: 17, waits_seconds: None }),
            ]),
            settings: BTreeMap::new(),
            cluster: None,
        }
    }

    #[test]
    fn a_volume_in_objects_tells_of_its_head_its_lease_and_its_pool() {
        let mut report = report();
        assert_eq!(cluster(&report), "");
        let pool = PoolReport { left_bytes: 7 << 30, stored_bytes: 1 << 30, used_bytes: 3 << 30, objects: 256 };
        report.cluster = Some(ClusterReport {
            holder: "one-1234:/srv/home (inode 7)".to_owned(),
            address: "10.0.0.1:0/77".to_owned(),
            epoch: 12,
            has_taken_over: true,
            lease_millis: 5000,
            renewed_millis: 640,
            renewals: 260,
            renewals_failed: 1,
            waits: 2,
            longest_wait_millis: 8800,
            pool: Some(pool),
            data_pool: Some(pool),
        });
        let text = cluster(&report);
        for line in [
            "head                    12  one-1234:/srv/home (inode 7) at 10.0.0.1:0/77; the head before it had not closed \
             the volume",
            "lease                0.6 s  since the lease of 5.0 s was renewed; 260 renewals, 1 failed",
            "waits                    2  requests waited for more than a second, the longest for 8.8 s",
            "pool              7.00 GiB  free; 1.00 GiB stored, 3.00 GiB with copies, 256 objects",
            "data pool         7.00 GiB  free; 1.00 GiB stored, 3.00 GiB with copies, 256 objects",
        ] {
            assert!(text.lines().any(|other| other == line), "no line '{line}' in\n{text}");
        }
    }

    #[test]
    fn dedup_is_told_in_lines_of_its_own_and_not_again_among_the_counters() {
        let mut report = report();
        report.counters = [
            ("blocks_written", 1000),
            ("blocks_not_admitted", 700),
            ("write_requests", 40),
            ("write_requests_not_admitted", 28),
            ("blocks_remapped", 256),
            ("blocks_read_shared", 9),
            ("hints_demoted", 50),
            ("hints_promoted", 4),
            ("hints_stale", 3),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let held = |bytes| CacheReport { bytes, bytes_max: 4 << 20, hits: 0, misses: 0 };
        report.caches = [("hints", 3 << 20), ("hints_on_disk", 30 << 20), ("skipped", 1 << 10)]
            .map(|(n, b)| (n.to_owned(), held(b)))
            .into();
        let text = dedup(&report);
        for line in [
            "in-line             30.0 %  of the written blocks were looked up; 28 of 40 requests skipped",
            "out-of-line            256  blocks shared after they were written",
            "read shared              9  blocks of one file served from another file's cached blocks",
            "hints in memory   3.00 MiB  of at most 4.00 MiB",
            "hints on disk     30.0 MiB  50 demoted, 4 promoted, 3 stale",
            "skipped buffer    1.00 KiB  of at most 4.00 MiB",
        ] {
            assert!(text.lines().any(|other| other == line), "no line '{line}' in\n{text}");
        }
        assert_eq!(counters(&report), "blocks_written                        1000\n");
    }

    #[test]
    fn a_report_without_figures_on_dedup_has_no_lines_on_it() {
        assert_eq!(dedup(&Report::default()), "");
    }

    #[test]
    fn ranks_show_their_files_and_who_is_next() {
        let text = ranks(&report());
        assert!(text.contains("0 new                 1200          0           1.5 days\n"), "{text}");
        assert!(text.contains("3 cold               90000         17                  -\n"), "{text}");
        assert_eq!(ranks(&Report::default()), "");
    }

    #[test]
    fn stages_show_mean_and_percentiles_and_leave_out_what_never_ran() {
        let text = stages(&report());
        assert!(text.contains("1.5 ms") && text.contains("<4 us") && text.contains("<16 us"), "{text}");
        assert!(!text.contains("commit"), "{text}");
    }

    #[test]
    fn the_device_is_told_with_the_share_of_requests_up_to_each_size() {
        let text = device(&report());
        for line in [
            "cost of a piece        6.1  blocks (measured)",
            "device reads          50.0  blocks on average in 40 requests",
            "  <= 1              25.0 %  10 requests",
            "  <= 256            97.5 %  29 requests",
            "  > 256            100.0 %  1 request",
        ] {
            assert!(text.lines().any(|other| other == line), "no line '{line}' in\n{text}");
        }
        assert_eq!(device(&Report::default()), "");
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
