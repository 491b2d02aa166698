//! The file systems of a run: oncefs by when it compresses, and two of the kernel's beside it.

use clap::ValueEnum;
use serde::Serialize;

use crate::side::{KernelFs, Kind, SideSpec};

/// A file system with its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Setting {
    /// With its defaults.
    Ext4,
    /// Btrfs mounted with compress=zstd:1.
    BtrfsZstd,
    /// oncefs that compresses nothing.
    Off,
    /// oncefs mounted with compress=inline.
    Inline,
    /// oncefs mounted with compress=later.
    Later,
    /// oncefs mounted with compress=auto.
    Auto,
}

impl Setting {
    /// Its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Ext4 => "ext4",
            Setting::BtrfsZstd => "btrfs, zstd:1",
            Setting::Off => "oncefs, off",
            Setting::Inline => "oncefs, inline",
            Setting::Later => "oncefs, later",
            Setting::Auto => "oncefs, auto",
        }
    }

    /// The side that is formatted and mounted. The worker of oncefs does not wait for an idle volume.
    pub fn spec(self) -> SideSpec {
        let (kind, options) = match self {
            Setting::Ext4 => (Kind::Kernel(KernelFs::Ext4), None),
            Setting::BtrfsZstd => (Kind::Kernel(KernelFs::Btrfs), Some("compress=zstd:1")),
            Setting::Off => (Kind::Oncefs, Some("compress=off,worker=always")),
            Setting::Inline => (Kind::Oncefs, Some("compress=inline,worker=always")),
            Setting::Later => (Kind::Oncefs, Some("compress=later,worker=always")),
            Setting::Auto => (Kind::Oncefs, Some("compress=auto,worker=always")),
        };
        let arguments = options.into_iter().flat_map(|options| ["-o".to_owned(), options.to_owned()]).collect();
        SideSpec { name: self.name().to_owned(), kind, arguments, format_arguments: Vec::new() }
    }

    /// Whether it is an oncefs that compresses.
    pub fn compresses(self) -> bool {
        matches!(self, Setting::Inline | Setting::Later | Setting::Auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_mount_with_an_option() {
        assert_eq!(Setting::Later.spec().arguments, ["-o", "compress=later,worker=always"]);
        assert!(Setting::Ext4.spec().arguments.is_empty());
        let compress: Vec<_> = Setting::value_variants().iter().filter(|setting| setting.compresses()).collect();
        assert_eq!(compress, [&Setting::Inline, &Setting::Later, &Setting::Auto]);
    }
}
