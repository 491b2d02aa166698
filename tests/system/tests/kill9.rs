//! `kill -9` of the daemon while programs write: everything that was acknowledged as durable is there afterwards,
//! byte by byte, and `fsck` finds nothing. What lies between is the last write of each program, old or new.
//!
//! A killed daemon leaves the host's page cache alone, so this shows the order of oncefs's commits, not of its
//! flushes; lost power is the crash explorer's part.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use oncefs_system_tests::{Mount, Random, bytes, elapsed, fill, seed};

const ROUNDS: u64 = 8;
const PAGE: usize = 4096;

/// A file that is overwritten in place; each write is acknowledged by fsync, fdatasync or O_SYNC.
struct InPlace {
    path: PathBuf,
    flags: i32,
    acknowledged: Vec<u8>,
    under_way: Option<Vec<u8>>,
}

impl InPlace {
    fn write_until_killed(&mut self, random: &mut Random) {
        let _ = self.write_repeatedly(random);
    }

    fn write_repeatedly(&mut self, random: &mut Random) -> io::Result<()> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).custom_flags(self.flags).open(&self.path)?;
        loop {
            let at = random.below(400_000) as usize;
            // Few different contents, often at the same place in a block: most blocks are shared sooner or later.
            let at = if random.once_in(2) { at / PAGE * PAGE } else { at };
            let data = bytes(random.below(20), 1 + random.below(60_000) as usize);
            let mut after = self.acknowledged.clone();
            after.resize(after.len().max(at + data.len()), 0);
            after[at..at + data.len()].copy_from_slice(&data);
            self.under_way = Some(after);
            file.write_all_at(&data, at as u64)?;
            match random.below(2) {
                _ if self.flags & libc::O_SYNC == libc::O_SYNC => {}
                0 => file.sync_all()?,
                _ => file.sync_data()?,
            }
            self.acknowledged = self.under_way.take().expect("set above");
        }
    }

    /// Each page is as acknowledged, or as the write under way would have left it.
    fn verify(&mut self) {
        let found = fs::read(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        let new = self.under_way.take().unwrap_or_else(|| self.acknowledged.clone());
        assert!(found.len() >= self.acknowledged.len() && found.len() <= new.len(), "{}", self.path.display());
        for at in (0..found.len()).step_by(PAGE) {
            let page = &found[at..found.len().min(at + PAGE)];
            if let (Some(old_differs), Some(new_differs)) =
                (differs(page, &self.acknowledged, at), differs(page, &new, at))
            {
                panic!(
                    "{}: page at {at} is neither as acknowledged (differs at {old_differs}) nor as the write under way \
                     leaves it (differs at {new_differs}); lengths: found {}, acknowledged {}, under way {}",
                    self.path.display(),
                    found.len(),
                    self.acknowledged.len(),
                    new.len()
                );
            }
        }
        self.acknowledged = found;
    }
}

/// The first byte at which a page differs from the same place in `content`, which reads as zeros beyond its end.
fn differs(page: &[u8], content: &[u8], at: usize) -> Option<usize> {
    (0..page.len()).map(|i| at + i).find(|i| page[i - at] != content.get(*i).copied().unwrap_or(0))
}

/// A file that is replaced as editors do it: written beside, synced, renamed over, directory synced.
struct Replaced {
    path: PathBuf,
    acknowledged: u64,
}

const GENERATION_BYTES: usize = 30_000;

impl Replaced {
    fn write_until_killed(&mut self) {
        while self.replace().is_ok() {
            self.acknowledged += 1;
        }
    }

    fn replace(&self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&bytes(1000 + self.acknowledged + 1, GENERATION_BYTES))?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        File::open(self.path.parent().expect("in a directory"))?.sync_all()
    }

    /// The generation acknowledged last, or the next one; never a mixture.
    fn verify(&mut self) {
        let found = match fs::read(&self.path) {
            Err(error) if self.acknowledged == 0 && error.kind() == io::ErrorKind::NotFound => return,
            found => found.unwrap(),
        };
        let generation =
            [self.acknowledged, self.acknowledged + 1].into_iter().find(|g| found == bytes(1000 + g, GENERATION_BYTES));
        self.acknowledged =
            generation.unwrap_or_else(|| panic!("{} bytes of no generation near {}", found.len(), self.acknowledged));
    }
}

fn run_and_kill(mount: &mut Mount, seed: u64, in_place: &mut [InPlace], replaced: &mut Replaced) {
    thread::scope(|scope| {
        for (number, file) in in_place.iter_mut().enumerate() {
            scope.spawn(move || file.write_until_killed(&mut Random::new(seed + number as u64)));
        }
        scope.spawn(|| replaced.write_until_killed());
        thread::sleep(Duration::from_millis(100 + Random::new(seed).below(900)));
        mount.kill();
    });
}

#[test]
fn what_was_acknowledged_survives_killing_the_daemon() {
    let seed = seed();
    let mut mount = Mount::new("2G");
    let in_place = |name: &str, flags| InPlace { path: mount.join(name), flags, acknowledged: vec![], under_way: None };
    let mut files = [in_place("a", 0), in_place("b", 0), in_place("sync", libc::O_SYNC)];
    for file in &files {
        File::create(&file.path).unwrap().sync_all().unwrap();
    }
    let mut replaced = Replaced { path: mount.join("replaced"), acknowledged: 0 };
    for round in 0..ROUNDS {
        run_and_kill(&mut mount, seed + 100 * round, &mut files, &mut replaced);
        if round % 2 == 0 {
            mount.assert_clean();
        }
        mount.mount();
        files.iter_mut().for_each(InPlace::verify);
        replaced.verify();
    }
    println!("{} generations of the replaced file were acknowledged", replaced.acknowledged);
    assert!(replaced.acknowledged > ROUNDS, "the programs must have got something done");
    mount.check();
}

#[test]
fn a_file_open_and_unlinked_when_the_daemon_dies_gives_its_space_back() {
    let mut mount = Mount::new("1G");
    let used = mount.figure("space", "used_bytes");
    let mut file = File::create(mount.join("gone")).unwrap();
    file.write_all(&bytes(5, 64 << 20)).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(mount.join("gone")).unwrap();
    File::open(mount.dir()).unwrap().sync_all().unwrap();
    assert!(mount.figure("space", "used_bytes") >= used + (64 << 20), "an open file keeps its space");
    mount.kill();
    drop(file);
    mount.mount();
    mount.wait_for("space", "used_bytes", 30, |now| now <= used + (1 << 20));
    mount.check();
}

#[test]
fn a_volume_of_ten_terabytes_mounts_within_two_seconds_of_a_crash() {
    let mut mount = Mount::new("10T");
    let mut file = File::create(mount.join("file")).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for at in 0..256 {
        fill(1, at << 20, &mut buffer);
        file.write_all(&buffer).unwrap();
    }
    file.sync_all().unwrap();
    write_unsynced(&mount.join("unsynced"));
    mount.kill();
    let ((), time) = elapsed("mount of 10 TB after kill -9", || mount.mount());
    assert!(time < Duration::from_secs(2), "took {time:?}");
    assert_eq!(fs::metadata(mount.join("file")).unwrap().len(), 256 << 20);
}

fn write_unsynced(path: &Path) {
    fs::write(path, bytes(2, 16 << 20)).unwrap();
}
