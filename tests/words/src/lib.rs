//! Reads the pages, manifests and sources of a checkout, for the tests that hold them to rules and to each other.

pub mod checkout;
pub mod code_map;
pub mod declared;
pub mod history;
pub mod layout;
pub mod manifest;
pub mod packages;
pub mod page;
pub mod structure;
