//! `oncefs snapshot list`.

use std::path::PathBuf;

use clap::Args;
use oncefs_toolbox::{Column, Table};
use serde_json::{Value, json};

use super::name::SnapshotName;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{self, Name, shown};
use crate::progress::{Progress, Step};
use crate::size::Size;
use crate::snapshots::own::own_bytes;
use crate::snapshots::{Folder, Snapshot};
use crate::text::utc;

/// Arguments of `snapshot list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns:
  created   when it was complete
  names     files, directories and all else in it
  size      of its files together, before deduplication
  own       with --own: the room of blocks that nothing else refers to, so what its removal frees at least
  of        what it is of, below the mount

--own reads the maps of all files of the snapshots, and no data: some seconds for a million small files. A block that is
in a snapshot twice and nowhere else is not counted. What two snapshots share with each other alone is in neither figure,
though the removal of both frees it.

Examples:
  oncefs snapshot list /mnt
  oncefs snapshot list /mnt --own daily-2026-11-25
  oncefs snapshot list /mnt --json | jq -r '.snapshots[].name'")]
pub struct ListArgs {
    /// Any path inside the mount
    target: PathBuf,
    /// Only these [default: all]
    names: Vec<SnapshotName>,
    /// Count what each snapshot has for itself
    #[arg(long)]
    own: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A snapshot, with what it has for itself if that was asked for.
struct Line {
    snapshot: Snapshot,
    own_bytes: Option<u64>,
}

/// Shows the snapshots of a mount, the oldest first.
pub fn run(arguments: &ListArgs) -> Outcome {
    let ListArgs { target, names, own, json } = arguments;
    let inside = InMount::find(target, "give any path inside one")?;
    let cannot = || format!("cannot list the snapshots of {}", shown(&inside.mount.dir));
    let folder = Folder::open(&inside.mount).or_fail_doing(exit::FAILED, cannot())?;
    let all = folder.map_or_else(|| Ok(Vec::new()), |folder| folder.all()).or_fail_doing(exit::FAILED, cannot())?;
    let chosen = chosen(all, names)?;
    let lines = match own {
        true => counted(&Daemon::of(&inside.mount)?, chosen)?,
        false => chosen.into_iter().map(|snapshot| Line { snapshot, own_bytes: None }).collect(),
    };
    if *json {
        say!("{}", names::json(&json!({ "snapshots": lines.iter().map(as_json).collect::<Vec<_>>() })));
    } else if lines.is_empty() {
        say!("{} has no snapshots", shown(&inside.mount.dir));
    } else {
        put!("{}", table(&lines, *own));
    }
    Ok(())
}

/// Those that were named, or all.
fn chosen(all: Vec<Snapshot>, names: &[SnapshotName]) -> Outcome<Vec<Snapshot>> {
    if let Some(name) = names.iter().find(|name| !all.iter().any(|it| it.name == name.as_str())) {
        return Err(Failure::new(exit::FAILED, format!("there is no snapshot {name}: leave out names to see all")));
    }
    let is_named = |snapshot: &Snapshot| names.is_empty() || names.iter().any(|name| snapshot.name == name.as_str());
    Ok(all.into_iter().filter(is_named).collect())
}

fn counted(daemon: &Daemon, snapshots: Vec<Snapshot>) -> Outcome<Vec<Line>> {
    let (mut lines, mut progress) = (Vec::new(), Progress::new());
    let all = snapshots.len() as u64;
    for snapshot in snapshots {
        progress.show("counting", Step::things("snapshots", lines.len() as u64, all));
        let own_bytes = own_bytes(daemon, snapshot.inode).map_err(|failure| {
            let text = format!("cannot count what the snapshot {} has: {}", shown(&snapshot.name), failure.message);
            Failure::new(failure.code, text)
        })?;
        lines.push(Line { snapshot, own_bytes: Some(own_bytes) });
    }
    progress.end("counted", Step::things("snapshots", all, all));
    Ok(lines)
}

fn table(lines: &[Line], own: bool) -> String {
    let right = || Column::right(0);
    let columns = [Column::left(0), Column::left(0), right(), right(), right(), Column::left(0)];
    let mut table = Table::of(columns).with_head(&["name", "created", "names", "size", "own", "of"]);
    for Line { snapshot: Snapshot { name, facts, .. }, own_bytes } in lines {
        let created = utc(u64::try_from(facts.created_seconds).unwrap_or(0));
        let of = shown(&Name::from(&facts.of[..])).to_string();
        let (names, size) = (facts.names.to_string(), Size(facts.bytes).to_string());
        let own = own_bytes.map_or("-".to_owned(), |bytes| Size(bytes).to_string());
        table.row(vec![shown(name).to_string(), created, names, size, own, of]);
    }
    let table = if own { table } else { table.without_columns_of("-") };
    table.plain()
}

fn as_json(line: &Line) -> Value {
    let facts = &line.snapshot.facts;
    let mut value = json!({
        "name": Name::from(line.snapshot.name.as_os_str()),
        "created_seconds": facts.created_seconds,
        "names": facts.names,
        "bytes": facts.bytes,
        "of": Name::from(&facts.of[..]),
    });
    if let Some(own_bytes) = line.own_bytes {
        value["own_bytes"] = own_bytes.into();
    }
    value
}
