//! Completions of shells, with the values of options that have a list of them.

use std::fs;
use std::io;
use std::path::Path;

use clap::builder::{PossibleValuesParser, StyledStr};
use clap::{Arg, Command, ValueHint};
use clap_complete::{Shell, generate_to};
use oncefs_engine::{Profile, settings};

use crate::mounting::options;

/// Options of `-o` with a value, other than settings and profiles.
const WITH_VALUE: [&str; 7] = ["data=", "memory=", "threads=", "max_write=", "metrics=", "logfile=", "disk_reserve="];

/// Options of `-o` for a disk of a volume.
const OF_DISKS: [&str; 3] = ["disk=", "mkfs=", "wait="];

const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

const TRANSPORTS: [&str; 3] = ["auto", "rings", "classic"];

const POLICIES: [&str; 12] = [
    "off",
    "inline",
    "later",
    "selective",
    "none",
    "run=",
    "slowdown=",
    "compress=off",
    "compress=later",
    "compress=inline",
    "compress=auto",
    "compress=none",
];

/// Writes the completions for each shell.
pub fn write(dir: &Path, oncefs: &Command) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut completed = completed(oncefs);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut completed, "oncefs", dir)?;
    }
    Ok(())
}

/// A command as shells complete it: without hidden arguments, which completions would offer, and with values.
fn completed(command: &Command) -> Command {
    let name = command.get_name();
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let about = command.get_about().map(StyledStr::to_string).unwrap_or_default();
    Command::new(kept(name.to_owned()))
        .about(about)
        .disable_help_subcommand(true)
        .args(arguments.map(|argument| with_values(name, argument.clone())))
        .groups(command.get_groups().filter(|group| group.is_required_set()).cloned())
        .subcommands(command.get_subcommands().map(completed))
}

fn with_values(command: &str, argument: Arg) -> Arg {
    let values = match (command, argument.get_id().as_str()) {
        (_, "profile") => Profile::ALL.map(|profile| profile.name().to_owned()).to_vec(),
        (_, "log_level") => LOG_LEVELS.map(str::to_owned).to_vec(),
        (_, "fingerprints") => choices("fingerprints"),
        ("mount", "options") => mount_options(),
        ("tune", "words") => settings_with_values(),
        ("set", "policy") => POLICIES.map(str::to_owned).to_vec(),
        ("mkfs", "copies") => vec!["1".to_owned(), "2".to_owned()],
        ("mkfs" | "mount" | "fsck", "volume") | ("mount", "dir") => return argument.value_hint(ValueHint::DirPath),
        _ => return argument,
    };
    argument.value_parser(PossibleValuesParser::new(values.into_iter().map(kept)))
}

/// clap takes names as long as the program lives; this command ends with its pages.
fn kept(name: String) -> &'static str {
    name.leak()
}

/// The options of `-o`, each alone.
fn mount_options() -> Vec<String> {
    let with_value = |name: &'static str, values: Vec<String>| values.into_iter().map(move |v| format!("{name}={v}"));
    let mut all: Vec<String> = options::flag_names().map(str::to_owned).collect();
    all.extend(["remount", "nofail", "_netdev"].map(str::to_owned));
    all.extend(WITH_VALUE.map(str::to_owned));
    all.extend(OF_DISKS.map(str::to_owned));
    all.extend(with_value("profile", Profile::ALL.map(|profile| profile.name().to_owned()).to_vec()));
    all.extend(with_value("transport", TRANSPORTS.map(str::to_owned).to_vec()));
    all.extend(with_value("loglevel", LOG_LEVELS.map(str::to_owned).to_vec()));
    all.extend(settings_with_values());
    all
}

/// `NAME=VALUE` for each value of a setting that has a list of them, `NAME=` for the others.
fn settings_with_values() -> Vec<String> {
    let names = settings::descriptions().map(|(name, ..)| name);
    names
        .flat_map(|name| match choices(name) {
            values if values.is_empty() => vec![format!("{name}=")],
            values => values.iter().map(|value| format!("{name}={value}")).collect(),
        })
        .collect()
}

/// The values of a setting that has a list of them.
fn choices(setting: &str) -> Vec<String> {
    let range = settings::descriptions().find(|(name, ..)| *name == setting).map(|(_, range, ..)| range);
    let listed = range.as_deref().and_then(|range| range.strip_prefix("one of ")).unwrap_or_default();
    listed.split(", ").filter(|value| !value.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_completed_option_of_mount_is_one() {
        for option in mount_options().into_iter().filter(|option| !OF_DISKS.contains(&&option[..])) {
            let known = options::MountOptions::default().apply(&option);
            assert!(!known.as_ref().is_err_and(|e| e.contains("unknown mount option")), "{option}: {known:?}");
            assert!(known.is_ok() || option.ends_with('='), "{option}: {known:?}");
        }
    }

    #[test]
    fn settings_with_a_list_of_values_have_them() {
        assert_eq!(choices("worker"), ["off", "idle", "always"]);
        assert!(choices("hint_memory").is_empty());
    }
}
