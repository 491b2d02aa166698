//! A file that is replaced as editors do it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use super::{Lost, Witness};
use crate::{Random, bytes};

const GENERATION_BYTES: usize = 30_000;

/// Generations of one file: written beside, synced, renamed over, directory synced.
pub struct Replaced {
    path: PathBuf,
    acknowledged: u64,
    barriers: u64,
}

impl Replaced {
    /// Nothing yet: generation 0 is no file.
    pub fn new(path: PathBuf) -> Self {
        Replaced { path, acknowledged: 0, barriers: 0 }
    }

    fn content(generation: u64) -> Vec<u8> {
        bytes(1000 + generation, GENERATION_BYTES)
    }
}

impl Witness for Replaced {
    fn step(&mut self, _: &mut Random) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&Self::content(self.acknowledged + 1))?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        File::open(self.path.parent().expect("in a directory"))?.sync_all()?;
        self.acknowledged += 1;
        self.barriers += 2;
        Ok(())
    }

    /// The generation acknowledged last, or the next one; never a mixture.
    fn verify(&mut self) -> Result<u64, Lost> {
        let lost = |what: String| Lost(format!("{}: {what}", self.path.display()));
        let found = match fs::read(&self.path) {
            Err(error) if self.acknowledged == 0 && error.kind() == io::ErrorKind::NotFound => return Ok(0),
            found => found.map_err(|error| lost(error.to_string()))?,
        };
        let generation = [self.acknowledged, self.acknowledged + 1].into_iter().find(|g| found == Self::content(*g));
        self.acknowledged =
            generation.ok_or_else(|| lost(format!("neither generation {} nor the next one", self.acknowledged)))?;
        Ok(found.len() as u64)
    }

    fn barriers(&self) -> u64 {
        self.barriers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_generation_a_mixture_and_no_file_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = Replaced::new(path.clone());
        file.verify().unwrap();
        for _ in 0..3 {
            file.step(&mut Random::new(1)).unwrap();
        }
        file.verify().unwrap();
        let mut mixture = Replaced::content(3);
        mixture[..4096].copy_from_slice(&Replaced::content(4)[..4096]);
        for wrong in [Replaced::content(2), mixture, Replaced::content(5)] {
            fs::write(&path, wrong).unwrap();
            file.verify().unwrap_err();
        }
        fs::remove_file(&path).unwrap();
        file.verify().unwrap_err();
        fs::write(&path, Replaced::content(4)).unwrap();
        file.verify().unwrap();
        assert_eq!(file.acknowledged, 4);
    }
}
