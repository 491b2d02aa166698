//! The published state: everything that the publish lock protects, and what readers pin.

pub mod checkpoint_store;
pub mod claimed_room;
pub mod extents;
pub mod flag_change;
pub mod fragment_holders;
pub mod fragments;
pub mod group;
pub mod loaded_pages;
pub mod loading;
pub mod maps;
pub mod pending_clones;
pub mod published;
pub mod records;
pub mod released;
pub mod replacements;
pub mod reserved_counts;
pub mod seek;
pub mod staging;
pub mod table;
