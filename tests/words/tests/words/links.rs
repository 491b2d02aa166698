//! Links lead somewhere, every page is linked, and scripts that are named exist.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use oncefs_words::checkout::{pages, root, sources_below, text};
use oncefs_words::page::{links, quoted};

use super::assert_none;

/// Where a link leads from a page, by path from the root; None for the web and for places within the page.
fn target(page: &str, link: &str) -> Option<String> {
    if link.starts_with("http:") || link.starts_with("https:") || link.starts_with('#') {
        return None;
    }
    let path = link.split('#').next().unwrap();
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn targets(page: &str) -> BTreeSet<String> {
    links(&text(page)).into_iter().filter_map(|link| target(page, link)).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = pages();
    assert!(pages.len() > 50, "only {} pages are seen", pages.len());
    let broken = pages.iter().flat_map(|page| {
        let missing = targets(page).into_iter().filter(|target| !root().join(target).exists());
        missing.map(move |target| format!("{page} links to {target}"))
    });
    assert_none("links to what is not there", broken.collect());
}

/// The page that has to link to a page.
fn index_of(page: &str) -> String {
    match page.rsplit_once('/') {
        Some(("docs/results/older", "README.md")) => "docs/results/README.md".to_owned(),
        Some((dir @ ("docs/decisions" | "docs/results" | "docs/results/older"), name)) if name != "README.md" => {
            format!("{dir}/README.md")
        }
        _ => "README.md".to_owned(),
    }
}

#[test]
fn every_page_is_linked_by_the_index_above_it() {
    let linked = |page: &String| index_of(page) == *page || targets(&index_of(page)).contains(page);
    let lost = pages().into_iter().filter(|page| !linked(page));
    assert_none("pages that no index links to", lost.map(|page| format!("{}: {page}", index_of(&page))).collect());
}

/// The scripts that a text names, as `scripts/name`.
fn scripts_in(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    let names = text.split("scripts/").skip(1).map(|rest| rest.split(|c| !is_name(c)).next().unwrap());
    names.filter(|name| !name.is_empty()).map(|name| format!("scripts/{name}")).collect()
}

fn is_script(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The pages that say how things are now. Decisions, results and the changelog say how they were.
fn pages_of_today() -> impl Iterator<Item = String> {
    let is_past = |page: &str| ["docs/decisions/", "docs/results/", "CHANGELOG"].iter().any(|of| page.starts_with(of));
    pages().into_iter().filter(move |page| !is_past(page))
}

#[test]
fn every_script_that_a_page_names_can_be_run() {
    let named = pages_of_today().flat_map(|page| {
        let missing = scripts_in(&text(&page)).into_iter().filter(|script| !is_script(&root().join(script)));
        missing.map(move |script| format!("{page}: {script}")).collect::<Vec<_>>()
    });
    assert_none("scripts that are not there or cannot be run", named.collect());
}

/// Whether this is a path from the root of the checkout into one of our packages, not one from a package on.
fn is_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let is_below = ["crates/", "lab/", "tests/"].iter().any(|place| word.starts_with(place));
    is_below && word.matches('/').count() > 1 && word.chars().all(is_plain)
}

#[test]
fn every_source_that_a_page_names_is_there() {
    let named = pages_of_today().flat_map(|page| {
        let text = text(&page);
        let missing = quoted(&text).into_iter().filter(|word| is_path(word) && !root().join(word).exists());
        missing.map(|path| format!("{page}: {path}")).collect::<Vec<_>>()
    });
    assert_none("paths that lead nowhere", named.collect());
}

#[test]
fn links_and_scripts_are_read_as_they_are_meant() {
    assert_eq!(target("docs/a.md", "results/b.md#c").as_deref(), Some("docs/results/b.md"));
    assert_eq!(target("docs/results/a.md", "../../README.md").as_deref(), Some("README.md"));
    assert_eq!(target("README.md", "https://example.org/a.md"), None);
    assert_eq!(target("README.md", "#here"), None);
    let found = scripts_in("`scripts/kill-rounds --seed 1` and [it](../scripts/check), all in scripts/");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["scripts/check", "scripts/kill-rounds"]);
}

/// Sources that a line names: words in backticks that end as a source does.
fn sources_in(line: &str) -> impl Iterator<Item = &str> {
    let is_source = |word: &&str| word.ends_with(".rs") && !word.contains([' ', '*', '{', '<']);
    quoted(line).into_iter().map(|word| word.split_once(':').map_or(word, |(path, _)| path)).filter(is_source)
}

#[test]
fn sources_that_pages_and_comments_name_exist() {
    let mut sources: Vec<String> = ["crates", "lab", "tests"].into_iter().flat_map(sources_below).collect();
    sources.retain(|path| !path.contains("/target/"));
    assert!(sources.len() > 500, "only {} sources are seen", sources.len());
    let mut lost = Vec::new();
    for file in pages().into_iter().chain(sources.clone()) {
        let text = text(&file);
        let is_read = |line: &&str| !file.ends_with(".rs") || line.trim_start().starts_with("//");
        for name in text.lines().filter(is_read).flat_map(sources_in) {
            if !sources.iter().any(|path| path == name || path.ends_with(&format!("/{name}"))) {
                lost.push(format!("{file}: {name}"));
            }
        }
    }
    assert_none("sources that are named and are not there", lost);
}
