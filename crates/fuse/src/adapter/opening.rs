//! What opening a file does: it truncates, and is noted.

use fuser::{FopenFlags, OpenFlags, Request};
use oncefs_fs::{Ino, Result, SetAttributes};

use super::Adapter;
use crate::convert::writes;
use crate::privileges::{lacks_fsetid, privileges_left};

impl Adapter {
    /// Notes that a file is open and says what the kernel may do with it.
    pub(super) fn opened(&self, ino: Ino, flags: OpenFlags) -> FopenFlags {
        if writes(flags) {
            self.kernel_cache.writer_opened(ino);
        }
        FopenFlags::FOPEN_KEEP_CACHE
    }

    /// Refuses to open a file for what its flags forbid.
    pub(super) fn check_opened(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        match writes(flags) {
            true => self.file_system.check_opened_to_write(ino, flags.0 & libc::O_APPEND != 0),
            false => Ok(()),
        }
    }

    /// Truncates a file that is opened with O_TRUNC.
    pub(super) fn truncate_opened(&self, req: &Request, ino: Ino, flags: OpenFlags) -> Result<()> {
        if flags.0 & libc::O_TRUNC == 0 {
            return Ok(());
        }
        let privileges = privileges_left(&self.file_system, req, ino, lacks_fsetid(req));
        let set = SetAttributes { size: Some(0), privileges, ..SetAttributes::default() };
        self.file_system.setattr(ino, &set).map(drop)
    }
}
