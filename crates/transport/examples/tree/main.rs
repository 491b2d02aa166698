//! A file tree in memory, served until it is unmounted: `tree DIR auto|rings|classic`. Shows how a file system uses the
//! transport. The transport's tests mount it.
//!
//! A read of the file `wait` lasts until its caller gets a signal. One of `patient` holds its thread until there is a
//! file `go`, and then lasts as long if others can be served meanwhile. `stats` has the counts so far.

mod nodes;
mod serve;

use std::io::{self, Write};
use std::os::fd::AsFd;

use oncefs_transport::{KnobLock, MountSpec, Session, Settings, Transport, attach, open_device, unmount};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, dir, transport] = &arguments[..] else {
        return Err(io::Error::other("usage: tree DIR auto|rings|classic"));
    };
    let transport: Transport = transport.parse().map_err(io::Error::other)?;
    let spec = MountSpec { source: "tree".into(), dir: dir.into(), kind: "fuse.tree", kernel_flags: 0 };
    let settings = Settings { transport, threads: 4, ring_bytes_max: 64 << 20 };
    let lock = KnobLock::open()?;
    let session = {
        let mut knobs = lock.take()?;
        knobs.turn_on_rings(transport);
        let device = open_device()?;
        drop(attach(device.as_fd(), &spec)?);
        let started = Session::start(device, serve::Tree::new(), &settings);
        started.inspect_err(|_| drop(unmount(&spec.dir, libc::MNT_DETACH)))?
    };
    writeln!(io::stdout(), "ready {}", session.way())?;
    session.run()
}
