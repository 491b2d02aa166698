//! Error numbers as the kernel gets them.

use std::io;

/// An errno, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// One of `libc::E...`. A number that the kernel does not accept as an errno becomes EIO.
    pub const fn new(code: i32) -> Self {
        /// The kernel refuses larger numbers (from its internal ERESTARTSYS on).
        const CODE_MAX: i32 = 511;
        match code {
            1..=CODE_MAX => Self(code),
            _ => Self(libc::EIO),
        }
    }

    /// The number, positive.
    pub const fn code(self) -> i32 {
        self.0
    }
}

impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_errno_becomes_an_input_output_error() {
        for (code, told) in
            [(libc::ENOENT, libc::ENOENT), (0, libc::EIO), (-2, libc::EIO), (512, libc::EIO), (511, 511)]
        {
            assert_eq!(Errno::new(code).code(), told, "{code}");
        }
        assert_eq!(Errno::from(&io::Error::other("no number")).code(), libc::EIO);
    }
}
