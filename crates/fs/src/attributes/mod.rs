//! Attributes of inodes: permissions, owner, times, flags, extended attributes, policy.

pub mod flags;
pub mod policy;
pub mod set_attributes;
pub mod xattr;
pub mod xattr_bounds;
