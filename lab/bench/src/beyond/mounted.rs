//! A volume of its own for each measurement, in objects or in a directory, mounted until it is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cluster::{Cluster, Namespace};
use crate::command::run;
use crate::failure::{During, Failure, Result, tell};
use crate::figures::Figures;
use crate::machine;
use crate::side::Bench;

/// The size of the volumes: more than any pool here has.
const SIZE: &str = "1T";

/// A mounted volume.
pub struct Mounted<'a> {
    bench: &'a Bench,
    directory: tempfile::TempDir,
    options: String,
    is_mounted: bool,
    /// Where its objects are. None: in its directory. Dropped last, because the daemon uses them.
    pub namespace: Option<Namespace>,
}

impl<'a> Mounted<'a> {
    /// Makes a volume in objects, and mounts it with these options.
    pub fn in_objects(bench: &'a Bench, cluster: &Cluster, name: &str, options: &str) -> Result<Self> {
        let namespace = cluster.namespace(name)?;
        let address = format!("rados://{}/{name}", cluster.pool);
        let conf = cluster.conf.to_string_lossy().into_owned();
        let words =
            ["--experimental", "rados", "--records", "rados", "--data", &address, "--conf", &conf, "--size", SIZE];
        let of_data = cluster.data_pool.iter().flat_map(|pool| ["--data-pool", pool]);
        let words: Vec<&str> = words.into_iter().chain(of_data).collect();
        Self::made(bench, &words, options, Some(namespace))
    }

    /// Makes one in a directory.
    pub fn local(bench: &'a Bench, options: &str) -> Result<Self> {
        Self::made(bench, &["--size", "16G"], options, None)
    }

    fn made(bench: &'a Bench, words: &[&str], options: &str, namespace: Option<Namespace>) -> Result<Self> {
        let during = || format!("cannot make a directory in {}", bench.directory.display());
        let directory = tempfile::tempdir_in(&bench.directory).during(during)?;
        let mut mounted = Self { bench, directory, options: options.to_owned(), is_mounted: false, namespace };
        fs::create_dir(mounted.root()).during(during)?;
        let keys = mounted.directory.path().join("keys");
        run(Command::new(&bench.oncefs).env("ONCEFS_KEYS", keys).arg("mkfs").arg(mounted.volume()).args(words))?;
        mounted.mount()?;
        Ok(mounted)
    }

    fn volume(&self) -> PathBuf {
        self.directory.path().join("volume")
    }

    /// The mounted directory.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    /// A path in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Mounts it again.
    pub fn mount(&mut self) -> Result<()> {
        let mut command = Command::new(&self.bench.oncefs);
        command.arg("mount").arg(self.volume()).arg(self.root());
        if !self.options.is_empty() {
            command.args(["-o", &self.options]);
        }
        run(&mut command)?;
        self.is_mounted = true;
        Ok(())
    }

    /// Unmounts it; everything is durable then.
    pub fn umount(&mut self) -> Result<()> {
        run(Command::new(&self.bench.oncefs).arg("umount").arg(self.root()))?;
        self.is_mounted = false;
        Ok(())
    }

    /// Mounts it again with empty caches.
    pub fn remount_cold(&mut self) -> Result<()> {
        self.umount()?;
        machine::drop_caches()?;
        self.mount()
    }

    /// Kills the daemon, and waits for its end, so that the volume's lock is free.
    pub fn kill(&mut self) -> Result<()> {
        let daemon = machine::find_process(&self.bench.oncefs, &self.root())?;
        let daemon = daemon.ok_or_else(|| Failure::new("the daemon of the mount is not running"))?;
        run(Command::new("kill").arg("-KILL").arg(daemon.to_string()))?;
        self.is_mounted = false;
        run(Command::new("umount").arg("--lazy").arg(self.root()))?;
        machine::wait_for_end(daemon)
    }

    /// The figures of `oncefs stats`.
    pub fn stats(&self) -> Result<Figures> {
        Figures::parse(&self.ask("stats", &["--json"])?)
    }

    /// Runs `oncefs COMMAND MOUNT WORDS`, and returns what it printed.
    pub fn ask(&self, command: &str, words: &[&str]) -> Result<String> {
        run(Command::new(&self.bench.oncefs).arg(command).arg(self.root()).args(words))
    }

    /// Its objects.
    pub fn objects(&self) -> Result<&Namespace> {
        self.namespace.as_ref().ok_or_else(|| Failure::new("the volume is in a directory"))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(failure) = self.umount()
        {
            tell(&format!("oncefs-bench: {failure}"));
        }
    }
}
