//! Who may do what: on files (the kernel decides, from what the daemon tells it), on the volume, and with the daemon.
//!
//! Users are child processes with other ids. What a program could do with a broken kernel or as root is not covered.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

#[path = "security/attributes.rs"]
mod attributes;
#[path = "security/crowding.rs"]
mod crowding;
#[path = "security/daemon.rs"]
mod daemon;
#[path = "security/deep_names.rs"]
mod deep_names;
#[path = "security/foreign_mounts.rs"]
mod foreign_mounts;
#[path = "security/inference.rs"]
mod inference;
#[path = "security/mount_options.rs"]
mod mount_options;
#[path = "security/permissions.rs"]
mod permissions;
#[path = "security/privileges.rs"]
mod privileges;
#[path = "security/terminals.rs"]
mod terminals;
#[path = "security/user.rs"]
mod user;
#[path = "security/volume.rs"]
mod volume;
#[path = "security/walks.rs"]
mod walks;
