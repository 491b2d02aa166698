//! The tests that sources declare, by name.

use std::collections::BTreeSet;

use crate::packages::sources;

/// The names of all tests of the checkout, wherever they are.
pub fn all_tests() -> BTreeSet<String> {
    sources().values().flat_map(|source| tests_in(source)).collect()
}

/// The names of the tests of a source: the functions below the attribute, or below further ones.
fn tests_in(source: &str) -> impl Iterator<Item = String> {
    let below = source.split("#[test]").skip(1).filter_map(|rest| rest.strip_prefix('\n'));
    below.filter_map(|rest| {
        let line = rest.lines().map(str::trim_start).find(|line| !line.starts_with("#["))?;
        Some(line.strip_prefix("fn ")?.split('(').next()?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::tests_in;

    #[test]
    fn tests_are_found_below_further_attributes() {
        let source =
            "#[test]\nfn one() {}\nmod m {\n    #[test]\n    #[ignore = \"slow\"]\n    fn two() {}\n}\nfn three() {}";
        assert_eq!(tests_in(source).collect::<Vec<_>>(), ["one", "two"]);
    }
}
