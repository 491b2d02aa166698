//! Replays traces of writes through oncefs's dedup decisions, beside an oracle and baselines from the literature.
//!
//! Owns traces, their generator, the designs that are compared and the reports. Knows `oncefs-dedup` and
//! `oncefs-compress`, and neither the engine nor a real device: what the simulator finds is what the decisions find. `docs/sim.md` says what is modelled,
//! what is assumed, and what came out.

mod comparison;
mod compression;
mod contents;
mod design_choice;
mod designs;
mod device;
mod generate;
mod idedup;
mod optimum;
mod oracle;
mod ranks;
mod replay;
mod served;
#[cfg(test)]
mod testing;
mod trace;
mod volume;

pub use comparison::{Comparison, ComparisonOptions, MemoryPoint, Run, TwinResult};
pub use compression::{CompressedCorpus, compression_table};
pub use design_choice::{DesignChoice, Settings};
pub use designs::*;
pub use device::{DEVICES, DISK, DeviceModel, DiskWork, FAST, ReadOutcome, THROTTLED};
pub use generate::*;
pub use idedup::{FilerResult, Filers, Idedup, IdedupOptions, IdedupRun, Index, Limit, Made, RunResult};
pub use oncefs_plot::{Bars, Chart, Series};
pub use optimum::most_saved;
pub use oracle::{Oracle, Truth};
pub use ranks::{RankedCorpus, RanksOptions, Stored, StoredByRun, ranks_table, runs_table};
pub use replay::{Idle, Requests, replay};
pub use served::{Served, read_cold};
pub use trace::*;
pub use volume::{Released, Volume};
