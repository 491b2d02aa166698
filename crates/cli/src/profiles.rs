//! Profiles in the commands: a line on each for help texts, and the default memory and threads of a mount. The engine
//! has a profile's settings (`docs/profiles.md`).

use oncefs_engine::{OpenOptions, Profile};
use oncefs_toolbox::{Column, Table};

/// The default memory: this share of RAM, between bounds.
const MEMORY_SHARE_OF_RAM: u64 = 8;
const MEMORY_BYTES_MIN: u64 = 64 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// A small board can hardly spare more for a file system.
const EDGE_MEMORY_BYTES: u64 = 16 << 20;

/// The paper's 3.5 MB are for hints and skipped buffer alone. This adds the usual minimum for caches.
const SMARTDEDUP_MEMORY_BYTES: u64 = 64 << 20;

/// Few, because every thread holds buffers for requests.
const EDGE_THREADS: usize = 2;

/// A quarter of the usual size, because every thread and buffer has room for the largest request.
const EDGE_MAX_WRITE: u32 = 256 << 10;

/// The purpose of a profile, in one line.
pub fn about(profile: Profile) -> &'static str {
    match profile {
        Profile::Lrlfs => "looks up every block while writing, in a complete index in memory",
        Profile::Smartdedup => {
            "the design of the paper SmartDedup: 3.5 MB of memory, the rest on disk; worker always runs"
        }
        Profile::Edge => "small boards: 3.5 MB of memory, the rest on disk; worker runs when idle, on AC power",
        Profile::Desktop => "everyday machines: a share of memory, the rest on disk; worker runs when idle",
        Profile::Server => "large volumes: 32 MiB of hints per TiB, for one block in 64; worker runs when idle",
        Profile::Selective => "the design of the paper Selective: files are deduplicated by their use, when idle",
        Profile::Idedup => "the design of the paper iDedup: runs of at least 4 blocks, hints only in memory; no worker",
    }
}

/// The names of all profiles, for messages.
pub fn names() -> String {
    Profile::ALL.map(Profile::name).join(", ")
}

/// All profiles with their lines, for help texts.
pub fn help() -> String {
    let mut table = Table::of([Column::left(12), Column::left(0)]);
    for profile in Profile::ALL {
        table.row(vec![format!("  {}", profile.name()), about(profile).to_owned()]);
    }
    format!("Profiles:\n{}", table.plain())
}

/// Default bound on caches and hints, in bytes.
pub fn default_memory(profile: Profile, ram_bytes: u64) -> u64 {
    match profile {
        Profile::Edge => EDGE_MEMORY_BYTES,
        Profile::Smartdedup => SMARTDEDUP_MEMORY_BYTES,
        Profile::Lrlfs | Profile::Desktop | Profile::Server | Profile::Idedup | Profile::Selective => {
            (ram_bytes / MEMORY_SHARE_OF_RAM).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
        }
    }
}

/// Default of the kernel's largest request. None: the usual one.
pub fn default_max_write(profile: Profile) -> Option<u32> {
    (profile == Profile::Edge).then_some(EDGE_MAX_WRITE)
}

/// Default number of requests served at a time.
pub fn default_threads(profile: Profile, cpus: usize) -> usize {
    match profile {
        Profile::Edge => EDGE_THREADS,
        _ => (2 * cpus).clamp(4, 8),
    }
}

/// Options with which a command opens a volume that is not mounted: nothing is deduplicated meanwhile.
pub fn without_worker(memory_bytes_max: u64, read_only: bool) -> OpenOptions {
    let settings = vec![("worker".to_owned(), "off".to_owned())];
    OpenOptions { read_only, settings, ..OpenOptions::new(memory_bytes_max) }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::settings;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/profiles.md");

    #[test]
    fn memory_is_small_by_profile_or_a_bounded_share_of_ram() {
        for profile in [Profile::Lrlfs, Profile::Desktop, Profile::Server, Profile::Idedup, Profile::Selective] {
            assert_eq!(default_memory(profile, 8 << 30), 1 << 30);
            assert_eq!(default_memory(profile, 256 << 20), MEMORY_BYTES_MIN);
            assert_eq!(default_memory(profile, 1 << 40), MEMORY_BYTES_MAX);
        }
        assert_eq!(default_memory(Profile::Edge, 8 << 30), 16 << 20);
        assert_eq!(default_memory(Profile::Smartdedup, 8 << 30), 64 << 20);
    }

    #[test]
    fn threads_follow_the_cpus_but_on_small_boards() {
        assert_eq!([1, 3, 64].map(|cpus| default_threads(Profile::Desktop, cpus)), [4, 6, 8]);
        assert_eq!(default_threads(Profile::Edge, 64), 2);
    }

    #[test]
    fn commands_open_volumes_with_settings_that_exist() {
        for (name, value) in without_worker(1, false).settings {
            settings::check(&name, &value).unwrap();
        }
    }

    #[test]
    fn the_page_on_profiles_has_every_setting_with_its_range_and_meaning() {
        let rows: Vec<String> = settings::descriptions()
            .map(|(name, range, what, live)| format!("| `{name}` | {range} | {what} | {} |", when(live)))
            .collect();
        let missing: Vec<&String> = rows.iter().filter(|row| !PAGE.lines().any(|line| line == *row)).collect();
        assert!(missing.is_empty(), "docs/profiles.md lacks these rows: {missing:#?}");
        let told = PAGE.lines().filter(|line| line.ends_with("| any time |") || line.ends_with("| at mount |"));
        assert_eq!(told.count(), rows.len(), "docs/profiles.md tells of settings that are gone");
    }

    fn when(live: bool) -> &'static str {
        if live { "any time" } else { "at mount" }
    }

    #[test]
    fn the_page_on_profiles_has_every_profile_in_the_order_of_the_help() {
        let head = format!("| setting | {} |", Profile::ALL.map(|profile| format!("`{}`", profile.name())).join(" | "));
        assert!(PAGE.lines().any(|line| line == head), "no line is {head}");
    }
}
