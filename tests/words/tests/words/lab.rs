//! The lab is a workspace of its own, and is built as the product is: decision 0009.

use std::collections::BTreeSet;

use oncefs_words::checkout::text;

/// The lines of the tables of a manifest whose heads begin so, heads included; comments and empty lines left out.
fn tables(manifest: &str, head: &str) -> Vec<String> {
    let text = text(manifest);
    let mut is_inside = false;
    let is_asked_for = |line: &&str| {
        if line.starts_with('[') {
            is_inside = line.starts_with(head);
        }
        is_inside && !line.is_empty() && !line.starts_with('#')
    };
    text.lines().filter(is_asked_for).map(str::to_owned).collect()
}

/// What a lock file pins of the crates of others: names, versions and checksums.
fn pinned(lock: &str) -> BTreeSet<String> {
    let text = text(lock);
    let packages = text.split("[[package]]").filter(|package| package.contains("\nchecksum = "));
    let is_pin = |line: &&str| ["name = ", "version = ", "checksum = "].iter().any(|field| line.starts_with(field));
    packages.map(|package| package.lines().filter(is_pin).collect::<Vec<_>>().join(", ")).collect()
}

#[test]
fn package_fields_lints_and_profile_are_the_product_s() {
    // The profile of RocksDB is the product's alone: the lab has none.
    for head in ["[workspace.package]", "[workspace.lints.", "[profile.release]"] {
        let wanted = tables("Cargo.toml", head);
        assert!(wanted.len() > 1, "Cargo.toml has no {head}");
        assert_eq!(tables("lab/Cargo.toml", head), wanted, "{head} of both workspaces");
    }
}

#[test]
fn the_lab_pins_no_version_that_the_product_does_not() {
    let lab = pinned("lab/Cargo.lock");
    assert!(lab.len() > 20, "only {} crates of others were found in lab/Cargo.lock", lab.len());
    let only_there: Vec<String> = lab.difference(&pinned("Cargo.lock")).cloned().collect();
    // Copying the product's lock file over the lab's and building mends this.
    super::assert_none("crates that only lab/Cargo.lock pins", only_there);
}
