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
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::options::{self, Setting};
use crate::names;
use crate::size::Size;
use crate::text::paragraph;

/// Arguments of `tune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Changes last until the volume is unmounted; use mount -o to make them at each mount. All changes are made, or none.

Examples:
  oncefs tune /mnt                                  show all settings, and what the profile has where that differs
  oncefs tune /mnt worker                           show one, with its range and meaning; -v shows all so
  oncefs tune /mnt worker=always                    deduplicate out of line at any time
  oncefs tune /mnt inline=off hint_memory=64M")]
pub struct TuneArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Settings to change, or to show
    #[arg(value_name = "NAME[=VALUE]")]
    pub words: Vec<String>,
    /// Show the range and meaning of each setting
    #[arg(long, short)]
    pub verbose: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// A request about a setting.
#[derive(Clone, Debug)]
pub enum Word {
    /// Show it.
    Show(String),
    /// Change it.
    Change(Setting),
}

fn word(text: &str) -> Result<Word, String> {
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    match (settings::is_setting(name), text.contains('=')) {
        (false, _) if options::VALUED.contains(&name) => {
            Err(format!("'{name}' can only be set while mounting: unmount, then oncefs mount -o {name}=..."))
        }
        (false, _) => Err(options::unknown_setting(name)),
        (true, false) => Ok(Word::Show(settings::current_name(name).to_owned())),
        (true, true) => options::setting(text).map(Word::Change),
    }
}

/// Refuses settings that a mount keeps.
fn refuse_fixed(changed: &[Setting]) -> Outcome {
    let is_fixed = |name: &str| settings::descriptions().any(|(other, _, _, live)| !live && other == name);
    match changed.iter().find(|(name, _)| is_fixed(name)) {
        None => Ok(()),
        Some((name, value)) => {
            let text = format!("{name} can only be set while mounting: unmount, then oncefs mount -o {name}={value}");
            Err(Failure::new(exit::FAILED, text))
        }
    }
}

/// Shows or changes settings.
pub fn run(arguments: TuneArgs) -> Outcome {
    let (shown, changed) = sorted(&arguments.words).or_fail(exit::USAGE)?;
    let daemon = Daemon::find(&arguments.target)?;
    if !changed.is_empty() {
        refuse_fixed(&changed)?;
        let names: Vec<String> = changed.iter().map(|(name, _)| name.clone()).collect();
        let tuned: Tuned = daemon.ask(Request::Tune { changes: changed })?;
        match arguments.json {
            true => say!("{}", names::json(&tuned)),
            false => put!("{}", changes(&names, &tuned)),
        }
        return Ok(());
    }
    let seen = Seen { now: daemon.ask(Request::Settings)?, of_profile: daemon.ask(Request::ProfileSettings)? };
    let is_shown = |name: &str| shown.is_empty() || shown.iter().any(|wanted| wanted == name);
    if arguments.json {
        say!("{}", names::json(&seen.as_json(is_shown)));
    } else if arguments.verbose || !shown.is_empty() {
        put!("{}", seen.explained(is_shown));
    } else {
        put!("{}", seen.table());
    }
    Ok(())
}

/// The names to show, or the settings to change.
fn sorted(words: &[String]) -> Result<(Vec<String>, Vec<Setting>), String> {
    let (mut shown, mut changed) = (Vec::<String>::new(), Vec::new());
    for text in words {
        match word(text) {
            Ok(Word::Show(name)) => shown.push(name),
            Ok(Word::Change(setting)) => changed.push(setting),
            Err(why) => match shown.last() {
                Some(name) if settings::check(name, text).is_ok() => return Err(format!("write {name}={text}")),
                _ => return Err(why),
            },
        }
    }
    match shown.first() {
        Some(name) if !changed.is_empty() => {
            Err(format!("{name} has no value: write {name}=VALUE to change it, or names alone to show them"))
        }
        _ => Ok((shown, changed)),
    }
}

type Values = BTreeMap<String, String>;

/// The present settings and those of the profile.
struct Seen {
    now: Values,
    of_profile: Values,
}

impl Seen {
    fn value(&self, name: &str) -> String {
        self.now.get(name).map_or_else(|| "-".into(), |value| readable(name, value))
    }

    /// The profile's value, if the present one differs.
    fn profile_value(&self, name: &str) -> Option<String> {
        let (now, own) = (self.now.get(name)?, self.of_profile.get(name)?);
        (now != own).then(|| readable(name, own))
    }

    /// Every setting with its value, range and meaning.
    fn as_json(&self, is_shown: impl Fn(&str) -> bool) -> Value {
        let described = settings::descriptions().filter(|(name, ..)| is_shown(name)).map(|(name, range, what, live)| {
            let (value, of_profile) = (self.now.get(name), self.of_profile.get(name));
            let described =
                json!({ "value": value, "profile_value": of_profile, "range": range, "meaning": what, "live": live });
            (name.to_owned(), described)
        });
        Value::Object(described.collect::<Map<_, _>>())
    }

    /// Every setting, in a line each.
    fn table(&self) -> String {
        let mut table = Table::of([Column::left(0); 3]).with_head(&["setting", "value", "the profile has"]);
        for (name, ..) in settings::descriptions() {
            table.row(vec![name.to_owned(), self.value(name), self.profile_value(name).unwrap_or_default()]);
        }
        table.plain()
    }

    /// Settings with their ranges and meanings.
    fn explained(&self, is_shown: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        for (name, range, what, live) in settings::descriptions().filter(|(name, ..)| is_shown(name)) {
            let own = self.profile_value(name).map_or_else(String::new, |own| format!(" (the profile has {own})"));
            let when = if live { "" } else { "; can only be set while mounting" };
            text += &format!("{name} = {}{own}\n", self.value(name));
            text += &paragraph(&format!("{what}: {range}{when}"));
        }
        text
    }
}

/// The changed settings with their old and new values.
fn changes(names: &[String], tuned: &Tuned) -> String {
    let shown = |values: &Values, name: &str| values.get(name).map_or_else(|| "-".into(), |v| readable(name, v));
    let (mut text, mut is_other) = (String::new(), false);
    for name in tuned.after.keys().filter(|name| names.contains(name)) {
        let (before, after) = (shown(&tuned.before, name), shown(&tuned.after, name));
        is_other |= before != after;
        text += &match before == after {
            true => format!("{name}: {after}, as before\n"),
            false => format!("{name}: {before} -> {after}\n"),
        };
    }
    let ends = "until the volume is unmounted; to set it at each mount, use mount -o or fstab\n";
    if is_other { text + ends } else { text }
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

    fn seen() -> Seen {
        let pairs = [("inline", "adaptive"), ("hint_memory", "3145728"), ("worker", "off")];
        Seen { now: values(&pairs), of_profile: values(&[pairs[0], ("hint_memory", "2097152"), ("worker", "idle")]) }
    }

    #[test]
    fn the_table_has_every_setting_in_a_line_and_what_the_profile_has_where_that_differs() {
        let text = seen().table();
        let row = |name: &str| -> Vec<&str> {
            let rows: Vec<&str> = text.lines().filter(|row| row.split(' ').next() == Some(name)).collect();
            assert_eq!(rows.len(), 1, "{name} in\n{text}");
            rows[0].split_whitespace().collect()
        };
        assert!(settings::descriptions().all(|(name, ..)| row(name).len() >= 2));
        assert_eq!(row("inline"), ["inline", "adaptive"]);
        assert_eq!(row("hint_memory"), ["hint_memory", "3.00", "MiB", "2.00", "MiB"]);
        assert_eq!(row("worker"), ["worker", "off", "idle"]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn an_explanation_has_range_and_meaning_in_80_columns() {
        let text = seen().explained(|_| true);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (name, range, what, _) in settings::descriptions() {
            assert!(words.contains(&format!("{name} = ")) && words.contains(&range) && words.contains(what), "{name}");
        }
        assert!(text.contains("worker = off (the profile has idle)\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(seen().explained(|name| name == "inline").lines().filter(|line| !line.starts_with(' ')).count(), 1);
    }

    #[test]
    fn a_word_is_a_setting_to_show_or_to_change_and_a_mount_option_is_told_from_both() {
        assert!(matches!(word("worker").unwrap(), Word::Show(name) if name == "worker"));
        assert!(matches!(word("prefix_bits=12").unwrap(), Word::Change((name, _)) if name == "hint_prefix_bits"));
        for wrong in ["memory", "memory=1G"] {
            assert!(word(wrong).unwrap_err().contains("oncefs mount -o memory=..."));
        }
        let refused =
            |words: &[&str]| sorted(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap_err();
        for (words, why) in [
            (&["nothing"][..], "there is no setting 'nothing': oncefs tune DIR shows all"),
            (&["wroker=always"], "there is no setting 'wroker': did you mean worker?"),
            (&["cpu_percent_max", "50"], "write cpu_percent_max=50"),
            (&["worker", "inlnie"], "there is no setting 'inlnie': did you mean inline?"),
            (
                &["worker", "inline=off"],
                "worker has no value: write worker=VALUE to change it, or names alone to show them",
            ),
        ] {
            assert_eq!(refused(words), why);
        }
        let fixed = [("inline", "off"), ("hint_sample", "4")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let failure = refuse_fixed(&fixed).unwrap_err();
        assert!(failure.message.contains("hint_sample can only be set while mounting: unmount"), "{failure:?}");
    }

    #[test]
    fn changes_are_told_with_the_old_value_and_what_stayed_is_said_to_stay() {
        let tuned = Tuned {
            before: values(&[("hint_memory", "3145728"), ("inline", "all"), ("worker", "off")]),
            after: values(&[("hint_memory", "4194304"), ("inline", "all"), ("worker", "idle")]),
        };
        let names = ["inline", "hint_memory"].map(str::to_owned);
        assert_eq!(
            changes(&names, &tuned),
            "hint_memory: 3.00 MiB -> 4.00 MiB\ninline: all, as before\n\
             until the volume is unmounted; to set it at each mount, use mount -o or fstab\n"
        );
        assert_eq!(changes(&names[..1], &tuned), "inline: all, as before\n");
    }
}
