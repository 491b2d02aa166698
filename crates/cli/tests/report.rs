//! `oncefs report`: the page is well-formed, loads no resources, and has the figures of `stats` and the names of files
//! as text.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use oncefs_engine::HistoryPoint;
use serde_json::Value;

use crate::common::{Place, content, oncefs};

/// A name that is markup unless it is escaped.
const HOSTILE: &str = "<b>&\"x.txt";
const ESCAPED: &str = "&lt;b&gt;&amp;";

/// A volume with an idle worker, two copies of a tree, and a file with a hostile name.
fn place() -> Place {
    let place = Place::with_volume();
    place.mount(&["-o", "profile=lrlfs"]).succeeds();
    for tree in ["one", "two"] {
        fs::create_dir(place.file(tree)).unwrap();
        for (seed, name) in ["data.BIN", "more.bin", HOSTILE].into_iter().enumerate() {
            fs::write(place.file(tree).join(name), content(seed as u64, 256 << 10)).unwrap();
        }
        // Equal blocks that arrive together may not find each other.
        oncefs(&["sync", place.mnt_str()]).succeeds();
    }
    fs::write(place.file("alone.iso"), content(9, 64 << 10)).unwrap();
    fs::hard_link(place.file("alone.iso"), place.file("one/again.iso")).unwrap();
    oncefs(&["sync", place.mnt_str()]).succeeds();
    place
}

/// Faults in the nesting of elements, unquoted attributes and stray ampersands.
fn objection(page: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let Some(mut rest) = page.strip_prefix("<!DOCTYPE html>") else { return Some("no type".to_owned()) };
    while let Some((text, tail)) = rest.split_once('<') {
        if let Some(bad) = stray(text) {
            return Some(bad);
        }
        let Some((tag, after)) = tail.split_once('>') else { return Some(format!("<{tail} has no end")) };
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            if last != Some(name) {
                return Some(format!("{last:?} is open where {name} ends"));
            }
        } else if tag.matches('"').count() % 2 == 1 || stray(tag).is_some() {
            return Some(format!("<{tag}>"));
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap_or_default());
        }
    }
    (!open.is_empty()).then(|| format!("{open:?} have no end"))
}

fn stray(text: &str) -> Option<String> {
    let is_whole = |after: &str| ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|entity| after.starts_with(entity));
    text.split('&').skip(1).find(|after| !is_whole(after)).map(|after| format!("a stray & before {after}"))
}

fn data(bytes: &Value) -> String {
    format!("<data value=\"{bytes}\">")
}

#[test]
fn a_page_with_faults_is_noticed() {
    assert_eq!(objection("<!DOCTYPE html><p class=\"a\">x &amp; y<br/></p>"), None);
    for page in ["<p></p>", "<!DOCTYPE html><p>", "<!DOCTYPE html><p><b></p></b>", "<!DOCTYPE html>a & b<p/>"] {
        assert!(objection(page).is_some(), "{page}");
    }
}

#[test]
fn the_report_is_a_well_formed_page_with_the_figures_of_stats_and_names_as_text() {
    let place = place();
    let file = place.path("report.html");
    fs::write(&file, "old").unwrap();
    let stats: Value = serde_json::from_str(&oncefs(&["stats", "--json", place.mnt_str()]).succeeds().out).unwrap();
    let run = oncefs(&["report", place.mnt_str(), "-o", file.to_str().unwrap()]).succeeds();
    assert!(run.out.is_empty() && run.err.is_empty(), "{run:?}");
    let page = fs::read_to_string(&file).unwrap();
    assert_eq!(objection(&page), None);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for name in ["held_bytes", "stored_bytes", "saved_bytes"] {
        let figure = data(&stats["space"][name]);
        assert!(page.contains(&figure), "no {name} as {figure} in\n{page}");
    }
    assert_eq!(stats["space"]["held_bytes"], (2 * 3 * 256 + 64) << 10);
    for absent in ["<script", "<b>", "<link", "<img", "src=", "url(", "https:"] {
        assert!(!page.contains(absent), "{absent} is in\n{page}");
    }
    assert!(page.contains(ESCAPED) && page.contains("<html lang=\"en\">"), "{page}");
    let volume = place.volume_str();
    assert!(page.contains(volume) && page.contains(place.mnt_str()) && page.contains(env!("CARGO_PKG_VERSION")));
}

/// The row of a table that begins with this name, without its markup.
fn row(page: &str, name: &str) -> Vec<String> {
    let name = format!("<bdi>{name}</bdi></th>");
    let row = page.split("<tr>").find(|row| row.contains(&name)).unwrap_or_else(|| panic!("no {name} in\n{page}"));
    let cells = row.split("</t").filter_map(|cell| Some(cell.split_once("<t")?.1));
    cells.map(|cell| cell.split('<').filter_map(|part| Some(part.split_once('>')?.1)).collect()).collect()
}

#[test]
fn groups_and_partners_are_told_with_what_they_hold_and_share() {
    let place = place();
    let page = oncefs(&["report", place.volume_str(), "-o", "-"]).succeeds().out;
    assert_eq!(objection(&page), None);
    let shared = ["768 KiB", "768 KiB", "100.0 %"];
    // A file with two names counts at the first one found: top-level names come before those below.
    for (name, files) in [("one", "3"), ("two", "3")] {
        assert_eq!(row(&page, name)[1..5], [&[files], &shared[..]].concat(), "{name}");
    }
    assert_eq!(row(&page, "bin")[1..4], ["4", "1.00 MiB", "1.00 MiB"]);
    assert_eq!(row(&page, "iso")[1..5], ["1", "64.0 KiB", "0 B", "0.0 %"]);
    let partners = row(&page, "/one/data.BIN");
    assert!(partners[4].contains("/two/data.BIN: 256 KiB"), "{partners:?}");
    assert!(page.contains("files at the top"), "{page}");
}

#[test]
fn the_report_draws_the_history_and_says_when_the_volume_is_full() {
    let place = place();
    let (mnt, file) = (place.mnt_str(), place.path("volume/history"));
    let short = oncefs(&["report", mnt, "-o", "-"]).succeeds().out;
    assert_eq!(objection(&short), None);
    assert!(short.contains("Too short to say"), "{short}");
    place.umount().succeeds();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // A slope of 4 MiB a day. At the end about 1.6 of 256 MiB are stored.
    let point = |ago: u64| HistoryPoint {
        seconds: now - ago * 86_400,
        held: (400 - 4 * ago) << 20,
        stored: (200 - 4 * ago) << 20,
        free: 64 << 20,
        ..HistoryPoint::default()
    };
    let points: Vec<u8> = (1..=40).rev().map(point).flat_map(|point| point.encode()).collect();
    fs::write(&file, points).unwrap();
    place.mount(&["-o", "profile=lrlfs"]).succeeds();
    let page = oncefs(&["report", mnt, "-o", "-"]).succeeds().out;
    assert_eq!(objection(&page), None);
    for part in
        ["Savings over time", "What is stored grows by 4.00 MiB a day", "line forecast", "This rests on 40 days"]
    {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let history: Value = serde_json::from_str(&oncefs(&["stats", mnt, "--history", "--json"]).succeeds().out).unwrap();
    // These points and the present one. The daemon also adds that of the mount.
    assert!(history["points"].as_array().unwrap().len() >= 41, "{history}");
    assert_eq!(history["trend"]["bytes_per_day"], 4.0 * f64::from(1 << 20));
    assert!(history["full_in_days"].as_f64().is_some_and(|days| days > 1.0), "{history}");
    assert!(oncefs(&["stats", mnt, "--history"]).succeeds().out.contains("full in"));
}

#[test]
fn what_cannot_be_reported_or_written_is_said() {
    let place = Place::mounted();
    let mnt = place.mnt_str();
    oncefs(&["report", mnt]).fails(2, &["--output"]);
    oncefs(&["report", mnt, "-o", "/nowhere/report.html"]).fails(1, &["cannot write /nowhere/report.html"]);
    oncefs(&["report", mnt, "-o", mnt]).fails(1, &["cannot write", "is a directory"]);
    oncefs(&["report", mnt, "-o", "/dev/full"]).fails(1, &["cannot write /dev/full", "not a regular file"]);
    oncefs(&["report", "/", "-o", "-"]).fails(1, &["is not in a mounted oncefs volume"]);
    let empty = oncefs(&["report", mnt, "-o", "-"]).succeeds().out;
    assert_eq!(objection(&empty), None);
    assert!(empty.contains("No file shares blocks.") && empty.contains("No file holds data."), "{empty}");
    let file = place.str("report.html");
    fs::write(&file, "old").unwrap();
    place.kill_daemon();
    oncefs(&["report", mnt, "-o", &file]).fails(1, &["has died"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}
