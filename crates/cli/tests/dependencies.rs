//! Every dependency of oncefs has a licence that `deny.toml` allows, and comes from crates.io.
//!
//! A quick part of `scripts/check-dependencies`, so that a new dependency is noticed at once. That script also checks
//! known vulnerabilities and duplicate versions.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn workspace() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..")
}

fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let said = command.current_dir(workspace()).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice::<Value>(&said.stdout).unwrap()["packages"].as_array().unwrap().clone()
}

/// The list `allow` of `deny.toml`.
fn allowed_licences() -> Vec<String> {
    let text = std::fs::read_to_string(workspace().join("deny.toml")).unwrap();
    let list = text.split_once("allow = [").unwrap().1.split_once(']').unwrap().0;
    list.split(',').map(|licence| licence.trim().trim_matches('"').to_owned()).filter(|l| !l.is_empty()).collect()
}

/// Whether a licence expression can be met: all parts of an `AND`, one part of an `OR`. Parentheses bind.
fn can_be_met(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let parts = |word: &str| split_outside_parentheses(&expression, word);
    let (any, all) = (parts(" OR "), parts(" AND "));
    if any.len() > 1 {
        return any.iter().any(|part| can_be_met(part, allowed));
    }
    if all.len() > 1 {
        return all.iter().all(|part| can_be_met(part, allowed));
    }
    match expression.trim().strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => can_be_met(inner, allowed),
        None => allowed.iter().any(|licence| licence == expression.trim()),
    }
}

fn split_outside_parentheses(text: &str, word: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for (at, character) in text.char_indices() {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 && text[at..].starts_with(word) {
            parts.push(String::new());
        }
        parts.last_mut().unwrap().push(character);
    }
    parts
        .iter()
        .enumerate()
        .map(|(n, part)| if n == 0 { part.clone() } else { part[word.len()..].to_owned() })
        .collect()
}

#[test]
fn every_dependency_may_be_used_and_comes_from_the_registry() {
    let (packages, allowed) = (packages(), allowed_licences());
    assert!(packages.len() > 50 && allowed.len() > 3, "{} packages, {allowed:?}", packages.len());
    for package in packages {
        let name = format!("{} {}", package["name"], package["version"]);
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} says no licence"));
        assert!(can_be_met(licence, &allowed), "{name}: {licence} is not in deny.toml");
        match package["source"].as_str() {
            Some(source) => assert_eq!(source, CRATES_IO, "{name}"),
            None => assert!(package["name"].as_str().unwrap().starts_with("oncefs"), "{name} has no source"),
        }
    }
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned()];
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("MIT AND ISC", true),
        ("MIT AND GPL-3.0-only", false),
        ("(GPL-3.0-only OR MIT) AND ISC", true),
        ("(MIT OR ISC) AND GPL-3.0-only", false),
        ("GPL-3.0-only/MIT", true),
    ] {
        assert_eq!(can_be_met(expression, &allowed), expected, "{expression}");
    }
}
