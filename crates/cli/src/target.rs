//! Finds the volume that a command means: by any path inside its mount, or by its own directory.

use std::path::{Path, PathBuf};

use crate::control::Connection;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounts::{self, shown};

/// What a path stands for.
pub enum Target {
    /// A volume that is mounted, with a connection to its daemon.
    Mounted(PathBuf, Connection),
    /// A directory that may be a volume and is not mounted.
    Offline(PathBuf),
}

impl Target {
    /// Looks at the path.
    pub fn find(path: &Path) -> Outcome<Self> {
        let real = mounts::resolve(path).or_fail_doing(exit::FAILED, shown(path))?;
        let mount = mounts::containing(&real).or_fail(exit::FAILED)?.filter(mounts::Mount::is_oncefs);
        let volume = mount.as_ref().map_or(&real, |m| &m.source).clone();
        let daemon = Connection::open(&volume)
            .or_fail_doing(exit::FAILED, format!("cannot reach the daemon of {}", shown(&volume)))?;
        match (daemon, mount) {
            (Some(daemon), _) => Ok(Self::Mounted(volume, daemon)),
            (None, Some(mount)) => Err(dead(&mount)),
            (None, None) => Ok(Self::Offline(real)),
        }
    }

    /// The daemon of a mounted volume; other paths are refused.
    pub fn daemon(path: &Path) -> Outcome<Connection> {
        match Self::find(path)? {
            Self::Mounted(_, daemon) => Ok(daemon),
            Self::Offline(_) => {
                let shown = shown(path);
                Err(Failure::new(
                    exit::FAILED,
                    format!("{shown} is not in a mounted oncefs volume: mount one (oncefs mount VOLUME DIR)"),
                ))
            }
        }
    }
}

fn dead(mount: &mounts::Mount) -> Failure {
    let dir = shown(&mount.dir);
    Failure::new(
        exit::FAILED,
        format!(
            "the daemon of the mount on {dir} does not answer: unmount it (oncefs umount {dir}) and mount it again"
        ),
    )
}
