//! Changes of any kind and size on the smallest log that a volume can have.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::{Volume, contradictions, directory, file};
use oncefs_fs::{AllocateMode, FileSystem, Ino, Privileges, RenameMode, SetAttributes, WriteOrigin, XattrMode};
use oncefs_toolbox::Random;
use oncefs_toolbox::counts::gate_or_drill;

const BY: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Turns of every thread, in the gate and in the drill.
const TURNS: (u64, u64) = (30, 1_000);

/// Makes a file of `bytes` bytes in which every block is an extent of its own: two blocks in turn.
fn single_blocks(fs: &FileSystem, name: &str, bytes: u64) -> Ino {
    let ino = file(fs, Ino::ROOT, name).ino;
    let mut random = Random::new(7);
    let pair: Vec<u8> = (0..1024).flat_map(|_| random.word().to_le_bytes()).collect();
    fs.write(ino, 0, &pair, BY).unwrap();
    let mut len = pair.len() as u64;
    while len < bytes {
        len += fs.copy_file_range(ino, 0, ino, len, len.min(bytes - len), Privileges::Kept).unwrap();
    }
    ino
}

fn cut(fs: &FileSystem, ino: Ino, size: u64) {
    fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

fn is_sound(volume: &Volume, fs: std::sync::Arc<FileSystem>) {
    assert_eq!(fs.store().failure(), None);
    fs.store().commit().unwrap();
    fs.store().close().unwrap();
    drop(fs);
    assert_eq!(contradictions(&volume.open_without_threads()), Vec::<String>::new());
}

#[test]
fn gigabytes_of_single_blocks_are_cloned_punched_cut_and_deleted() {
    let volume = Volume::with_smallest_log();
    let fs = volume.open();
    let ino = single_blocks(&fs, "single", 9 * GIB / 2);
    let size = |fs: &FileSystem| fs.getattr(ino).unwrap().size;
    assert_eq!(size(&fs), 9 * GIB / 2);
    fs.fallocate(ino, MIB + 100, GIB, AllocateMode::PunchHole, Privileges::Kept).unwrap();
    cut(&fs, ino, 5000);
    assert_eq!((size(&fs), fs.getattr(ino).unwrap().blocks), (5000, 2));
    let again = single_blocks(&fs, "again", 3 * GIB);
    assert_eq!(fs.unlink(Ino::ROOT, b"again").unwrap(), Some(again));
    fs.forget(again).unwrap();
    is_sound(&volume, fs);
}

/// Reports that a thread failed, so that the others do not wait for its turns.
struct ToldOnPanic<'a>(&'a AtomicBool);

impl Drop for ToldOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), SeqCst);
    }
}

#[test]
fn what_many_threads_change_at_a_time_fits_too() {
    let volume = Volume::with_smallest_log();
    let fs = volume.open();
    let turns = gate_or_drill(TURNS.0, TURNS.1);
    // Threads that still work, so that fast threads continue until slow ones have had their turns.
    let (behind, is_failed) = (AtomicUsize::new(6), AtomicBool::new(false));
    let is_over = |turn: u64| {
        if turn == turns {
            behind.fetch_sub(1, SeqCst);
        }
        behind.load(SeqCst) == 0 || is_failed.load(SeqCst)
    };
    let value = vec![7; 60_000];
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (fs, is_over, value, is_failed) = (&*fs, &is_over, &value, &is_failed);
            scope.spawn(move || {
                let _told = ToldOnPanic(is_failed);
                let dir = directory(fs, Ino::ROOT, &format!("dir{thread}")).ino;
                for n in (0..).take_while(|turn| !is_over(*turn)) {
                    let ino = file(fs, dir, &format!("{n}")).ino;
                    fs.setxattr(ino, b"user.large", value, XattrMode::Any, true).unwrap();
                    fs.setxattr(ino, b"user.other", value, XattrMode::Any, true).unwrap();
                    let gone = fs.rename(dir, format!("{n}").as_bytes(), dir, b"last", RenameMode::Replace).unwrap();
                    gone.into_iter().for_each(|gone| fs.forget(gone).unwrap());
                }
            });
            scope.spawn(move || {
                let _told = ToldOnPanic(is_failed);
                let ino = single_blocks(fs, &format!("single{thread}"), 16 * MIB);
                for _ in (0..).take_while(|turn| !is_over(*turn)) {
                    fs.fallocate(ino, 5 * MIB + 1, 8 * MIB, AllocateMode::PunchHole, Privileges::Kept).unwrap();
                    cut(fs, ino, 4 * MIB);
                    for at in [4 * MIB, 8 * MIB] {
                        let copied = fs.copy_file_range(ino, 0, ino, at, at, Privileges::Kept).unwrap();
                        assert!(copied > 0);
                    }
                }
            });
        }
    });
    is_sound(&volume, fs);
}
