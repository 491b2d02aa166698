//! The table of settings: name, range, meaning, and how each is read and written as a number.

use std::time::Duration;

use oncefs_dedup::{Eviction, PaceMode as Mode, Ranks, Schedule, Slowdown};
use oncefs_toolbox::sizes;

use super::{Compress, FingerprintMode, Inline, Settings, Verify};
use crate::Copies;

/// The values that a setting can have.
pub enum Range {
    /// A number.
    Number {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A number that may be negative, kept as its two's complement.
    Signed {
        /// The greatest distance from 0.
        max: u64,
    },
    /// 0 stands for `auto`.
    AutoOrNumber {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A number from 0 on. The largest number stands for `none`.
    NumberOrNone {
        /// The maximum.
        max: u64,
    },
    /// A number with a unit.
    Bytes {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// The number is the index in the list.
    Choice(&'static [&'static str]),
}

impl Range {
    /// A description of the range.
    pub fn text(&self) -> String {
        match self {
            Self::Number { min, max } => format!("{min} to {max}"),
            Self::Signed { max } => format!("-{max} to {max}"),
            Self::AutoOrNumber { min, max } => format!("{AUTO} or {min} to {max}"),
            Self::NumberOrNone { max } => format!("{NONE} or 0 to {max}"),
            Self::Bytes { min, max } => format!("{} to {}", sizes::exact(*min), sizes::exact(*max)),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// Parses a number. None: it is out of range.
    pub fn parse(&self, value: &str) -> Option<u64> {
        match self {
            Self::AutoOrNumber { .. } if value == AUTO => Some(0),
            Self::NumberOrNone { .. } if value == NONE => Some(u64::MAX),
            Self::NumberOrNone { max } => value.parse().ok().filter(|number| number <= max),
            Self::Number { min, max } | Self::AutoOrNumber { min, max } => {
                value.parse().ok().filter(|number| (min..=max).contains(&number))
            }
            Self::Signed { max } => {
                let number: Option<i64> = value.parse().ok();
                number.filter(|number| number.unsigned_abs() <= *max).map(i64::cast_unsigned)
            }
            Self::Bytes { min, max } => sizes::parse(value).ok().filter(|bytes| (min..=max).contains(&bytes)),
            Self::Choice(words) => words.iter().position(|word| *word == value).map(|place| place as u64),
        }
    }

    /// A number as text that `parse` accepts.
    pub fn show(&self, number: u64) -> String {
        match self {
            Self::AutoOrNumber { .. } if number == 0 => AUTO.to_owned(),
            Self::Signed { .. } => number.cast_signed().to_string(),
            Self::NumberOrNone { .. } if number == u64::MAX => NONE.to_owned(),
            Self::Number { .. } | Self::AutoOrNumber { .. } | Self::NumberOrNone { .. } | Self::Bytes { .. } => {
                number.to_string()
            }
            Self::Choice(words) => {
                let count = words.len() as u64;
                assert!(number < count, "choice {number} of {count}");
                words[number as usize].to_owned()
            }
        }
    }
}

/// oncefs chooses.
const AUTO: &str = "auto";
/// There is no limit.
const NONE: &str = "none";
/// One setting.
pub struct Setting {
    /// Its name in commands and reports.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Whether it can be changed on a mounted volume.
    pub live: bool,
    value: Value,
}

/// How a setting is read and written.
enum Value {
    /// A number, whatever its meaning.
    Number { range: Range, get: fn(&Settings) -> u64, set: fn(&mut Settings, u64) },
    /// Text of a form of its own, which `set` checks.
    Text { form: &'static str, get: fn(&Settings) -> String, set: fn(&mut Settings, &str) -> bool },
}

impl Setting {
    /// A description of its range.
    pub fn range(&self) -> String {
        match &self.value {
            Value::Number { range, .. } => range.text(),
            Value::Text { form, .. } => (*form).to_owned(),
        }
    }

    /// Its value, as text that `set` accepts.
    pub fn get(&self, settings: &Settings) -> String {
        match &self.value {
            Value::Number { range, get, .. } => range.show(get(settings)),
            Value::Text { get, .. } => get(settings),
        }
    }

    /// Sets it. False: the value is not allowed.
    pub fn set(&self, settings: &mut Settings, value: &str) -> bool {
        match &self.value {
            Value::Number { range, set, .. } => range.parse(value).map(|number| set(settings, number)).is_some(),
            Value::Text { set, .. } => set(settings, value),
        }
    }
}

const fn setting(
    name: &'static str,
    range: Range,
    live: bool,
    get: fn(&Settings) -> u64,
    set: fn(&mut Settings, u64),
    what: &'static str,
) -> Setting {
    // The table is a constant, so an impossible range is found when oncefs is compiled.
    match &range {
        Range::Number { min, max } | Range::AutoOrNumber { min, max } | Range::Bytes { min, max } => {
            assert!(*min < *max, "a range is from the least to the greatest");
        }
        Range::NumberOrNone { max } => {
            assert!(0 < *max && *max < u64::MAX, "a range is from the least to the greatest")
        }
        Range::Signed { max } => assert!(*max <= i64::MAX as u64, "its two's complement has 64 bits"),
        Range::Choice(words) => assert!(words.len() > 1, "a choice has at least two words"),
    }
    Setting { name, what, live, value: Value::Number { range, get, set } }
}

const fn text(
    name: &'static str,
    form: &'static str,
    live: bool,
    get: fn(&Settings) -> String,
    set: fn(&mut Settings, &str) -> bool,
    what: &'static str,
) -> Setting {
    Setting { name, what, live, value: Value::Text { form, get, set } }
}

fn percent(share: f64) -> u64 {
    (share * 100.0).round() as u64
}

fn share(percent: u64) -> f64 {
    percent as f64 / 100.0
}

const INLINE: [Inline; 3] = [Inline::Off, Inline::All, Inline::Adaptive];
const RANKS: [Ranks; 3] = [Ranks::Off, Ranks::On, Ranks::Paper];
const FINGERPRINTS: [FingerprintMode; 3] = [FingerprintMode::Eager, FingerprintMode::Lazy, FingerprintMode::Auto];
const EVICTIONS: [Eviction; 3] = [Eviction::Groups, Eviction::ColdOfGroups, Eviction::Singles];
const VERIFY: [Verify; 3] = [Verify::Off, Verify::Read, Verify::Share];
const MODES: [Mode; 3] = [Mode::Off, Mode::WhenIdle, Mode::Always];

/// The longest time span that moments of that clock can represent.
const RANK_CLOCK_OFFSET_MAX: u64 = u32::MAX as u64;

/// Ten years.
const RANK_SECONDS_MAX: u64 = 10 * 365 * 86_400;

/// The index of a value among all values of its kind.
fn place<T: PartialEq>(all: &[T], value: &T) -> u64 {
    all.iter().position(|other| other == value).expect("the list has every value") as u64
}

/// Former names of settings, each with the name that replaced it. Mount options in fstab may still use them.
pub static FORMER_NAMES: [(&str, &str); 6] = [
    ("inline_floor_percent", "inline_percent_min"),
    ("prefix_bits", "hint_prefix_bits"),
    ("eviction", "hint_eviction"),
    ("disk_level", "hint_disk_level"),
    ("low_power_percent", "battery_percent_min"),
    ("copies_above", "replicate_refs_above"),
];

/// Makes a list of entries: how each is made, its name, and the other arguments.
macro_rules! list {
    ($($make:ident $name:literal: $($argument:expr),+;)+) => { &[$($make($name, $($argument),+)),+] };
}

/// All settings: name, range, whether it can be changed on a mounted volume, how it is read and written, its meaning.
pub static SETTINGS: &[Setting] = list! {
    setting "inline": Range::Choice(&["off", "all", "adaptive"]), true,
        |s| place(&INLINE, &s.inline), |s, n| s.inline = INLINE[n as usize],
        "which write requests to look up in-line";
    setting "inline_percent_min": Range::Number { min: 1, max: 100 }, true,
        |s| percent(s.rule.floor), |s, n| s.rule.floor = share(n),
        "adaptive: the smallest share of requests to look up";
    setting "inline_window_requests": Range::Number { min: 10, max: 100_000 }, true,
        |s| u64::from(s.rule.window_requests), |s, n| s.rule.window_requests = n as u32,
        "adaptive: requests per window";
    setting "inline_windows": Range::Number { min: 1, max: 1_000 }, true,
        |s| u64::from(s.rule.windows), |s, n| s.rule.windows = n as u32,
        "adaptive: windows to compare the last one with";
    setting "inline_step_down_percent": Range::Number { min: 1, max: 100 }, true,
        |s| percent(s.rule.step_down), |s, n| s.rule.step_down = share(n),
        "adaptive: how far the share falls after a window with fewer duplicates";
    setting "inline_step_up_percent": Range::Number { min: 1, max: 100 }, true,
        |s| percent(s.rule.step_up), |s, n| s.rule.step_up = share(n),
        "adaptive: how far the share rises after a window with more duplicates";
    setting "run_blocks_min": Range::AutoOrNumber { min: 1, max: 256 }, true,
        |s| s.run_blocks_min.map_or(0, u64::from), |s, n| s.run_blocks_min = (n > 0).then_some(n as u32),
        "the shortest run of blocks to share; auto: as read_slowdown_percent_max allows";
    setting "read_slowdown_percent_max": Range::NumberOrNone { max: Slowdown::PERCENT_MAX as u64 }, true,
        |s| s.slowdown.map_or(u64::MAX, |slowdown| slowdown.0.into()),
        |s, n| s.slowdown = u32::try_from(n).ok().map(Slowdown),
        "how much longer a file may take to read in sequence because its blocks are shared; none: no limit";
    setting "ranks": Range::Choice(&["off", "on", "paper"]), true,
        |s| place(&RANKS, &s.ranks), |s, n| s.ranks = RANKS[n as usize],
        "rank files by use: off; on: a rank sets how a file shares; paper: new files also share nothing";
    setting "cpu_percent_max": Range::Number { min: 10, max: 100 }, true,
        |s| s.cpu_percent_max, |s, n| s.cpu_percent_max = n,
        "CPU load above which fewer requests are looked up; 100: no limit";
    setting "compress": Range::Choice(&["off", "later", "inline", "auto"]), false,
        |s| place(&Compress::ALL, &s.compress), |s, n| s.compress = Compress::ALL[n as usize],
        "experimental: when to compress blocks: never, by the worker, as they are written, or as the device needs it; earlier \
         versions cannot open the volume any more";
    text "compress_method": "lz4, zstd, or zstd: and a level from 1 to 19", true,
        |s| s.compress_method.to_string(), |s, text| text.parse().map(|method| s.compress_method = method).is_ok(),
        "how to compress blocks as they are written, while a program waits: at most level 3";
    text "compress_method_later": "lz4, zstd, or zstd: and a level from 1 to 19", true,
        |s| s.compress_method_later.to_string(),
        |s, text| text.parse().map(|method| s.compress_method_later = method).is_ok(),
        "how the worker and oncefs compress compress blocks: a higher level takes longer and saves a little more";
    setting "fingerprints": Range::Choice(&["eager", "lazy", "auto"]), true,
        |s| place(&FINGERPRINTS, &s.fingerprints), |s, n| s.fingerprints = FINGERPRINTS[n as usize],
        "when to compute the strong hash of a block: always, where a tag matches, or always while duplicates are found and \
         where the device is slow";
    setting "hint_memory": Range::Bytes { min: 4 << 10, max: 1 << 40 }, true,
        |s| s.hint_bytes, |s, n| (s.hint_bytes, s.hint_bytes_by_data_max) = (n, None),
        "memory for hints";
    setting "hint_prefix_bits": Range::Number { min: 0, max: 24 }, false,
        |s| u64::from(s.prefix_bits.unwrap_or(0)),
        |s, n| s.prefix_bits = (n > 0).then_some((n as u32).max(oncefs_dedup::PREFIX_BITS_MIN)),
        "leading tag bits that form a group of hints; 0: as many as needed; others: at least 8";
    setting "hint_eviction": Range::Choice(&["groups", "cold", "singles"]), false,
        |s| place(&EVICTIONS, &s.eviction), |s, n| s.eviction = EVICTIONS[n as usize],
        "what to evict when hint memory is full: groups, the cold hints of groups, or single hints";
    setting "hint_sample": Range::Number { min: 1, max: 1_024 }, false,
        |s| u64::from(s.hint_sample), |s, n| s.hint_sample = n as u32,
        "keep a hint for one in this many contents and find the rest as neighbours; 1: all";
    setting "hint_disk_level": Range::Choice(&["off", "on"]), false,
        |s| u64::from(s.disk_level), |s, n| s.disk_level = n == 1,
        "keep hints on disk after they leave memory";
    setting "skipped_memory": Range::Bytes { min: 0, max: 8 << 20 }, true,
        |s| s.skipped_bytes, |s, n| s.skipped_bytes = n,
        "memory for the list of skipped blocks";
    setting "skipped_checkpoint_seconds": Range::Number { min: 1, max: 3_600 }, true,
        |s| s.skipped_checkpoint.as_secs(), |s, n| s.skipped_checkpoint = Duration::from_secs(n),
        "how often to write the list of skipped blocks to disk";
    setting "worker": Range::Choice(&["off", "idle", "always"]), true,
        |s| place(&MODES, &s.worker), |s, n| s.worker = MODES[n as usize],
        "when to deduplicate out of line";
    text "schedule": Schedule::FORM, true,
        |s| s.schedule.to_string(), |s, text| text.parse().map(|schedule| s.schedule = schedule).is_ok(),
        "hours of local time when the worker may run; '+' stands for a comma";
    setting "worker_blocks_per_minute": Range::Number { min: 0, max: 1_000_000_000 }, true,
        |s| s.worker_blocks_per_minute, |s, n| s.worker_blocks_per_minute = n,
        "most blocks the worker examines per minute; 0: no limit";
    setting "idle_after_ms": Range::Number { min: 10, max: 3_600_000 }, true,
        |s| s.idle_after.as_millis() as u64, |s, n| s.idle_after = Duration::from_millis(n),
        "idle after this long without a request";
    setting "battery_percent_min": Range::Number { min: 0, max: 100 }, true,
        |s| s.battery_percent_min, |s, n| s.battery_percent_min = n,
        "battery charge at which deduplication stops; above it, the rate follows the charge";
    setting "verify": Range::Choice(&["off", "read", "share"]), true,
        |s| place(&VERIFY, &s.verify), |s, n| s.verify = VERIFY[n as usize],
        "when to check a block against its checksum: off, read: on every read, share: also before its first share";
    setting "host_cache": Range::Choice(&["off", "shared"]), true,
        |s| u64::from(s.host_cache), |s, n| s.host_cache = n == 1,
        "what the host's page cache keeps of the data area: nothing, or the blocks that files share";
    setting "replicate_refs_above": Range::Number { min: 0, max: 1_000_000_000 }, true,
        |s| s.replicate_refs_above, |s, n| s.replicate_refs_above = n,
        "the scrub keeps a replica of blocks with more references than this; 0: none";
    setting "copies": Range::Number { min: 1, max: 2 }, false,
        |s| u64::from(s.copies.number()), |s, n| s.copies = if n > 1 { Copies::Two } else { Copies::One },
        "copies to keep of the record files, which hold names and maps; 2: damage to one is undone";
    setting "rank_hot_seconds_max": Range::Number { min: 0, max: RANK_SECONDS_MAX }, true,
        |s| u64::from(s.rank_rule.hot_seconds_max), |s, n| s.rank_rule.hot_seconds_max = n as u32,
        "a file not accessed for longer than this is cold";
    setting "rank_evaluation_seconds_min": Range::Number { min: 0, max: RANK_SECONDS_MAX }, true,
        |s| u64::from(s.rank_rule.evaluation_seconds_min), |s, n| s.rank_rule.evaluation_seconds_min = n as u32,
        "a file written more recently than this gets no rank";
    setting "rank_evaluation_reads_min": Range::Number { min: 0, max: 1_000_000 }, true,
        |s| u64::from(s.rank_rule.evaluation_reads_min), |s, n| s.rank_rule.evaluation_reads_min = n as u32,
        "a file with fewer block reads than this gets no rank, unless it is cold";
    setting "rank_clock_offset_seconds": Range::Signed { max: RANK_CLOCK_OFFSET_MAX }, true,
        |s| s.rank_clock_offset_seconds.cast_unsigned(), |s, n| s.rank_clock_offset_seconds = n.cast_signed(),
        "how far the ranking clock is ahead of the machine's; for tests";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_carry_units() {
        let range = Range::Bytes { min: 7, max: 1 << 40 };
        assert_eq!(
            ["3M", "512K", "7", "1G", "3.5M", "1 KiB"].map(|text| range.parse(text)),
            [Some(3 << 20), Some(512 << 10), Some(7), Some(1 << 30), Some(7 << 19), Some(1 << 10)]
        );
        assert_eq!(["", "M", "3X", "6", "1025G"].map(|text| range.parse(text)), [None; 5]);
        assert_eq!(range.text(), "7 to 1024G");
    }

    #[test]
    fn numbers_may_be_negative_where_the_range_says_so() {
        let range = Range::Signed { max: 90 };
        for text in ["-90", "-1", "0", "90"] {
            assert_eq!(range.parse(text).map(|number| range.show(number)).as_deref(), Some(text));
        }
        assert_eq!(["-91", "91", "x", ""].map(|text| range.parse(text)), [None; 4]);
        assert_eq!(range.text(), "-90 to 90");
    }
}
