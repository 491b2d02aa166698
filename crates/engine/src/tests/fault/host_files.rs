//! Real files of the host: shorter than they should be, empty, or gone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::*;
use crate::device::FileDevice;
use crate::{DataPlace, Profile, Store, VolumeSpec};

#[test]
fn a_file_that_ends_early_is_an_error_and_not_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short");
    fs::write(&path, [7; 6_000]).unwrap();
    let device = FileDevice::open_buffered(&path, true).unwrap();
    let mut bytes = [0; 4096];
    device.read_at(&mut bytes, 0).unwrap();
    for at in [4096, 8192] {
        let error = device.read_at(&mut bytes, at).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

/// A closed volume with one file of this many bytes.
pub(super) fn volume(dir: &Path) -> (PathBuf, Vec<u8>) {
    let volume = dir.join("volume");
    let spec = VolumeSpec {
        data_bytes: Some(64 << 20),
        data: DataPlace::File,
        profile: Profile::Desktop,
        log_bytes: 16 << 20,
        copies: None,
    };
    Store::format(&volume, &spec, [5; 64]).unwrap();
    let store = Store::open(&volume, &OpenOptions::new(32 << 20)).unwrap();
    let content = unique(1, 200 * BLOCK);
    assert_eq!(store.new_map(), MapId(1), "the first that is handed out");
    store.write(MapId(1), 0, &content, |_, _| ()).unwrap();
    store.close().unwrap();
    (volume, content)
}

/// All files of a volume, by their path in it; those of the records too.
pub(super) fn files(volume: &Path) -> Vec<PathBuf> {
    let of = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let all = of(volume).into_iter().chain(of(&volume.join("records")));
    let mut files: Vec<PathBuf> = all.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

pub(super) fn copy_volume(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// The message of a refusal. None: everything is there.
pub(super) fn open_and_compare(volume: &Path, content: &[u8]) -> Option<String> {
    let store = match Store::open(volume, &OpenOptions::new(32 << 20)) {
        Ok(store) => store,
        Err(error) => return Some(error.to_string()),
    };
    let read = store.read(MapId(1), 0, content.len()).map(|read| *read == *content);
    let report = store.check(true, &mut |_, _| ());
    drop(store.close());
    match (read, report) {
        (Ok(true), Ok(report)) if report.is_clean() => None,
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
        (read, report) => panic!("reading gives {read:?}, check {report:?}"),
    }
}

#[test]
fn a_file_of_a_volume_that_was_cut_emptied_or_removed_is_named_or_not_needed() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    let harmless = ["ballast", "lock", "hints", "skipped", "LOG", "LOCK", "IDENTITY"];
    let mut cases = 0;
    for path in files(&volume) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let len = path.metadata().unwrap().len();
        for cut in [None, Some(0), Some(len / 2), Some(len.saturating_sub(1))] {
            let damaged = dir.path().join("damaged");
            copy_volume(&volume, &damaged);
            // The tests in `copies` cover damage that copies restore.
            fs::remove_dir_all(damaged.join("copies")).unwrap();
            let target = damaged.join(path.strip_prefix(&volume).unwrap());
            match cut {
                None => fs::remove_file(&target).unwrap(),
                Some(len) => File::options().write(true).open(&target).unwrap().set_len(len).unwrap(),
            }
            let said = open_and_compare(&damaged, &content);
            println!("{name} of {len} bytes cut to {cut:?}: {}", said.as_deref().unwrap_or("everything is there"));
            if harmless.contains(&name.as_str()) {
                assert_eq!(said, None, "{name} is not needed");
            }
            if ["superblock", "data", "table", "log"].contains(&name.as_str()) {
                assert!(said.is_some(), "{name} is needed");
            }
            fs::remove_dir_all(&damaged).unwrap();
            cases += 1;
        }
    }
    assert!(cases >= 4 * 12, "only {cases} cases");
}
