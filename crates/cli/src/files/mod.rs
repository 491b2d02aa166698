//! Access of commands to files in a mount: by descriptors and without following links, because users can replace every
//! name while a command of root works.

pub mod attributes;
mod create;
pub mod flags;
pub mod held;
pub mod in_mount;
pub mod reserved;
pub mod walk;
