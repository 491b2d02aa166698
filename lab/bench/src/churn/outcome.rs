//! What was read on one file system, round by round, and the ratios of it.

use serde::Serialize;

use super::setting::Setting;
use crate::failure::Result;
use crate::side::Side;

/// Figures of a volume at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// What fragments take.
    pub fragment_bytes: u64,
    /// What the blocks of their packs take.
    pub pack_bytes: u64,
    /// Written to the data area so far.
    pub data_bytes: u64,
    /// Of it by packing anew.
    pub repack_bytes: u64,
}

impl Reading {
    /// Asks a mounted volume. All is 0 on another file system.
    pub fn take(side: &Side) -> Result<Reading> {
        if side.daemon().is_none() {
            return Ok(Reading::default());
        }
        let stats = side.stats()?;
        Ok(Reading {
            fragment_bytes: stats.number("space", "fragment_bytes")?,
            pack_bytes: stats.number("space", "pack_bytes")?,
            data_bytes: stats.number("counters", "data_bytes_written")?,
            repack_bytes: stats.number("counters", "repack_bytes_written")?,
        })
    }

    /// The same with what was written before this mount.
    pub fn after(self, earlier: Reading) -> Reading {
        let data_bytes = self.data_bytes + earlier.data_bytes;
        Reading { data_bytes, repack_bytes: self.repack_bytes + earlier.repack_bytes, ..self }
    }

    /// The share of the packs' blocks that fragments fill. None: there are no packs.
    pub fn density(&self) -> Option<f64> {
        ratio(self.fragment_bytes, self.pack_bytes)
    }

    /// By how much packing anew has multiplied what is written to the data area.
    pub fn factor(&self) -> Option<f64> {
        ratio(self.data_bytes, self.data_bytes.saturating_sub(self.repack_bytes))
    }
}

/// A round, the first of which is the copy.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// By the program.
    pub written_bytes: u64,
    /// When it was durable.
    pub before: Reading,
    /// When the worker had nothing more to do.
    pub after: Reading,
}

/// What has happened to the device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Wear {
    /// Written to it until it was unmounted.
    pub device_bytes: u64,
    /// In use then, beyond the empty file system.
    pub stored_bytes: u64,
}

/// One file system.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Which.
    pub setting: Setting,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// By the copy.
    pub copied: Wear,
    /// By the rounds after it.
    pub used: Wear,
    /// The most memory of the daemon.
    pub peak_memory: Option<u64>,
}

impl Outcome {
    /// Written by the program: in the copy, and in the rounds after it.
    pub fn written(&self) -> [u64; 2] {
        let (copy, rounds) = self.rounds.split_at(1);
        [copy, rounds].map(|rounds| rounds.iter().map(|round| round.written_bytes).sum())
    }

    /// Device bytes per byte of the program: in the copy, and in the rounds after it.
    pub fn wear(&self) -> [Option<f64>; 2] {
        let [copied, used] = self.written();
        [ratio(self.copied.device_bytes, copied), ratio(self.used.device_bytes, used)]
    }

    /// The last figures.
    pub fn last(&self) -> Reading {
        self.rounds.last().map(|round| round.after).unwrap_or_default()
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn reading(fragment_bytes: u64, pack_bytes: u64, data_bytes: u64, repack_bytes: u64) -> Reading {
        Reading { fragment_bytes, pack_bytes, data_bytes, repack_bytes }
    }

    /// A copy of 1 MB, and a round of as much.
    pub fn outcome(setting: Setting) -> Outcome {
        let round = |before, after| Round { written_bytes: 1_000_000, before, after };
        let (copied, dense) = (reading(0, 0, 500_000, 0), reading(480_000, 500_000, 1_500_000, 300_000));
        Outcome {
            setting,
            rounds: vec![round(copied, copied), round(copied, dense)],
            copied: Wear { device_bytes: 3_000_000, stored_bytes: 600_000 },
            used: Wear { device_bytes: 1_500_000, stored_bytes: 700_000 },
            peak_memory: Some(5_000_000),
        }
    }

    #[test]
    fn ratios_are_of_what_was_written_and_a_volume_without_packs_has_none() {
        let outcome = outcome(Setting::Later);
        assert_eq!(outcome.wear(), [Some(3.0), Some(1.5)]);
        assert_eq!((outcome.last().density(), outcome.last().factor()), (Some(0.96), Some(1.25)));
        assert_eq!((outcome.rounds[0].after.density(), Reading::default().factor()), (None, None));
    }

    #[test]
    fn what_an_earlier_mount_wrote_counts_and_what_it_held_does_not() {
        assert_eq!(reading(1, 2, 30, 4).after(reading(9, 9, 300, 40)), reading(1, 2, 330, 44));
    }
}
