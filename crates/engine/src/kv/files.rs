//! The files of RocksDB on the host: their names, their checksums, and how one is replaced.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::format::record_list::{FILE_SEED, RecordFile};

/// Bytes read or written in one request.
const REQUEST_BYTES: usize = 1 << 20;
/// The file that names the manifest.
pub const CURRENT: &str = "CURRENT";

/// The name of a record file.
pub fn table_name(number: u64) -> String {
    format!("{number:06}.sst")
}

/// The number of a record file, from its name.
pub fn table_number(name: &str) -> Option<u64> {
    name.trim_start_matches('/').strip_suffix(".sst")?.parse().ok()
}

/// The name of a manifest.
pub fn manifest_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// The number of a manifest, from its name.
fn manifest_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("MANIFEST-")?.parse().ok()?;
    (manifest_name(number) == name).then_some(number)
}

/// The number of the manifest that `CURRENT` names, if it names one.
pub fn current_manifest(records: &Path) -> Option<u64> {
    let text = fs::read_to_string(records.join(CURRENT)).ok()?;
    manifest_number(text.strip_suffix('\n')?)
}

/// The manifests in a directory, by number.
pub fn manifests_in(directory: &Path) -> Vec<(u64, PathBuf)> {
    numbered_in(directory, manifest_number)
}

/// Reads a file to its end and passes each part to `take`. Returns the length and both checksums.
fn sums_of(file: &mut File, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<(u64, u64, u64)> {
    let len = file.metadata()?.len();
    let end_at = len - RecordFile::end_bytes(len);
    let (mut whole, mut end) = (Xxh3::with_seed(FILE_SEED), Xxh3::with_seed(FILE_SEED));
    let mut buffer = vec![0; REQUEST_BYTES];
    let mut at = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((at, whole.digest(), end.digest()));
        }
        let part = &buffer[..count];
        whole.update(part);
        let before_end = end_at.saturating_sub(at).min(count as u64);
        end.update(&part[before_end as usize..]);
        take(part)?;
        at += count as u64;
    }
}

/// The entry of a record file. If wanted, it is also copied to `copy`, on its way to the disk.
pub fn take_in(mut file: File, number: u64, level: u32, copy: Option<&Path>) -> io::Result<RecordFile> {
    let mut copied = copy.map(new_file).transpose()?;
    let take = |part: &[u8]| copied.as_mut().map_or(Ok(()), |copied| copied.write_all(part));
    let (len, sum, end_sum) = sums_of(&mut file, take)?;
    if let Some(copied) = copied {
        copied.sync_all()?;
    }
    Ok(RecordFile { number, len, sum, end_sum, level })
}

/// Whether a file matches its entry, every byte of it.
pub fn is_whole(path: &Path, entry: &RecordFile) -> bool {
    let sums = File::open(path).and_then(|mut file| sums_of(&mut file, |_| Ok(())));
    sums.is_ok_and(|sums| sums == (entry.len, entry.sum, entry.end_sum))
}

/// Whether these bytes match a file's entry.
pub fn is_of(bytes: &[u8], entry: &RecordFile) -> bool {
    let mut whole = Xxh3::with_seed(FILE_SEED);
    whole.update(bytes);
    bytes.len() as u64 == entry.len && whole.digest() == entry.sum
}

/// Whether the length and the end of a file match its entry.
pub fn has_its_end(path: &Path, entry: &RecordFile) -> bool {
    end_sum(path, entry.len).is_ok_and(|sum| sum == Some(entry.end_sum))
}

fn end_sum(path: &Path, len: u64) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() != len {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(len - RecordFile::end_bytes(len)))?;
    let mut hash = Xxh3::with_seed(FILE_SEED);
    let mut buffer = vec![0; REQUEST_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Some(hash.digest())),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// An empty file that only its owner can read. An existing one may be another name of a live file, so it is not emptied
/// but removed.
fn new_file(path: &Path) -> io::Result<File> {
    remove(path)?;
    File::options().create_new(true).write(true).mode(0o600).open(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Whether two paths are names of one file.
pub fn is_one_file(path: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    inode(path).is_some_and(|first| inode(other) == Some(first))
}

/// Makes `name` another name of a file.
pub fn give_name(path: &Path, name: &Path) -> io::Result<()> {
    if is_one_file(path, name) {
        return Ok(());
    }
    remove(name)?;
    fs::hard_link(path, name)
}

/// The ending of the name of an incomplete file.
const TEMPORARY_ENDING: &str = ".dbtmp";

/// Puts `bytes` into a file's place as a whole: a crash leaves the old content or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_from(path, &mut &*bytes)
}

/// Puts a copy into a file's place as a whole.
pub fn replace_by_copy(path: &Path, copy: &Path) -> io::Result<()> {
    replace_from(path, &mut File::open(copy)?)
}

fn replace_from(path: &Path, from: &mut dyn Read) -> io::Result<()> {
    let temporary = temporary_of(path);
    let mut file = new_file(&temporary)?;
    io::copy(from, &mut file)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory_of(path)
}

/// The path of a file's new content until it is complete. Each target has its own, because two threads may replace two
/// files of one directory at once. RocksDB deletes files with this ending when it opens its directory.
fn temporary_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    path.with_file_name(format!("{:0>6}{TEMPORARY_ENDING}", digits))
}

/// Makes a change of names in a file's directory durable.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// The record files in a directory, by number.
pub fn tables_in(directory: &Path) -> Vec<(u64, PathBuf)> {
    numbered_in(directory, table_number)
}

/// Files that a crash left during a replacement, by the number of the target.
pub fn unfinished_in(directory: &Path) -> Vec<(u64, PathBuf)> {
    numbered_in(directory, |name| name.strip_suffix(TEMPORARY_ENDING)?.parse().ok())
}

fn numbered_in(directory: &Path, number: impl Fn(&str) -> Option<u64>) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path())));
    let mut found: Vec<(u64, PathBuf)> = numbered.collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_directory_that_are_replaced_at_once_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["000007.sst", "000012.sst", "MANIFEST-000013", "list"].map(|name| dir.path().join(name));
        let temporary: std::collections::BTreeSet<PathBuf> = paths.iter().map(|path| temporary_of(path)).collect();
        assert_eq!(temporary.len(), paths.len(), "{temporary:?}");
        fs::write(dir.path().join("000007.dbtmp"), b"left by a crash").unwrap();
        assert_eq!(unfinished_in(dir.path()), [(7, temporary.first().unwrap().with_file_name("000007.dbtmp"))]);
        std::thread::scope(|scope| {
            for (n, path) in paths.iter().enumerate() {
                scope.spawn(move || (0..20).for_each(|_| replace(path, &vec![n as u8; 100_000]).unwrap()));
            }
        });
        for (n, path) in paths.iter().enumerate() {
            assert!(fs::read(path).unwrap() == vec![n as u8; 100_000], "{}", path.display());
        }
    }

    #[test]
    fn a_file_s_sums_follow_every_byte_and_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("000007.sst"), dir.path().join("copy"));
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| at as u8).collect();
        fs::write(&path, &content).unwrap();
        let entry = take_in(File::open(&path).unwrap(), 7, 1, Some(&copy)).unwrap();
        assert!(is_whole(&path, &entry) && is_whole(&copy, &entry) && has_its_end(&path, &entry));
        for (at, is_in_end) in [(0, false), (2_700_000, false), (2_990_000, true)] {
            let mut bytes = content.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!((is_whole(&path, &entry), has_its_end(&path, &entry)), (false, !is_in_end), "byte {at}");
        }
        replace_by_copy(&path, &copy).unwrap();
        assert!(is_whole(&path, &entry));
        fs::write(&path, &content[1..]).unwrap();
        assert!(!has_its_end(&path, &entry));
        assert_eq!(tables_in(dir.path()), [(7, path)]);
        assert_eq!((table_number("/000012.sst"), table_number("MANIFEST-1")), (Some(12), None));
    }

    #[test]
    fn current_names_a_manifest_only_by_its_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let named = [("MANIFEST-000005\n", Some(5)), ("MANIFEST-1234567\n", Some(1_234_567))];
        let not =
            ["MANIFEST-+00005\n", "MANIFEST-00005\n", "MANIFEST-000005", "MANIFEST-\n", ""].map(|text| (text, None));
        for (text, number) in named.into_iter().chain(not) {
            fs::write(dir.path().join(CURRENT), text).unwrap();
            assert_eq!(current_manifest(dir.path()), number, "{text:?}");
        }
    }

    #[test]
    fn a_new_file_in_the_place_of_another_name_of_a_file_leaves_that_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (table, name) = (dir.path().join("000007.sst"), dir.path().join("name"));
        fs::write(&table, b"records").unwrap();
        give_name(&table, &name).unwrap();
        give_name(&table, &name).unwrap();
        assert!(is_one_file(&table, &name));
        take_in(File::open(&table).unwrap(), 7, 1, Some(&name)).unwrap();
        assert!(!is_one_file(&table, &name), "it is a copy");
        assert_eq!((fs::read(&table).unwrap(), fs::read(&name).unwrap()), (b"records".to_vec(), b"records".to_vec()));
        give_name(&table, &name).unwrap();
        assert!(is_one_file(&table, &name));
    }
}
