//! No request stands still for long because of other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::common::{Volume, contradictions, directory, file, names};
use oncefs_fs::{AllocateMode, AtimePolicy, Error, FileSystem, Ino, Privileges, RenameMode, WriteOrigin, XattrMode};
use oncefs_toolbox::Random;
use oncefs_toolbox::counts::gate_or_drill;
use oncefs_toolbox::waiting::eventually;

const BY: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };
/// Concurrent requests of each kind, in the gate and in the drill.
const REQUESTS: (u64, u64) = (100, 10_000);
const NAMES: usize = 3_000;

fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len / 8).flat_map(|_| random.word().to_le_bytes()).collect()
}

/// Repeats `work` until `over`.
fn until(over: &AtomicBool, work: impl FnMut(u64)) {
    (0..).take_while(|_| !over.load(SeqCst)).for_each(work);
}

/// A punch holds off the commit and takes the inode's lock to end. A thread that fills groups with that inode's
/// attributes waits for a commit, and must not hold the inode's lock.
#[test]
fn range_changes_and_publications_of_one_inode_do_not_wait_for_each_other_in_a_circle() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let ino = file(&fs, Ino::ROOT, "image").ino;
    let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    // Not in a scope, which would wait for threads that stand still, and the test could not report them.
    let again = |kind: usize, work: fn(&FileSystem, Ino)| {
        let (fs, done) = (fs.clone(), done.clone());
        let requests = gate_or_drill(REQUESTS.0, REQUESTS.1);
        // Each thread continues until the other has made all of its requests.
        std::thread::spawn(move || {
            while done.iter().any(|done| done.load(SeqCst) < requests) {
                work(&fs, ino);
                done[kind].fetch_add(1, SeqCst);
            }
        })
    };
    let threads = [again(0, write_and_punch), again(1, set_large_attribute)];
    eventually("both kinds of requests end", || threads.iter().all(std::thread::JoinHandle::is_finished));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    fs.close().unwrap();
}

fn write_and_punch(fs: &FileSystem, ino: Ino) {
    // Punched blocks are free again only after a commit.
    while let Err(error) = fs.write(ino, 0, &random_bytes(64 << 10, 1), BY) {
        assert!(matches!(error, Error::NoSpace), "{error}");
        fs.make_room().unwrap();
    }
    fs.fallocate(ino, 0, 64 << 10, AllocateMode::PunchHole, Privileges::Kept).unwrap();
}

fn set_large_attribute(fs: &FileSystem, ino: Ino) {
    fs.setxattr(ino, b"user.large", &[7; 60_000], XattrMode::Any, true).unwrap();
}

/// One copy is many requests, and the serving thread takes others in between.
#[test]
fn a_large_copy_ends_early_and_goes_on_where_it_ended() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let [source, target] = ["source", "target"].map(|name| file(&fs, Ino::ROOT, name).ino);
    let content = random_bytes(20 << 20, 2);
    for (at, part) in (0..).step_by(1 << 20).zip(content.chunks(1 << 20)) {
        fs.write(source, at, part, BY).unwrap();
    }
    fs.write(target, 0, b"head", BY).unwrap();
    let copy = |from: u64| {
        fs.copy_file_range(source, from, target, 4 + from, content.len() as u64 - from, Privileges::Kept).unwrap()
    };
    let first = copy(0);
    assert_eq!(first, 16 << 20, "a request copies 16 MiB through memory");
    assert_eq!(copy(first), 4 << 20, "and the next one the rest");
    let copied = fs.read(target, 4, content.len(), false).unwrap();
    assert!(*copied == *content, "the copy differs");
    let shared = fs.copy_file_range(source, 0, target, 4096, content.len() as u64, Privileges::Kept).unwrap();
    assert_eq!(shared, 20 << 20, "what is shared is not copied");
}

fn make_and_empty(fs: &FileSystem, name: &str) -> Ino {
    let dir = directory(fs, Ino::ROOT, name).ino;
    for n in 0..NAMES {
        file(fs, dir, &format!("n{n}"));
    }
    for n in 0..NAMES {
        if n == NAMES / 2 {
            fs.store().commit().unwrap();
        }
        let gone = fs.unlink(dir, format!("n{n}").as_bytes()).unwrap().unwrap();
        fs.forget(gone).unwrap();
    }
    dir
}

#[test]
fn a_directory_that_was_emptied_is_removed_and_replaced() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let emptied = make_and_empty(&fs, "emptied");
    let last = file(&fs, emptied, "last").ino;
    assert!(matches!(fs.rmdir(Ino::ROOT, b"emptied"), Err(Error::NotEmpty)));
    let fresh = directory(&fs, Ino::ROOT, "fresh").ino;
    let replace = || fs.rename(Ino::ROOT, b"fresh", Ino::ROOT, b"emptied", RenameMode::Replace);
    assert!(matches!(replace(), Err(Error::NotEmpty)));
    assert_eq!(fs.unlink(emptied, b"last").unwrap(), Some(last));
    assert_eq!(replace().unwrap(), Some(emptied));
    assert_eq!(fs.rmdir(Ino::ROOT, b"emptied").unwrap(), Some(fresh));
    assert!(names(&fs, Ino::ROOT).is_empty());
    assert!(contradictions(&fs).is_empty(), "{:#?}", contradictions(&fs));
}

/// The check whether a directory is empty takes no lock, so names come and go meanwhile.
#[test]
fn a_directory_is_removed_or_has_names_whatever_comes_and_goes_meanwhile() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fs, over) = (&*fs, &over);
        scope.spawn(move || {
            until(over, |_| {
                let Ok(dir) = fs.lookup(Ino::ROOT, b"dir") else { return };
                match fs.mknod(dir.ino, b"name", libc::S_IFREG | 0o644, 0, &crate::common::ROOT) {
                    Ok(made) => {
                        assert_eq!(fs.unlink(dir.ino, b"name").unwrap(), Some(made.ino));
                        fs.forget(made.ino).unwrap();
                    }
                    Err(error) => assert!(matches!(error, Error::NotFound | Error::Stale), "{error}"),
                }
            })
        });
        let mut removed = 0;
        until(over, |turn| {
            if turn % 2 == 0 {
                let made = fs.mkdir(Ino::ROOT, b"dir", 0o755, &crate::common::ROOT);
                assert!(matches!(made, Ok(_) | Err(Error::Exists)), "{made:?}");
            }
            match fs.rmdir(Ino::ROOT, b"dir") {
                Ok(Some(gone)) => {
                    fs.forget(gone).unwrap();
                    removed += 1;
                }
                other => assert!(matches!(other, Err(Error::NotEmpty | Error::NotFound)), "{other:?}"),
            }
            over.store(removed == 500, SeqCst);
        });
    });
    assert!(contradictions(&fs).is_empty(), "{:#?}", contradictions(&fs));
}
