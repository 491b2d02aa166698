//! A mount turns only its own knobs of the kernel, even if it goes away meanwhile. Needs root and `/dev/fuse`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncefs_fuse::{
    MOUNT_TYPE, MountFlags, MountSpec, RoomLeft, RoomWatch, Session, SessionSpec, Settings, Transport, Watched, attach,
    open_device, unmount,
};
use oncefs_transport::{Negotiation, Reply, Request, Service};

/// Does not answer, and loses its mount before it is ready.
struct Gone(PathBuf);

impl Service for Gone {
    fn init(&mut self, _: &mut Negotiation) -> io::Result<()> {
        unmount(&self.0, libc::MNT_DETACH)
    }

    fn serve(&self, _: Request<'_>, reply: Reply) {
        drop(reply);
    }

    fn forget(&self, _: u64, _: u64) {}
}

fn limits(dir: &Path) -> Vec<String> {
    let device = fs::metadata(dir).unwrap().dev();
    let knobs = format!("/sys/class/bdi/{}:{}", libc::major(device), libc::minor(device));
    let read = |knob| fs::read_to_string(format!("{knobs}/{knob}")).unwrap();
    ["strict_limit", "read_ahead_kb", "min_ratio", "max_ratio"].map(read).into()
}

#[test]
fn a_mount_that_is_gone_before_its_knobs_are_turned_leaves_those_below_alone() {
    let dir = tempfile::tempdir().unwrap();
    let before = limits(dir.path());
    let transport = Settings { transport: Transport::Classic, threads: 1, ring_bytes_max: 0 };
    let spec = SessionSpec { dir: dir.path().to_owned(), transport, request_bytes_max: 1 << 20, knob_lock: None };
    let connection = open_device().unwrap();
    let other = connection.try_clone().unwrap();
    let (source, dir_of_mount) = (PathBuf::from("none"), dir.path().to_owned());
    let mount = MountSpec { source, dir: dir_of_mount, kind: MOUNT_TYPE, kernel_flags: 0 };
    let gone = Gone(dir.path().to_owned());
    let session = Session::mount(gone, connection, &spec, || attach(other.as_fd(), &mount)).unwrap();
    drop(other);
    let left = || RoomLeft { available_bytes: 1 << 30, data_bytes: 1 << 30 };
    let (flags, set_synchronous) = (Arc::<MountFlags>::default(), |_| Ok(()));
    let watched = Watched { device: session.device(), ram_bytes: 1 << 30, flags, left, set_synchronous };
    let watch = RoomWatch::start(watched, Arc::default()).unwrap();
    session.run().unwrap();
    drop(watch);
    assert_eq!(limits(dir.path()), before);
}
