//! Attributes of inodes: permissions, owner, times, extended attributes, policy.

pub mod policy;
pub mod room;
pub mod set_attributes;
pub mod xattr;
