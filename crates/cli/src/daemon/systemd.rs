//! systemd's readiness protocol, sd_notify(3): a datagram to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The mount exists.
pub const READY: &str = "READY=1";
/// The mount has ended, the volume is being closed.
pub const STOPPING: &str = "STOPPING=1";

/// Notifies systemd, if it asked for that.
pub fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(e) = send(&socket, state) {
        log::warn!("cannot notify systemd: {e}");
    }
}

fn send(socket: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_socket_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("oncefs-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();

        send(path.as_os_str(), READY).unwrap();
        send(OsStr::new(&format!("@{name}")), STOPPING).unwrap();

        let mut buffer = [0; 32];
        let len = by_path.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"READY=1");
        let len = by_name.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"STOPPING=1");
    }
}
