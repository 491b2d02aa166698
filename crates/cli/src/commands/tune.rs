//! `oncefs tune`: shows the settings of a mounted volume, or changes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use oncefs_engine::settings;
use oncefs_toolbox::{Column, Table};
use serde_json::{Map, Value, json};

use crate::control::answers::Tuned;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::Outcome;
use crate::mounting::options::{self, Setting};
use crate::names;
use crate::size::Size;

/// Arguments of `tune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Changes last until the volume is unmounted; use mount -o to make them at each mount. All changes are made, or none.

Examples:
  oncefs tune /mnt                                  show all settings: value, range, meaning
  oncefs tune /mnt worker=always                    deduplicate out of line at any time
  oncefs tune /mnt inline=off hint_memory=64M")]
pub struct TuneArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Settings to change
    #[arg(value_name = "NAME=VALUE", value_parser = options::setting)]
    pub changes: Vec<Setting>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows or changes settings.
pub fn run(arguments: TuneArgs) -> Outcome {
    let daemon = Daemon::find(&arguments.target)?;
    if arguments.changes.is_empty() {
        let values = daemon.ask(Request::Settings)?;
        if arguments.json {
            say!("{}", names::json(&as_json(&values)))
        } else {
            put!("{}", table(&values))
        }
        return Ok(());
    }
    let names: Vec<String> = arguments.changes.iter().map(|(name, _)| name.clone()).collect();
    let tuned: Tuned = daemon.ask(Request::Tune { changes: arguments.changes })?;
    if arguments.json {
        say!("{}", names::json(&tuned))
    } else {
        put!("{}", changes(&names, &tuned))
    }
    Ok(())
}

type Values = BTreeMap<String, String>;

/// Every setting with its value, range and meaning.
fn as_json(values: &Values) -> Value {
    let described = settings::descriptions().map(|(name, range, what, live)| {
        let value = values.get(name);
        (name.to_owned(), json!({ "value": value, "range": range, "meaning": what, "live": live }))
    });
    Value::Object(described.collect::<Map<_, _>>())
}

/// The same for people, in columns as wide as they need.
fn table(values: &Values) -> String {
    let mut table = Table::of([Column::left(0); 4]).with_head(&["setting", "value", "range", "meaning"]);
    for (name, range, what, live) in settings::descriptions() {
        let value = values.get(name).map_or_else(|| "-".into(), |value| readable(name, value));
        let note = if live { "" } else { " (set at mount only)" };
        table.row(vec![name.to_owned(), value, range, format!("{what}{note}")]);
    }
    table.plain()
}

/// What was set, old and new.
fn changes(names: &[String], tuned: &Tuned) -> String {
    let shown = |values: &Values, name: &str| values.get(name).map_or_else(|| "-".into(), |v| readable(name, v));
    let named = tuned.after.keys().filter(|name| names.contains(name));
    named
        .map(|name| {
            let (before, after) = (shown(&tuned.before, name), shown(&tuned.after, name));
            if before == after {
                format!("{name}: {after}, as before\n")
            } else {
                format!("{name}: {before} -> {after}\n")
            }
        })
        .collect()
}

/// Settings that bound memory are bytes.
fn readable(name: &str, value: &str) -> String {
    match value.parse() {
        Ok(bytes) if name.ends_with("_memory") => Size(bytes).to_string(),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_table_has_every_setting_once_with_value_range_and_meaning() {
        let text = table(&values(&[("inline", "adaptive"), ("hint_memory", "3145728")]));
        for (name, range, what, _) in settings::descriptions() {
            let rows: Vec<&str> = text.lines().filter(|row| row.split(' ').next() == Some(name)).collect();
            assert_eq!(rows.len(), 1, "{name} in\n{text}");
            assert!(rows[0].contains(&range) && rows[0].contains(what), "{}", rows[0]);
        }
        assert!(text.contains("adaptive") && text.contains("3.00 MiB"), "{text}");
    }

    #[test]
    fn changes_are_told_with_the_old_value_and_what_stayed_is_said_to_stay() {
        let tuned = Tuned {
            before: values(&[("hint_memory", "3145728"), ("inline", "all"), ("worker", "off")]),
            after: values(&[("hint_memory", "4194304"), ("inline", "all"), ("worker", "idle")]),
        };
        let names = ["inline", "hint_memory"].map(str::to_owned);
        assert_eq!(changes(&names, &tuned), "hint_memory: 3.00 MiB -> 4.00 MiB\ninline: all, as before\n");
    }
}
