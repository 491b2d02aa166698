//! A corpus on disk, whole or in part, and the copies of it: written, read and compared. Modes, owners and empty
//! directories are not copied.
//!
//! A part is chosen by what all versions of a thing share: a file by its path within its item, a piece of a large file by
//! its offset. So the share of duplicates between the items stays about what it is.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use oncefs_toolbox::random::mix;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::failure::{During, Failure, Result};
use crate::files::{fill_at, read_through};
use crate::signal;
use crate::tree::make_durable;

/// Bytes of a read or write, and of a piece of a large file.
const PIECE_BYTES: u64 = 1 << 20;
/// A file of as many bytes is an image: a part of it is chosen, not the whole of it or nothing.
const LARGE_BYTES: u64 = 64 << 20;

/// Directories, links and files of a corpus, each before what is in it.
pub struct Corpus {
    /// Its name.
    pub name: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// How many files.
    pub files: usize,
    directory: PathBuf,
    entries: Vec<(PathBuf, Entry)>,
}

enum Entry {
    Directory,
    Link,
    /// The offsets of the pieces taken, and the bytes of all of them.
    File(Vec<u64>, u64),
}

impl Corpus {
    /// The share `scale` (0 to 1) of what is below `directory`, where each item has a directory.
    pub fn below(directory: &Path, scale: f64) -> Result<Corpus> {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (bytes, files, entries) = (0, 0, Vec::new());
        let mut corpus = Corpus { name, bytes, files, directory: directory.to_owned(), entries };
        corpus.add(Path::new(""), scale)?;
        match corpus.files {
            0 => Err(Failure::new(format!("no files in {}: make them with scripts/corpora", directory.display()))),
            _ => Ok(corpus),
        }
    }

    /// Adds what is in a directory, by name, so that every copy is written in the same order.
    fn add(&mut self, place: &Path, scale: f64) -> Result<()> {
        let path = self.directory.join(place);
        let during = || format!("cannot list {}", path.display());
        let entries = fs::read_dir(&path).during(during)?.collect::<std::io::Result<Vec<_>>>();
        let mut names: Vec<_> = entries.during(during)?.into_iter().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        for place in names.into_iter().map(|name| place.join(name)) {
            let path = self.directory.join(&place);
            let found = fs::symlink_metadata(&path).during(|| format!("cannot look at {}", path.display()))?;
            if found.is_dir() {
                self.add_directory(place, scale)?;
            } else if found.is_symlink() {
                if is_in_share(number_within_item(&place), scale) {
                    self.entries.push((place, Entry::Link));
                }
            } else if found.is_file() {
                self.add_file(place, found.len(), scale);
            }
        }
        Ok(())
    }

    /// Adds a directory if something in it is taken: else a part would be directories mostly.
    fn add_directory(&mut self, place: PathBuf, scale: f64) -> Result<()> {
        let before = self.entries.len();
        self.entries.push((place.clone(), Entry::Directory));
        self.add(&place, scale)?;
        if self.entries.len() == before + 1 {
            self.entries.pop();
        }
        Ok(())
    }

    fn add_file(&mut self, place: PathBuf, bytes: u64, scale: f64) {
        let whole = number_within_item(&place);
        let is_taken = |offset: &u64| is_in_share(if bytes < LARGE_BYTES { whole } else { mix(*offset) }, scale);
        let pieces: Vec<u64> = (0..bytes).step_by(PIECE_BYTES as usize).filter(is_taken).collect();
        if pieces.is_empty() && (bytes > 0 || !is_in_share(whole, scale)) {
            return;
        }
        let taken = pieces.iter().map(|offset| PIECE_BYTES.min(bytes - offset)).sum();
        self.bytes += taken;
        self.files += 1;
        self.entries.push((place, Entry::File(pieces, taken)));
    }

    fn files(&self) -> impl Iterator<Item = (&PathBuf, &[u64], u64)> {
        self.entries.iter().filter_map(|(place, entry)| match entry {
            Entry::File(pieces, bytes) => Some((place, &pieces[..], *bytes)),
            Entry::Directory | Entry::Link => None,
        })
    }

    /// Reads all of it, so that copies come from memory as far as it fits in there.
    pub fn warm(&self) -> Result<()> {
        let mut buffer = AlignedBuffer::new(PIECE_BYTES as usize);
        self.files().try_for_each(|(place, pieces, _)| {
            let source = self.open(place)?;
            pieces.iter().try_for_each(|offset| read(&source, buffer.bytes_mut(), *offset, place).map(drop))
        })
    }

    fn open(&self, place: &Path) -> Result<File> {
        let path = self.directory.join(place);
        File::open(&path).during(|| format!("cannot open {}", path.display()))
    }

    /// Copies it below `root` and makes it durable. Gives the bytes written: zeros become holes, as `cp` leaves them.
    pub fn copy_to(&self, root: &Path) -> Result<u64> {
        let mut written = 0;
        let mut buffer = AlignedBuffer::new(PIECE_BYTES as usize);
        for (place, entry) in &self.entries {
            signal::check()?;
            let path = root.join(place);
            let during = || format!("cannot write {}", path.display());
            match entry {
                Entry::Directory => fs::create_dir(&path).during(during)?,
                Entry::Link => {
                    let target = fs::read_link(self.directory.join(place)).during(during)?;
                    std::os::unix::fs::symlink(target, &path).during(during)?;
                }
                Entry::File(pieces, bytes) => {
                    let (source, copy) = (self.open(place)?, File::create_new(&path).during(during)?);
                    for (at, offset) in pieces.iter().enumerate() {
                        let piece = read(&source, buffer.bytes_mut(), *offset, place)?;
                        written += write(&copy, piece, at as u64 * PIECE_BYTES).during(during)?;
                    }
                    copy.set_len(*bytes).during(during)?;
                }
            }
        }
        make_durable(root)?;
        Ok(written)
    }

    /// Reads every file of a copy to its end.
    pub fn read_from(&self, root: &Path) -> Result<()> {
        let mut buffer = AlignedBuffer::new(PIECE_BYTES as usize);
        self.files().try_for_each(|(place, _, bytes)| match read_through(&root.join(place), &mut buffer)? {
            read if read == bytes => Ok(()),
            read => Err(Failure::new(format!("WRONG SIZE of {}: {read} instead of {bytes}", place.display()))),
        })
    }

    /// Compares every byte of a copy.
    pub fn verify(&self, root: &Path) -> Result<()> {
        let mut buffers = [AlignedBuffer::new(PIECE_BYTES as usize), AlignedBuffer::new(PIECE_BYTES as usize)];
        let [expected, found] = &mut buffers;
        for (place, pieces, _) in self.files() {
            let path = root.join(place);
            let (source, copy) = (self.open(place)?, File::open(&path).during(|| "cannot open a copy")?);
            for (at, offset) in pieces.iter().enumerate() {
                let expected = read(&source, expected.bytes_mut(), *offset, place)?;
                let found = read(&copy, &mut found.bytes_mut()[..expected.len()], at as u64 * PIECE_BYTES, place)?;
                if expected != found {
                    return Err(Failure::new(format!("WRONG CONTENT in piece {at} of {}", path.display())));
                }
            }
        }
        Ok(())
    }
}

/// Reads up to the end of the buffer or of the file.
fn read<'a>(file: &File, buffer: &'a mut [u8], offset: u64, place: &Path) -> Result<&'a [u8]> {
    signal::check()?;
    let read = fill_at(file, buffer, offset).during(|| format!("cannot read {}", place.display()))?;
    Ok(&buffer[..read])
}

/// Writes the runs of blocks that are not zero. Gives their bytes.
fn write(file: &File, piece: &[u8], offset: u64) -> std::io::Result<u64> {
    let mut written = 0;
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let mut at = 0;
    for run in piece.chunks(BLOCK_BYTES).collect::<Vec<_>>().chunk_by(|one, other| is_zero(one) == is_zero(other)) {
        let end = at + run.iter().map(|block| block.len()).sum::<usize>();
        if !is_zero(run[0]) {
            file.write_all_at(&piece[at..end], offset + at as u64)?;
            written += (end - at) as u64;
        }
        at = end;
    }
    Ok(written)
}

/// The same for a file in all items.
fn number_within_item(place: &Path) -> u64 {
    let within_item: PathBuf = place.components().skip(1).collect();
    within_item.as_os_str().as_bytes().iter().fold(0, |number, byte| mix(number ^ u64::from(*byte)))
}

fn is_in_share(number: u64, share: f64) -> bool {
    (number >> 11) as f64 / (1u64 << 53) as f64 <= share
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two versions of forty files, and an image in each with a hole in it.
    fn make(directory: &Path) {
        for item in ["one", "two"] {
            fs::create_dir_all(directory.join(item).join("sub")).unwrap();
            for file in 0..40 {
                fs::write(directory.join(item).join(format!("sub/{file}")), format!("{file}").repeat(3000)).unwrap();
            }
            std::os::unix::fs::symlink("sub/7", directory.join(item).join("link")).unwrap();
            let image = File::create(directory.join(item).join("disk.img")).unwrap();
            image.set_len(LARGE_BYTES).unwrap();
            (0..64).for_each(|mib| image.write_all_at(&[mib as u8; 9000], mib << 20).unwrap());
        }
    }

    fn names(corpus: &Corpus, item: &str) -> Vec<PathBuf> {
        let below = |(place, ..): (&PathBuf, _, _)| place.strip_prefix(item).ok().map(Path::to_owned);
        corpus.files().filter_map(below).collect()
    }

    #[test]
    fn a_part_has_the_same_files_of_each_item_and_pieces_of_images() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path());
        let whole = Corpus::below(directory.path(), 1.0).unwrap();
        assert_eq!(whole.files, 82);
        let part = Corpus::below(directory.path(), 0.5).unwrap();
        assert_eq!(names(&part, "one"), names(&part, "two"));
        assert!((24..60).contains(&part.files), "{} files", part.files);
        let share = part.bytes as f64 / whole.bytes as f64;
        assert!((0.25..0.75).contains(&share), "a share of {share}");
        let empty = tempfile::tempdir().unwrap();
        assert!(Corpus::below(empty.path(), 1.0).is_err());
    }

    #[test]
    fn links_are_copied_and_directories_without_files_are_left_out() {
        let [directory, copy] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir_all(directory.path().join("one/empty/deeper")).unwrap();
        fs::write(directory.path().join("one/nothing"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("one/link")).unwrap();
        let corpus = Corpus::below(directory.path(), 1.0).unwrap();
        assert_eq!((corpus.copy_to(copy.path()).unwrap(), corpus.files), (0, 1));
        assert_eq!(fs::read_link(copy.path().join("one/link")).unwrap(), Path::new("nowhere"));
        assert!(copy.path().join("one/nothing").exists() && !copy.path().join("one/empty").exists());
    }

    #[test]
    fn a_copy_equals_its_source_and_a_changed_byte_is_found() {
        let [directory, copy] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        make(directory.path());
        let corpus = Corpus::below(directory.path(), 0.5).unwrap();
        corpus.warm().unwrap();
        let written = corpus.copy_to(copy.path()).unwrap();
        assert!(written < corpus.bytes / 8, "holes were written: {written} of {}", corpus.bytes);
        corpus.read_from(copy.path()).unwrap();
        corpus.verify(copy.path()).unwrap();
        let image = fs::OpenOptions::new().write(true).open(copy.path().join("two/disk.img")).unwrap();
        image.write_all_at(b"x", 5 << 20).unwrap();
        assert!(corpus.verify(copy.path()).unwrap_err().to_string().contains("piece 5"));
        image.set_len(5).unwrap();
        assert!(corpus.read_from(copy.path()).is_err());
    }
}
