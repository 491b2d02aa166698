//! A file that is overwritten in place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::{Lost, Witness};
use crate::{BLOCK, Random, bytes};

const PAGE: usize = BLOCK as usize;
/// Where a write begins at most, and how long it is at most.
const AT_MAX: u64 = 400_000;
const WRITE_MAX: u64 = 60_000;
/// So few that most blocks are shared sooner or later.
const CONTENTS: u64 = 20;

/// Random pieces of one file, each acknowledged by fsync, fdatasync or O_SYNC.
pub struct InPlace {
    path: PathBuf,
    flags: i32,
    acknowledged: Vec<u8>,
    under_way: Option<Vec<u8>>,
    barriers: u64,
}

impl InPlace {
    /// Makes the file, empty and durable. `flags` are those of open(2).
    pub fn new(path: PathBuf, flags: i32) -> io::Result<Self> {
        File::create(&path)?.sync_all()?;
        Ok(InPlace { path, flags, acknowledged: vec![], under_way: None, barriers: 0 })
    }

    /// What differs, if a page is neither as acknowledged nor as the write under way leaves it.
    fn compare(&self, found: &[u8], new: &[u8]) -> Result<(), String> {
        let lengths = self.acknowledged.len()..=new.len();
        if !lengths.contains(&found.len()) {
            return Err(format!("{} bytes instead of {lengths:?}", found.len()));
        }
        for at in (0..found.len()).step_by(PAGE) {
            let page = &found[at..found.len().min(at + PAGE)];
            if let (Some(old), Some(new)) = (differs(page, &self.acknowledged, at), differs(page, new, at)) {
                return Err(format!(
                    "page at {at} is neither as acknowledged (differs at {old}) nor as the write under way leaves it \
                     (differs at {new})"
                ));
            }
        }
        Ok(())
    }
}

/// The first byte at which a page differs from the same place in `content`, which reads as zeros beyond its end.
fn differs(page: &[u8], content: &[u8], at: usize) -> Option<usize> {
    (0..page.len()).map(|i| at + i).find(|i| page[i - at] != content.get(*i).copied().unwrap_or(0))
}

impl Witness for InPlace {
    fn step(&mut self, random: &mut Random) -> io::Result<()> {
        let at = random.below(AT_MAX) as usize;
        // Often at the same place in a block, so that blocks are equal.
        let at = if random.one_in(2) { at / PAGE * PAGE } else { at };
        let data = bytes(random.below(CONTENTS), 1 + random.below(WRITE_MAX) as usize);
        let mut after = self.acknowledged.clone();
        after.resize(after.len().max(at + data.len()), 0);
        after[at..at + data.len()].copy_from_slice(&data);
        self.under_way = Some(after);
        let file = OpenOptions::new().write(true).custom_flags(self.flags).open(&self.path)?;
        file.write_all_at(&data, at as u64)?;
        match random.below(2) {
            _ if self.flags & libc::O_SYNC == libc::O_SYNC => {}
            0 => file.sync_all()?,
            _ => file.sync_data()?,
        }
        self.acknowledged = self.under_way.take().expect("set above");
        self.barriers += 1;
        Ok(())
    }

    fn verify(&mut self) -> Result<u64, Lost> {
        let lost = |what: String| Lost(format!("{}: {what}", self.path.display()));
        let found = fs::read(&self.path).map_err(|error| lost(error.to_string()))?;
        let new = self.under_way.clone().unwrap_or_else(|| self.acknowledged.clone());
        self.compare(&found, &new).map_err(lost)?;
        self.under_way = None;
        self.acknowledged = found;
        Ok(self.acknowledged.len() as u64)
    }

    fn barriers(&self) -> u64 {
        self.barriers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_write_a_flipped_byte_and_a_lost_end_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = InPlace::new(path.clone(), 0).unwrap();
        let mut random = Random::new(1);
        let mut versions = vec![];
        for _ in 0..20 {
            file.step(&mut random).unwrap();
            versions.push(fs::read(&path).unwrap());
        }
        assert_eq!(file.verify().unwrap(), versions[19].len() as u64);
        let mut flipped = versions[19].clone();
        flipped[12_345] ^= 1;
        let shorter = versions[19][..versions[19].len() - 1].to_vec();
        for wrong in [versions[18].clone(), flipped, shorter] {
            fs::write(&path, wrong).unwrap();
            file.verify().unwrap_err();
        }
        fs::write(&path, &versions[19]).unwrap();
        file.verify().unwrap();
    }

    #[test]
    fn pages_of_the_write_under_way_may_be_old_or_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = InPlace::new(path.clone(), 0).unwrap();
        file.acknowledged = vec![1; 3 * PAGE];
        file.under_way = Some(vec![2; 3 * PAGE]);
        let mut mixed = vec![1; 3 * PAGE];
        mixed[PAGE..2 * PAGE].fill(2);
        fs::write(&path, &mixed).unwrap();
        file.verify().unwrap();
        file.under_way = Some(vec![3; 3 * PAGE]);
        mixed[7] = 3;
        fs::write(&path, &mixed).unwrap();
        file.verify().unwrap_err();
    }
}
