//! A side of the comparison: a file system on its own loop device, which is formatted, mounted and removed.
//!
//! oncefs, a file system on one of its disks, and the flat file system are on an ext4 that fills the loop device; the
//! kernel's file systems fill it themselves. With a raw data area oncefs has a second loop device.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::run;
use crate::failure::{During, Failure, Result, tell};
use crate::figures::Figures;
use crate::loop_device::{DeviceBytes, LoopDevice};
use crate::machine;

/// Which file system a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of the kernel's file systems.
    Kernel(KernelFs),
    /// The transport's ceiling.
    Flat,
    /// The file system under test.
    Oncefs,
    /// A kernel's file system on a disk in it.
    Disk(KernelFs),
}

impl Kind {
    /// Whether the side has a volume of oncefs.
    pub fn has_volume(self) -> bool {
        matches!(self, Kind::Oncefs | Kind::Disk(_))
    }
}

/// The kernel's file systems that can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFs {
    /// ext4 with its defaults.
    Ext4,
    /// ext2, the paper's baseline.
    Ext2,
    /// XFS with its defaults.
    Xfs,
    /// Btrfs with its defaults.
    Btrfs,
}

impl KernelFs {
    fn name(self) -> &'static str {
        match self {
            KernelFs::Ext4 => "ext4",
            KernelFs::Ext2 => "ext2",
            KernelFs::Xfs => "xfs",
            KernelFs::Btrfs => "btrfs",
        }
    }

    /// Without `noinit_itable` a kernel thread writes ext4's inode tables while others are measured.
    fn mount_options(self) -> Option<&'static str> {
        (self == KernelFs::Ext4).then_some("noinit_itable")
    }

    fn format(self, device: &Path) -> Result<()> {
        let (program, quiet_force): (&str, &[&str]) = match self {
            KernelFs::Ext4 => ("mkfs.ext4", &["-q", "-F"]),
            KernelFs::Ext2 => ("mkfs.ext2", &["-q", "-F"]),
            KernelFs::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            KernelFs::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
        };
        run(Command::new(program).args(quiet_force).arg(device)).map(drop)
    }

    fn mount(self, device: &Path, point: &Path, arguments: &[String]) -> Result<Layer> {
        let mut command = Command::new("mount");
        command.args(["-t", self.name()]);
        command.args(self.mount_options().into_iter().flat_map(|options| ["-o", options]));
        run(command.args(arguments).arg(device).arg(point))?;
        Ok(Layer::Kernel(point.to_owned()))
    }
}

/// A side as asked for: `NAME` or `NAME=ARGUMENTS` (added to the mount command of oncefs or flat).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideSpec {
    /// As written.
    pub name: String,
    /// The file system.
    pub kind: Kind,
    /// Arguments for its mount command.
    pub arguments: Vec<String>,
    /// Arguments for `oncefs mkfs`.
    pub format_arguments: Vec<String>,
}

impl std::str::FromStr for SideSpec {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<SideSpec, String> {
        let (name, arguments) = text.split_once('=').unwrap_or((text, ""));
        let kind = match name {
            "ext4" => Kind::Kernel(KernelFs::Ext4),
            "ext2" => Kind::Kernel(KernelFs::Ext2),
            "xfs" => Kind::Kernel(KernelFs::Xfs),
            "btrfs" => Kind::Kernel(KernelFs::Btrfs),
            "flat" => Kind::Flat,
            "oncefs" => Kind::Oncefs,
            "disk" => Kind::Disk(KernelFs::Ext4),
            "disk-xfs" => Kind::Disk(KernelFs::Xfs),
            _ => {
                let known = "oncefs, disk, disk-xfs, flat, ext4, ext2, xfs or btrfs";
                return Err(format!("unknown side `{name}`: choose {known}"));
            }
        };
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        if matches!(kind, Kind::Kernel(_)) && !arguments.is_empty() {
            return Err(format!("{name} takes no arguments, because it is measured with its defaults"));
        }
        Ok(SideSpec { name: text.to_owned(), kind, arguments, format_arguments: Vec::new() })
    }
}

impl SideSpec {
    /// The same with this profile, if it is an oncefs without arguments of its own.
    pub fn in_profile(self, profile: &str) -> SideSpec {
        match self.kind == Kind::Oncefs && self.arguments.is_empty() {
            true => SideSpec { arguments: vec!["-o".to_owned(), format!("profile={profile}")], ..self },
            false => self,
        }
    }
}

/// The disk of a side with one.
const DISK: &str = "disk";

/// What all sides of a run share.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The run's own directory: loop files and mount points.
    pub directory: PathBuf,
    /// Bytes of every loop device.
    pub device_bytes: u64,
    /// The oncefs program.
    pub oncefs: PathBuf,
    /// Whether the data area of oncefs is on a second loop device.
    pub raw: bool,
}

/// Something mounted; `unmount` or dropping the side unmounts it.
enum Layer {
    Kernel(PathBuf),
    Flat { point: PathBuf, daemon: Child },
    Oncefs { point: PathBuf, program: PathBuf, daemon: u32 },
    Disk { point: PathBuf, daemon: u32 },
}

impl Layer {
    fn unmount(&mut self) -> Result<()> {
        match self {
            // The device and the mount out of sight end with it.
            Layer::Kernel(point) | Layer::Disk { point, .. } => unmount_kernel(point),
            Layer::Flat { point, daemon } => {
                unmount_kernel(point)?;
                daemon.wait().during(|| "cannot wait for the flat file system").map(drop)
            }
            Layer::Oncefs { point, program, .. } => run(Command::new(program).arg("umount").arg(point)).map(drop),
        }
    }

    fn point(&self) -> &Path {
        match self {
            Layer::Kernel(point) | Layer::Disk { point, .. } => point,
            Layer::Flat { point, .. } | Layer::Oncefs { point, .. } => point,
        }
    }
}

fn unmount_kernel(point: &Path) -> Result<()> {
    const ATTEMPTS_MAX: u32 = 300;
    for _ in 1..ATTEMPTS_MAX {
        if run(Command::new("umount").arg(point)).is_ok() {
            return Ok(());
        }
        // A scan of the mount by somebody else ends soon, less soon where much else runs.
        sleep(Duration::from_millis(100));
    }
    run(Command::new("umount").arg(point)).map(drop)
}

/// What a piece costs on a mount.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PieceCost {
    /// In blocks of sequential reading.
    pub blocks: f64,
    /// Or assumed, until it is.
    pub is_measured: bool,
}

/// One side, ready to be formatted and mounted again and again.
pub struct Side {
    spec: SideSpec,
    label: String,
    bench: Bench,
    // Dropped in this order by `Drop`, before the devices.
    layers: Vec<Layer>,
    lower: PathBuf,
    upper: PathBuf,
    device: LoopDevice,
    data_device: Option<LoopDevice>,
}

impl Side {
    /// Creates the side's loop devices and mount points; `label` names it in the output.
    pub fn create(bench: &Bench, spec: &SideSpec, label: &str, index: usize) -> Result<Side> {
        let directory = bench.directory.join(format!("side{index}"));
        let (lower, upper) = (directory.join("lower"), directory.join("upper"));
        for point in [&lower, &upper] {
            fs::create_dir_all(point).during(|| format!("cannot create {}", point.display()))?;
        }
        let device = LoopDevice::create(&directory.join("device"), bench.device_bytes)?;
        let data_device = match bench.raw && spec.kind == Kind::Oncefs {
            true => Some(LoopDevice::create(&directory.join("data-device"), bench.device_bytes)?),
            false => None,
        };
        let (spec, label, bench) = (spec.clone(), label.to_owned(), bench.clone());
        Ok(Side { spec, label, bench, layers: Vec::new(), lower, upper, device, data_device })
    }

    /// The side's name in the output.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether equal blocks are stored once.
    pub fn deduplicates(&self) -> bool {
        self.has_volume()
    }

    fn has_volume(&self) -> bool {
        self.spec.kind.has_volume()
    }

    /// Makes an empty file system and leaves it unmounted.
    pub fn format(&mut self) -> Result<()> {
        match self.spec.kind {
            Kind::Kernel(kernel_fs) => kernel_fs.format(self.device.path()),
            Kind::Flat => KernelFs::Ext4.format(self.device.path()),
            Kind::Oncefs | Kind::Disk(_) => {
                KernelFs::Ext4.format(self.device.path())?;
                let layer = KernelFs::Ext4.mount(self.device.path(), &self.lower, &[])?;
                self.layers.push(layer);
                self.format_oncefs()?;
                if matches!(self.spec.kind, Kind::Disk(_)) {
                    self.create_disk()?;
                }
                self.unmount()
            }
        }
    }

    fn format_oncefs(&self) -> Result<()> {
        let mut command = Command::new(&self.bench.oncefs);
        command.arg("mkfs").arg(self.volume()).args(&self.spec.format_arguments);
        match &self.data_device {
            Some(device) => command.arg("--force").arg("--data").arg(device.path()),
            // What ext4 leaves of the device, less room for oncefs's own records.
            None => command.arg("--size").arg(self.volume_bytes().to_string()),
        };
        run(&mut command).map(drop)
    }

    fn volume_bytes(&self) -> u64 {
        (self.bench.device_bytes / 4 * 3).next_multiple_of(1 << 20)
    }

    fn create_disk(&self) -> Result<()> {
        let mut command = Command::new(&self.bench.oncefs);
        command.args(["disk", "create"]).arg(self.volume()).arg(DISK).arg(self.volume_bytes().to_string());
        run(&mut command).map(drop)
    }

    fn volume(&self) -> PathBuf {
        self.lower.join("volume")
    }

    /// Mounts; files then live below [`Side::root`].
    pub fn mount(&mut self) -> Result<()> {
        let (kernel_fs, arguments) = match self.spec.kind {
            Kind::Kernel(kernel_fs) => (kernel_fs, &self.spec.arguments[..]),
            Kind::Flat | Kind::Oncefs | Kind::Disk(_) => (KernelFs::Ext4, &[][..]),
        };
        self.layers.push(kernel_fs.mount(self.device.path(), &self.lower, arguments)?);
        match self.spec.kind {
            Kind::Kernel(_) => {}
            Kind::Flat => self.layers.push(self.mount_flat()?),
            Kind::Oncefs => self.layers.push(self.mount_oncefs()?),
            Kind::Disk(kernel_fs) => self.layers.push(self.mount_disk(kernel_fs)?),
        }
        Ok(())
    }

    fn mount_flat(&self) -> Result<Layer> {
        let program = std::env::current_exe().during(|| "cannot find the benchmark's own program")?;
        let mut command = Command::new(program);
        command.arg("flat").args(&self.spec.arguments).arg(&self.lower).arg(&self.upper);
        // A group of its own, so that Ctrl-C reaches the benchmark only, which then unmounts.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut daemon = command.spawn().during(|| "cannot start the flat file system")?;
        let mut line = String::new();
        if let Some(stdout) = daemon.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).during(|| "cannot read the output of the flat file system")?;
        }
        let layer = Layer::Flat { point: self.upper.clone(), daemon };
        if line.trim() == crate::flat::READY {
            return Ok(layer);
        }
        drop(layer);
        Err(Failure::new("the flat file system did not start; its own message is above"))
    }

    fn mount_oncefs(&self) -> Result<Layer> {
        let program = self.bench.oncefs.clone();
        let mut command = Command::new(&program);
        command.arg("mount").arg(self.volume()).arg(&self.upper).args(&self.spec.arguments);
        run(&mut command)?;
        let daemon = machine::find_process(&program, &self.upper)?
            .ok_or_else(|| Failure::new("oncefs mounted the volume, but its daemon is not running"))?;
        Ok(Layer::Oncefs { point: self.upper.clone(), program, daemon })
    }

    /// The options of the side are for the volume.
    fn mount_disk(&self, kernel_fs: KernelFs) -> Result<Layer> {
        let program = self.bench.oncefs.clone();
        let mut command = Command::new(&program);
        command.arg("mount").arg(self.volume()).arg(&self.upper).args(&self.spec.arguments);
        let options: Vec<String> = [format!("disk={DISK},mkfs={}", kernel_fs.name())]
            .into_iter()
            .chain(kernel_fs.mount_options().map(str::to_owned))
            .collect();
        run(command.arg("-o").arg(options.join(",")))?;
        let daemon = machine::find_process(&program, &self.volume())?
            .ok_or_else(|| Failure::new("oncefs mounted the disk, but its daemon is not running"))?;
        Ok(Layer::Disk { point: self.upper.clone(), daemon })
    }

    /// Unmounts everything of this side; its daemon has ended afterwards.
    pub fn unmount(&mut self) -> Result<()> {
        while let Some(mut layer) = self.layers.pop() {
            if let Err(failure) = layer.unmount() {
                self.layers.push(layer);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Unmounts, drops the kernel's caches and mounts again: everything is read from the device afterwards.
    pub fn remount_cold(&mut self) -> Result<()> {
        self.unmount()?;
        machine::drop_caches()?;
        self.mount()
    }

    /// The mounted root directory.
    pub fn root(&self) -> &Path {
        match self.spec.kind {
            Kind::Kernel(_) => &self.lower,
            Kind::Flat | Kind::Oncefs | Kind::Disk(_) => &self.upper,
        }
    }

    /// Device numbers (`MAJOR:MINOR`) of the side's loop devices.
    pub fn device_numbers(&self) -> Result<Vec<String>> {
        std::iter::once(&self.device).chain(&self.data_device).map(LoopDevice::number).collect()
    }

    /// Bytes that the side's loop devices have moved so far.
    pub fn device_bytes(&self) -> Result<DeviceBytes> {
        let devices = std::iter::once(&self.device).chain(&self.data_device);
        devices.map(LoopDevice::bytes).try_fold(DeviceBytes::default(), |sum, bytes| Ok(sum.plus(bytes?)))
    }

    /// The daemon's process, if the side has one and is mounted.
    pub fn daemon(&self) -> Option<u32> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Kernel(_) => None,
            Layer::Flat { daemon, .. } => Some(daemon.id()),
            Layer::Oncefs { daemon, .. } | Layer::Disk { daemon, .. } => Some(*daemon),
        })
    }

    /// Bytes that oncefs has written to its data area since it was mounted, by its own counters.
    pub fn data_area_written(&self) -> Result<Option<u64>> {
        if !self.has_volume() {
            return Ok(None);
        }
        self.stats()?.number("counters", "data_bytes_written").map(Some)
    }

    /// The figures of `oncefs stats`.
    pub fn stats(&self) -> Result<Figures> {
        Figures::parse(&self.ask("stats", &["--json"])?)
    }

    /// The figures of `oncefs dedup --status`.
    pub fn dedup_status(&self) -> Result<Figures> {
        Figures::parse(&self.ask("dedup", &["--status", "--json"])?)
    }

    /// Runs `oncefs COMMAND VOLUME WORDS` and returns what it printed.
    pub fn ask(&self, command: &str, words: &[&str]) -> Result<String> {
        run(Command::new(&self.bench.oncefs).arg(command).arg(self.volume()).args(words))
    }

    /// Compresses everything in a mounted oncefs.
    pub fn compress(&self) -> Result<()> {
        run(Command::new(&self.bench.oncefs).arg("compress").arg(self.root())).map(|_| ())
    }

    /// What a piece costs on a mounted oncefs.
    pub fn piece_cost(&self) -> Result<PieceCost> {
        let stats = self.stats()?;
        let is_measured = stats.is_at(&["device", "piece_is_measured"])?;
        Ok(PieceCost { blocks: stats.real_at(&["device", "piece_blocks"])?, is_measured })
    }

    /// The extents of a file on a mounted oncefs, by `oncefs explain`.
    pub fn layout(&self, path: &Path) -> Result<Figures> {
        let mut command = Command::new(&self.bench.oncefs);
        Figures::parse(&run(command.arg("explain").arg(path).args(["--no-names", "--json"]))?)
    }

    /// Bytes that the data area of a mounted volume holds.
    pub fn stored_bytes(&self) -> Result<Option<u64>> {
        match self.has_volume() {
            true => self.stats()?.number("space", "stored_bytes").map(Some),
            false => Ok(None),
        }
    }

    /// Bytes that the mounted file system uses; for oncefs, its data area and its metadata.
    pub fn used_bytes(&self) -> Result<u64> {
        if self.has_volume() {
            let stats = self.stats()?;
            return Ok(stats.number("space", "stored_bytes")? + stats.number("space", "metadata_bytes")?);
        }
        machine::used_bytes(&self.lower)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        while let Some(mut layer) = self.layers.pop() {
            if let Err(failure) = layer.unmount() {
                tell(&format!("oncefs-bench: {failure}; unmounting it lazily"));
                // A mount that cannot be unmounted must not keep the loop device for ever.
                if let Err(failure) = run(Command::new("umount").arg("--lazy").arg(layer.point())) {
                    tell(&format!("oncefs-bench: {failure}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_takes_arguments_after_an_equals_sign() {
        let spec: SideSpec = "flat=--threads 4 --direct".parse().unwrap();
        assert_eq!(spec.kind, Kind::Flat);
        assert_eq!(spec.arguments, ["--threads", "4", "--direct"]);
    }

    #[test]
    fn an_unknown_side_is_refused_with_the_known_ones() {
        assert_eq!("disk=-o memory=64M".parse::<SideSpec>().unwrap().kind, Kind::Disk(KernelFs::Ext4));
        assert_eq!("disk-xfs".parse::<SideSpec>().unwrap().kind, Kind::Disk(KernelFs::Xfs));
        assert!("zfs".parse::<SideSpec>().unwrap_err().contains("btrfs"));
        assert!("ext4=-o x".parse::<SideSpec>().unwrap_err().contains("no arguments"));
    }
}
