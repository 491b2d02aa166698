//! The format of streams: golden bytes, and the refusal of everything else.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

mod damage;
mod golden;
mod order;
mod sample;
