//! Reads the pages, manifests and sources of a checkout, for the tests that hold them to rules and to each other.

pub mod checkout;
pub mod page;
