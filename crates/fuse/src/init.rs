//! Negotiates features with the kernel before the first request.

use oncefs_transport::Negotiation;
use oncefs_transport::flags::init;

/// Requests of readahead and writeback under way at a time (the kernel's default of 12 starves fast devices).
const BACKGROUND_MAX: u16 = 64;
/// Above this many the kernel takes the file system for congested: three quarters, as by default.
const CONGESTION: u16 = 48;

/// Features to request. Those that an older kernel lacks are left out.
///
/// HANDLE_KILLPRIV_V2 spares a GETXATTR of `security.capability` at every write(2): 4 instead of 11 us per 4 KiB.
const WANTED: [u64; 17] = [
    init::ALLOW_IDMAP,
    init::ASYNC_DIO,
    init::ATOMIC_O_TRUNC,
    init::CACHE_SYMLINKS,
    init::DIRECT_IO_ALLOW_MMAP,
    init::DO_READDIRPLUS,
    init::DONT_MASK,
    init::EXPORT_SUPPORT,
    init::HANDLE_KILLPRIV_V2,
    init::MAX_PAGES,
    init::NO_OPENDIR_SUPPORT,
    init::PARALLEL_DIROPS,
    init::POSIX_ACL,
    init::READDIRPLUS_AUTO,
    init::SECURITY_CTX,
    init::SETXATTR_EXT,
    init::WRITEBACK_CACHE,
];

/// Requests what oncefs needs, and announces the limits that it supports.
pub(crate) fn negotiate(negotiation: &mut Negotiation, request_bytes_max: u32) {
    for flag in WANTED {
        if !negotiation.want(flag) {
            log::info!("this kernel does not support {}", init::name(flag));
        }
    }
    negotiation.request_bytes_max = request_bytes_max;
    negotiation.background_max = BACKGROUND_MAX;
    negotiation.congestion = CONGESTION;
}
