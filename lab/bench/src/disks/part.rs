//! The parts of the comparison of disks, which can be measured one by one.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::scenario::Scenario;
use crate::side::Side;

/// Steps with the same devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Part {
    /// Small files: two copies, reads, listings, deletion
    Trees,
    /// Writes with an fdatasync each
    Synced,
    /// Reads of a large file, in sequence and at random
    Reads,
    /// Writes of a large file, in sequence and at random, without duplicates and with many
    Writes,
    /// Writes with duplicates, on devices of the speed of a slow disk
    Throttled,
}

impl Part {
    /// What is measured, in order.
    pub fn scenarios(self) -> Vec<Scenario> {
        let writes = |duplicate_percent| {
            [Scenario::SequentialWrite { duplicate_percent }, Scenario::RandomWrite { duplicate_percent }]
        };
        match self {
            Part::Trees => vec![Scenario::Tree, Scenario::TreeAgain],
            Part::Synced => vec![Scenario::SyncedWrite],
            Part::Reads => vec![Scenario::Read],
            Part::Writes => [0, 75].into_iter().flat_map(writes).collect(),
            Part::Throttled => [25, 75].into_iter().flat_map(writes).collect(),
        }
    }

    /// The limit of a device is known, so a plain file system need not show it.
    pub fn takes(self, side: &Side) -> bool {
        self != Part::Throttled || side.deduplicates()
    }
}
