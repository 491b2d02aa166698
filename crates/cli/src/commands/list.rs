//! `oncefs list`: the volumes that are mounted or named in fstab.

use clap::Args;
use oncefs_toolbox::{Column, Table};
use serde_json::{Value, json};

use crate::failure::Outcome;
use crate::figures::json::path;
use crate::figures::volumes::{State, Volume, Where, all};
use crate::names::{self, shown};
use crate::size::Size;

/// Arguments of `list`.
#[derive(Debug, Args)]
#[command(after_help = "\
States:
  mounted       in use; read-only if it was mounted so or an error made it so
  dead          the daemon has died: oncefs revive or oncefs mount mounts it again
  hangs         the daemon does not answer
  not mounted   named in fstab; missing if there is no such volume
  in use        not mounted where this command sees it, and its daemon is there
  unknown       it could not be asked; oncefs status says why

Examples:
  oncefs list
  oncefs list --json | jq -r '.volumes[] | select(.state == \"dead\") | .mount'")]
pub struct ListArgs {
    #[command(flatten)]
    pub places: Where,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows all volumes.
pub fn run(arguments: &ListArgs) -> Outcome {
    let volumes = all(&arguments.places)?;
    if arguments.json {
        say!("{}", names::json(&json!({ "volumes": volumes.iter().map(as_json).collect::<Vec<_>>() })));
    } else if volumes.is_empty() {
        say!("no volume is mounted, and {} names none", shown(&arguments.places.fstab));
    } else {
        put!("{}", table(&volumes));
    }
    Ok(())
}

/// Held, stored and available bytes of a mounted volume.
fn sizes(volume: &Volume) -> Option<[u64; 3]> {
    match &volume.state {
        State::Mounted(now) => Some([now.held_bytes(), now.stored_bytes(), now.space("available_bytes")]),
        _ => None,
    }
}

fn table(volumes: &[Volume]) -> String {
    let columns =
        [Column::left(0), Column::left(0), Column::left(0), Column::right(0), Column::right(0), Column::right(0)];
    let mut table = Table::of(columns).with_head(&["volume", "mount", "state", "held", "stored", "free"]);
    for volume in volumes {
        let mount = volume.mount.as_deref().map_or_else(|| "-".to_owned(), |dir| shown(dir).to_string());
        let text = |at: usize| sizes(volume).map_or_else(|| "-".to_owned(), |sizes| Size(sizes[at]).to_string());
        let [held, stored, free] = [0, 1, 2].map(text);
        let disk = volume.disk.as_ref().map_or_else(String::new, |disk| format!(" disk={disk}"));
        table.row(vec![
            format!("{}{disk}", shown(&volume.volume)),
            mount,
            volume.state.name().to_owned(),
            held,
            stored,
            free,
        ]);
    }
    table.plain()
}

fn as_json(volume: &Volume) -> Value {
    let [held, stored, available] = sizes(volume).map_or([None; 3], |sizes| sizes.map(Some));
    json!({
        "volume": path(&volume.volume),
        "mount": volume.mount.as_deref().map(path),
        "disk": volume.disk,
        "state": volume.state.name(),
        "in_fstab": volume.in_fstab,
        "held_bytes": held,
        "stored_bytes": stored,
        "available_bytes": available,
    })
}
