//! Flags in messages, by the message.

/// The features that kernel and daemon agree on at INIT, bits 0 to 63.
#[allow(missing_docs, reason = "fuse.h explains each")]
pub mod init {
    macro_rules! flags {
        ($($name:ident = $bit:literal;)*) => {
            $(pub const $name: u64 = 1 << $bit;)*

            /// The name of one flag, for messages.
            pub fn name(flag: u64) -> &'static str {
                match flag {
                    $($name => stringify!($name),)*
                    _ => "unknown",
                }
            }
        };
    }

    flags! {
        ASYNC_READ = 0;
        POSIX_LOCKS = 1;
        ATOMIC_O_TRUNC = 3;
        EXPORT_SUPPORT = 4;
        BIG_WRITES = 5;
        DONT_MASK = 6;
        FLOCK_LOCKS = 10;
        AUTO_INVAL_DATA = 12;
        DO_READDIRPLUS = 13;
        READDIRPLUS_AUTO = 14;
        ASYNC_DIO = 15;
        WRITEBACK_CACHE = 16;
        NO_OPEN_SUPPORT = 17;
        PARALLEL_DIROPS = 18;
        HANDLE_KILLPRIV = 19;
        POSIX_ACL = 20;
        ABORT_ERROR = 21;
        MAX_PAGES = 22;
        CACHE_SYMLINKS = 23;
        NO_OPENDIR_SUPPORT = 24;
        EXPLICIT_INVAL_DATA = 25;
        HANDLE_KILLPRIV_V2 = 28;
        SETXATTR_EXT = 29;
        INIT_EXT = 30;
        SECURITY_CTX = 32;
        CREATE_SUPP_GROUP = 34;
        HAS_EXPIRE_ONLY = 35;
        DIRECT_IO_ALLOW_MMAP = 36;
        NO_EXPORT_SUPPORT = 38;
        ALLOW_IDMAP = 40;
        OVER_IO_URING = 41;
    }
}

/// How the kernel treats an open file: `FOPEN_...`.
pub mod opened {
    /// Reads and writes bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Cached pages stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The kernel may cache the listing of a directory.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// No FLUSH at close(2); without effect where writes are cached.
    pub const NO_FLUSH: u32 = 1 << 5;
}

/// Where a WRITE comes from: `FUSE_WRITE_...`.
pub mod write {
    /// From the page cache, some time after write(2).
    pub const CACHE: u32 = 1 << 0;
    /// The file loses set-user-id and set-group-id.
    pub const KILL_SUIDGID: u32 = 1 << 2;
}
