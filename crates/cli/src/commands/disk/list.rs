//! `oncefs disk list`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::Args;
use oncefs_toolbox::{Column, Table};
use serde_json::{Value, json};

use crate::disks::of_mount::{cannot, device_and_mount_of, mount_of, room_waits};
use crate::disks::{Content, DiskName, Folder, content};
use crate::failure::{OrFail, Outcome, exit};
use crate::figures::json::path;
use crate::mounting::options::MountOptions;
use crate::names::{self, shown};
use crate::size::Size;

/// st_blocks counts in these.
const SECTOR_OF_STAT: u64 = 512;

/// Arguments of `disk list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns:
  size      what the device shows
  written   what of it has content, before deduplication
  content   the file system on it, - if there is none, ? if it is not known here

The snapshots of a disk follow it, as NAME@SNAPSHOT. A line below names the disks whose writes wait for room, because
the volume is full.

Examples:
  oncefs disk list /mnt
  oncefs disk list /mnt --json | jq -r '.disks[] | select(.device) | .name'")]
pub struct ListArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A disk as it is shown.
struct Shown {
    name: DiskName,
    bytes: u64,
    written_bytes: u64,
    content: Content,
    device: Option<PathBuf>,
    mounted_at: Option<PathBuf>,
    /// Writes that wait for room.
    waiting: u64,
}

/// Shows all disks of a mounted volume.
pub fn run(ListArgs { target, json }: &ListArgs) -> Outcome {
    let mount = mount_of(target, &MountOptions::default())?;
    let disks = match mount.folder()? {
        None => Vec::new(),
        Some(folder) => {
            let names = folder.names().or_fail_doing(exit::FAILED, cannot("read .oncefs/disks in", &mount.dir))?;
            let waiting = room_waits(&mount)?;
            names.into_iter().map(|name| look(&folder, name, &waiting)).collect::<Outcome<Vec<_>>>()?
        }
    };
    if *json {
        say!("{}", names::json(&json!({ "disks": as_json(&disks) })));
    } else if disks.is_empty() {
        say!("{} has no disks", shown(target));
    } else {
        put!("{}", table(&disks));
        for disk in disks.iter().filter(|disk| disk.waiting > 0) {
            let target = shown(target);
            say!("{}: writes wait for room, because the volume is full: oncefs grow {target} +SIZE", disk.name);
        }
    }
    Ok(())
}

fn look(folder: &Folder, name: DiskName, waiting: &BTreeMap<u64, u64>) -> Outcome<Shown> {
    let cannot = format!("cannot read the disk {name}");
    let disk = folder.find(&name).or_fail_doing(exit::FAILED, &cannot)?;
    let metadata = disk.metadata().or_fail_doing(exit::FAILED, &cannot)?;
    let (device, mounted_at) = device_and_mount_of(&disk, &name)?.unzip();
    let mounted_at = mounted_at.flatten();
    let (bytes, written_bytes) = (metadata.len(), metadata.blocks() * SECTOR_OF_STAT);
    let waiting = waiting.get(&metadata.ino()).copied().unwrap_or(0);
    // While a zeroed range waits, the kernel lets nothing else look for data in the file.
    let content = match waiting {
        0 => content(&disk.file).or_fail_doing(exit::FAILED, &cannot)?,
        _ => Content::Unknown,
    };
    Ok(Shown { name, bytes, written_bytes, content, device, mounted_at, waiting })
}

fn kind(content: Content) -> &'static str {
    match content {
        Content::Nothing => "-",
        Content::FileSystem { kind, .. } => kind,
        Content::Unknown => "?",
    }
}

fn table(disks: &[Shown]) -> String {
    let columns =
        [Column::left(0), Column::right(0), Column::right(0), Column::left(0), Column::left(0), Column::left(0)];
    let mut table = Table::of(columns).with_head(&["name", "size", "written", "content", "device", "mounted on"]);
    let text = |path: &Option<PathBuf>| path.as_deref().map_or_else(|| "-".to_owned(), |path| shown(path).to_string());
    for disk in disks {
        let sizes = [disk.bytes, disk.written_bytes].map(|bytes| Size(bytes).to_string());
        let [size, written] = sizes;
        let (kind, device, mounted) = (kind(disk.content).to_owned(), text(&disk.device), text(&disk.mounted_at));
        table.row(vec![disk.name.to_string(), size, written, kind, device, mounted]);
    }
    table.plain()
}

/// Each disk with its snapshots, which follow it.
fn as_json(shown: &[Shown]) -> Vec<Value> {
    let mut disks: Vec<Value> = Vec::new();
    for one in shown {
        match disks.last_mut().and_then(|disk| disk["snapshots"].as_array_mut()).filter(|_| one.name.is_snapshot()) {
            Some(snapshots) => snapshots.push(one_as_json(one)),
            None => disks.push(one_as_json(one)),
        }
    }
    disks
}

fn one_as_json(disk: &Shown) -> Value {
    let file_system = match disk.content {
        Content::FileSystem { kind, .. } => Some(kind),
        Content::Nothing | Content::Unknown => None,
    };
    let mut value = json!({
        "name": disk.name.as_str(),
        "bytes": disk.bytes,
        "written_bytes": disk.written_bytes,
        "file_system": file_system,
        "device": disk.device.as_deref().map(path),
        "waiting_for_room": disk.waiting,
        "mounted_on": disk.mounted_at.as_deref().map(path),
    });
    if !disk.name.is_snapshot() {
        value["snapshots"] = json!([]);
    }
    value
}
