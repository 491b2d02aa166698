//! Holds `docs/format.md` to the code: samples of every structure, and a real volume, are read by what the page says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod copies;
mod fragments;
mod images;
mod on_disk;
mod structures;

/// The page.
const PAGE: &str = "docs/format.md";
