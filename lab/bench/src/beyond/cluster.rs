//! The cluster that is measured: its pool, by librados and by Ceph's own programs.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use oncefs_rados::{Access, Change, Cluster as Connection, Error, KeyedObjects, Objects, Pool, PoolSpace};
use serde_json::Value;

use crate::command::run;
use crate::failure::{During, Failure, Result};

/// Objects that `rados bench` has under way: its default.
const THREADS: &str = "16";
/// Size of its objects, which is that of a volume's.
const OBJECT_BYTES: u64 = 4 << 20;

/// A cluster with a pool.
pub struct Cluster {
    /// Its configuration file.
    pub conf: PathBuf,
    /// The pool.
    pub pool: String,
    /// The pool of the volumes' data areas, if it is another.
    pub data_pool: Option<String>,
    connection: Arc<Connection>,
}

/// A namespace of the pools. Dropped, it loses its objects.
pub struct Namespace {
    /// Its objects.
    pub objects: Pool,
    /// Those in the pool of the data areas.
    of_data: Option<Pool>,
    /// Its name.
    pub name: String,
}

/// What objects whose names begin alike hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// How many there are.
    pub objects: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Their keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub key_bytes: u64,
}

impl Cluster {
    /// The cluster of `ONCEFS_CEPH_CONF`.
    pub fn of_environment(pool: &str, data_pool: Option<&str>) -> Result<Cluster> {
        let conf = std::env::var_os("ONCEFS_CEPH_CONF").map(PathBuf::from).ok_or_else(|| {
            Failure::new(
                "name a cluster's configuration file in ONCEFS_CEPH_CONF; scripts/beyond starts a cluster and sets it",
            )
        })?;
        let access = access(&conf, pool, "bench");
        let connection = Connection::connect(&access).during(|| "cannot connect to the cluster")?;
        Ok(Cluster { conf, pool: pool.to_owned(), data_pool: data_pool.map(str::to_owned), connection })
    }

    /// A namespace that is empty.
    pub fn namespace(&self, name: &str) -> Result<Namespace> {
        let of_data = self.data_pool.as_ref().map(|pool| self.open(pool, name)).transpose()?;
        let namespace = Namespace { objects: self.open(&self.pool, name)?, of_data, name: name.to_owned() };
        namespace.clear()?;
        Ok(namespace)
    }

    fn open(&self, pool: &str, namespace: &str) -> Result<Pool> {
        let opened = Pool::open(&self.connection, &access(&self.conf, pool, namespace));
        opened.during(|| format!("cannot open the pool {pool}"))
    }

    /// The space of the pool with the data, as the cluster tells it.
    pub fn space(&self) -> Result<PoolSpace> {
        let pool = self.open(self.data_pool.as_ref().unwrap_or(&self.pool), "bench")?;
        let space = pool.space().during(|| "cannot ask for the pool's space")?;
        space.ok_or_else(|| Failure::new("the cluster has no figures of the pool: does a manager (ceph-mgr) run?"))
    }

    /// Writes so many bytes by `rados bench`, and leaves the objects. Returns bytes per second.
    pub fn bench_write(&self, namespace: &str, bytes: u64) -> Result<f64> {
        let count = (bytes / OBJECT_BYTES).to_string();
        let words = ["write", "-b", "4194304", "-t", THREADS, "--max-objects", &count, "--no-cleanup"];
        self.bench(namespace, &words)
    }

    /// Reads these objects in sequence. Returns bytes per second.
    pub fn bench_read(&self, namespace: &str) -> Result<f64> {
        self.bench(namespace, &["seq", "-t", THREADS])
    }

    fn bench(&self, namespace: &str, words: &[&str]) -> Result<f64> {
        const SECONDS_MAX: &str = "3600";
        let mut command = Command::new("rados");
        command.arg("-c").arg(&self.conf).args(["-p", &self.pool, "-N", namespace, "bench", SECONDS_MAX]);
        let said = run(command.args(words).args(["--run-name", "oncefs-bench"]))?;
        bandwidth(&said).ok_or_else(|| Failure::new("rados bench printed no line \"Bandwidth (MB/sec)\""))
    }

    /// How the cluster is made, in a sentence.
    pub fn describe(&self) -> Result<String> {
        let stats = &self.ask(&["df"])?["stats"];
        let number = |name: &str| stats[name].as_u64().unwrap_or(0);
        let pools = self.ask(&["osd", "pool", "ls", "detail"])?;
        let size_of = |name: &str| {
            let pool = pools.as_array().and_then(|pools| pools.iter().find(|pool| pool["pool_name"] == *name));
            pool.and_then(|pool| pool["size"].as_u64()).unwrap_or(0)
        };
        let copies = size_of(&self.pool);
        let of_data = self
            .data_pool
            .as_ref()
            .map_or_else(String::new, |pool| format!(", data in the pool {pool} over {} OSDs", size_of(pool)));
        let version = run(Command::new("ceph").arg("--version"))?;
        let version = version.split(' ').nth(2).unwrap_or("unknown").to_owned();
        let (osds, device) = (number("num_osds"), self.device_bytes()? >> 30);
        Ok(format!("{osds} OSDs with devices of {device} GiB, a pool of {copies} copies{of_data}, Ceph {version}"))
    }

    /// Size of an OSD's device, on average.
    pub fn device_bytes(&self) -> Result<u64> {
        let stats = &self.ask(&["df"])?["stats"];
        let found = stats["total_bytes"].as_u64().zip(stats["num_osds"].as_u64().filter(|osds| *osds > 0));
        let (bytes, osds) = found.ok_or_else(|| Failure::new("ceph df tells no sizes"))?;
        Ok(bytes / osds)
    }

    fn ask(&self, words: &[&str]) -> Result<Value> {
        let said = run(Command::new("ceph").arg("-c").arg(&self.conf).args(words).args(["--format", "json"]))?;
        serde_json::from_str(&said).during(|| format!("cannot read the answer to ceph {}", words.join(" ")))
    }
}

impl Namespace {
    /// What objects hold whose names are one of these, or begin with one of them and a dot.
    pub fn held(&self, parts: &[&str]) -> Result<Held> {
        let is_of = |name: &String| parts.contains(&name.split('.').next().unwrap_or_default());
        let mut held = Held::default();
        for pool in self.pools() {
            let names: Vec<String> = names(pool)?.into_iter().filter(is_of).collect();
            held.objects += names.len() as u64;
            held.bytes += pool.sizes(&names).during(|| "cannot look at objects")?.into_iter().flatten().sum::<u64>();
            // No other objects have keys.
            for name in names.iter().filter(|name| name.starts_with("records")) {
                self.add_keys(name, &mut held)?;
            }
        }
        Ok(held)
    }

    fn add_keys(&self, name: &str, held: &mut Held) -> Result<()> {
        let mut from = Vec::new();
        loop {
            let portion = match self.objects.scan(name.to_owned(), &from, usize::MAX) {
                // It was removed meanwhile.
                Err(Error::NotFound(_)) => return Ok(()),
                other => other.during(|| format!("cannot read the keys of {name}"))?,
            };
            held.keys += portion.pairs.len() as u64;
            held.key_bytes += portion.pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
            match portion.pairs.last() {
                Some((key, _)) if portion.has_more => from = [key.as_slice(), &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        [&self.objects].into_iter().chain(&self.of_data)
    }

    fn clear(&self) -> Result<()> {
        for pool in self.pools() {
            for name in names(pool)? {
                match pool.change(&name, Change::Remove) {
                    Ok(()) | Err(Error::NotFound(_)) => {}
                    Err(error) => return Err(error).during(|| format!("cannot remove the object {name}")),
                }
            }
        }
        Ok(())
    }
}

fn names(pool: &Pool) -> Result<Vec<String>> {
    pool.names().during(|| "cannot list objects")
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(failure) = self.clear() {
            crate::failure::tell(&format!("oncefs-bench: {failure}"));
        }
    }
}

fn access(conf: &std::path::Path, pool: &str, namespace: &str) -> Access {
    Access {
        pool: pool.to_owned(),
        namespace: namespace.to_owned(),
        id: "admin".to_owned(),
        conf: conf.to_owned(),
        record_keys_max: None,
        data_pool: None,
    }
}

/// Bytes per second, from the output of `rados bench`, whose MB are MiB.
fn bandwidth(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix("Bandwidth (MB/sec):"))?;
    line.trim().parse::<f64>().ok().map(|mib| mib * f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bandwidth_of_rados_bench_is_found_among_its_lines() {
        let said = "Total time run:         2.5\nBandwidth (MB/sec):     102.4\nStddev Bandwidth:       3\n";
        assert_eq!(bandwidth(said), Some(102.4 * 1_048_576.0));
        assert_eq!(bandwidth("Bandwidth"), None);
    }
}
