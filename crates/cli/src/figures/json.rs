//! All figures as JSON: `oncefs stats --json`. Names stay, and new ones may be added (docs/stats.md).

use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::figure::Value;
use super::health::{Finding, Limits, findings};
use super::of_mount::Snapshot;
use super::table::FIGURES;
use crate::names::Name;

/// Rises when a name is removed or changes its meaning.
pub const FORM: u32 = 1;

/// Everything, by group and name.
pub fn document(snapshot: &Snapshot) -> Json {
    let mut document = Map::from_iter(head(snapshot));
    for figure in FIGURES.iter() {
        let group = object(document.entry(figure.group).or_insert_with(empty));
        for (label, value) in figure.values(snapshot) {
            let of_label =
                if label.is_empty() { &mut *group } else { object(group.entry(label).or_insert_with(empty)) };
            of_label.insert(figure.name.to_owned(), number(&value));
        }
    }
    Json::Object(document)
}

/// The head of the document, before its groups.
fn head(snapshot: &Snapshot) -> [(String, Json); 7] {
    let found = findings(snapshot, &Limits::default());
    [
        ("form", json!(FORM)),
        ("program", json!(snapshot.program)),
        ("volume", path(&snapshot.volume)),
        ("mount", snapshot.mount.as_deref().map_or(Json::Null, path)),
        ("read_only", json!(snapshot.read_only)),
        ("read_only_because", json!(snapshot.read_only_because)),
        ("health", health(&found)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// Whether all is well, and the findings.
pub fn health(findings: &[Finding]) -> Json {
    json!({ "is_well": findings.is_empty(), "findings": findings })
}

/// A path: a string, or its bytes if it is not UTF-8.
pub fn path(path: &Path) -> Json {
    json!(Name::from(path))
}

fn empty() -> Json {
    Json::Object(Map::new())
}

fn object(value: &mut Json) -> &mut Map<String, Json> {
    value.as_object_mut().expect("groups and labels are made as objects, and no figure has the name of either")
}

fn number(value: &Value) -> Json {
    match value {
        Value::Whole(number) => json!(number),
        Value::Signed(number) => json!(number),
        Value::Real(number) => json!(number),
        Value::Truth(is_so) => json!(is_so),
        Value::Words(words) => json!(words),
        Value::Times(histogram) => json!(histogram),
        Value::Lengths(sizes) => json!(sizes),
    }
}
