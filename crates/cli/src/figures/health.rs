//! Decides whether a volume needs attention, and for what.

use clap::Args;
use serde::Serialize;

use super::of_mount::{CLUSTER_SILENT, DATA_POOL_FULL, POOL_FULL, Snapshot, WAITING_FOR_ROOM};
use crate::names::shown;
use crate::size::Size;

/// Less than this share of the data area, of the host or of a pool, in percent, is nearly full.
const FREE_PERCENT_MIN: f64 = 5.0;

/// The worker is behind if more than this is left ...
const LEFT_BYTES_MIN: u64 = 1 << 30;

/// ... and more than this share of what the files hold.
const LEFT_SHARE_OF_HELD: u64 = 10;

/// The limits from which on a volume needs attention.
#[derive(Clone, Debug, Args)]
pub struct Limits {
    /// Free space of volume, host and pool, in percent, below which they are nearly full
    #[arg(long, value_name = "PERCENT", default_value_t = FREE_PERCENT_MIN)]
    pub free_min: f64,
    /// Data left to the worker above which it is behind; by default 1G and a tenth of what the files hold
    #[arg(long, value_name = "SIZE")]
    pub left_max: Option<Size>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { free_min: FREE_PERCENT_MIN, left_max: None }
    }
}

/// The possible problems. The names appear in JSON and in the rules for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Blocks or entries are damaged.
    Damage,
    /// An error made the volume read-only.
    ReadOnly,
    /// The data area is nearly full.
    NearlyFull,
    /// The host's file system is nearly full.
    HostNearlyFull,
    /// The pool with the volume's objects is nearly full.
    PoolNearlyFull,
    /// The pool with the volume's objects is full.
    PoolFull,
    /// The cluster with the volume's objects does not answer.
    ClusterSilent,
    /// Too much waits for out-of-line deduplication.
    WorkerBehind,
    /// The daemon is gone.
    Dead,
    /// The daemon does not answer.
    Hangs,
    /// It should be mounted but is not.
    NotMounted,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Damage,
        Self::ReadOnly,
        Self::NearlyFull,
        Self::HostNearlyFull,
        Self::PoolNearlyFull,
        Self::PoolFull,
        Self::ClusterSilent,
        Self::WorkerBehind,
        Self::Dead,
        Self::Hangs,
        Self::NotMounted,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::ReadOnly => "read-only",
            Self::NearlyFull => "nearly-full",
            Self::HostNearlyFull => "host-nearly-full",
            Self::PoolNearlyFull => "pool-nearly-full",
            Self::PoolFull => "pool-full",
            Self::ClusterSilent => "cluster-silent",
            Self::WorkerBehind => "worker-behind",
            Self::Dead => "dead",
            Self::Hangs => "hangs",
            Self::NotMounted => "not-mounted",
        }
    }
}

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// A message with the remedy.
    pub message: String,
}

impl Finding {
    /// With its message.
    pub fn new(cause: Cause, message: String) -> Self {
        Self { cause, message }
    }
}

/// Everything that needs attention, the worst first.
pub fn findings(snapshot: &Snapshot, limits: &Limits) -> Vec<Finding> {
    let found = [
        damage(snapshot),
        read_only(snapshot),
        nearly_full(snapshot, limits),
        host_nearly_full(snapshot, limits),
        pool_full(snapshot).or_else(|| pool_nearly_full(snapshot, limits)),
        cluster_silent(snapshot),
        worker_behind(snapshot, limits),
    ];
    found.into_iter().flatten().collect()
}

/// Findings as one line.
pub fn line(findings: &[Finding]) -> String {
    match findings {
        [] => "healthy".to_owned(),
        _ => findings.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>().join("; "),
    }
}

fn damage(snapshot: &Snapshot) -> Option<Finding> {
    let (bad, scrub, place) = (snapshot.space("bad_bytes"), &snapshot.scrub, shown(snapshot.place()));
    let is_passed_over = scrub.unknown.blocks > 0 || !scrub.passed_over.is_empty();
    let message = match (bad, is_passed_over) {
        (0, false) => return None,
        (0, true) => {
            format!("metadata is damaged: see oncefs scrub {place} --status, then unmount and run oncefs fsck -y")
        }
        (bad, false) if scrub.blocks_lost == 0 => {
            format!("{} of damaged data have a sound copy: oncefs scrub {place} puts it in their place", Size(bad))
        }
        (bad, _) => format!("{} of data are damaged: oncefs scrub {place} --status names the files", Size(bad)),
    };
    Some(Finding::new(Cause::Damage, message))
}

fn read_only(snapshot: &Snapshot) -> Option<Finding> {
    let why = snapshot.read_only_because.as_ref()?;
    Some(Finding::new(Cause::ReadOnly, format!("an error made it read-only: {why}")))
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// A nearly full data area. `host_nearly_full` reports room that the host lacks.
fn nearly_full(snapshot: &Snapshot, limits: &Limits) -> Option<Finding> {
    let data = snapshot.space("data_bytes");
    let free = data.saturating_sub(snapshot.stored_bytes()).saturating_sub(snapshot.space("reserved_bytes"));
    let (place, waiting) = (shown(snapshot.place()), snapshot.space(WAITING_FOR_ROOM));
    (percent(free, data) < limits.free_min || waiting > 0).then(|| {
        let disks = match waiting {
            0 => String::new(),
            1 => "a write of a disk waits for room: ".to_owned(),
            _ => format!("{waiting} writes of disks wait for room: "),
        };
        let text = format!("{disks}nearly full, {} of {} are free: oncefs grow {place} +SIZE", Size(free), Size(data));
        Finding::new(Cause::NearlyFull, text)
    })
}

fn host_nearly_full(snapshot: &Snapshot, limits: &Limits) -> Option<Finding> {
    let (host, volume) = (snapshot.host, shown(&snapshot.volume));
    (percent(host.available, host.size) < limits.free_min).then(|| {
        let text = format!(
            "the file system below {volume} is nearly full, {} of {} are free: make room on it",
            Size(host.available),
            Size(host.size)
        );
        Finding::new(Cause::HostNearlyFull, text)
    })
}

/// The pool with a volume's objects, or that of its data area, as messages name them.
const POOL: &str = "the pool with its objects";
const DATA_POOL: &str = "the pool with its data";

fn pool_full(snapshot: &Snapshot) -> Option<Finding> {
    let pool = [(DATA_POOL_FULL, DATA_POOL), (POOL_FULL, POOL)].into_iter().find(|(full, _)| snapshot.space(full) > 0);
    pool.map(|(_, pool)| {
        Finding::new(Cause::PoolFull, format!("{pool} is full: add OSDs, raise its quota, or delete files"))
    })
}

fn pool_nearly_full(snapshot: &Snapshot, limits: &Limits) -> Option<Finding> {
    let cluster = snapshot.report.cluster.as_ref()?;
    let pools = [(DATA_POOL, cluster.data_pool), (POOL, cluster.pool)].into_iter();
    pools.filter_map(|(name, pool)| Some((name, pool?))).find_map(|(name, pool)| {
        let all = pool.left_bytes.saturating_add(pool.stored_bytes);
        (percent(pool.left_bytes, all) < limits.free_min).then(|| {
            let (left, all) = (Size(pool.left_bytes), Size(all));
            let way_out = "add OSDs, raise its quota, or delete files";
            Finding::new(Cause::PoolNearlyFull, format!("{name} is nearly full, {left} of {all} are free: {way_out}"))
        })
    })
}

fn cluster_silent(snapshot: &Snapshot) -> Option<Finding> {
    let text = "the cluster with its objects does not answer, and requests wait: see ceph status";
    (snapshot.space(CLUSTER_SILENT) > 0).then(|| Finding::new(Cause::ClusterSilent, text.to_owned()))
}

fn worker_behind(snapshot: &Snapshot, limits: &Limits) -> Option<Finding> {
    let default = LEFT_BYTES_MIN.max(snapshot.held_bytes() / LEFT_SHARE_OF_HELD);
    let (left, place) = (snapshot.left_bytes(), shown(snapshot.place()));
    (left > limits.left_max.map_or(default, |size| size.0)).then(|| {
        let doing = &snapshot.worker.doing;
        let way = if snapshot.worker.paused { "--resume" } else { "--now" };
        let text = format!("{} are still to be deduplicated ({doing}): oncefs dedup {place} {way}", Size(left));
        Finding::new(Cause::WorkerBehind, text)
    })
}

#[cfg(test)]
mod tests {
    use oncefs_engine::{ClusterReport, PoolReport};

    use super::super::of_mount::HostSpace;
    use super::*;

    const GIB: u64 = 1 << 30;

    fn well() -> Snapshot {
        let mut snapshot = Snapshot { host: HostSpace { size: 100 * GIB, available: 50 * GIB }, ..Snapshot::default() };
        snapshot.mount = Some("/mnt".into());
        for (name, bytes) in [("data_bytes", 100 * GIB), ("used_bytes", 10 * GIB), ("mapped_bytes", 30 * GIB)] {
            snapshot.report.space.insert(name.to_owned(), bytes);
        }
        snapshot
    }

    fn causes(snapshot: &Snapshot) -> Vec<Cause> {
        findings(snapshot, &Limits::default()).iter().map(|finding| finding.cause).collect()
    }

    #[test]
    fn a_volume_with_room_and_without_damage_is_well() {
        assert_eq!(line(&findings(&well(), &Limits::default())), "healthy");
    }

    #[test]
    fn each_cause_is_found_by_itself() {
        let mut damaged = well();
        damaged.report.space.insert("bad_bytes".to_owned(), 4096);
        damaged.scrub.blocks_lost = 1;
        let mut repaired = damaged.clone();
        repaired.scrub.blocks_lost = 0;
        let text = line(&findings(&repaired, &Limits::default()));
        assert!(text.contains("oncefs scrub /mnt puts it in their place"), "{text}");
        let mut passed_over = well();
        passed_over.scrub.passed_over.push("a record is damaged".to_owned());
        let mut waiting = well();
        waiting.report.space.insert(WAITING_FOR_ROOM.to_owned(), 1);
        let [mut pool_nearly_full, mut pool_full, mut silent] = [well(), well(), well()];
        let pool = Some(PoolReport { left_bytes: 4 * GIB, stored_bytes: 96 * GIB, ..PoolReport::default() });
        pool_nearly_full.report.cluster = Some(ClusterReport { pool, ..ClusterReport::default() });
        pool_full.report.cluster = pool_nearly_full.report.cluster.clone();
        pool_full.report.space.insert(POOL_FULL.to_owned(), 1);
        let [mut data_nearly_full, mut data_full] = [well(), well()];
        data_nearly_full.report.cluster = Some(ClusterReport { data_pool: pool, ..ClusterReport::default() });
        data_full.report.space.insert(DATA_POOL_FULL.to_owned(), 1);
        for snapshot in [&data_nearly_full, &data_full] {
            let text = line(&findings(snapshot, &Limits::default()));
            assert!(text.starts_with("the pool with its data is "), "{text}");
        }
        silent.report.space.insert(CLUSTER_SILENT.to_owned(), 1);
        let read_only = Snapshot { read_only_because: Some("the log failed".to_owned()), ..well() };
        let mut full = well();
        full.report.space.insert("used_bytes".to_owned(), 96 * GIB);
        let host_full = Snapshot { host: HostSpace { size: 100 * GIB, available: 4 * GIB }, ..well() };
        let mut behind = well();
        behind.worker.skipped_blocks = (3 * GIB + 4096) / 4096;
        for (snapshot, cause) in [
            (damaged, Cause::Damage),
            (repaired, Cause::Damage),
            (passed_over, Cause::Damage),
            (read_only, Cause::ReadOnly),
            (full, Cause::NearlyFull),
            (waiting, Cause::NearlyFull),
            (host_full, Cause::HostNearlyFull),
            (pool_nearly_full, Cause::PoolNearlyFull),
            (pool_full, Cause::PoolFull),
            (data_nearly_full, Cause::PoolNearlyFull),
            (data_full, Cause::PoolFull),
            (silent, Cause::ClusterSilent),
            (behind, Cause::WorkerBehind),
        ] {
            assert_eq!(causes(&snapshot), [cause]);
        }
    }

    #[test]
    fn limits_move_what_needs_attention() {
        let mut snapshot = well();
        snapshot.worker.skipped_blocks = 2;
        let strict = Limits { free_min: 95.0, left_max: Some(Size(4096)) };
        assert_eq!(findings(&snapshot, &strict).len(), 3);
        assert!(line(&findings(&snapshot, &strict)).contains("oncefs dedup /mnt --now"));
    }

    #[test]
    fn names_of_causes_are_those_in_json() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }
}
