//! Results as replies.

use std::time::Duration;

use fuser::{Errno, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};
use oncefs_fs::{Attributes, Result};

use crate::convert::{file_attr, generation};
use crate::durable::Answer;
use crate::errno::errno;

/// How long the kernel may remember names and attributes: longer than any mount lives.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

pub(crate) fn reply_attr(answer: Answer<Attributes>, reply: ReplyAttr) {
    match answer {
        Ok(attributes) => reply.attr(&FOREVER, &file_attr(&attributes)),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn reply_entry(answer: Answer<Attributes>, reply: ReplyEntry) {
    match answer {
        Ok(attributes) => reply.entry(&FOREVER, &file_attr(&attributes), generation(&attributes)),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn reply_empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// A value, or its length if the caller asks for that.
pub(crate) fn reply_xattr(result: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(errno(&error)),
    }
}
