//! How much there is of something.

use std::collections::BTreeMap;

use super::crate_sources::CrateSources;

/// What states an assumption and ends the program if it does not hold.
const ASSERTIONS: [&str; 7] =
    ["assert!", "assert_eq!", "assert_ne!", "debug_assert!", "debug_assert_eq!", "debug_assert_ne!", "unreachable!"];

/// Calls of assertions in a crate's code without its tests.
pub fn assertions(sources: &CrateSources) -> usize {
    sources.files.values().map(|source| assertions_in(&source.code)).sum()
}

fn assertions_in(code: &str) -> usize {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '!';
    code.split(|c: char| !is_name(c)).filter(|word| ASSERTIONS.contains(word)).count()
}

/// Of 1,000 lines without tests, comments and empty lines included.
pub fn assertions_of_1000_lines(sources: &CrateSources) -> f64 {
    assertions(sources) as f64 * 1000.0 / sources.lines() as f64
}

/// Files that are in no folder.
pub fn files_at_the_top(sources: &CrateSources) -> usize {
    sources.files.keys().filter(|path| !path.contains('/')).count()
}

/// Folders with more than so many files in themselves, and how many.
pub fn folders_over(sources: &CrateSources, most: usize) -> Vec<(String, usize)> {
    let mut folders = BTreeMap::new();
    for (folder, _) in sources.files.keys().filter_map(|path| path.rsplit_once('/')) {
        *folders.entry(folder.to_owned()).or_insert(0) += 1;
    }
    folders.into_iter().filter(|(_, files)| *files > most).collect()
}

/// The fields of a struct whose braces enclose one line for each.
pub fn fields(code: &str, name: &str) -> Option<usize> {
    let (_, body) = code.split_once(&format!("struct {name} {{"))?;
    let body = body.lines().take_while(|line| *line != "}");
    Some(body.filter(|line| line.starts_with("    ") && !line.starts_with("     ") && line.contains(": ")).count())
}

/// Words of a page, as `wc -w` counts them.
pub fn words(page: &str) -> usize {
    page.split_whitespace().count()
}
