//! The file systems compared: what each is on its loop device, and what it does once files are copied in.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::{During, Failure, Result};
use crate::side::{KernelFs, Kind, Side, SideSpec};

/// A file system with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum System {
    /// With its defaults: what all others are held against.
    Ext4,
    /// With its defaults.
    Xfs,
    /// With its defaults.
    Btrfs,
    /// Btrfs mounted with compress=zstd:1.
    BtrfsZstd,
    /// Btrfs mounted with compress=zstd:3.
    BtrfsZstd3,
    /// Btrfs on which duperemove runs after the copy.
    BtrfsDuperemove,
    /// Btrfs mounted with compress=zstd:1 on which duperemove runs after the copy.
    BtrfsZstdDuperemove,
    /// An image that mksquashfs makes, with zstd: nothing can be written to it.
    Squashfs,
    /// oncefs with the profile for desktops, the default.
    OncefsDefault,
    /// The same, mounted with compress=later and compressed after the copy.
    OncefsCompressed,
    /// oncefs with the profile for servers.
    OncefsServer,
    /// oncefs with the profile for small boards.
    OncefsEdge,
}

/// What a system does after the copy, before its savings are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    Nothing,
    Duperemove,
    Worker,
    WorkerAndCompression,
}

impl System {
    /// Its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            System::Ext4 => "ext4",
            System::Xfs => "xfs",
            System::Btrfs => "btrfs",
            System::BtrfsZstd => "btrfs, zstd:1",
            System::BtrfsZstd3 => "btrfs, zstd:3",
            System::BtrfsDuperemove => "btrfs, duperemove",
            System::BtrfsZstdDuperemove => "btrfs, zstd:1, duperemove",
            System::Squashfs => "squashfs, zstd (read-only)",
            System::OncefsDefault => "oncefs, default",
            System::OncefsCompressed => "oncefs, compressed",
            System::OncefsServer => "oncefs, server",
            System::OncefsEdge => "oncefs, edge",
        }
    }

    /// The side that is formatted and mounted; for squashfs, the one that its image is made of.
    pub fn spec(self) -> SideSpec {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let zstd = ["-o", "compress=zstd:1"];
        let (kind, arguments, format_arguments): (_, &[&str], &[&str]) = match self {
            System::Ext4 | System::Squashfs => (Kind::Kernel(KernelFs::Ext4), &[], &[]),
            System::Xfs => (Kind::Kernel(KernelFs::Xfs), &[], &[]),
            System::Btrfs | System::BtrfsDuperemove => (Kind::Kernel(KernelFs::Btrfs), &[], &[]),
            System::BtrfsZstd | System::BtrfsZstdDuperemove => (Kind::Kernel(KernelFs::Btrfs), &zstd, &[]),
            System::BtrfsZstd3 => (Kind::Kernel(KernelFs::Btrfs), &["-o", "compress=zstd:3"], &[]),
            System::OncefsDefault => (Kind::Oncefs, &[], &[]),
            System::OncefsCompressed => (Kind::Oncefs, &["-o", "compress=later"], &[]),
            System::OncefsServer => (Kind::Oncefs, &[], &["--profile", "server"]),
            System::OncefsEdge => (Kind::Oncefs, &[], &["--profile", "edge"]),
        };
        let (arguments, format_arguments) = (words(arguments), words(format_arguments));
        SideSpec { name: self.name().to_owned(), kind, arguments, format_arguments }
    }

    /// What it does after the copy.
    pub fn later(self) -> Later {
        match self {
            System::BtrfsDuperemove | System::BtrfsZstdDuperemove => Later::Duperemove,
            System::OncefsDefault | System::OncefsServer | System::OncefsEdge => Later::Worker,
            System::OncefsCompressed => Later::WorkerAndCompression,
            System::Ext4 | System::Xfs | System::Btrfs | System::BtrfsZstd | System::BtrfsZstd3 | System::Squashfs => {
                Later::Nothing
            }
        }
    }

    /// Programs that it needs.
    fn programs(self) -> &'static [&'static str] {
        match self {
            System::Xfs => &["mkfs.xfs"],
            System::Btrfs | System::BtrfsZstd | System::BtrfsZstd3 => &["mkfs.btrfs"],
            System::BtrfsDuperemove | System::BtrfsZstdDuperemove => &["mkfs.btrfs", "duperemove"],
            System::Squashfs => &["mksquashfs"],
            System::Ext4
            | System::OncefsDefault
            | System::OncefsCompressed
            | System::OncefsServer
            | System::OncefsEdge => &["mkfs.ext4"],
        }
    }

    /// Fails with the name of a program that is missing, before anything is measured.
    pub fn require_programs(self) -> Result<()> {
        for program in self.programs() {
            let started = Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
            started.map_err(|_| Failure::new(format!("{program} is missing: `scripts/setup peers` installs it")))?;
        }
        Ok(())
    }
}

impl Later {
    /// Does it on a mounted side. Gives the peak memory of the program that it takes, if it is one.
    pub fn run(self, side: &Side) -> Result<Option<u64>> {
        match self {
            Later::Nothing => Ok(None),
            Later::Worker => side.ask("dedup", &["--now", "--full"]).map(|_| None),
            Later::WorkerAndCompression => {
                side.ask("dedup", &["--now", "--full"])?;
                side.compress().map(|()| None)
            }
            // Blocks as small as those of oncefs: its default of 128 KiB finds less in small files.
            Later::Duperemove => {
                let mut command = Command::new("duperemove");
                command.args(["-r", "-d", "-q", "-b", "4096"]).arg(side.root());
                Measured::run(&mut command).map(|measured| Some(measured.peak_bytes))
            }
        }
    }
}

/// How long a program took, and the most memory that it had.
pub struct Measured {
    pub seconds: f64,
    pub peak_bytes: u64,
}

impl Measured {
    /// Runs the command to its end, with its output left out.
    pub fn run(command: &mut Command) -> Result<Measured> {
        let name = command.get_program().to_string_lossy().into_owned();
        let began = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().during(|| format!("cannot start {name}"))?;
        let pid = libc::pid_t::try_from(child.id()).during(|| "a process has too large a number")?;
        let mut status = 0;
        // SAFETY: rusage is plain old data, for which all zeros is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `pid` is our child, nobody else waits for it, and both pointers outlive the call.
        if unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } != pid {
            return Err(std::io::Error::last_os_error()).during(|| format!("cannot wait for {name}"));
        }
        match status {
            0 => Ok(Measured { seconds: began.elapsed().as_secs_f64(), peak_bytes: usage.ru_maxrss as u64 * 1024 }),
            _ => Err(Failure::new(format!("{name} failed with status {status:#x}; run it by hand for its message"))),
        }
    }
}

/// Makes an image of squashfs on a device from the files below `root`.
pub fn make_squashfs(root: &Path, device: &Path) -> Result<Measured> {
    let mut command = Command::new("mksquashfs");
    Measured::run(command.arg(root).arg(device).args(["-noappend", "-no-progress", "-quiet", "-comp", "zstd"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_measured_and_its_failure_is_told() {
        let measured = Measured::run(Command::new("true").arg("x")).unwrap();
        assert!(measured.peak_bytes > 100_000 && measured.seconds > 0.0);
        let failure = Measured::run(&mut Command::new("false")).err().unwrap();
        assert!(failure.to_string().contains("false failed"), "{failure}");
    }

    #[test]
    fn only_btrfs_and_oncefs_work_after_the_copy() {
        for system in System::value_variants() {
            let works = matches!(system.spec().kind, Kind::Kernel(KernelFs::Btrfs) | Kind::Oncefs);
            assert!(works || system.later() == Later::Nothing, "{}", system.name());
        }
        assert_eq!(System::OncefsEdge.spec().format_arguments, ["--profile", "edge"]);
        assert_eq!(System::BtrfsZstd.spec().arguments, ["-o", "compress=zstd:1"]);
    }
}
