//! The functions of librados, found at run time. Their types are those of `rados/librados.h` of version 16 and later.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::{Error, Result};

/// The name that the dynamic linker looks for.
const NAME: &str = "librados.so.2";

/// A connection, an I/O context, a completion, an operation, a list or the pairs of a read. librados owns what it points to.
pub type Handle = *mut c_void;
/// Called by a thread of librados when an operation is done: the completion, and the caller's argument.
pub type Callback = unsafe extern "C" fn(Handle, *mut c_void);

/// cmpxattr: the attribute must be equal.
pub const EQUAL: u8 = 1;
/// A lock that this client has is taken again, and lasts from then on.
pub const MAY_RENEW: u8 = 1;
/// The operation fails on a full pool, instead of waiting.
pub const FULL_TRY: c_int = 64;
/// The operation goes on while the pool is full.
pub const FULL_FORCE: c_int = 128;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Makes every operation of an I/O context fail on a full pool, instead of waiting. None: this version of
            /// the library lacks it.
            pub rados_set_pool_full_try: Option<unsafe extern "C" fn(Handle)>,
            /// Keeps them loaded.
            _library: libloading::Library,
        }

        impl Library {
            fn load() -> std::result::Result<Self, libloading::Error> {
                // SAFETY: the initializers of librados expect nothing of the process.
                let library = unsafe { libloading::Library::new(NAME) }?;
                // SAFETY: the type of each symbol is that in the header. The pointers are used as long as `_library`.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        rados_set_pool_full_try: library.get(b"rados_set_pool_full_try\0").ok().map(|symbol| *symbol),
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    rados_create(*mut Handle, *const c_char) -> c_int;
    rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
    rados_connect(Handle) -> c_int;
    rados_shutdown(Handle);
    rados_blocklist_add(Handle, *const c_char, u32) -> c_int;
    rados_wait_for_latest_osdmap(Handle) -> c_int;
    rados_mon_command(Handle, *const *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize,
        *mut *mut c_char, *mut usize) -> c_int;
    rados_buffer_free(*mut c_char);
    rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados_ioctx_destroy(Handle);
    rados_ioctx_set_namespace(Handle, *const c_char);
    rados_ioctx_get_id(Handle) -> i64;
    rados_pool_reverse_lookup(Handle, i64, *mut c_char, usize) -> c_int;
    rados_nobjects_list_open(Handle, *mut Handle) -> c_int;
    rados_nobjects_list_next(Handle, *mut *const c_char, *mut *const c_char, *mut *const c_char) -> c_int;
    rados_nobjects_list_close(Handle);
    rados_aio_create_completion2(*mut c_void, Callback, *mut Handle) -> c_int;
    rados_aio_release(Handle);
    rados_aio_get_return_value(Handle) -> c_int;
    rados_aio_read(Handle, *const c_char, Handle, *mut c_char, usize, u64) -> c_int;
    rados_aio_stat(Handle, *const c_char, Handle, *mut u64, *mut libc::time_t) -> c_int;
    rados_create_write_op() -> Handle;
    rados_release_write_op(Handle);
    rados_write_op_assert_exists(Handle);
    rados_write_op_cmpxattr(Handle, *const c_char, u8, *const c_char, usize);
    rados_write_op_setxattr(Handle, *const c_char, *const c_char, usize);
    rados_write_op_create(Handle, c_int, *const c_char);
    rados_write_op_write(Handle, *const c_char, usize, u64);
    rados_write_op_write_full(Handle, *const c_char, usize);
    rados_write_op_zero(Handle, u64, u64);
    rados_write_op_remove(Handle);
    rados_write_op_omap_set2(Handle, *const *const c_char, *const *const c_char, *const usize, *const usize, usize);
    rados_write_op_omap_rm_keys2(Handle, *const *const c_char, *const usize, usize);
    rados_write_op_omap_rm_range2(Handle, *const c_char, usize, *const c_char, usize);
    rados_create_read_op() -> Handle;
    rados_release_read_op(Handle);
    rados_read_op_omap_get_vals2(Handle, *const c_char, *const c_char, u64, *mut Handle, *mut u8, *mut c_int);
    rados_read_op_omap_get_vals_by_keys2(Handle, *const *const c_char, usize, *const usize, *mut Handle, *mut c_int);
    rados_aio_read_op_operate(Handle, Handle, Handle, *const c_char, c_int) -> c_int;
    rados_omap_get_next2(Handle, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize) -> c_int;
    rados_omap_get_end(Handle);
    rados_aio_write_op_operate(Handle, Handle, Handle, *const c_char, *mut libc::time_t, c_int) -> c_int;
    rados_lock_exclusive(Handle, *const c_char, *const c_char, *const c_char, *const c_char, *mut libc::timeval, u8)
        -> c_int;
    rados_lock_shared(Handle, *const c_char, *const c_char, *const c_char, *const c_char, *const c_char,
        *mut libc::timeval, u8) -> c_int;
    rados_unlock(Handle, *const c_char, *const c_char, *const c_char) -> c_int;
    rados_break_lock(Handle, *const c_char, *const c_char, *const c_char, *const c_char) -> c_int;
    rados_list_lockers(Handle, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut usize, *mut c_char,
        *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize) -> isize;
}

/// The library, which stays loaded for the life of the process.
///
/// # Errors
///
/// [`Error::Library`].
pub fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| Library::load().map_err(|e| e.to_string()));
    loaded.as_ref().map_err(|why| Error::Library(why.clone()))
}

/// A text for librados. None of ours holds a NUL.
pub fn c_text(text: &str) -> std::ffi::CString {
    std::ffi::CString::new(text.replace('\0', "")).expect("every NUL was removed")
}
