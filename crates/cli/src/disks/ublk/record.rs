//! Which process serves which ublk device: a file for each below `/run/oncefs/ublk`, locked while the server lives.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Only root looks in.
const RECORDS: &str = "/run/oncefs/ublk";
/// Locked by a command that removes what servers left. No number has this name.
const REMOVAL_LOCK: &str = "removal.lock";
/// The word at the end of the record of a server that was asked to end with the last user of its device.
const ENDS: &str = "ends";
/// A server answers what is under way before it ends.
const END_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A server and its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the device.
    pub number: u32,
    /// The server.
    pub process: libc::pid_t,
    /// Its descriptor of the disk's file. By it the kernel tells where the disk lies now.
    pub descriptor: i32,
    /// The disk's file: device number and inode number.
    pub file: (u64, u64),
    /// It was asked to end with the last user of the device.
    pub ends: bool,
}

/// The state of a record's server.
pub enum Found {
    /// It lives.
    Served(Record),
    /// It ended, and left its device.
    Left(Abandoned),
}

/// The record of a server that ended without removing its device. Locked.
pub struct Abandoned {
    /// The number of the device.
    pub number: u32,
    path: PathBuf,
    lock: File,
}

impl Abandoned {
    /// Removes the record. False: its number has another record by now or none, so its device is not this one's.
    pub fn forget(self) -> bool {
        let is_same = |at: &fs::Metadata, own: &fs::Metadata| (at.dev(), at.ino()) == (own.dev(), own.ino());
        let found = fs::symlink_metadata(&self.path).ok().zip(self.lock.metadata().ok());
        if !found.is_some_and(|(at, own)| is_same(&at, &own)) {
            return false;
        }
        // A file below /run that stays is found again.
        let _ = fs::remove_file(&self.path);
        true
    }
}

/// The record of the calling process, until it ends.
pub struct Kept {
    path: PathBuf,
    _lock: File,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A record that stays is found to be left, because its lock ends with the process.
        let _ = fs::remove_file(&self.path);
    }
}

impl Record {
    /// Writes it for other processes. They see it whole and locked.
    pub fn keep(&self) -> io::Result<Kept> {
        keep_in(self, Path::new(RECORDS))
    }

    /// Adds, for other processes, that the server is asked to end with the last user of its device.
    pub fn note_end(&self) -> io::Result<()> {
        note_end_in(self, Path::new(RECORDS))
    }

    fn encode(&self) -> String {
        let Self { process, descriptor, file: (device, inode), .. } = self;
        format!("{process} {descriptor} {device} {inode}\n")
    }

    fn decode(number: u32, text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let process = words.next()?.parse().ok()?;
        let descriptor = words.next()?.parse().ok()?;
        let file = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let rest: Vec<&str> = words.collect();
        let ends = !rest.is_empty();
        rest.iter().all(|word| *word == ENDS).then_some(Self { number, process, descriptor, file, ends })
    }

    /// Waits until the server has ended. False: it has not.
    pub fn await_end(&self) -> bool {
        let until = Instant::now() + END_PATIENCE;
        loop {
            match look(Path::new(RECORDS), self.number) {
                Some(Found::Served(found)) if (found.process, found.file) == (self.process, self.file) => {}
                _ => return true,
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn keep_in(record: &Record, records: &Path) -> io::Result<Kept> {
    DirBuilder::new().recursive(true).mode(0o700).create(records)?;
    let folder = fs::symlink_metadata(records)?;
    if folder.uid() != own_user() || folder.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{RECORDS} is not root's alone")));
    }
    let (new, path) = (records.join(format!("{}.new", record.number)), records.join(record.number.to_string()));
    let mut file = File::create(&new)?;
    file.lock()?;
    file.write_all(record.encode().as_bytes())?;
    fs::rename(&new, &path)?;
    Ok(Kept { path, _lock: file })
}

fn note_end_in(record: &Record, records: &Path) -> io::Result<()> {
    // In the file itself, because its lock tells that the server lives.
    let mut file = File::options().append(true).open(records.join(record.number.to_string()))?;
    file.write_all(format!("{ENDS}\n").as_bytes())
}

/// The number of a ublk device.
pub fn number_of(device: &Path) -> Option<u32> {
    let digits = device.to_str()?.strip_prefix("/dev/ublkb")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The device of a number.
pub fn device(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

fn own_user() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Waits until no other command removes what servers left. None: no server ever ran, or the lock cannot be taken.
pub fn lock_removal() -> Option<File> {
    let lock = File::options().create(true).append(true).open(Path::new(RECORDS).join(REMOVAL_LOCK)).ok()?;
    lock.lock().ok().map(|()| lock)
}

/// All records, by number.
pub fn all() -> Vec<Found> {
    all_in(Path::new(RECORDS))
}

fn all_in(records: &Path) -> Vec<Found> {
    let names = fs::read_dir(records).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().filter_map(|number| look(records, number)).collect()
}

/// The server of a device.
pub fn of(number: u32) -> Option<Record> {
    match look(Path::new(RECORDS), number)? {
        Found::Served(record) => Some(record),
        Found::Left(_) => None,
    }
}

/// None: there is no such record, or it cannot be read.
fn look(records: &Path, number: u32) -> Option<Found> {
    let path = records.join(number.to_string());
    let file = File::open(&path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Record::decode(number, &fs::read_to_string(&path).ok()?).map(Found::Served),
        Ok(()) => Some(Found::Left(Abandoned { number, path, lock: file })),
        Err(TryLockError::Error(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_whether_its_server_lives_and_goes_with_it() {
        let records = tempfile::tempdir().unwrap();
        let record = Record { number: 3, process: 77, descriptor: 5, file: (61, 9), ends: false };
        let kept = keep_in(&record, records.path()).unwrap();
        assert!(matches!(&all_in(records.path())[..], [Found::Served(found)] if *found == record));
        drop(kept);
        assert!(all_in(records.path()).is_empty());
    }

    #[test]
    fn a_record_tells_that_its_server_was_asked_to_end_however_often() {
        let records = tempfile::tempdir().unwrap();
        let record = Record { number: 3, process: 77, descriptor: 5, file: (61, 9), ends: false };
        let _kept = keep_in(&record, records.path()).unwrap();
        for _ in 0..2 {
            note_end_in(&record, records.path()).unwrap();
            let [Found::Served(found)] = &all_in(records.path())[..] else { panic!("its server lives") };
            assert_eq!(*found, Record { ends: true, ..record });
        }
        assert!(note_end_in(&Record { number: 4, ..record }, records.path()).is_err(), "it has no record");
    }

    #[test]
    fn a_record_without_its_server_is_left_and_can_be_forgotten() {
        let records = tempfile::tempdir().unwrap();
        fs::write(records.path().join("4"), "77 5 61 9\n").unwrap();
        fs::write(records.path().join("5.new"), "").unwrap();
        let [Found::Left(_)] = &all_in(records.path())[..] else { panic!("one record is left") };
        for found in all_in(records.path()) {
            let Found::Left(left) = found else { panic!("its server is gone") };
            assert_eq!(left.number, 4);
            assert!(left.forget());
        }
        assert!(all_in(records.path()).is_empty());
    }

    #[test]
    fn a_left_record_whose_number_a_new_server_got_does_not_remove_the_new_record() {
        let records = tempfile::tempdir().unwrap();
        fs::write(records.path().join("4"), "77 5 61 9\n").unwrap();
        let mut found = all_in(records.path());
        let Some(Found::Left(left)) = found.pop() else { panic!("its server is gone") };
        let record = Record { number: 4, process: 78, descriptor: 5, file: (61, 9), ends: false };
        let _kept = keep_in(&record, records.path()).unwrap();
        assert!(!left.forget());
        assert!(matches!(&all_in(records.path())[..], [Found::Served(found)] if *found == record));
    }

    #[test]
    fn a_record_with_other_words_is_none() {
        assert_eq!(Record::decode(1, "1 2 3 4\n").unwrap().file, (3, 4));
        for text in ["", "1 2 3", "1 2 3 4 5", "1 x 3 4"] {
            assert_eq!(Record::decode(1, text), None, "{text}");
        }
    }
}
