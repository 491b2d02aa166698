//! What is known of the cluster with a volume's objects: the holder of the volume, its lease, waits, and the pool.

use oncefs_rados::PoolSpace;
use serde::{Deserialize, Serialize};

/// The cluster, as the head of a volume sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReport {
    /// Machine and directory of the process that holds the volume.
    pub holder: String,
    /// Its client, as the cluster blocklists it.
    pub address: String,
    /// The number of this head: each opening gets the next one.
    pub epoch: u64,
    /// Whether it blocklisted the head before it, which had not closed the volume.
    pub has_taken_over: bool,
    /// Length of its lease.
    pub lease_millis: u64,
    /// Time since the last renewal that succeeded was sent.
    pub renewed_millis: u64,
    /// Renewals that succeeded.
    pub renewals: u64,
    /// Renewals that failed.
    pub renewals_failed: u64,
    /// Requests that waited for the cluster for longer than a second.
    pub waits: u64,
    /// The longest wait for an answer that came.
    pub longest_wait_millis: u64,
    /// The pool, if the cluster knows its space.
    pub pool: Option<PoolReport>,
    /// The pool of the data area, if it has one of its own whose space the cluster knows.
    #[serde(default)]
    pub data_pool: Option<PoolReport>,
}

/// The space of a pool, before copies unless it is said to be with copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReport {
    /// Bytes that it can still take, by its OSDs and its quotas.
    pub left_bytes: u64,
    /// Bytes that it stores, for all that use it.
    pub stored_bytes: u64,
    /// Bytes that it takes of the OSDs, with copies.
    pub used_bytes: u64,
    /// Its objects.
    pub objects: u64,
}

impl PoolReport {
    /// Of what the cluster said, if an object takes at most `object_bytes`.
    pub fn of(space: &PoolSpace, object_bytes: u64) -> Self {
        Self {
            left_bytes: space.left_bytes(object_bytes),
            stored_bytes: space.stored_bytes,
            used_bytes: space.used_bytes,
            objects: space.objects,
        }
    }
}
