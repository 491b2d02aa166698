//! The settings of a mount: the profile's values, then those given with `mount -o`. The command `oncefs tune` can
//! change most of them while the volume is in use. One table (`table`) has every name, its range and its meaning.
//! [`Tuning`] holds the settings of an open volume, with lock-free copies of those that every request reads.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_compress::Method;
use oncefs_dedup::{
    AdmissionRule as Rule, Compress, Eviction, MountPolicy, PaceMode as Mode, RankRule, Ranks, Schedule, Slowdown,
};

use crate::sync::{AtomicBool, AtomicU64, LockRank, Mutex, MutexGuard};
use crate::{Blocks, Copies, Error, Profile, Result};

mod table;

use table::{FORMER_NAMES, SETTINGS};

const MIB: u64 = 1 << 20;
/// Memory for hints when 3.5 MB must hold all of dedup (SmartDedup, section 4). The allocator's overhead is not
/// included.
const SMALL_HINT_BYTES: u64 = 2900 << 10;
/// Memory for hints, as a share of the whole: sixteenths.
const HINT_PARTS: u64 = 6;
/// Memory for sampled hints follows the data area: 32 MiB for each TiB.
const BLOCKS_PER_HINT_BYTE: u64 = 8;
/// The minimum: on a small volume, saving less memory is not worth lost duplicates.
const SAMPLED_HINT_BYTES_MIN: u64 = MIB;
/// One content in this many has a hint, on average one block in each 256 KiB, from which runs are extended.
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

/// When the bytes of a stored block are compared with its tag, apart from the scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Only before a block becomes the target of a comparison.
    Off,
    /// Whenever it is read from the data area.
    Read,
    /// Also before it gets its second reference, so that good data is not dropped in favour of a rotten block.
    Share,
}

impl Verify {
    /// Whether every block is compared when it is read.
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
    /// The shortest run worth sharing; None: the budget decides.
    pub run_blocks_min: Option<u32>,
    /// The budget of each file; None: no limit.
    pub slowdown: Option<Slowdown>,
    /// How ranks of files change that.
    pub ranks: Ranks,
    /// The CPUs' busy share in percent above which the share of requests falls; 100: never.
    pub cpu_percent_max: u64,
    /// When fingerprints are computed.
    pub fingerprints: FingerprintMode,
    /// Bound of the memory level.
    pub hint_bytes: u64,
    /// The largest bound if it follows the data area ([`Settings::follow_data`]). None: it was set explicitly.
    pub hint_bytes_by_data_max: Option<u64>,
    /// Leading bits of a tag that form a group. None: as many as the hints need.
    pub prefix_bits: Option<u32>,
    /// Which hints leave the memory level.
    pub eviction: Eviction,
    /// One content in this many, chosen by its tag, enters the hint store. 1: every one.
    pub hint_sample: u32,
    /// Whether hints that leave memory are kept on disk.
    pub disk_level: bool,
    /// Bound of the skipped buffer. 0 if no worker empties it.
    pub skipped_bytes: u64,
    /// How often the skipped buffer is checkpointed.
    pub skipped_checkpoint: Duration,
    /// When the worker runs.
    pub worker: Mode,
    /// The hours of the week at which it may run.
    pub schedule: Schedule,
    /// Most blocks that the worker visits per minute. 0: no limit.
    pub worker_blocks_per_minute: u64,
    /// The volume is idle after this long without a request.
    pub idle_after: Duration,
    /// Deduplication is off at or below this battery charge.
    pub battery_percent_min: u64,
    /// When stored blocks are verified.
    pub verify: Verify,
    /// Whether the host's page cache keeps blocks that files share.
    pub host_cache: bool,
    /// Blocks with more references than this get a replica. 0: none.
    pub replicate_refs_above: u64,
    /// When blocks are compressed.
    pub compress: Compress,
    /// How they are compressed as they are written.
    pub compress_method: Method,
    /// How the worker and `oncefs compress` compress them.
    pub compress_method_later: Method,
    /// How many copies are kept of the record files.
    pub copies: Copies,
    /// When files are ranked, and how.
    pub rank_rule: RankRule,
    /// How far the clock for ranking files is ahead of the machine's.
    pub rank_clock_offset_seconds: i64,
    /// The profile that the settings started from.
    pub profile: Profile,
    /// The memory that the profile divides.
    pub memory_bytes_max: u64,
}

impl Settings {
    /// The settings of a profile with this much memory.
    pub fn of(profile: Profile, memory_bytes_max: u64) -> Self {
        let lrlfs = Self {
            inline: Inline::All,
            rule: Rule::PROBING,
            run_blocks_min: None,
            slowdown: None,
            ranks: Ranks::Off,
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
            schedule: Schedule::default(),
            worker_blocks_per_minute: 0,
            idle_after: Duration::from_millis(500),
            battery_percent_min: 20,
            verify: Verify::Read,
            host_cache: true,
            replicate_refs_above: 0,
            compress: Compress::Off,
            compress_method: Method::Zstd(1),
            compress_method_later: Method::Zstd(3),
            copies: Copies::One,
            rank_rule: RankRule::default(),
            rank_clock_offset_seconds: 0,
            profile,
            memory_bytes_max,
        };
        let two_levels = Self { inline: Inline::Adaptive, disk_level: true, skipped_bytes: MIB / 2, ..lrlfs.clone() };
        let desktop = Self {
            // A look-up is cheap, and its result decides the rest.
            rule: Rule { floor: 1.0, ..Rule::PROBING },
            slowdown: Some(Slowdown(100)),
            ranks: Ranks::On,
            skipped_bytes: (memory_bytes_max / 128).clamp(MIB / 2, 8 * MIB),
            worker: Mode::WhenIdle,
            copies: Copies::Two,
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
            Profile::Edge => {
                Self { hint_bytes: SMALL_HINT_BYTES, worker: Mode::WhenIdle, battery_percent_min: 100, ..two_levels }
            }
            Profile::Desktop => desktop,
            Profile::Server => Self {
                slowdown: Some(Slowdown(10)),
                hint_sample: SAMPLED_CONTENTS,
                hint_bytes_by_data_max: Some(desktop.hint_bytes),
                ..desktop
            },
            Profile::Selective => Self { ranks: Ranks::Paper, ..desktop },
            Profile::Idedup => Self {
                run_blocks_min: Some(4),
                fingerprints: FingerprintMode::Eager,
                eviction: Eviction::Singles,
                ..lrlfs
            },
        }
    }

    /// Adapts the memory level to a data area of this many blocks, unless its bound was set explicitly.
    pub fn follow_data(&mut self, data: Blocks) {
        if let Some(bytes_max) = self.hint_bytes_by_data_max {
            self.hint_bytes = (data.0 / BLOCKS_PER_HINT_BYTE).max(SAMPLED_HINT_BYTES_MIN).min(bytes_max);
        }
    }

    /// The profile's own settings for a data area of this many blocks.
    pub fn of_profile(&self, data: Blocks) -> Self {
        let mut own = Self::of(self.profile, self.memory_bytes_max);
        own.follow_data(data);
        own
    }

    /// The part of the settings that concerns all files.
    pub fn mount_policy(&self) -> MountPolicy {
        MountPolicy { ranks: self.ranks, run_blocks_min: self.run_blocks_min, slowdown: self.slowdown }
    }

    /// Whether files are ranked by their use.
    pub fn ranks_files(&self) -> bool {
        self.ranks != Ranks::Off
    }

    /// Changes a setting by name. `is_live`: on a mounted volume, where some are fixed.
    pub fn set(&mut self, name: &str, value: &str, is_live: bool) -> Result<()> {
        let name = current_name(name);
        let setting = SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            Error::Invalid(format!("there is no setting '{name}'; the settings are: {}", names.join(", ")))
        })?;
        if is_live && !setting.live {
            return Err(Error::Invalid(format!("{name} can only be set when the volume is mounted (-o {name}=...)")));
        }
        match setting.set(self, value) {
            true => Ok(()),
            false => Err(Error::Invalid(format!("{name} must be {}, not '{value}'", setting.range()))),
        }
    }

    /// All of them, by name.
    pub fn list(&self) -> BTreeMap<String, String> {
        SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.get(self))).collect()
    }
}

/// Refuses a setting that does not exist, or a value out of its range.
pub fn check(name: &str, value: &str) -> Result<()> {
    Settings::of(Profile::default(), MIB << 10).set(name, value, false)
}

/// Name, meaning and range of every setting, for help texts and pages.
pub fn descriptions() -> impl Iterator<Item = (&'static str, String, &'static str, bool)> {
    SETTINGS.iter().map(|setting| (setting.name, setting.range(), setting.what, setting.live))
}

/// The present name of a setting, given its present or a former name.
pub fn current_name(name: &str) -> &str {
    FORMER_NAMES.iter().find(|(former, _)| *former == name).map_or(name, |(_, current)| current)
}

/// Whether a setting has this name, or had it formerly.
pub fn is_setting(name: &str) -> bool {
    let name = current_name(name);
    SETTINGS.iter().any(|setting| setting.name == name)
}

#[cfg(test)]
mod tests;

/// The settings of a mount.
pub struct Tuning {
    settings: Mutex<Settings>,
    /// Held while settings change.
    changing: Mutex<()>,
    verifies_reads: AtomicBool,
    verifies_shares: AtomicBool,
    uses_host_cache: AtomicBool,
    ranks_files: AtomicBool,
    /// The bits of a signed number.
    rank_clock_offset_seconds: AtomicU64,
}

impl Tuning {
    /// The settings of a mount.
    pub fn new(settings: Settings) -> Self {
        Self {
            verifies_reads: AtomicBool::new(settings.verify.covers_reads()),
            verifies_shares: AtomicBool::new(settings.verify.covers_shares()),
            uses_host_cache: AtomicBool::new(settings.host_cache),
            ranks_files: AtomicBool::new(settings.ranks_files()),
            rank_clock_offset_seconds: AtomicU64::new(settings.rank_clock_offset_seconds.cast_unsigned()),
            settings: Mutex::new(LockRank::Settings, settings),
            changing: Mutex::new(LockRank::Tuning, ()),
        }
    }

    /// A copy of all settings.
    pub fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Reads the settings. `ask` takes no lock.
    pub fn with<T>(&self, ask: impl FnOnce(&Settings) -> T) -> T {
        ask(&self.settings.lock())
    }

    /// Holds off other changes of settings while the guard lives.
    pub fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Makes requests follow these settings from now on, as far as they read the copies.
    pub fn follow(&self, settings: &Settings) {
        self.verifies_reads.store(settings.verify.covers_reads(), Relaxed);
        self.verifies_shares.store(settings.verify.covers_shares(), Relaxed);
        self.uses_host_cache.store(settings.host_cache, Relaxed);
        self.ranks_files.store(settings.ranks_files(), Relaxed);
        self.rank_clock_offset_seconds.store(settings.rank_clock_offset_seconds.cast_unsigned(), Relaxed);
    }

    /// Replaces the settings. `before` sees the old and the new ones, under the lock.
    pub fn replace(&self, settings: Settings, before: impl FnOnce(&Settings, &Settings)) {
        let mut now = self.settings.lock();
        before(&now, &settings);
        *now = settings;
    }

    /// Whether every block that is read is verified.
    pub fn verifies_reads(&self) -> bool {
        self.verifies_reads.load(Relaxed)
    }

    /// Whether a block is read before it is shared for the first time.
    pub fn verifies_shares(&self) -> bool {
        self.verifies_shares.load(Relaxed)
    }

    /// Whether shared blocks are read through the host's page cache.
    pub fn uses_host_cache(&self) -> bool {
        self.uses_host_cache.load(Relaxed)
    }

    /// Whether files are ranked by their use.
    pub fn ranks_files(&self) -> bool {
        self.ranks_files.load(Relaxed)
    }

    /// How far the clock for ranks is ahead of the machine's.
    pub fn rank_clock_offset_seconds(&self) -> i64 {
        self.rank_clock_offset_seconds.load(Relaxed).cast_signed()
    }
}

#[cfg(test)]
impl Tuning {
    /// Whether no thread holds the settings for longer than `time`.
    #[cfg(not(feature = "schedules"))]
    pub fn is_free_within(&self, time: std::time::Duration) -> bool {
        self.settings.try_lock_for(time).is_some()
    }
}
