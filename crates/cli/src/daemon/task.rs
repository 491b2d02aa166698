//! What a daemon is to serve.

use std::path::PathBuf;

use crate::mounting::options::MountOptions;

/// What to serve. Paths are absolute and without links.
#[derive(Clone, Debug)]
pub struct Task {
    pub volume: PathBuf,
    pub dir: PathBuf,
    pub options: MountOptions,
}
