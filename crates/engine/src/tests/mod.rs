//! Tests of the engine as a whole, and the fixture that they share.

mod fault;
pub mod fixture;
mod unreadable;
#[cfg(test)]
pub mod unreadable_sectors;
pub mod watched;

// Under `schedules` every lock asks the scheduler, so tests with threads of their own cannot run.
#[cfg(feature = "schedules")]
mod schedule;

#[cfg(not(feature = "schedules"))]
mod around;
#[cfg(not(feature = "schedules"))]
mod authority;
#[cfg(not(feature = "schedules"))]
mod budget;
#[cfg(not(feature = "schedules"))]
pub mod compress;
#[cfg(not(feature = "schedules"))]
mod compress_in_line;
#[cfg(not(feature = "schedules"))]
mod compressed_layout;
#[cfg(not(feature = "schedules"))]
mod compressed_reads;
#[cfg(not(feature = "schedules"))]
mod counters;
#[cfg(not(feature = "schedules"))]
mod crash;
#[cfg(not(feature = "schedules"))]
mod defrag;
#[cfg(not(feature = "schedules"))]
mod expand;
#[cfg(not(feature = "schedules"))]
mod full_host;
#[cfg(not(feature = "schedules"))]
mod host_cache;
#[cfg(not(feature = "schedules"))]
mod lazy_clones;
#[cfg(not(feature = "schedules"))]
mod lock_order;
#[cfg(not(feature = "schedules"))]
mod map_look_ups;
#[cfg(not(feature = "schedules"))]
mod packs;
#[cfg(not(feature = "schedules"))]
mod race;
#[cfg(not(feature = "schedules"))]
mod revisit;
#[cfg(not(feature = "schedules"))]
mod room;
#[cfg(not(feature = "schedules"))]
mod run;
#[cfg(not(feature = "schedules"))]
mod scattered;
#[cfg(not(feature = "schedules"))]
mod scrub;
#[cfg(not(feature = "schedules"))]
mod stress;
#[cfg(not(feature = "schedules"))]
mod succession;
