//! The task of a daemon: the volume, mount point and options.

use std::path::PathBuf;

use crate::mounting::options::MountOptions;

/// The volume to serve. Paths are absolute and without links.
#[derive(Clone, Debug)]
pub struct Task {
    pub volume: PathBuf,
    pub dir: PathBuf,
    pub options: MountOptions,
}
