//! Turns results into replies.

use oncefs_fs::{Attributes, Result};
use oncefs_transport::{Errno, Reply};

use crate::convert::{FOREVER, entry, shown};
use crate::durable::Answer;
use crate::errno::errno;

/// Replies with the value, or with the error.
pub(crate) fn reply_with<T>(answer: Answer<T>, reply: Reply, tell: impl FnOnce(Reply, T)) {
    match answer {
        Ok(value) => tell(reply, value),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn reply_attributes(answer: Answer<Attributes>, reply: Reply) {
    reply_with(answer, reply, |reply, attributes| reply.attributes(&shown(&attributes), FOREVER));
}

pub(crate) fn reply_entry(answer: Answer<Attributes>, reply: Reply) {
    reply_with(answer, reply, |reply, attributes| reply.entry(&entry(&attributes)));
}

pub(crate) fn reply_done(answer: Answer<()>, reply: Reply) {
    reply_with(answer, reply, |reply, ()| reply.ok());
}

/// Replies with a value, or with its length if `size` is 0.
pub(crate) fn reply_xattr(result: Result<Vec<u8>>, size: u32, reply: Reply) {
    match result {
        // No value and no list is longer than 64 KiB.
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::new(libc::ERANGE)),
        Err(error) => reply.error(errno(&error)),
    }
}
