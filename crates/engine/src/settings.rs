//! What can be set for one mount: the profile's values, then what `mount -o` names, and most of it again by
//! `oncefs tune` while the volume is in use. One table has every name, its range and its meaning.

use std::collections::BTreeMap;
use std::time::Duration;

use oncefs_dedup::{Eviction, PaceMode as Mode, SelectivityRule as Rule};

use crate::{Blocks, Error, Profile, Result};

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

/// What a setting can be.
enum Range {
    Number {
        min: u64,
        max: u64,
    },
    /// 0 stands for `auto`.
    AutoOrNumber {
        min: u64,
        max: u64,
    },
    Bytes {
        min: u64,
        max: u64,
    },
    /// The number is the place in the list.
    Choice(&'static [&'static str]),
}

impl Range {
    fn text(&self) -> String {
        match self {
            Self::Number { min, max } => format!("{min} to {max}"),
            Self::AutoOrNumber { min, max } => format!("{AUTO} or {min} to {max}"),
            Self::Bytes { min, max } => format!("{} to {}", bytes_text(*min), bytes_text(*max)),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    fn parse(&self, value: &str) -> Option<u64> {
        match self {
            Self::AutoOrNumber { .. } if value == AUTO => Some(0),
            Self::Number { min, max } | Self::AutoOrNumber { min, max } => {
                value.parse().ok().filter(|number| (min..=max).contains(&number))
            }
            Self::Bytes { min, max } => parse_bytes(value).filter(|bytes| (min..=max).contains(&bytes)),
            Self::Choice(words) => words.iter().position(|word| *word == value).map(|place| place as u64),
        }
    }

    fn show(&self, number: u64) -> String {
        match self {
            Self::AutoOrNumber { .. } if number == 0 => AUTO.to_owned(),
            Self::Number { .. } | Self::AutoOrNumber { .. } | Self::Bytes { .. } => number.to_string(),
            Self::Choice(words) => words[number as usize].to_owned(),
        }
    }
}

/// oncefs chooses.
const AUTO: &str = "auto";
const UNITS: [(char, u64); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

fn bytes_text(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(letter, size)| format!("{}{letter}", bytes / size))
}

fn parse_bytes(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find_map(|(letter, size)| Some((text.strip_suffix(*letter)?, *size)));
    let (digits, size) = unit.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(size)
}

/// One setting. Its value is a number, whatever it means.
struct Setting {
    name: &'static str,
    what: &'static str,
    range: Range,
    /// Can be changed on a mounted volume.
    live: bool,
    get: fn(&Settings) -> u64,
    set: fn(&mut Settings, u64),
}

const fn setting(
    name: &'static str,
    range: Range,
    live: bool,
    get: fn(&Settings) -> u64,
    set: fn(&mut Settings, u64),
    what: &'static str,
) -> Setting {
    Setting { name, what, range, live, get, set }
}

fn percent(share: f64) -> u64 {
    (share * 100.0).round() as u64
}

fn share(percent: u64) -> f64 {
    percent as f64 / 100.0
}

const INLINE: [Inline; 3] = [Inline::Off, Inline::All, Inline::Adaptive];
const FINGERPRINTS: [FingerprintMode; 3] = [FingerprintMode::Eager, FingerprintMode::Lazy, FingerprintMode::Auto];
const EVICTIONS: [Eviction; 3] = [Eviction::Groups, Eviction::ColdOfGroups, Eviction::Singles];
const VERIFY: [Verify; 3] = [Verify::Off, Verify::Read, Verify::Share];
const MODES: [Mode; 3] = [Mode::Off, Mode::WhenIdle, Mode::Always];

/// The place of a value among all values of its kind.
fn place<T: PartialEq>(all: &[T], value: &T) -> u64 {
    all.iter().position(|other| other == value).expect("the list has every value") as u64
}

static SETTINGS: &[Setting] = &[
    setting(
        "inline",
        Range::Choice(&["off", "all", "adaptive"]),
        true,
        |s| place(&INLINE, &s.inline),
        |s, n| s.inline = INLINE[n as usize],
        "which written requests are looked up at once",
    ),
    setting(
        "inline_floor_percent",
        Range::Number { min: 1, max: 100 },
        true,
        |s| percent(s.rule.floor),
        |s, n| s.rule.floor = share(n),
        "adaptive: the smallest share of requests looked up",
    ),
    setting(
        "inline_window_requests",
        Range::Number { min: 10, max: 100_000 },
        true,
        |s| u64::from(s.rule.window_requests),
        |s, n| s.rule.window_requests = n as u32,
        "adaptive: requests in a window",
    ),
    setting(
        "inline_windows",
        Range::Number { min: 1, max: 1_000 },
        true,
        |s| u64::from(s.rule.windows),
        |s, n| s.rule.windows = n as u32,
        "adaptive: windows that the last one is compared with",
    ),
    setting(
        "inline_step_down_percent",
        Range::Number { min: 1, max: 100 },
        true,
        |s| percent(s.rule.step_down),
        |s, n| s.rule.step_down = share(n),
        "adaptive: how far the share falls after a window with fewer duplicates",
    ),
    setting(
        "inline_step_up_percent",
        Range::Number { min: 1, max: 100 },
        true,
        |s| percent(s.rule.step_up),
        |s, n| s.rule.step_up = share(n),
        "adaptive: how far it rises after a window with more",
    ),
    setting(
        "run_blocks_min",
        Range::AutoOrNumber { min: 1, max: 256 },
        true,
        |s| s.run_blocks_min.map_or(0, u64::from),
        |s, n| s.run_blocks_min = (n > 0).then_some(n as u32),
        "the shortest run of blocks worth sharing; auto: chosen for each file",
    ),
    setting(
        "cpu_percent_max",
        Range::Number { min: 10, max: 100 },
        true,
        |s| s.cpu_percent_max,
        |s, n| s.cpu_percent_max = n,
        "busy share of the CPUs above which fewer requests are looked up; 100: never",
    ),
    setting(
        "fingerprints",
        Range::Choice(&["eager", "lazy", "auto"]),
        true,
        |s| place(&FINGERPRINTS, &s.fingerprints),
        |s, n| s.fingerprints = FINGERPRINTS[n as usize],
        "when the strong hash of a block is computed",
    ),
    setting(
        "hint_memory",
        Range::Bytes { min: 4 << 10, max: 1 << 40 },
        true,
        |s| s.hint_bytes,
        |s, n| (s.hint_bytes, s.hint_bytes_by_data_max) = (n, None),
        "bound of the hints in memory",
    ),
    setting(
        "prefix_bits",
        Range::Number { min: 0, max: 24 },
        false,
        |s| u64::from(s.prefix_bits.unwrap_or(0)),
        |s, n| s.prefix_bits = (n > 0).then_some((n as u32).max(oncefs_dedup::PREFIX_BITS_MIN)),
        "leading bits of a tag that make a group of hints; 0: as many as the hints need, else at least 8",
    ),
    setting(
        "eviction",
        Range::Choice(&["groups", "cold", "singles"]),
        false,
        |s| place(&EVICTIONS, &s.eviction),
        |s, n| s.eviction = EVICTIONS[n as usize],
        "what leaves full memory: groups, the cold hints of groups, or single hints",
    ),
    setting(
        "hint_sample",
        Range::Number { min: 1, max: 1_024 },
        false,
        |s| u64::from(s.hint_sample),
        |s, n| s.hint_sample = n as u32,
        "hints name one content of so many, the others are found as neighbours; 1: every one",
    ),
    setting(
        "disk_level",
        Range::Choice(&["off", "on"]),
        false,
        |s| u64::from(s.disk_level),
        |s, n| s.disk_level = n == 1,
        "whether hints that leave memory are kept on disk",
    ),
    setting(
        "skipped_memory",
        Range::Bytes { min: 0, max: 8 << 20 },
        true,
        |s| s.skipped_bytes,
        |s, n| s.skipped_bytes = n,
        "bound of the skipped buffer",
    ),
    setting(
        "skipped_checkpoint_seconds",
        Range::Number { min: 1, max: 3_600 },
        true,
        |s| s.skipped_checkpoint.as_secs(),
        |s, n| s.skipped_checkpoint = Duration::from_secs(n),
        "how often the skipped buffer is written to disk",
    ),
    setting(
        "worker",
        Range::Choice(&["off", "idle", "always"]),
        true,
        |s| place(&MODES, &s.worker),
        |s, n| s.worker = MODES[n as usize],
        "when blocks are deduplicated out of line",
    ),
    setting(
        "worker_blocks_per_minute",
        Range::Number { min: 0, max: 1_000_000_000 },
        true,
        |s| s.worker_blocks_per_minute,
        |s, n| s.worker_blocks_per_minute = n,
        "how many blocks the worker looks at in a minute at most; 0: any number",
    ),
    setting(
        "idle_after_ms",
        Range::Number { min: 10, max: 3_600_000 },
        true,
        |s| s.idle_after.as_millis() as u64,
        |s, n| s.idle_after = Duration::from_millis(n),
        "idle means: no request for so long",
    ),
    setting(
        "low_power_percent",
        Range::Number { min: 0, max: 100 },
        true,
        |s| s.low_power_percent,
        |s, n| s.low_power_percent = n,
        "charge of the battery at which deduplication ends; above, its rate follows the charge",
    ),
    setting(
        "verify",
        Range::Choice(&["off", "read", "share"]),
        true,
        |s| place(&VERIFY, &s.verify),
        |s, n| s.verify = VERIFY[n as usize],
        "when a block is compared with its checksum: never, as it is read, or also before it is shared for the first time",
    ),
    setting(
        "copies_above",
        Range::Number { min: 0, max: 1_000_000_000 },
        true,
        |s| s.copies_above,
        |s, n| s.copies_above = n,
        "the scrub keeps blocks with more references twice; 0: none",
    ),
];

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

    #[test]
    fn sizes_carry_units() {
        assert_eq!(
            ["3M", "512K", "7", "1G"].map(parse_bytes),
            [Some(3 << 20), Some(512 << 10), Some(7), Some(1 << 30)]
        );
        assert_eq!(["", "M", "3X", "3.5M"].map(parse_bytes), [None; 4]);
        assert_eq!([3 << 20, 1 << 40, 7, 0].map(bytes_text), ["3M", "1024G", "7", "0"]);
    }
}
