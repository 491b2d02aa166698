//! The figures of volumes in objects of a cluster: the holder, its lease, waits, and the pool. Other volumes have none.

use oncefs_engine::{ClusterReport, PoolReport};

use super::figure::{Figure, Kind, Source, Unit, Value};
use super::of_mount::Snapshot;

/// The name of the group.
pub const GROUP: &str = "cluster";

/// The rows of the table.
pub const FIGURES: &[Figure] = &[
    figure(
        "holder",
        Kind::Fact,
        Unit::Words,
        |s| of(s, |cluster| Value::Words(cluster.holder.clone())),
        "The machine and directory of the process that holds the volume, which is this mount.",
    ),
    figure(
        "address",
        Kind::Fact,
        Unit::Words,
        |s| of(s, |cluster| Value::Words(cluster.address.clone())),
        "The holder's client, as the cluster blocklists it.",
    ),
    figure(
        "epoch",
        Kind::Gauge,
        Unit::Things,
        |s| whole(s, |cluster| cluster.epoch),
        "The number of this head of the volume: each opening gets the next one.",
    ),
    figure(
        "has_taken_over",
        Kind::Fact,
        Unit::Truth,
        |s| of(s, |cluster| Value::Truth(cluster.has_taken_over)),
        "Whether this head blocklisted the one before it, which had not closed the volume.",
    ),
    figure(
        "lease_seconds",
        Kind::Fact,
        Unit::Seconds,
        |s| seconds(s, |cluster| cluster.lease_millis),
        "The length of the holder's lease. Another machine may take over when it has run out.",
    ),
    figure(
        "renewed_seconds",
        Kind::Gauge,
        Unit::Seconds,
        |s| seconds(s, |cluster| cluster.renewed_millis),
        "The time since the last renewal of the lease that succeeded was sent. Requests wait from a second before the \
        lease's end.",
    ),
    figure(
        "renewals",
        Kind::Counter,
        Unit::Things,
        |s| whole(s, |cluster| cluster.renewals),
        "Renewals of the lease that succeeded.",
    ),
    figure(
        "renewals_failed",
        Kind::Counter,
        Unit::Things,
        |s| whole(s, |cluster| cluster.renewals_failed),
        "Renewals of the lease that failed.",
    ),
    figure(
        "waits",
        Kind::Counter,
        Unit::Things,
        |s| whole(s, |cluster| cluster.waits),
        "Requests to the cluster that got their answer after more than a second.",
    ),
    figure(
        "longest_wait_seconds",
        Kind::Gauge,
        Unit::Seconds,
        |s| seconds(s, |cluster| cluster.longest_wait_millis),
        "The longest that a request to the cluster waited for its answer since the mount.",
    ),
    figure(
        "pool_left_bytes",
        Kind::Gauge,
        Unit::Bytes,
        |s| pool(s, |pool| pool.left_bytes),
        "What the pool can still take, by its OSDs and quotas, before copies, a part of which is kept for deleting. \
        It is a few seconds old. Missing while the cluster does not tell.",
    ),
    figure(
        "pool_stored_bytes",
        Kind::Gauge,
        Unit::Bytes,
        |s| pool(s, |pool| pool.stored_bytes),
        "What the pool stores for all that use it, before copies.",
    ),
    figure(
        "pool_used_bytes",
        Kind::Gauge,
        Unit::Bytes,
        |s| pool(s, |pool| pool.used_bytes),
        "What the pool takes of the OSDs, with copies.",
    ),
    figure("pool_objects", Kind::Gauge, Unit::Things, |s| pool(s, |pool| pool.objects), "The objects of the pool."),
    figure(
        "data_pool_left_bytes",
        Kind::Gauge,
        Unit::Bytes,
        |s| data_pool(s, |pool| pool.left_bytes),
        "What the pool with the data area alone (mkfs --data-pool) can still take, by its OSDs and quotas, before \
        copies and codes.",
    ),
    figure(
        "data_pool_stored_bytes",
        Kind::Gauge,
        Unit::Bytes,
        |s| data_pool(s, |pool| pool.stored_bytes),
        "What that pool stores for all that use it, before copies and codes.",
    ),
    figure(
        "data_pool_used_bytes",
        Kind::Gauge,
        Unit::Bytes,
        |s| data_pool(s, |pool| pool.used_bytes),
        "What that pool takes of the OSDs, with copies or codes.",
    ),
    figure(
        "data_pool_objects",
        Kind::Gauge,
        Unit::Things,
        |s| data_pool(s, |pool| pool.objects),
        "The objects of that pool.",
    ),
];

const fn figure(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    value: fn(&Snapshot) -> Option<Value>,
    meaning: &'static str,
) -> Figure {
    Figure { group: GROUP, name, kind, unit, meaning, source: Source::One(value) }
}

fn of(snapshot: &Snapshot, value: impl Fn(&ClusterReport) -> Value) -> Option<Value> {
    snapshot.report.cluster.as_ref().map(value)
}

fn whole(snapshot: &Snapshot, value: impl Fn(&ClusterReport) -> u64) -> Option<Value> {
    of(snapshot, |cluster| Value::Whole(value(cluster)))
}

fn seconds(snapshot: &Snapshot, millis: impl Fn(&ClusterReport) -> u64) -> Option<Value> {
    of(snapshot, |cluster| Value::Real(millis(cluster) as f64 / 1e3))
}

fn pool(snapshot: &Snapshot, value: impl Fn(&PoolReport) -> u64) -> Option<Value> {
    snapshot.report.cluster.as_ref()?.pool.as_ref().map(|pool| Value::Whole(value(pool)))
}

fn data_pool(snapshot: &Snapshot, value: impl Fn(&PoolReport) -> u64) -> Option<Value> {
    snapshot.report.cluster.as_ref()?.data_pool.as_ref().map(|pool| Value::Whole(value(pool)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_elsewhere_has_none_and_a_pool_that_is_not_known_has_none() {
        let mut snapshot = Snapshot::default();
        let values = |snapshot: &Snapshot| FIGURES.iter().flat_map(|figure| figure.values(snapshot)).count();
        assert_eq!(values(&snapshot), 0);
        snapshot.report.cluster = Some(ClusterReport { renewed_millis: 400, ..ClusterReport::default() });
        assert_eq!(values(&snapshot), FIGURES.len() - 8);
        snapshot.report.cluster.as_mut().unwrap().pool = Some(PoolReport::default());
        assert_eq!(values(&snapshot), FIGURES.len() - 4);
        snapshot.report.cluster.as_mut().unwrap().data_pool = Some(PoolReport::default());
        assert_eq!(values(&snapshot), FIGURES.len());
        assert!(matches!(seconds(&snapshot, |c| c.renewed_millis), Some(Value::Real(time)) if time == 0.4));
    }
}
