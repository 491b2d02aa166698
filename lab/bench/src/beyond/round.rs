//! One repetition of a part: what it is measured with.

use super::args::BeyondArgs;
use super::cluster::Cluster;
use super::mounted::Mounted;
use crate::failure::Result;
use crate::side::Bench;

/// One repetition of a part.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    /// How much of everything.
    pub args: &'a BeyondArgs,
    /// Where it works.
    pub bench: &'a Bench,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Its number.
    pub repetition: usize,
    /// The seed of its contents.
    pub seed: u64,
}

impl<'a> Round<'a> {
    /// A new volume in objects.
    pub fn volume(&self, name: &str, options: &str) -> Result<Mounted<'a>> {
        Mounted::in_objects(self.bench, self.cluster, &format!("bench-{name}-{}", std::process::id()), options)
    }
}
