//! The kernel's protocol (include/uapi/linux/fuse.h, version 7.45) as types: decodes the kernel's messages without
//! trusting them, and encodes the daemon's. No file, thread or system call.

pub mod attributes;
pub mod extensions;
pub mod flags;
pub mod header;
pub mod listing;
pub mod negotiation;
pub mod notification;
pub mod opcode;
pub mod operation;
pub mod request;
pub(crate) mod wire;
pub(crate) mod wire_out;

pub use wire::Malformed;
