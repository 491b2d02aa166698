//! Sets up loop devices over sparse files, with O_DIRECT to the file below, and reads the block layer's counters.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::command::run;
use crate::failure::{During, Failure, Result, tell};

const SECTOR_BYTES: u64 = 512;

/// Bytes that a block device has moved since it was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBytes {
    /// Bytes read from the device.
    pub read: u64,
    /// Bytes written to the device.
    pub written: u64,
}

impl DeviceBytes {
    /// What was moved since `earlier`.
    pub fn since(self, earlier: DeviceBytes) -> DeviceBytes {
        DeviceBytes { read: self.read - earlier.read, written: self.written - earlier.written }
    }

    /// Both added up.
    pub fn plus(self, other: DeviceBytes) -> DeviceBytes {
        DeviceBytes { read: self.read + other.read, written: self.written + other.written }
    }
}

/// A loop device of its own; dropping it detaches it and removes its file.
pub struct LoopDevice {
    path: PathBuf,
    file: PathBuf,
}

impl LoopDevice {
    /// A device of `bytes` over a new sparse file.
    pub fn create(file: &Path, bytes: u64) -> Result<LoopDevice> {
        let backing = File::create_new(file).during(|| format!("cannot create {}", file.display()))?;
        backing.set_len(bytes).during(|| format!("cannot size {}", file.display()))?;
        let attached = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file));
        let path = attached.inspect_err(|_| drop(fs::remove_file(file)))?;
        let device = LoopDevice { path: path.into(), file: file.to_owned() };
        device.require_direct_io()?;
        Ok(device)
    }

    fn require_direct_io(&self) -> Result<()> {
        let state = self.read_attribute("loop/dio")?;
        if state.trim() != "1" {
            return Err(Failure::new(format!(
                "{} cannot use O_DIRECT on its file: choose a --dir on another file system",
                self.path.display()
            )));
        }
        Ok(())
    }

    fn read_attribute(&self, attribute: &str) -> Result<String> {
        let name = self.path.file_name().unwrap_or_default();
        let path = Path::new("/sys/block").join(name).join(attribute);
        fs::read_to_string(&path).during(|| format!("cannot read {}", path.display()))
    }

    /// The device's node, such as /dev/loop0.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device's number as `MAJOR:MINOR`.
    pub fn number(&self) -> Result<String> {
        Ok(self.read_attribute("dev")?.trim().to_owned())
    }

    /// Bytes moved so far, by the block layer's counters.
    pub fn bytes(&self) -> Result<DeviceBytes> {
        let text = self.read_attribute("stat")?;
        parse_stat(&text).ok_or_else(|| Failure::new(format!("cannot parse the counters of {}", self.path.display())))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").arg("--detach").arg(&self.path)) {
            tell(&format!("oncefs-bench: {error}"));
        }
        if let Err(error) = fs::remove_file(&self.file) {
            tell(&format!("oncefs-bench: cannot remove {}: {error}", self.file.display()));
        }
    }
}

fn parse_stat(text: &str) -> Option<DeviceBytes> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(DeviceBytes { read: fields.get(2)? * SECTOR_BYTES, written: fields.get(6)? * SECTOR_BYTES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_bytes_are_the_third_and_seventh_field_in_sectors() {
        let text = "  10 11 12 13 20 21 22 23 0 0 0 0 0 0 0 0 0";
        assert_eq!(parse_stat(text), Some(DeviceBytes { read: 12 * 512, written: 22 * 512 }));
        assert_eq!(parse_stat("1 2 3"), None);
    }
}
