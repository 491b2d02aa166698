//! The files of a volume in memory, and the structures in them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use oncefs_engine::kv::table_data_end;

/// Bytes of a block, and of a page of the log.
pub const BLOCK: u64 = 4096;
const FOOTER_BYTES: u64 = 53;

/// A part of a file.
pub type Part = (PathBuf, Range<u64>);

/// A volume's files in memory, without those that only take space, and the second names of some (new and old name).
pub struct Image(pub Vec<(PathBuf, u64, Vec<u64>, Vec<u8>)>, Vec<(PathBuf, PathBuf)>);

impl Image {
    /// Reads the files of `volume`.
    pub fn of(volume: &Path) -> Self {
        let (mut files, mut second_names, mut inodes) = (Vec::new(), Vec::new(), BTreeMap::new());
        for folder in ["", "records", "copies"] {
            for path in fs::read_dir(volume.join(folder)).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_file() && !path.ends_with("ballast") {
                    let name = path.strip_prefix(volume).unwrap().to_owned();
                    if let Some(first) = inodes.insert(fs::metadata(&path).unwrap().ino(), name.clone()) {
                        second_names.push((name, first));
                        continue;
                    }
                    let bytes = fs::read(&path).unwrap();
                    let pages = written(&bytes);
                    let content = pages.iter().flat_map(|page| page_of(&bytes, *page)).copied().collect();
                    files.push((name, bytes.len() as u64, pages, content));
                }
            }
        }
        Self(files, second_names)
    }

    /// The pages of a file that are not empty.
    pub fn pages(&self, name: &str) -> &[u64] {
        let file = self.0.iter().find(|(path, ..)| path.as_os_str() == name);
        file.map(|(_, _, pages, _)| &pages[..]).unwrap()
    }

    /// Makes a volume of them. A folder replaces its ballast, because taking and freeing the ballast would be most of
    /// the work.
    pub fn write(&self, volume: &Path) {
        for folder in ["", "records", "copies", "ballast"] {
            fs::DirBuilder::new().mode(0o700).create(volume.join(folder)).unwrap();
        }
        for (path, len, pages, content) in &self.0 {
            let file = File::options().create_new(true).write(true).mode(0o600).open(volume.join(path)).unwrap();
            file.set_len(*len).unwrap();
            let mut content = &content[..];
            for run in pages.chunk_by(|page, next| page + 1 == *next) {
                let (bytes, rest) = content.split_at(content.len().min(run.len() * BLOCK as usize));
                file.write_all_at(bytes, run[0] * BLOCK).unwrap();
                content = rest;
            }
        }
        for (name, first) in &self.1 {
            fs::hard_link(volume.join(first), volume.join(name)).unwrap();
        }
    }
}

/// A page of a file's bytes.
pub fn page_of(bytes: &[u8], page: u64) -> &[u8] {
    let at = (page * BLOCK) as usize;
    &bytes[at..bytes.len().min(at + BLOCK as usize)]
}

/// The pages of a file that are not empty.
pub fn written(bytes: &[u8]) -> Vec<u64> {
    let pages = 0..(bytes.len() as u64).div_ceil(BLOCK);
    pages.filter(|page| page_of(bytes, *page).iter().any(|byte| *byte != 0)).collect()
}

/// The record files with these names, in order.
pub fn named(volume: &Path, is_it: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(volume.join("records")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| is_it(path.file_name().unwrap().to_str().unwrap())).collect();
    paths.sort();
    paths
}

/// The bytes of record files: a part of each.
pub fn parts_of_tables(volume: &Path, structure: &str) -> Vec<Part> {
    let part_of = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        // A file without an end was not finished by RocksDB when it was closed.
        let (data, footer) = (table_data_end(&bytes)? as u64, bytes.len() as u64 - FOOTER_BYTES);
        let part = match structure {
            "record data" => 0..data,
            "record index" => data..footer,
            _ => footer..footer + FOOTER_BYTES,
        };
        Some((path, part))
    };
    named(volume, |name| name.ends_with(".sst")).into_iter().filter_map(part_of).collect()
}
