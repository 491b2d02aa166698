//! The ten lines: held, stored and saved data, free space, work left, and health.

use oncefs_engine::ClusterReport;
use oncefs_toolbox::{Column, Table};

use super::percent;
use crate::figures::health::{self, Limits, findings};
use crate::figures::of_mount::Snapshot;
use crate::names::{printable, shown};
use crate::size::Size;

/// The lines.
pub fn text(snapshot: &Snapshot) -> String {
    let mut table = Table::of([Column::left(10), Column::left(10), Column::left(0)]);
    for (name, figure, meaning) in lines(snapshot) {
        table.row(vec![name.to_owned(), figure, meaning]);
    }
    // These are sentences, and would make the columns too wide.
    format!("volume      {}\n{}health      {}\n", volume(snapshot), table.plain(), health(snapshot))
}

/// The lines as names, figures and meanings.
pub fn ten_lines(snapshot: &Snapshot) -> Vec<(&'static str, String, String)> {
    let sentence = |name, sentence| (name, sentence, String::new());
    let (first, last) = (sentence("volume", volume(snapshot)), sentence("health", health(snapshot)));
    [first].into_iter().chain(lines(snapshot)).chain([last]).collect()
}

fn volume(snapshot: &Snapshot) -> String {
    let place = snapshot.mount.as_deref().map_or_else(String::new, |dir| format!(" on {}", shown(dir)));
    format!("{}{place}", shown(&snapshot.volume))
}

fn health(snapshot: &Snapshot) -> String {
    printable(&health::line(&findings(snapshot, &Limits::default())))
}

fn lines(snapshot: &Snapshot) -> Vec<(&'static str, String, String)> {
    let (held, stored, saved) = (snapshot.held_bytes(), snapshot.stored_bytes(), snapshot.saved_bytes());
    let size = |bytes| Size(bytes).to_string();
    let data = snapshot.space("data_bytes");
    let ratio = snapshot.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut lines = vec![
        ("held", size(held), "in all files".to_owned()),
        (
            "stored",
            size(stored),
            format!("each block once: {} of the data area's {}", percent(stored, data), Size(data)),
        ),
        ("saved", size(saved), format!("{} of what is held{}", percent(saved, held), by_compression(snapshot))),
        ("ratio", ratio, "held to stored".to_owned()),
        ("free", size(snapshot.space("available_bytes")), "unique bytes that can still be written".to_owned()),
        ("metadata", size(snapshot.space("metadata_bytes")), "beside the data, on the host".to_owned()),
        ("host", size(snapshot.host.available), format!("free of {}", Size(snapshot.host.size))),
    ];
    lines.extend(snapshot.report.cluster.iter().map(pool));
    let of_data = snapshot.report.cluster.as_ref().and_then(|cluster| cluster.data_pool);
    lines.extend(of_data.map(|pool| ("data pool", size(pool.left_bytes), "free, for all that use it".to_owned())));
    let (figure, by) = left(snapshot);
    lines.push(("to look at", figure, by));
    lines
}

/// The pool with the volume's objects.
fn pool(cluster: &ClusterReport) -> (&'static str, String, String) {
    match cluster.pool {
        Some(pool) => ("pool", Size(pool.left_bytes).to_string(), "free, for all that use it".to_owned()),
        None => ("pool", "-".to_owned(), "its cluster does not say how much is free".to_owned()),
    }
}

/// The contribution of compression, if anything is compressed.
fn by_compression(snapshot: &Snapshot) -> String {
    match snapshot.space("compressed_bytes") {
        0 => String::new(),
        compressed => {
            let saved = compressed.saturating_sub(snapshot.space("fragment_bytes"));
            format!(", {} of it by compression", Size(saved))
        }
    }
}

/// The worker's backlog, and its present state.
fn left(snapshot: &Snapshot) -> (String, String) {
    let worker = &snapshot.worker;
    let files = match worker.skipped_files {
        0 => String::new(),
        1 => "and a whole file, ".to_owned(),
        files => format!("and {files} whole files, "),
    };
    let pass = if worker.full_pass { "and a full pass, " } else { "" };
    let bytes = snapshot.left_bytes();
    let is_nothing = bytes == 0 && files.is_empty() && pass.is_empty();
    let figure = if is_nothing { "nothing".to_owned() } else { Size(bytes).to_string() };
    (figure, format!("{files}{pass}by the worker: {}", printable(&worker.doing)))
}

#[cfg(test)]
mod tests {
    use oncefs_engine::{DedupStatus, PoolReport};

    use super::*;
    use crate::figures::of_mount::HostSpace;

    fn lines_in_cluster(snapshot: &Snapshot, pool: Option<PoolReport>) -> String {
        let mut snapshot = snapshot.clone();
        snapshot.report.cluster = Some(ClusterReport { pool, ..ClusterReport::default() });
        text(&snapshot)
    }

    #[test]
    fn ten_lines_answer() {
        let mut snapshot = Snapshot { volume: "/srv/volume".into(), mount: Some("/mnt".into()), ..Snapshot::default() };
        snapshot.host = HostSpace { size: 10 << 30, available: 4 << 30 };
        for (name, mib) in [
            ("mapped_bytes", 300),
            ("used_bytes", 100),
            ("data_bytes", 1024),
            ("available_bytes", 924),
            ("metadata_bytes", 3),
        ] {
            snapshot.report.space.insert(name.to_owned(), mib << 20);
        }
        (snapshot.worker.skipped_blocks, snapshot.worker.skipped_files) = (512, 3);
        snapshot.worker.doing = "waits until the volume is idle".to_owned();
        let text = text(&snapshot);
        let expected = "\
volume      /srv/volume on /mnt
held        300 MiB     in all files
stored      100 MiB     each block once: 9.8 % of the data area's 1.00 GiB
saved       200 MiB     66.7 % of what is held
ratio       3.00        held to stored
free        924 MiB     unique bytes that can still be written
metadata    3.00 MiB    beside the data, on the host
host        4.00 GiB    free of 10.0 GiB
to look at  2.00 MiB    and 3 whole files, by the worker: waits until the volume is idle
health      healthy
";
        assert_eq!(text, expected);
        let in_cluster = |pool| lines_in_cluster(&snapshot, pool);
        assert!(
            in_cluster(None).contains("pool        -           its cluster does not say how much is free\nto look at")
        );
        let pool = PoolReport { left_bytes: 7 << 30, stored_bytes: 1 << 30, ..PoolReport::default() };
        assert!(in_cluster(Some(pool)).contains("pool        7.00 GiB    free, for all that use it\nto look at"));
        for (name, mib) in [("compressed_bytes", 50), ("fragment_bytes", 20)] {
            snapshot.report.space.insert(name.to_owned(), mib << 20);
        }
        assert_eq!(by_compression(&snapshot), ", 30.0 MiB of it by compression");
        snapshot.worker = DedupStatus { full_pass: true, doing: "working".to_owned(), ..DedupStatus::default() };
        assert_eq!(left(&snapshot), ("0 B".to_owned(), "and a full pass, by the worker: working".to_owned()));
        snapshot.worker.full_pass = false;
        assert_eq!(left(&snapshot), ("nothing".to_owned(), "by the worker: working".to_owned()));
    }
}
