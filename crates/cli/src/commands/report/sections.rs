//! The sections of the report: each has a heading, a text, and tables or pictures.

use std::ffi::OsString;

use super::facts::Facts;
use super::groups::{Groups, Sum};
use super::history;
use super::markup::{Head, Markup, note, size, table};
use super::partners::Sharing;
use super::pictures::{Part, bar, chart, key};
use crate::commands::stats::{self, microseconds, percent};
use crate::figures::of_mount::Snapshot;
use crate::names::shown;
use crate::size::Size;

/// A section with its id, heading and content.
pub struct Section {
    /// The target of links.
    pub id: &'static str,
    /// Its heading.
    pub heading: &'static str,
    /// All else.
    pub inside: Markup,
}

/// All sections in order.
pub fn all(facts: &Facts) -> Vec<Section> {
    let section = |id, heading, inside| Section { id, heading, inside };
    let collected = &facts.collected;
    vec![
        section("summary", "Summary", summary(facts.snapshot)),
        section("savings", "Savings", savings(facts.snapshot)),
        section("history", "Over time", history::inside(&facts.timeline)),
        section(
            "directories",
            "By directory",
            groups("What the directories at the top hold", "directory", "files at the top", &collected.by_directory),
        ),
        section(
            "types",
            "By type of file",
            groups("What the types of files hold", "type", "no type", &collected.by_type),
        ),
        section("sharing", "Who shares with whom", sharing(&facts.sharing)),
        section("runs", "Run lengths", runs(facts)),
        section("reads", "Reads from the device", reads(facts)),
        section("latency", "Latency by stage", latency(facts.snapshot)),
    ]
}

fn summary(snapshot: &Snapshot) -> Markup {
    let row = |(name, figure, meaning): (&str, String, String)| {
        // A whole sentence needs no separate figure.
        let (figure, meaning) = if meaning.is_empty() { (String::new(), figure) } else { (figure, meaning) };
        [name.to_owned(), figure, meaning].iter().map(Markup::text).collect()
    };
    let heads = [("answer", false), ("figure", true), ("meaning", false)];
    table("The answers of oncefs stats", &heads, stats::summary::ten_lines(snapshot).into_iter().map(row))
}

fn savings(snapshot: &Snapshot) -> Markup {
    let (held, stored, saved) = (snapshot.held_bytes(), snapshot.stored_bytes(), snapshot.saved_bytes());
    let free = snapshot.space("available_bytes");
    let whole = (stored + saved).max(stored + free);
    let parts = [("stored", "stored", stored), ("saved", "saved", saved), ("free", "free", free)];
    let bar_of = |name: &str, shown: [usize; 2]| {
        let words = shown.map(|at| format!("{} {}", Size(parts[at].2), parts[at].1)).join(", ");
        let pieces: Vec<Part> = shown.iter().map(|at| (parts[*at].0, parts[*at].2)).collect();
        let title = format!("{name}: {words}");
        let caption = Markup::words("figcaption", &title);
        Markup::element("figure", &[], caption + bar("bar savings", Some(&title), &pieces, whole))
    };
    let item = |(class, name, bytes): (&'static str, &str, u64)| {
        Markup::element("li", &[], key(class) + Markup::text(format!(" {name} ")) + size(bytes))
    };
    let keys = Markup::element("ul", &[("class", "keys")], Markup::lines(parts.map(item)));
    let held = Markup::element("p", &[], Markup::text("All files hold ") + size(held) + Markup::text("."));
    Markup::lines([held, bar_of("The files", [0, 1]), bar_of("The data area", [0, 2]), keys])
}

/// A table of groups, the largest first, with the rest in one row.
fn groups(caption: &str, kind: &'static str, without: &str, groups: &Groups) -> Markup {
    let heads: [Head; 6] = [
        (kind, false),
        ("files", true),
        ("held", true),
        ("shared", true),
        ("of held", true),
        ("held and shared", false),
    ];
    let largest = groups.largest();
    let most = largest.groups.iter().map(|(_, sum)| sum.held).max().unwrap_or(0).max(largest.rest.held);
    let name = |name: &Option<OsString>| match name {
        Some(name) => Markup::words("bdi", shown(name)),
        None => Markup::words("em", without),
    };
    let mut rows: Vec<Vec<Markup>> =
        largest.groups.iter().map(|(group, sum)| group_row(name(group), sum, most)).collect();
    if largest.rest.files > 0 {
        rows.push(group_row(Markup::words("em", "all others"), &largest.rest, most));
    }
    let note = note("Shared are blocks that other places refer to as well, in the same group or in another one.");
    let item = |class, words: &str| Markup::element("li", &[], key(class) + Markup::text(format!(" {words}")));
    let keys = Markup::lines([item("stored", "one place has it"), item("saved", "shared")]);
    let keys = Markup::element("ul", &[("class", "keys")], keys);
    Markup::lines([note, keys, table(caption, &heads, rows)])
}

fn group_row(name: Markup, sum: &Sum, most: u64) -> Vec<Markup> {
    let parts = [("stored", sum.held.saturating_sub(sum.shared)), ("saved", sum.shared)];
    let figures = [Markup::text(sum.files), size(sum.held), size(sum.shared)];
    let last = [Markup::text(percent(sum.shared, sum.held)), bar("bar", None, &parts, most)];
    [name].into_iter().chain(figures).chain(last).collect()
}

fn sharing(files: &[Sharing]) -> Markup {
    if files.is_empty() {
        return Markup::words("p", "No file shares blocks.");
    }
    let heads: [Head; 5] =
        [("file", false), ("held", true), ("shared", true), ("of held", true), ("shares with", false)];
    let row = |file: &Sharing| {
        let share = Markup::text(percent(file.shared, file.held));
        vec![Markup::words("bdi", &file.name), size(file.held), size(file.shared), share, partners(file)]
    };
    let note = note("Whom a file shares with is looked up for its eight longest shared runs, and four are named.");
    Markup::lines([note, table("The files that share most", &heads, files.iter().map(row))])
}

fn partners(file: &Sharing) -> Markup {
    let item = |(name, bytes): &(String, u64)| {
        Markup::element("li", &[], Markup::words("bdi", name) + Markup::text(": ") + size(*bytes))
    };
    let more = file.has_more.then(|| Markup::words("li", "and others"));
    let items: Vec<Markup> = file.partners.iter().map(item).chain(more).collect();
    // The partners may have been deleted meanwhile.
    if items.is_empty() { Markup::text("-") } else { Markup::element("ul", &[("class", "keys")], Markup::lines(items)) }
}

fn runs(facts: &Facts) -> Markup {
    let heads: [Head; 6] = [
        ("blocks of a run", true),
        ("runs", true),
        ("of the runs", true),
        ("data", true),
        ("of the data", true),
        ("of it shared", true),
    ];
    let rows = facts.fragmentation.class_rows();
    if rows.is_empty() {
        return Markup::words("p", "No file holds data.");
    }
    let rows = rows.iter().map(|row| row.iter().map(Markup::text).collect());
    let note = note("A run follows itself both in the file and in the data area: one request to the device reads it.");
    Markup::lines([note, chart(&facts.fragmentation.picture()), table("Runs of all files by length", &heads, rows)])
}

fn reads(facts: &Facts) -> Markup {
    let sizes = &facts.snapshot.report.device.read_sizes;
    if sizes.count == 0 {
        return Markup::words("p", "No read of a file reached the device since the mount.");
    }
    let rows = stats::fragmentation::read_rows(sizes);
    let rows = rows.iter().map(|row| row.iter().map(Markup::text).collect());
    let heads: [Head; 3] = [("blocks of a read", true), ("reads", true), ("of the reads", true)];
    let chart = chart(&stats::fragmentation::reads_picture(sizes));
    Markup::lines([chart, table("Reads since the mount, by size", &heads, rows)])
}

fn latency(snapshot: &Snapshot) -> Markup {
    let heads: [Head; 6] = [
        ("stage", false),
        ("blocks", true),
        ("batches", true),
        ("mean", true),
        ("50 % below", true),
        ("99 % below", true),
    ];
    let rows = snapshot.report.stages.iter().map(|(name, stage)| {
        let times = &stage.latency;
        let below = |share| Markup::text(microseconds(times.percentile_us_max(share) as f64));
        let figures = [Markup::text(stage.blocks), Markup::text(times.count)];
        let times = [Markup::text(microseconds(times.mean_us())), below(0.5), below(0.99)];
        [Markup::text(name)].into_iter().chain(figures).chain(times).collect()
    });
    table("Time of a batch of blocks, since the mount", &heads, rows)
}
