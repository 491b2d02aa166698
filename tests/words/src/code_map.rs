//! The code map: all sources of the crates, each with the first sentence of its module doc.

use std::fmt::Write;

use crate::checkout::{sources_below, text};
use crate::manifest::value_of;
use crate::packages::{Package, packages};

/// The page that is made.
pub const PAGE: &str = "docs/code-map.md";

const HEAD: &str = "# Code map

All sources, each with the first sentence of the comment it begins with. Written by `scripts/code-map`; a test holds it to \
the sources. What belongs together, and why, stands in [architecture](architecture.md). Modules of tests are left out: they \
are in the module that they test, or beside it.
";

/// The text of the page, as the sources are now.
pub fn code_map() -> String {
    let crates = packages().into_iter().filter(|package| !package.dir.starts_with("tests/"));
    crates.fold(HEAD.to_owned(), |map, package| map + &of_package(&package))
}

fn of_package(package: &Package) -> String {
    let (_, name) = package.dir.rsplit_once('/').expect("a package is in a folder");
    let about = value_of(&format!("{}/Cargo.toml", package.dir), "description");
    let mut map = format!("\n## {name}\n\n{about}.\n\n");
    let src = format!("{}/src/", package.dir);
    let paths = sources_below(src.trim_end_matches('/')).into_iter().map(|path| path[src.len()..].to_owned());
    let mut paths: Vec<String> = paths.filter(|path| !is_test(path)).collect();
    paths.sort_by(|a, b| place(a).cmp(&place(b)));
    for path in paths {
        let sentence = first_sentence(&text(&format!("{src}{path}")));
        let indent = "  ".repeat(place(&path).len() - 1);
        writeln!(map, "{indent}- `{}`: {sentence}", path.strip_suffix("mod.rs").unwrap_or(&path))
            .expect("a string takes everything");
    }
    map
}

fn is_test(path: &str) -> bool {
    path.split(['/', '.']).any(|part| part == "tests")
}

/// Where a source comes: roots first, then by name, a folder's door before what is in it.
fn place(path: &str) -> Vec<(bool, &str)> {
    let path = path.strip_suffix("/mod.rs").unwrap_or_else(|| path.trim_end_matches(".rs"));
    path.split('/').map(|part| (!matches!(part, "lib" | "main"), part)).collect()
}

/// The first sentence of a source's module doc, without the marks of links between items.
fn first_sentence(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//! "));
    let paragraph = lines.collect::<Vec<_>>().join(" ");
    let is_end = |at: usize| {
        let rest = &paragraph[at..];
        rest.starts_with(". ") && rest[2..].starts_with(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit())
    };
    let end = (0..paragraph.len()).find(|at| is_end(*at)).map_or(paragraph.len(), |at| at + 1);
    paragraph[..end].replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_comes_before_what_is_behind_it() {
        let mut paths =
            ["write/steps.rs", "a.rs", "write/mod.rs", "store/ranges.rs", "store.rs", "lib.rs", "store/a/b.rs"];
        paths.sort_by(|a, b| place(a).cmp(&place(b)));
        let expected =
            ["lib.rs", "a.rs", "store.rs", "store/a/b.rs", "store/ranges.rs", "write/mod.rs", "write/steps.rs"];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_sentence_ends_before_the_next_one() {
        assert_eq!(
            first_sentence("//! Reads `a.rs`,\n//! by [`B`]. All of it.\n//!\n//! More.\n"),
            "Reads `a.rs`, by `B`."
        );
        assert_eq!(first_sentence("//! As in section 4.1, e.g. there.\nuse a;\n"), "As in section 4.1, e.g. there.");
        assert_eq!(first_sentence("use a;\n"), "");
    }
}
