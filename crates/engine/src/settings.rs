//! What can be set for one mount: the profile's values, then what `mount -o` names, and most of it again by
//! `oncefs tune` while the volume is in use. One table (`table`) has every name, its range and its meaning.

use std::collections::BTreeMap;
use std::time::Duration;

use oncefs_dedup::{Eviction, PaceMode as Mode, SelectivityRule as Rule};

use crate::{Blocks, Error, Profile, Result};

mod table;

use table::SETTINGS;

const MIB: u64 = 1 << 20;
/// Memory for hints where 3.5 MB must hold all of dedup (SmartDedup, section 4): the allocator's waste comes on top.
const SMALL_HINT_BYTES: u64 = 2900 << 10;
/// Memory for hints, as a share of the whole: sixteenths.
const HINT_PARTS: u64 = 6;
/// Memory for sampled hints follows the data area: 32 MiB for each TiB.
const BLOCKS_PER_HINT_BYTE: u64 = 8;
/// And is not less than this: a small volume is not worth losing duplicates to save less.
const SAMPLED_HINT_BYTES_MIN: u64 = MIB;
/// One content of so many is named, on average one block in each 256 KiB, from which runs are extended.
const SAMPLED_CONTENTS: u32 = 64;

/// Which requests are looked up as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// None.
    Off,
    /// All.
    All,
    /// A share that follows the duplicates found (SmartDedup, section 3.4).
    Adaptive,
}

/// When fingerprints are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintMode {
    /// For every block.
    Eager,
    /// When a tag matches.
    Lazy,
    /// Eager while duplicates are being found.
    Auto,
}

/// When the bytes of a stored block are compared with its tag, the scrub aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Only before a block becomes the target of a comparison.
    Off,
    /// Whenever it is read from the data area.
    Read,
    /// Also before it gets its second reference: what would be dropped for a rotten block is kept.
    Share,
}

impl Verify {
    /// Whether every block that is read is compared.
    pub fn covers_reads(self) -> bool {
        self != Self::Off
    }

    /// Whether every block is compared before it is shared for the first time.
    pub fn covers_shares(self) -> bool {
        self == Self::Share
    }
}

/// The settings of one mount.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which requests are looked up as they are written.
    pub inline: Inline,
    /// How their share follows the duplicates found.
    pub rule: Rule,
    /// The shortest run worth sharing; None: chosen for each file.
    pub run_blocks_min: Option<u32>,
    /// The CPUs' busy share in percent above which the share of requests falls; 100: never.
    pub cpu_percent_max: u64,
    /// When fingerprints are computed.
    pub fingerprints: FingerprintMode,
    /// Bound of the memory level.
    pub hint_bytes: u64,
    /// The bound follows the data area ([`Settings::follow_data`]) up to so much; None: it was set.
    pub hint_bytes_by_data_max: Option<u64>,
    /// Leading bits of a tag that make a group; None: as many as the hints need.
    pub prefix_bits: Option<u32>,
    /// What leaves the memory level.
    pub eviction: Eviction,
    /// One content of so many, chosen by its tag, enters the hint store; 1: every one.
    pub hint_sample: u32,
    /// Whether hints that leave memory are kept on disk.
    pub disk_level: bool,
    /// Bound of the skipped buffer; 0 where no worker empties it.
    pub skipped_bytes: u64,
    /// How often the skipped buffer is checkpointed.
    pub skipped_checkpoint: Duration,
    /// When the worker runs.
    pub worker: Mode,
    /// How many blocks the worker looks at in a minute at most; 0: any number.
    pub worker_blocks_per_minute: u64,
    /// Idle means: no request for so long.
    pub idle_after: Duration,
    /// At this charge of the battery and below nothing is deduplicated.
    pub low_power_percent: u64,
    /// When stored blocks are verified.
    pub verify: Verify,
    /// Blocks with more references are kept twice; 0: none.
    pub copies_above: u64,
}

impl Settings {
    /// The settings of a profile in so much memory.
    pub fn of(profile: Profile, memory_bytes_max: u64) -> Self {
        let lrlfs = Self {
            inline: Inline::All,
            rule: Rule::PROBING,
            run_blocks_min: Some(1),
            cpu_percent_max: 100,
            fingerprints: FingerprintMode::Auto,
            hint_bytes: memory_bytes_max / 16 * HINT_PARTS,
            hint_bytes_by_data_max: None,
            prefix_bits: None,
            eviction: Eviction::ColdOfGroups,
            hint_sample: 1,
            disk_level: false,
            skipped_bytes: 0,
            skipped_checkpoint: Duration::from_secs(30),
            worker: Mode::Off,
            worker_blocks_per_minute: 0,
            idle_after: Duration::from_millis(500),
            low_power_percent: 20,
            verify: Verify::Read,
            copies_above: 0,
        };
        let two_levels = Self { inline: Inline::Adaptive, disk_level: true, skipped_bytes: MIB / 2, ..lrlfs.clone() };
        let desktop = Self {
            run_blocks_min: None,
            skipped_bytes: (memory_bytes_max / 128).clamp(MIB / 2, 8 * MIB),
            worker: Mode::WhenIdle,
            ..two_levels.clone()
        };
        match profile {
            Profile::Lrlfs => lrlfs,
            Profile::Smartdedup => Self {
                rule: Rule::PAPER,
                fingerprints: FingerprintMode::Eager,
                hint_bytes: SMALL_HINT_BYTES,
                prefix_bits: Some(14),
                worker: Mode::Always,
                ..two_levels
            },
            Profile::Edge => Self {
                fingerprints: FingerprintMode::Eager,
                hint_bytes: SMALL_HINT_BYTES,
                worker: Mode::WhenIdle,
                low_power_percent: 100,
                ..two_levels
            },
            Profile::Desktop => desktop,
            Profile::Server => {
                Self { hint_sample: SAMPLED_CONTENTS, hint_bytes_by_data_max: Some(desktop.hint_bytes), ..desktop }
            }
            Profile::Idedup => Self {
                run_blocks_min: Some(4),
                fingerprints: FingerprintMode::Eager,
                eviction: Eviction::Singles,
                ..lrlfs
            },
        }
    }

    /// The data area has so many blocks: the memory level gets what is due to it, unless that was set.
    pub fn follow_data(&mut self, data: Blocks) {
        if let Some(bytes_max) = self.hint_bytes_by_data_max {
            self.hint_bytes = (data.0 / BLOCKS_PER_HINT_BYTE).max(SAMPLED_HINT_BYTES_MIN).min(bytes_max);
        }
    }

    /// Sets one of them by name. `is_live`: on a mounted volume, where some are fixed.
    pub fn set(&mut self, name: &str, value: &str, is_live: bool) -> Result<()> {
        let setting = SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            Error::Invalid(format!("there is no setting '{name}'; there are: {}", names.join(", ")))
        })?;
        if is_live && !setting.live {
            return Err(Error::Invalid(format!("{name} can only be set when the volume is mounted (-o {name}=...)")));
        }
        let refused = || Error::Invalid(format!("{name} must be {}, not '{value}'", setting.range.text()));
        let number = setting.range.parse(value).ok_or_else(refused)?;
        (setting.set)(self, number);
        Ok(())
    }

    /// All of them, by name.
    pub fn list(&self) -> BTreeMap<String, String> {
        SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.range.show((setting.get)(self)))).collect()
    }
}

/// Refuses a setting that does not exist, or a value out of its range.
pub fn check(name: &str, value: &str) -> Result<()> {
    Settings::of(Profile::default(), MIB << 10).set(name, value, false)
}

/// Name, meaning and range of every setting, for help texts and pages.
pub fn descriptions() -> impl Iterator<Item = (&'static str, String, &'static str, bool)> {
    SETTINGS.iter().map(|setting| (setting.name, setting.range.text(), setting.what, setting.live))
}

/// Whether there is a setting of that name.
pub fn is_setting(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_comes_back_from_its_own_text() {
        for profile in Profile::ALL {
            let settings = Settings::of(profile, 256 * MIB);
            let mut other = Settings::of(Profile::Lrlfs, 64 * MIB);
            for (name, value) in settings.list() {
                other.set(&name, &value, false).unwrap();
            }
            // A bound that is named follows nothing.
            assert_eq!(other, Settings { hint_bytes_by_data_max: None, ..settings }, "{profile:?}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_allowed_range() {
        let mut settings = Settings::of(Profile::Desktop, 256 * MIB);
        let before = settings.clone();
        for (name, value, message) in [
            ("inline_floor_percent", "0", "1 to 100"),
            ("inline_floor_percent", "-3", "1 to 100"),
            ("hint_memory", "1K", "4K to 1024G"),
            ("hint_memory", "99999999999999999999G", "4K to 1024G"),
            ("worker", "sometimes", "off, idle, always"),
            ("run_blocks_min", "0", "auto or 1 to 256"),
            ("run_blocks_min", "257", "auto or 1 to 256"),
            ("run_blocks_min", "Auto", "auto or 1 to 256"),
            ("speed", "11", "no setting 'speed'"),
        ] {
            let error = settings.set(name, value, true).unwrap_err().to_string();
            assert!(error.contains(message), "{name}={value}: {error}");
        }
        for (name, value) in [("eviction", "groups"), ("hint_sample", "64")] {
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
}
