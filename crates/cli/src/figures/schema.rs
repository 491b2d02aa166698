//! The schema of `oncefs stats --json`, made from the table: `oncefs stats --schema`.
//!
//! `docs/schema/stats.json` is its output, and `docs/schema/stats-names.txt` has every name that it ever had. A test
//! fails if one of them is removed.

use serde_json::{Map, Value as Json, json};

use super::cluster;
use super::figure::{Figure, Source, Unit};
use super::health::Cause;
use super::json::FORM;
use super::table::FIGURES;

/// The schema's dialect.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema.
pub fn document() -> Json {
    let mut properties = head();
    for name in FIGURES.iter().map(|figure| figure.group) {
        properties.entry(name).or_insert_with(|| group(name));
    }
    let required: Vec<&String> = properties.keys().collect();
    json!({
        "$schema": DIALECT,
        "title": "oncefs stats --json",
        "description": "All figures of a mounted volume. Names stay and new ones may come; 'form' rises when one goes.",
        "type": "object",
        "required": required,
        "properties": properties,
    })
}

fn head() -> Map<String, Json> {
    let described = |types: Json, description: &str| json!({ "type": types, "description": description });
    let causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
    let finding = json!({
        "type": "object",
        "required": ["cause", "message"],
        "properties": {
            "cause": { "enum": causes, "description": "What needs attention." },
            "message": described(json!("string"), "The same for people, with what to do."),
        },
    });
    Map::from_iter(
        [
            ("form", json!({ "const": FORM, "description": "The form of this document." })),
            ("program", described(json!("string"), "Version of the daemon's program.")),
            ("volume", described(json!(["string", "array"]), "The volume; its bytes if it is not UTF-8.")),
            ("mount", described(json!(["string", "array", "null"]), "Where it is mounted.")),
            ("read_only", described(json!("boolean"), "Whether it was mounted read-only.")),
            ("read_only_because", described(json!(["string", "null"]), "The error that made it read-only.")),
            (
                "health",
                json!({
                    "type": "object",
                    "description": "Whether it needs attention, by the limits of oncefs status.",
                    "required": ["is_well", "findings"],
                    "properties": { "is_well": { "type": "boolean" }, "findings": { "type": "array", "items": finding } },
                }),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    )
}

/// The figures of a group, or of each label in it.
fn group(name: &str) -> Json {
    let figures: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.group == name).collect();
    let properties: Map<String, Json> = figures.iter().map(|figure| (figure.name.to_owned(), value(figure))).collect();
    let is_there = |figure: &&&Figure| figure.unit != Unit::Seconds && figure.group != cluster::GROUP;
    let required: Vec<&str> = figures.iter().filter(is_there).map(|figure| figure.name).collect();
    let object = json!({ "type": "object", "required": required, "properties": properties });
    match figures.first().map(|figure| figure.source) {
        Some(Source::Each { label, .. }) => {
            json!({ "type": "object", "description": format!("By {label}."), "additionalProperties": object })
        }
        _ => object,
    }
}

fn value(figure: &Figure) -> Json {
    let mut schema = match figure.unit {
        Unit::Seconds if figure.group == cluster::GROUP => json!({ "type": "number", "minimum": 0 }),
        Unit::Bytes | Unit::Things | Unit::Seconds => whole(),
        Unit::Blocks if figure.name == "piece_blocks" => json!({ "type": "number", "minimum": 0 }),
        Unit::Blocks => whole(),
        Unit::Percent => json!({ "type": "number", "minimum": 0, "maximum": 100 }),
        Unit::Times => histogram("nanoseconds"),
        Unit::Lengths => histogram("blocks"),
        Unit::Truth => json!({ "type": "boolean" }),
        Unit::Words => json!({ "type": "string" }),
        Unit::Any => json!({ "type": ["integer", "boolean", "string"] }),
    };
    schema["description"] = json!(format!("{} ({}, {})", figure.meaning, figure.unit.words(), figure.kind.words()));
    schema
}

fn whole() -> Json {
    json!({ "type": "integer", "minimum": 0 })
}

/// The number of events, the sum of their sizes, and the number in each class of doubling width.
fn histogram(sum: &str) -> Json {
    json!({
        "type": "object",
        "required": ["count", sum, "classes"],
        "properties": { "count": whole(), sum: whole(), "classes": { "type": "array", "items": whole() } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    const FILE: &str = include_str!("../../../../docs/schema/stats.json");
    const NAMES: &str = include_str!("../../../../docs/schema/stats-names.txt");

    #[test]
    fn the_file_in_docs_is_what_the_command_prints() {
        assert_eq!(
            names::json(&document()),
            FILE.trim_end(),
            "write it anew: oncefs stats --schema > docs/schema/stats.json"
        );
    }

    #[test]
    fn no_name_that_was_ever_printed_goes_and_new_ones_are_noted() {
        let kept: Vec<&str> = NAMES.lines().filter(|line| !line.starts_with('#')).collect();
        let head = document()["properties"].as_object().unwrap().clone();
        let is_group = |name: &String| FIGURES.iter().any(|figure| figure.group == name);
        let alone = head.keys().filter(|name| !is_group(name)).cloned();
        let mut now: Vec<String> = alone.chain(FIGURES.iter().map(Figure::path)).collect();
        now.sort();
        let gone: Vec<&&str> = kept.iter().filter(|name| !now.iter().any(|other| other == *name)).collect();
        assert!(gone.is_empty(), "programs read these names, so they have to stay: {gone:?}");
        let new: Vec<&String> = now.iter().filter(|name| !kept.contains(&name.as_str())).collect();
        assert!(new.is_empty(), "add to docs/schema/stats-names.txt: {new:?}");
    }
}
