//! Values that settings accept and refuse, and the effects of profiles.

use oncefs_dedup::ShareLimit;

use super::*;

#[test]
fn every_setting_comes_back_from_its_own_text() {
    for profile in Profile::ALL {
        let settings = Settings::of(profile, 256 * MIB);
        let lrlfs = Settings::of(Profile::Lrlfs, 64 * MIB);
        let mut other = lrlfs.clone();
        for (name, value) in settings.list() {
            other.set(&name, &value, false).unwrap();
        }
        // A bound that is set explicitly follows nothing, and the initial profile stays.
        let Settings { profile: began_with, memory_bytes_max, .. } = lrlfs;
        let expected = Settings { hint_bytes_by_data_max: None, profile: began_with, memory_bytes_max, ..settings };
        assert_eq!(other, expected, "{profile:?}");
    }
}

#[test]
fn nonsense_is_refused_with_the_allowed_range() {
    let mut settings = Settings::of(Profile::Desktop, 256 * MIB);
    let before = settings.clone();
    for (name, value, message) in [
        ("inline_percent_min", "0", "1 to 100"),
        ("inline_percent_min", "-3", "1 to 100"),
        ("hint_memory", "1K", "4K to 1024G"),
        ("hint_memory", "99999999999999999999G", "4K to 1024G"),
        ("worker", "sometimes", "off, idle, always"),
        ("run_blocks_min", "0", "auto or 1 to 256"),
        ("run_blocks_min", "257", "auto or 1 to 256"),
        ("run_blocks_min", "Auto", "auto or 1 to 256"),
        ("schedule", "nights", "'always' or windows like '22:00-06:00"),
        ("speed", "11", "no setting 'speed'"),
    ] {
        let error = settings.set(name, value, true).unwrap_err().to_string();
        assert!(error.contains(message), "{name}={value}: {error}");
    }
    for (name, value) in [("hint_eviction", "groups"), ("hint_sample", "64")] {
        let error = settings.set(name, value, true).unwrap_err().to_string();
        assert!(error.contains("when the volume is mounted"), "{error}");
    }
    assert_eq!(settings, before);
}

#[test]
fn the_shortest_run_is_a_number_or_chosen_automatically() {
    let mut settings = Settings::of(Profile::Desktop, 256 * MIB);
    for (value, run_blocks_min) in [("8", Some(8)), ("auto", None), ("1", Some(1)), ("256", Some(256))] {
        settings.set("run_blocks_min", value, true).unwrap();
        assert_eq!(settings.run_blocks_min, run_blocks_min);
        assert_eq!(settings.list()["run_blocks_min"], value);
    }
}

#[test]
fn a_budget_is_a_percentage_or_none() {
    let mut settings = Settings::of(Profile::Desktop, 256 * MIB);
    assert_eq!(settings.list()["read_slowdown_percent_max"], "100");
    for (value, slowdown) in [("0", Some(Slowdown(0))), ("none", None), ("1000", Some(Slowdown(1_000)))] {
        settings.set("read_slowdown_percent_max", value, true).unwrap();
        assert_eq!((settings.slowdown, settings.list()["read_slowdown_percent_max"].as_str()), (slowdown, value));
    }
    for wrong in ["", "-1", "1001", "auto", "None", "18446744073709551615"] {
        let error = settings.set("read_slowdown_percent_max", wrong, true).unwrap_err().to_string();
        assert!(error.contains("must be none or 0 to 1000"), "{wrong}: {error}");
    }
}

#[test]
fn profiles_have_the_budgets_that_suit_their_machines() {
    let limit = |profile| Settings::of(profile, 256 * MIB).mount_policy().limit();
    assert_eq!(limit(Profile::Desktop), ShareLimit::Budget(Slowdown(100)));
    assert_eq!(limit(Profile::Server), ShareLimit::Budget(Slowdown(10)));
    for profile in [Profile::Lrlfs, Profile::Smartdedup, Profile::Edge] {
        assert_eq!(limit(profile), ShareLimit::Runs(1), "{profile:?}");
    }
    assert_eq!(limit(Profile::Idedup), ShareLimit::Runs(4));
}

#[test]
fn the_worker_s_hours_are_shown_as_they_are_read_and_the_last_ones_hold() {
    let mut settings = Settings::of(Profile::Desktop, 256 * MIB);
    assert_eq!(settings.list()["schedule"], "always");
    for (value, shown) in [("22:00-6:00+Sat 0:00-24:00", "22:00-06:00,Sat 00:00-24:00"), ("always", "always")] {
        settings.set("schedule", value, true).unwrap();
        assert_eq!(settings.list()["schedule"], shown);
    }
}

#[test]
fn a_server_s_memory_for_hints_follows_its_data_between_bounds_until_it_is_set() {
    const TIB: u64 = 1 << 40;
    let desktop = Settings::of(Profile::Desktop, 1 << 30).hint_bytes;
    let mut settings = Settings::of(Profile::Server, 1 << 30);
    for (bytes, expected) in [(TIB, 32 * MIB), (4 * TIB, 128 * MIB), (1 << 30, MIB), (64 * TIB, desktop)] {
        settings.follow_data(Blocks(bytes / crate::BLOCK_BYTES as u64));
        assert_eq!(settings.hint_bytes, expected, "{bytes} bytes of data");
    }
    settings.set("hint_memory", "5M", true).unwrap();
    settings.follow_data(Blocks(1 << 30));
    assert_eq!(settings.hint_bytes, 5 * MIB);
    let mut small = Settings::of(Profile::Server, MIB);
    small.follow_data(Blocks(1 << 30));
    assert_eq!(small.hint_bytes, Settings::of(Profile::Desktop, MIB).hint_bytes, "never more than there is");
    let mut others = Settings::of(Profile::Desktop, 1 << 30);
    others.follow_data(Blocks(1 << 30));
    assert_eq!(others.hint_bytes, desktop);
}

#[test]
fn a_former_name_sets_what_replaced_it_and_is_never_shown() {
    let mut settings = Settings::of(Profile::Desktop, 256 * MIB);
    for (former, current) in FORMER_NAMES {
        assert!(is_setting(former) && current_name(former) == current, "{former}");
        assert!(SETTINGS.iter().any(|setting| setting.name == current), "{current}");
        assert!(SETTINGS.iter().all(|setting| setting.name != former), "{former} has a meaning of its own");
    }
    settings.set("copies_above", "7", true).unwrap();
    let shown = settings.list();
    assert_eq!(shown["replicate_refs_above"], "7");
    assert!(!shown.contains_key("copies_above"));
    let error = settings.set("copies_above", "many", true).unwrap_err().to_string();
    assert!(error.starts_with("replicate_refs_above must be"), "{error}");
}

/// The page about profiles for users.
const PAGE: &str = include_str!("../../../../../docs/profiles.md");

/// The cells of the page's rows that begin with a setting and have this many columns.
fn rows_of_page(columns: usize) -> BTreeMap<&'static str, Vec<&'static str>> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() == columns);
    rows.map(|row| (row[0].trim_matches('`'), row[1..].to_vec())).collect()
}

/// A value of the page in the form of the list of settings.
fn in_bytes(cell: &str) -> String {
    match (cell.strip_suffix('M'), cell.strip_suffix('K')) {
        (Some(number), _) => (number.parse::<u64>().unwrap() << 20).to_string(),
        (_, Some(number)) => (number.parse::<u64>().unwrap() << 10).to_string(),
        _ => cell.to_owned(),
    }
}

#[test]
fn the_page_on_profiles_has_the_values_that_profiles_have() {
    let differing = rows_of_page(1 + Profile::ALL.len());
    assert!(differing.len() > 5, "{differing:?}");
    for (column, profile) in Profile::ALL.into_iter().enumerate() {
        for (name, value) in Settings::of(profile, MIB << 10).list() {
            match differing.get(name.as_str()).map(|cells| cells[column]) {
                Some(cell) if cell.contains("of `memory`") => {}
                Some(cell) => assert_eq!(value, in_bytes(cell), "{name} of {}", profile.name()),
                None => assert!(PAGE.contains(&format!("`{name}` {value}")), "{name} of {} is {value}", profile.name()),
            }
        }
    }
}
