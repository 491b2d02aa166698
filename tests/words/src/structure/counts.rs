//! How much there is of something.

use std::collections::BTreeMap;

use super::crate_sources::CrateSources;

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

/// The entries `name = value;` of a macro's list.
pub fn listed(code: &str, list: &str) -> Option<usize> {
    let (_, entries) = code.split_once(&format!("\n{list} {{"))?;
    Some(entries.split("\n}").next()?.matches(" = ").count())
}

/// The fields of a struct whose braces enclose one line for each.
pub fn fields(code: &str, name: &str) -> Option<usize> {
    let (_, body) = code.split_once(&format!("struct {name} {{"))?;
    let body = body.lines().take_while(|line| *line != "}");
    Some(body.filter(|line| line.starts_with("    ") && !line.starts_with("     ") && line.contains(": ")).count())
}
