//! Negotiates features with the kernel before the first request.

use std::io;

use fuser::{InitFlags, KernelConfig};

/// Requests of readahead and writeback under way at a time (the kernel's default of 12 starves fast devices).
const BACKGROUND_MAX: u16 = 64;
/// Above this many the kernel takes the file system for congested: three quarters, as by default.
const CONGESTION: u16 = 48;

/// What is asked of the kernel; what an older one lacks is left out.
///
/// HANDLE_KILLPRIV_V2 spares a GETXATTR of `security.capability` at every write(2): 4 instead of 11 us per 4 KiB.
/// What fuser 0.18 does not pass on of it is made up for in `caller`.
const WANTED: [InitFlags; 14] = [
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_WRITEBACK_CACHE,
];

/// Asks for what oncefs needs and offers what it can take.
pub(crate) fn negotiate(config: &mut KernelConfig, request_bytes_max: u32) -> io::Result<()> {
    for flag in WANTED {
        if config.add_capabilities(flag).is_err() {
            log::info!("this kernel does not support {flag:?}");
        }
    }
    // A value that is refused comes back as the nearest one that is not.
    let refused =
        |nearest| io::Error::new(io::ErrorKind::InvalidInput, format!("the kernel accepts at most {nearest}"));
    config.set_max_write(request_bytes_max).map_err(refused)?;
    config.set_max_background(BACKGROUND_MAX).map_err(|nearest| refused(nearest.into()))?;
    config.set_congestion_threshold(CONGESTION).map_err(|nearest| refused(nearest.into()))?;
    Ok(())
}
