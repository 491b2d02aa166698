//! `/dev/fuse`: opening it, reading messages, writing replies and notifications.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::protocol::header::encode_out;

/// Opens `/dev/fuse`: the daemon's end of a future mount.
///
/// # Errors
/// The device is missing. The message says what to do.
pub fn open_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => io::Error::new(
            e.kind(),
            "there is no /dev/fuse: load the kernel module (modprobe fuse), or pass the device to the container",
        ),
        _ => io::Error::new(e.kind(), format!("cannot open /dev/fuse: {e}")),
    })?;
    Ok(device.into())
}

/// The daemon's end of one mount.
#[derive(Debug)]
pub(crate) struct Device(File);

/// The result of waiting for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes of a message.
    Message(usize),
    /// The mount is gone.
    Unmounted,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Waits for a message.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match (&self.0).read(buffer) {
                Ok(len) => return Ok(Received::Message(len)),
                Err(e) => match e.raw_os_error() {
                    // ENOENT: the request was canceled while it was read.
                    Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => {}
                    // Unmounted; or aborted by fusectl, or by the end of the process that mounted.
                    Some(libc::ENODEV | libc::ECONNABORTED) => return Ok(Received::Unmounted),
                    _ => return Err(e),
                },
            }
        }
    }

    /// Sends a reply in one write, as the kernel requires. `error` is an errno, 0 for none.
    pub(crate) fn reply(&self, unique: u64, error: i32, body: &[u8]) {
        assert!(error == 0 || body.is_empty(), "a reply of errno {error} has {} bytes", body.len());
        let header = encode_out(body.len(), error, unique);
        let sent = loop {
            match (&self.0).write_vectored(&[IoSlice::new(&header), IoSlice::new(body)]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                sent => break sent,
            }
        };
        match sent {
            Ok(_) => {}
            // The caller no longer waits: the request was aborted, or the mount is gone.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED)) => {}
            Err(e) => log::error!("the kernel refuses the reply to request {unique}: {e}"),
        }
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, message: &[u8]) -> io::Result<()> {
        (&self.0).write(message).map(drop)
    }
}
