//! What is set on an inode: permissions, owner, times, extended attributes, access control lists, policy.

pub mod policy;
pub mod set_attributes;
pub mod xattr;
