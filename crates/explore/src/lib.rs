//! Crash explorer: runs workloads on a volume with recorded devices, makes every state that a crash may leave, lets
//! oncefs recover it, audits it with fsck's code, and compares it with a model that knows the data that must survive.
//! `docs/crash-explorer.md` describes the explored cases and how to add to them.

pub mod effect;
pub mod explore;
pub mod image;
pub mod judge;
mod keyed_objects;
pub mod live;
pub mod medium;
pub mod model;
pub mod objects;
pub mod operation;
pub mod plan;
pub mod point;
pub mod report;
pub mod setups;
pub mod states;
pub mod tape;
pub mod visible_state;
pub mod workload;

mod compression;
mod directed;
mod perform;
mod random_work;
mod vocabulary;
