//! Tests of the promises that a cluster and its twin in memory share.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

mod keys;
mod objects;
