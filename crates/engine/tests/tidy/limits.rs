//! How large parts may become, and how much is asserted.

use super::circles::sources_of;
use super::docs::text;
use super::structure::counts::{assertions_of_1000_lines, fields, files_at_the_top, words};

/// Files at the top of the engine. What else there is has a room.
const FILES_AT_THE_TOP_MAX: usize = 12;

/// Fields of an open volume: its parts.
const CORE_FIELDS_MAX: usize = 20;

/// Assertions that 1,000 lines of a crate have at least, tests left out.
const ASSERTIONS_MIN: [(&str, f64); 3] = [("dedup", 11.0), ("engine", 10.0), ("fs", 10.0)];

/// Lines of the first page that anybody reads.
const README_LINES_MAX: usize = 110;

/// Words of the life of a block.
const LIFE_WORDS_MAX: usize = 3_000;

#[test]
fn the_top_of_the_engine_can_be_seen_at_once() {
    let files = files_at_the_top(&sources_of("engine"));
    assert!(files <= FILES_AT_THE_TOP_MAX, "{files} files at the top of crates/engine/src");
}

#[test]
fn an_open_volume_is_a_short_list_of_parts() {
    let fields = fields(&sources_of("engine").files["core.rs"].code, "Core").unwrap();
    assert!((1..=CORE_FIELDS_MAX).contains(&fields), "Core has {fields} fields");
}

#[test]
fn enough_is_asserted() {
    for (name, least) in ASSERTIONS_MIN {
        let found = assertions_of_1000_lines(&sources_of(name));
        assert!(found >= least, "{name} has {found:.2} assertions in 1,000 lines, less than {least}");
    }
}

#[test]
fn the_pages_that_are_read_first_stay_short() {
    let lines = text("README.md").lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines");
    let words = words(&text("docs/life-of-a-block.md"));
    assert!(words <= LIFE_WORDS_MAX, "docs/life-of-a-block.md has {words} words");
}
