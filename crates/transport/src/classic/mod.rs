//! The classic way: threads read messages from `/dev/fuse` and write replies to it.

mod readers;
pub(crate) mod serve;
