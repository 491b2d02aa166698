//! `oncefs snapshot list`.

use std::path::PathBuf;

use clap::Args;
use oncefs_toolbox::{Column, Table};
use serde_json::{Value, json};

use crate::failure::{OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{self, Name, shown};
use crate::size::Size;
use crate::snapshots::{Folder, Snapshot};
use crate::text::utc;

/// Arguments of `snapshot list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns:
  created   when it was complete
  names     files, directories and all else in it
  size      of its files together, before deduplication; unlike the room that only it takes, this is known
  of        what it is of, below the mount

Examples:
  oncefs snapshot list /mnt
  oncefs snapshot list /mnt --json | jq -r '.snapshots[].name'")]
pub struct ListArgs {
    /// Any path inside the mount
    target: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Shows all snapshots of a mount, the oldest first.
pub fn run(ListArgs { target, json }: &ListArgs) -> Outcome {
    let inside = InMount::find(target, "give any path inside one")?;
    let cannot = || format!("cannot list the snapshots of {}", shown(&inside.mount.dir));
    let folder = Folder::open(&inside.mount).or_fail_doing(exit::FAILED, cannot())?;
    let all = folder.map_or_else(|| Ok(Vec::new()), |folder| folder.all()).or_fail_doing(exit::FAILED, cannot())?;
    if *json {
        say!("{}", names::json(&json!({ "snapshots": all.iter().map(as_json).collect::<Vec<_>>() })));
    } else if all.is_empty() {
        say!("{} has no snapshots", shown(&inside.mount.dir));
    } else {
        put!("{}", table(&all));
    }
    Ok(())
}

fn table(all: &[Snapshot]) -> String {
    let columns = [Column::left(0), Column::left(0), Column::right(0), Column::right(0), Column::left(0)];
    let mut table = Table::of(columns).with_head(&["name", "created", "names", "size", "of"]);
    for Snapshot { name, facts } in all {
        let created = utc(u64::try_from(facts.created_seconds).unwrap_or(0));
        let of = shown(&Name::from(&facts.of[..])).to_string();
        let (names, size) = (facts.names.to_string(), Size(facts.bytes).to_string());
        table.row(vec![shown(name).to_string(), created, names, size, of]);
    }
    table.plain()
}

fn as_json(snapshot: &Snapshot) -> Value {
    let facts = &snapshot.facts;
    json!({
        "name": Name::from(snapshot.name.as_os_str()),
        "created_seconds": facts.created_seconds,
        "names": facts.names,
        "bytes": facts.bytes,
        "of": Name::from(&facts.of[..]),
    })
}
