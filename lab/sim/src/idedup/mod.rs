//! iDedup's experiments on twins of its traces: which replays there are, and the tables and charts made of them.

mod costs;
mod experiment;
mod plots;
mod runs;
mod tables;
mod verdicts;

pub use experiment::{FilerResult, Filers, Idedup, IdedupOptions, IdedupRun, Index, Limit, Made, RunResult};
