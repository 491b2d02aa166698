//! All figures as metrics for Prometheus, in its text format. Names and units follow its conventions: seconds and
//! ratios instead of microseconds and percent, the unit last, `_total` for counters.

use std::fmt::Write;

use oncefs_engine::{Histogram, Sizes};

use super::figure::{Figure, Kind, Unit, Value};
use super::health::{Cause, Finding, Limits, findings};
use super::of_mount::Snapshot;
use super::table::FIGURES;
use crate::names::shown;

/// A volume with metrics.
pub struct Subject<'a> {
    /// The labels that all its samples have.
    labels: Vec<(&'static str, String)>,
    /// Its figures. None: its daemon is gone.
    snapshot: Option<&'a Snapshot>,
    findings: Vec<Finding>,
}

impl<'a> Subject<'a> {
    /// A mount that serves.
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let labels =
            vec![("volume", shown(&snapshot.volume).to_string()), ("mount", shown(snapshot.place()).to_string())];
        Self { labels, snapshot: Some(snapshot), findings: findings(snapshot, &Limits::default()) }
    }

    /// A volume without a daemon.
    pub fn without_daemon(volume: String, mount: String, findings: Vec<Finding>) -> Self {
        Self { labels: vec![("volume", volume), ("mount", mount)], snapshot: None, findings }
    }
}

/// A metric: its name, its description and its samples.
struct Family {
    name: String,
    help: String,
    kind: &'static str,
    /// The labels of its own.
    own_labels: Vec<&'static str>,
    samples: fn(&Self, &Subject) -> Vec<Sample>,
    figure: Option<&'static Figure>,
}

/// A line: the suffix of the name, the labels beyond those of the volume, the number.
struct Sample {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Sample {
    fn plain(value: f64) -> Self {
        Self { suffix: "", labels: Vec::new(), value }
    }
}

/// The text of all metrics about these volumes.
pub fn text(subjects: &[Subject]) -> String {
    let mut text = String::new();
    for family in families() {
        let of = |subject| (family.samples)(&family, subject).into_iter().map(move |sample| (subject, sample));
        let samples: Vec<(&Subject, Sample)> = subjects.iter().flat_map(of).collect();
        if samples.is_empty() {
            continue;
        }
        let (name, help, kind) = (&family.name, escaped(&family.help, false), family.kind);
        line(&mut text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
        for (subject, sample) in samples {
            let all = subject.labels.iter().chain(&sample.labels);
            let labels: Vec<String> = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true))).collect();
            line(&mut text, format_args!("{name}{}{{{}}} {}", sample.suffix, labels.join(","), sample.value));
        }
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

fn escaped(text: &str, is_quoted: bool) -> String {
    let text = text.replace('\\', r"\\").replace('\n', r"\n");
    if is_quoted { text.replace('"', "\\\"") } else { text }
}

/// Rows of Markdown with name, kind, labels and meaning: the table of `docs/metrics.md`.
pub fn rows() -> Vec<String> {
    let row = |family: Family| {
        let labels = family.own_labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        format!("| `{}` | {} | {labels} | {} |", family.name, family.kind, family.help)
    };
    families().map(row).collect()
}

/// The name of a figure's metric, if it has one.
pub fn name_of(figure: &Figure) -> Option<String> {
    let group = match figure.group {
        "space" | "counters" => "",
        "stages" => "stage_",
        "caches" => "cache_",
        "ranks" => "rank_",
        "host" => "host_",
        "cluster" => "cluster_",
        "worker" => "worker_",
        "scrub" => "scrub_",
        "device" => "device_",
        "settings" => return Some("oncefs_setting".to_owned()),
        _ => "",
    };
    let name = figure.name;
    let own = match figure.unit {
        Unit::Words | Unit::Any => return None,
        Unit::Bytes => unit_last(name, "bytes", "bytes"),
        Unit::Seconds => unit_last(name, "seconds", "seconds"),
        Unit::Percent => unit_last(name, "percent", "ratio"),
        Unit::Times => "duration_seconds".to_owned(),
        Unit::Lengths => "request_blocks".to_owned(),
        Unit::Truth => name.trim_start_matches("is_").replace("_is_", "_"),
        Unit::Blocks | Unit::Things => name.to_owned(),
    };
    let total = if figure.kind == Kind::Counter { "_total" } else { "" };
    Some(format!("oncefs_{group}{own}{total}"))
}

/// A name that ends with its unit, as Prometheus calls it.
fn unit_last(name: &str, unit: &str, called: &str) -> String {
    let words = name.split('_').filter(|word| *word != unit);
    words.chain([called]).collect::<Vec<_>>().join("_")
}

fn families() -> impl Iterator<Item = Family> {
    let is_setting = |figure: &&Figure| figure.group == "settings";
    let figures = FIGURES.iter().filter(move |figure| !is_setting(figure)).filter_map(of_figure);
    heads().into_iter().chain(figures).chain([settings()])
}

fn of_figure(figure: &'static Figure) -> Option<Family> {
    let kind = match figure.kind {
        Kind::Counter => "counter",
        Kind::Histogram => "histogram",
        Kind::Gauge | Kind::Fact => "gauge",
    };
    let samples = |family: &Family, subject: &Subject| {
        let (Some(figure), Some(snapshot)) = (family.figure, subject.snapshot) else { return Vec::new() };
        let label = |of: String| figure.label().map(|label| vec![(label, of)]).unwrap_or_default();
        let values = figure.values(snapshot).into_iter();
        values.flat_map(|(of, value)| of_value(figure.unit, &value, &label(of))).collect()
    };
    let (name, help) = (name_of(figure)?, figure.meaning.to_owned());
    Some(Family { name, help, kind, own_labels: figure.label().into_iter().collect(), samples, figure: Some(figure) })
}

/// The metrics before the figures: whether a mount serves, its identity, and its findings.
fn heads() -> [Family; 5] {
    let gauge = |name: &str, help: &str, own_labels, samples| Family {
        name: name.to_owned(),
        help: help.to_owned(),
        kind: "gauge",
        own_labels,
        samples,
        figure: None,
    };
    [
        gauge("oncefs_mount_up", "Whether the daemon of the mount answers.", vec![], |_, subject| {
            vec![Sample::plain(truth_value(subject.snapshot.is_some()))]
        }),
        gauge(
            "oncefs_info",
            "1, with the version of the daemon's program and the profile.",
            vec!["version", "profile"],
            |_, subject| {
                let of = |snapshot: &Snapshot| Sample {
                    suffix: "",
                    labels: vec![
                        ("version", snapshot.program.clone()),
                        ("profile", snapshot.report.settings.get("profile").cloned().unwrap_or_default()),
                    ],
                    value: 1.0,
                };
                subject.snapshot.map(of).into_iter().collect()
            },
        ),
        gauge("oncefs_read_only", "Whether the volume was mounted read-only.", vec![], |_, subject| {
            subject.snapshot.map(|snapshot| Sample::plain(truth_value(snapshot.read_only))).into_iter().collect()
        }),
        gauge("oncefs_failed", "Whether an error made the volume read-only.", vec![], |_, subject| {
            let has_failed = |snapshot: &Snapshot| Sample::plain(truth_value(snapshot.read_only_because.is_some()));
            subject.snapshot.map(has_failed).into_iter().collect()
        }),
        gauge(
            "oncefs_attention",
            "Whether the volume needs attention, by cause, as oncefs status says it.",
            vec!["cause"],
            |_, subject| {
                let is_found = |cause| subject.findings.iter().any(|finding| finding.cause == cause);
                let sample = |cause: Cause| Sample {
                    suffix: "",
                    labels: vec![("cause", cause.name().to_owned())],
                    value: truth_value(is_found(cause)),
                };
                Cause::ALL.map(sample).into()
            },
        ),
    ]
}

/// Settings that are numbers, or true or false.
fn settings() -> Family {
    Family {
        name: "oncefs_setting".to_owned(),
        help:
            "A setting that is a number, or 1 for true and 0 for false; oncefs stats --explain settings says what each \
               does."
                .to_owned(),
        kind: "gauge",
        own_labels: vec!["name"],
        samples: |_, subject| {
            let settings = FIGURES.iter().filter(|figure| figure.group == "settings");
            let of = |figure: &'static Figure| {
                let values = subject.snapshot.map(|snapshot| figure.values(snapshot)).unwrap_or_default();
                let label = vec![("name", figure.name.to_owned())];
                values.into_iter().flat_map(|(_, value)| of_value(figure.unit, &value, &label)).collect::<Vec<_>>()
            };
            settings.flat_map(of).collect()
        },
        figure: None,
    }
}

fn truth_value(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// The samples of one value. Words have none.
fn of_value(unit: Unit, value: &Value, labels: &[(&'static str, String)]) -> Vec<Sample> {
    let scale = if unit == Unit::Percent { 0.01 } else { 1.0 };
    let number = match value {
        Value::Whole(number) => *number as f64,
        Value::Signed(number) => *number as f64,
        Value::Real(number) => *number,
        Value::Truth(is_so) => truth_value(*is_so),
        Value::Words(_) => return Vec::new(),
        Value::Times(histogram) => return of_times(histogram, labels),
        Value::Lengths(sizes) => return of_lengths(sizes, labels),
    };
    vec![Sample { suffix: "", labels: labels.to_vec(), value: number * scale }]
}

fn of_times(histogram: &Histogram, labels: &[(&'static str, String)]) -> Vec<Sample> {
    let bound = |class: usize| (1_u64 << class) as f64 / 1e6;
    buckets(&histogram.classes, bound, histogram.nanoseconds as f64 / 1e9, labels)
}

fn of_lengths(sizes: &Sizes, labels: &[(&'static str, String)]) -> Vec<Sample> {
    buckets(&sizes.classes, |class| (1_u64 << class) as f64, sizes.blocks as f64, labels)
}

/// Buckets of Prometheus are cumulative. The last class has no bound.
fn buckets(classes: &[u64], bound: impl Fn(usize) -> f64, sum: f64, labels: &[(&'static str, String)]) -> Vec<Sample> {
    let mut so_far = 0;
    let with = |more: Option<(&'static str, String)>| labels.iter().cloned().chain(more).collect();
    let mut samples: Vec<Sample> = Vec::new();
    for (class, count) in classes.iter().enumerate() {
        so_far += count;
        let is_last = class + 1 == classes.len();
        let le = if is_last { "+Inf".to_owned() } else { bound(class).to_string() };
        samples.push(Sample { suffix: "_bucket", labels: with(Some(("le", le))), value: so_far as f64 });
    }
    samples.push(Sample { suffix: "_sum", labels: with(None), value: sum });
    samples.push(Sample { suffix: "_count", labels: with(None), value: so_far as f64 });
    samples
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oncefs_engine::StageReport;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/metrics.md");

    fn snapshot() -> Snapshot {
        let mut snapshot =
            Snapshot { volume: "/srv/a \"b\"\\".into(), mount: Some("/mnt".into()), ..Snapshot::default() };
        snapshot.report.space.insert("used_bytes".to_owned(), 4096);
        snapshot.report.counters.insert("data_bytes_written".to_owned(), 7);
        snapshot.report.settings.insert("inline".to_owned(), "adaptive".to_owned());
        snapshot.report.settings.insert("battery_percent_min".to_owned(), "20".to_owned());
        snapshot.worker.inline_percent = 50.0;
        let latency = Histogram { count: 3, nanoseconds: 3_000, classes: vec![1, 0, 1, 1] };
        snapshot.report.stages.insert("tag".to_owned(), StageReport { blocks: 2, latency });
        snapshot
    }

    #[test]
    fn names_follow_the_conventions_and_are_told_apart() {
        let mut names = BTreeSet::new();
        for family in families() {
            assert!(names.insert(family.name.clone()), "{} is there twice", family.name);
            assert_eq!(family.name.ends_with("_total"), family.kind == "counter", "{}", family.name);
            assert!(family.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", family.name);
        }
        for name in ["oncefs_stored_bytes", "oncefs_data_written_bytes_total", "oncefs_worker_inline_max_ratio"] {
            assert!(names.contains(name), "no {name}");
        }
    }

    #[test]
    fn samples_have_base_units_and_labels_that_no_name_breaks() {
        let (snapshot, mut wanted) = (snapshot(), Vec::new());
        let text = text(&[Subject::of(&snapshot)]);
        let of = |rest: &str| format!(r#"{{volume="\"/srv/a \\\"b\\\"\\\\\"",mount="/mnt"{rest}"#);
        wanted.push(format!("oncefs_stored_bytes{}}} 4096", of("")));
        wanted.push(format!("oncefs_data_written_bytes_total{}}} 7", of("")));
        wanted.push(format!("oncefs_worker_inline_ratio{}}} 0.5", of("")));
        wanted.push(format!("oncefs_setting{}}} 20", of(r#",name="battery_percent_min""#)));
        wanted.push(format!("oncefs_stage_duration_seconds_bucket{}}} 2", of(r#",stage="tag",le="0.000004""#)));
        wanted.push(format!("oncefs_stage_duration_seconds_bucket{}}} 3", of(r#",stage="tag",le="+Inf""#)));
        wanted.push(format!("oncefs_stage_duration_seconds_sum{}}} 0.000003", of(r#",stage="tag""#)));
        for line in wanted {
            assert!(text.lines().any(|other| other == line), "no line {line} in\n{text}");
        }
        assert!(!text.contains("adaptive"), "{text}");
    }

    #[test]
    fn a_volume_without_its_daemon_is_down_and_nothing_more_is_told_of_it() {
        let found = vec![Finding::new(Cause::Dead, "it died".to_owned())];
        let text = text(&[Subject::without_daemon("/v".to_owned(), "/mnt".to_owned(), found)]);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), 1 + Cause::ALL.len(), "{text}");
        assert_eq!(samples[0], r#"oncefs_mount_up{volume="/v",mount="/mnt"} 0"#);
        assert!(text.contains(r#"cause="dead"} 1"#), "{text}");
    }

    #[test]
    fn alerts_and_dashboard_name_only_metrics_that_are_there() {
        let known: BTreeSet<String> = families().map(|family| family.name).collect();
        for file in [
            include_str!("../../../../contrib/prometheus/oncefs-rules.yml"),
            include_str!("../../../../contrib/prometheus/oncefs-rules-test.yml"),
            include_str!("../../../../contrib/grafana/oncefs.json"),
        ] {
            let words = file.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let named: BTreeSet<&str> = words.filter(|word| word.starts_with("oncefs_")).collect();
            assert!(named.len() > 5, "{named:?}");
            for name in named {
                assert!(known.contains(name.trim_end_matches("_bucket")), "there is no metric {name}");
            }
        }
    }

    #[test]
    fn the_page_has_a_row_for_every_metric() {
        for row in rows() {
            assert!(
                PAGE.lines().any(|line| line == row),
                "docs/metrics.md lacks the row (oncefs metrics --list):\n{row}"
            );
        }
        let told = PAGE.lines().filter(|line| line.starts_with("| `oncefs_")).count();
        assert_eq!(told, rows().len(), "docs/metrics.md tells of metrics that are not there");
    }
}
