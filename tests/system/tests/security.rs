//! Who may do what: on files (the kernel decides, from what the daemon tells it), on the volume, and with the daemon.
//!
//! Users are child processes with other ids. What a program could do with a broken kernel or as root is not covered.

mod attributes;
mod budgets;
mod crowding;
mod daemon;
mod deep_names;
mod foreign_mounts;
mod inference;
mod mount_options;
mod permissions;
mod privileges;
mod terminals;
pub(crate) mod user;
mod volume;
mod walks;
